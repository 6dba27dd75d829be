// Accepts connections, distributes them over the loops, and stops them; see server.h.
#include "front/grpc/server.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "base/countdown.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "front/grpc/loop.h"
#include "front/grpc/service.h"
#include "front/http/listen.h"
#include "front/http/tls.h"

namespace nereid::front {
namespace asio = boost::asio;
using asio::ip::tcp;
using error_code = boost::system::error_code;

namespace {

// Time for clients to read the end of answers that the server cuts.
constexpr std::chrono::milliseconds kToReadTheEnd{300};
// As many as for HTTP.
constexpr int kWorkers = 2;

using SharedPtr = std::shared_ptr<GrpcShared>;

Status check_options(const GrpcOptions& o) {
  if (o.port < 0 || o.port > 65535) return invalid_argument("port {} is not in [0, 65535]", o.port);
  if (o.threads < 1 || o.threads > 128) {
    return invalid_argument("grpc infer threads: {} is not in [1, 128]", o.threads);
  }
  if (o.max_streams < 1 || o.max_streams > (1u << 20)) {
    return invalid_argument("grpc streams of a connection: {} is not in [1, {}]", o.max_streams,
                            1u << 20);
  }
  if (o.max_message_bytes < 1 || o.max_message_bytes > INT32_MAX) {
    return invalid_argument("grpc message size: {} is not in [1, {}]", o.max_message_bytes,
                            INT32_MAX);
  }
  constexpr std::string_view kLevels[] = {"none", "low", "medium", "high"};
  if (std::find(std::begin(kLevels), std::end(kLevels), o.response_compression_level) ==
      std::end(kLevels)) {
    return invalid_argument("grpc response compression level '{}' is not one of {}",
                            o.response_compression_level, fmt::join(kLevels, ", "));
  }
  if (o.keepalive_time.count() < 1 || o.keepalive_timeout.count() < 1) {
    return invalid_argument("grpc keepalive time and timeout must be at least 1 ms, not {} and {}",
                            o.keepalive_time.count(), o.keepalive_timeout.count());
  }
  return ok();
}

}  // namespace

struct GrpcServer::Impl {
  // Accepts on the first loop's thread; kept alive by its pending accept.
  struct Acceptor : std::enable_shared_from_this<Acceptor> {
    Acceptor(asio::io_context& io, SharedPtr s) : socket(io), pause(io), shared(std::move(s)) {}

    void accept_next() {
      Loop* loop = loops[next++ % loops.size()];
      socket.async_accept(loop->context(),
                          [self = shared_from_this(), loop](error_code ec, tcp::socket accepted) {
                            if (!self->socket.is_open()) return;
                            if (!ec) {
                              self->take(*loop, std::move(accepted));
                            } else if (ec != asio::error::connection_aborted) {
                              // Out of descriptors or memory: connections that end free some.
                              static LogLimit log;
                              log.warn("accept on the gRPC port: {}", ec.message());
                              self->pause.expires_after(std::chrono::milliseconds(100));
                              self->pause.async_wait([self](error_code) {
                                if (self->socket.is_open()) self->accept_next();
                              });
                              return;
                            }
                            self->accept_next();
                          });
    }

    void take(Loop& loop, tcp::socket accepted) {
      GrpcStats& stats = *shared->stats;
      if (stats.connections_open >= static_cast<int64_t>(shared->options.max_connections)) {
        ++stats.connections_refused;
        return;
      }
      ++stats.connections_accepted;
      loop.adopt(std::move(accepted));
    }

    tcp::acceptor socket;
    asio::steady_timer pause;
    SharedPtr shared;
    std::vector<Loop*> loops;
    size_t next = 0;
  };

  bool wait_until(std::chrono::milliseconds limit, const std::function<bool()>& condition,
                  const std::atomic<bool>* hurry = nullptr) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
      if (std::chrono::steady_clock::now() >= end || (hurry != nullptr && *hurry)) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

