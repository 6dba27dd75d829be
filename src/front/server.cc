// Assembles routers, listeners and threads; see server.h.
#include "front/server.h"

#include <algorithm>
#include <utility>

#include "base/countdown.h"
#include "base/log.h"
#include "front/access.h"
#include "front/http/header_filter.h"
#include "front/http/listener.h"
#include "front/http/router.h"
#include "front/http/tls.h"
#include "front/http/workers.h"
#include "front/kserve/routes.h"
#include "front/kserve/shared_memory.h"
#include "front/metrics/process_metrics.h"
#include "front/metrics/routes.h"
#include "front/openai/routes.h"

namespace nereid::front {
namespace {

// Time for clients to read the end of answers that the server cuts.
constexpr std::chrono::milliseconds kToReadTheEnd{300};

}  // namespace

// For requests and replies of megabytes; more threads would take cores from the models.
constexpr int kWorkers = 2;

struct HttpServer::Impl {
  std::unique_ptr<IoThreads> threads;
  std::unique_ptr<Workers> workers;  // destroyed before the threads that it posts to
  std::unique_ptr<Listener> http;
  std::unique_ptr<Listener> metrics;
  std::shared_ptr<std::atomic<bool>> draining = std::make_shared<std::atomic<bool>>(false);
  int http_port = -1;
  int metrics_port = -1;
  std::vector<Router::Entry> routes;
};

namespace {

// Without budget and TLS, which the caller adds.
ListenerOptions listener_options(const HttpOptions& options) {
  ListenerOptions http;
  http.host = options.host;
  http.port = options.http_port;
  http.reuse_port = options.reuse_port;
  http.max_body_bytes = options.max_body_bytes;
  http.max_connections = options.max_connections;
  http.idle_timeout = options.idle_timeout;
  http.header_timeout = options.header_timeout;
  http.body_timeout = options.body_timeout;
  http.write_timeout = options.write_timeout;
  return http;
}

// Without budget and workers, which the caller adds. InvalidArgument: the pattern of headers.
StatusOr<KserveOptions> kserve_options(const HttpOptions& options, TRITONSERVER_Server* server) {
  KserveOptions kserve;
  kserve.max_body_bytes = options.max_body_bytes;
  kserve.extensions = options.extensions;
  ASSIGN_OR_RETURN(kserve.forwards_header, header_filter(options.header_forward_pattern));
  kserve.allow_protocol = options.allow_kserve;
  kserve.infers_decoupled = options.infers_decoupled;
  kserve.allow_shared_memory = options.allow_shared_memory;
  kserve.tracer = options.tracer;
  if (kserve.tracer == nullptr) {
    ASSIGN_OR_RETURN(kserve.tracer, Tracer::create(server, {}));
  }
  return kserve;
}

// Options of the metrics port, from those of the API port (`http`).
ListenerOptions metrics_options(const HttpOptions& options, ListenerOptions http) {
  if (!options.metrics_use_tls) http.tls = nullptr;
  if (!options.metrics_host.empty()) http.host = options.metrics_host;
  http.port = options.metrics_port;
  http.reuse_port = false;
  http.max_connections = 256;
  http.max_body_bytes = 64 << 10;
  return http;
}

}  // namespace

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

StatusOr<std::unique_ptr<HttpServer>> HttpServer::start(TRITONSERVER_Server* server,
                                                        HttpOptions options) {
  if (options.threads < 1 || options.threads > 1024) {
    return invalid_argument("http threads: {} is not in [1, 1024]", options.threads);
  }
  auto impl = std::make_unique<Impl>();
  impl->threads = std::make_unique<IoThreads>(options.threads);
  Router router(error_in_shape);
  auto draining = impl->draining;
  const auto budget = options.budget ? options.budget : std::make_shared<ByteBudget>();
  ASSIGN_OR_RETURN(KserveOptions kserve, kserve_options(options, server));
  kserve.budget = budget;
  impl->workers = std::make_unique<Workers>(kWorkers);
  kserve.workers = impl->workers.get();
  add_kserve_routes(
      router, server, [draining] { return draining->load(); }, kserve);
  RETURN_IF_ERROR(check(options.openai));
  add_openai_routes(router, server, options.openai, kserve.tracer, *impl->workers, budget);

  // Set to the listener's stats once it exists.
  const auto stats = std::make_shared<std::atomic<const ListenerStats*>>(nullptr);
  const auto front_metrics = [stats, grpc = options.grpc_stats, budget] {
    const ListenerStats* http = stats->load();
    return (http ? http_metrics_text(*http) : "") + (grpc ? grpc_metrics_text(*grpc) : "") +
           front_metrics_text(*budget);
  };
  add_metrics_routes(router, server, *impl->workers, front_metrics);

  ListenerOptions http = listener_options(options);
  http.budget = budget;
  if (options.tls.enabled) {
    ASSIGN_OR_RETURN(http.tls, TlsContext::create(options.tls, kAlpnHttp));
  }
  if (options.http_port >= 0) {
    RETURN_IF_ERROR(set_access(options, router));
    impl->routes = router.entries();
    ASSIGN_OR_RETURN(impl->http, Listener::start(*impl->threads, http, std::move(router)));
    impl->http_port = impl->http->port();
    stats->store(&impl->http->stats());
  }

  if (options.metrics_port >= 0) {
    Router metrics_router(error_in_shape);
    const ListenerOptions listens = metrics_options(options, http);
    RETURN_IF_ERROR(set_metrics_access(options, listens.host, metrics_router));
    // The metrics listener is destroyed first, so the pointer outlives its handlers.
    add_metrics_routes(metrics_router, server, *impl->workers, front_metrics);
    ASSIGN_OR_RETURN(impl->metrics,
                     Listener::start(*impl->threads, listens, std::move(metrics_router)));
    impl->metrics_port = impl->metrics->port();
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::~HttpServer() { stop(std::chrono::milliseconds(0)); }

int HttpServer::http_port() const { return impl_->http_port; }
int HttpServer::metrics_port() const { return impl_->metrics_port; }
const std::vector<Router::Entry>& HttpServer::routes() const { return impl_->routes; }

void HttpServer::stop(std::chrono::milliseconds grace, const std::atomic<bool>* hurry) {
  if (!impl_->threads) return;
  impl_->draining->store(true);
  if (impl_->http) impl_->http->begin_stop();
  bool drained = true;
  if (impl_->http) {
    const Countdown countdown(
        now() + grace, [&connections = impl_->http->stats().connections_open](int64_t seconds) {
          if (connections == 0) return;
          log_info("Timeout {}: Found {} HTTP service connections", seconds, connections.load());
        });
    drained = impl_->http->wait_drained(grace, hurry);
  }
  if (!drained) {
    log_info("ending requests that are still running");
    impl_->http->cut_all(kToReadTheEnd);
    impl_->http->abort_all();
    // Cancelled requests still end with a response of the core.
    drained = impl_->http->wait_drained(std::chrono::seconds(5));
  }
  if (impl_->metrics) {
    impl_->metrics->begin_stop();
    impl_->metrics->abort_all();
    impl_->metrics.reset();
  }
  if (!drained) {
    // A late reply would post to these threads, so they are left running.
    log_error("requests did not end in time; their connections are abandoned");
    static_cast<void>(impl_->threads.release());
    static_cast<void>(impl_->http.release());
    static_cast<void>(impl_->workers.release());
    return;
  }
  impl_->workers.reset();  // the metrics page refers to the listener
  impl_->http.reset();
  impl_->threads.reset();
}

}  // namespace nereid::front
