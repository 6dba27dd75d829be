// Puts routers, listeners and threads together; see server.h.
#include "front/server.h"

#include <atomic>
#include <functional>
#include <regex>
#include <utility>

#include "base/log.h"
#include "front/http/listener.h"
#include "front/http/router.h"
#include "front/kserve/routes.h"
#include "front/metrics/process_metrics.h"
#include "front/metrics/routes.h"
#include "front/openai/error.h"
#include "front/openai/routes.h"

namespace nereid::front {
namespace {

// The body shape that clients of that path expect.
Response error_page(const Request& request, int status, std::string_view message) {
  const std::string_view path = request.path;
  if (path == "/v1" || path.starts_with("/v1/")) {
    return openai_error({status, std::string(message), "", ""});
  }
  return kserve_error(status, message);
}

}  // namespace

namespace {

StatusOr<std::function<bool(const std::string&)>> header_filter(const std::string& pattern) {
  try {
    const std::regex regex(pattern, std::regex::ECMAScript | std::regex::icase);
    return [regex](const std::string& name) { return std::regex_match(name, regex); };
  } catch (const std::regex_error& e) {
    return invalid_argument("header forward pattern '{}': {}", pattern, e.what());
  }
}

}  // namespace

struct HttpServer::Impl {
  std::unique_ptr<IoThreads> threads;
  std::unique_ptr<Listener> http;
  std::unique_ptr<Listener> metrics;
  std::shared_ptr<std::atomic<bool>> draining = std::make_shared<std::atomic<bool>>(false);
  int http_port = -1;
  int metrics_port = -1;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

StatusOr<std::unique_ptr<HttpServer>> HttpServer::start(TRITONSERVER_Server* server,
                                                        HttpOptions options) {
  if (options.threads < 1 || options.threads > 1024) {
    return invalid_argument("http threads: {} is not in [1, 1024]", options.threads);
  }
  auto impl = std::make_unique<Impl>();
  impl->threads = std::make_unique<IoThreads>(options.threads);
  Router router(error_page);
  auto draining = impl->draining;
  KserveOptions kserve;
  kserve.max_body_bytes = options.max_body_bytes;
  kserve.extensions = options.extensions;
  if (!options.header_forward_pattern.empty()) {
    ASSIGN_OR_RETURN(kserve.forwards_header, header_filter(options.header_forward_pattern));
  }
  add_kserve_routes(
      router, server, [draining] { return draining->load(); }, kserve);
  add_openai_routes(router, server, options.model_name);

  ListenerOptions http;
  http.host = options.host;
  http.port = options.http_port;
  http.max_body_bytes = options.max_body_bytes;
  http.max_connections = options.max_connections;
  http.idle_timeout = options.idle_timeout;
  http.header_timeout = options.header_timeout;
  http.body_timeout = options.body_timeout;
  http.write_timeout = options.write_timeout;
  ASSIGN_OR_RETURN(impl->http, Listener::start(*impl->threads, http, std::move(router)));
  impl->http_port = impl->http->port();

  if (options.metrics_port >= 0) {
    Router metrics_router(error_page);
    // The metrics listener is destroyed first, so the pointer outlives its handlers.
    add_metrics_routes(metrics_router, server,
                       [stats = &impl->http->stats()] { return http_metrics_text(*stats); });
    ListenerOptions metrics = http;
    metrics.port = options.metrics_port;
    metrics.max_connections = 256;
    metrics.max_body_bytes = 64 << 10;
    ASSIGN_OR_RETURN(impl->metrics,
                     Listener::start(*impl->threads, metrics, std::move(metrics_router)));
    impl->metrics_port = impl->metrics->port();
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::~HttpServer() { stop(std::chrono::milliseconds(0)); }

int HttpServer::http_port() const { return impl_->http_port; }
int HttpServer::metrics_port() const { return impl_->metrics_port; }

void HttpServer::stop(std::chrono::milliseconds grace) {
  if (!impl_->threads) return;
  impl_->draining->store(true);
  impl_->http->begin_stop();
  bool drained = impl_->http->wait_drained(grace);
  if (!drained) {
    log_info("cancelling requests that are still running");
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
    // A reply may still come and would post to these threads: better to leave them running.
    log_error("requests did not end in time; their connections are abandoned");
    static_cast<void>(impl_->threads.release());
    static_cast<void>(impl_->http.release());
    return;
  }
  impl_->http.reset();
  impl_->threads.reset();
}

}  // namespace nereid::front