  SharedPtr shared;
  std::vector<std::unique_ptr<Loop>> loops;
  std::shared_ptr<Acceptor> acceptor;
  int port = 0;
};

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::start(TRITONSERVER_Server* server,
                                                        GrpcOptions options) {
  RETURN_IF_ERROR(check_options(options));
  auto impl = std::make_unique<Impl>();
  impl->shared = std::make_shared<GrpcShared>();
  GrpcShared& shared = *impl->shared;
  if (options.budget == nullptr) options.budget = shared.budget;
  shared.budget = options.budget;
  shared.workers = std::make_unique<Workers>(kWorkers);
  ASSIGN_OR_RETURN(
      shared.methods,
      make_methods(
          server, options, [s = &shared.stopping] { return s->load(); }, shared.workers.get()));
  if (options.tls.enabled) {
    ASSIGN_OR_RETURN(shared.tls, TlsContext::create(options.tls, kAlpnGrpc));
  }
  shared.options = std::move(options);
  for (int i = 0; i < shared.options.threads; ++i) {
    impl->loops.push_back(std::make_unique<Loop>(impl->shared));
  }
  asio::io_context& context = impl->loops.front()->context();
  impl->acceptor = std::make_shared<Impl::Acceptor>(context, impl->shared);
  for (const auto& loop : impl->loops) impl->acceptor->loops.push_back(loop.get());

  const GrpcOptions& o = shared.options;
  tcp::acceptor& socket = impl->acceptor->socket;
  RETURN_IF_ERROR(listen_on(socket, o.host, o.port, o.reuse_port));
  impl->port = socket.local_endpoint().port();
  asio::post(context, [acceptor = impl->acceptor] { acceptor->accept_next(); });
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

GrpcServer::~GrpcServer() { stop(std::chrono::milliseconds(0)); }

int GrpcServer::port() const { return impl_->port; }
std::shared_ptr<const GrpcStats> GrpcServer::stats() const { return impl_->shared->stats; }

void GrpcServer::stop(std::chrono::milliseconds grace, const std::atomic<bool>* hurry) {
  if (impl_->loops.empty()) return;
  impl_->shared->stopping = true;
  asio::post(impl_->loops.front()->context(), [acceptor = impl_->acceptor] {
    error_code ec;
    acceptor->socket.close(ec);
    acceptor->pause.cancel();
  });
  const GrpcStats& stats = *impl_->shared->stats;
  for (const auto& loop : impl_->loops) loop->drain();
  std::optional<Countdown> countdown;
  countdown.emplace(now() + grace, [&stats](int64_t seconds) {
    const int64_t left = stats.connections_open + stats.calls_active;
    if (left == 0) return;
    log_info("Timeout {}: Found {} gRPC service connections and inference handlers", seconds, left);
  });
  // A connection ends when its last answer is sent.
  const auto none_open = [&] { return stats.calls_active == 0 && stats.connections_open == 0; };
  const bool drained = impl_->wait_until(grace, none_open, hurry);
  countdown.reset();  // its log lines are about these calls
  if (!drained) {
    log_info("ending gRPC requests that are still running");
    for (const auto& loop : impl_->loops) loop->end_calls(unavailable("Server exiting"));
    impl_->wait_until(kToReadTheEnd, none_open);
  }
  for (const auto& loop : impl_->loops) loop->abort();
  // Cancelled requests still end with a response of the core.
  if (!impl_->wait_until(std::chrono::seconds(5), none_open)) {
    // A late reply would post to the loops, so they are left running.
    log_error("gRPC requests did not end in time; their connections are abandoned");
    for (auto& loop : impl_->loops) static_cast<void>(loop.release());
  }
  // A pending accept holds a socket of another loop, so it must end before any loop is destroyed.
  const auto none_pending = [&] { return impl_->acceptor.use_count() == 1; };
  if (!impl_->wait_until(std::chrono::seconds(5), none_pending)) {
    log_error("the gRPC port's accept did not end in time; its loops are abandoned");
    for (auto& loop : impl_->loops) static_cast<void>(loop.release());
  }
  impl_->acceptor.reset();
  impl_->loops.clear();
}

}  // namespace nereid::front
