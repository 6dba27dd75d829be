// Accept loop, thread pool and the stop sequence; see listener.h.
#include "front/http/listener.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "base/clock.h"
#include "base/contained.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "front/http/connection.h"
#include "front/http/listen.h"

namespace nereid::front {
namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

// Interval at which a wait checks `hurry`.
constexpr std::chrono::milliseconds kHurryInterval{20};

// Raises the soft limit of descriptors, by default 1024: each connection is one.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) log_debug("cannot raise the descriptor limit");
}

// Reports the end of the accept loop to the listener. A pending accept has a socket in another
// thread's context, so it must end before that context is destroyed.
struct AcceptEnd {
  Listener::Impl& listener;
  ~AcceptEnd() {
    std::lock_guard lock(listener.mutex);
    listener.is_accepting = false;
    listener.drained.notify_all();
  }
};

asio::awaitable<void> accept_loop(std::shared_ptr<Listener::Acceptor> acceptor,
                                  std::shared_ptr<Listener::Impl> listener) {
  const AcceptEnd end{*listener};
  asio::steady_timer pause(acceptor->socket.get_executor());
  while (acceptor->socket.is_open()) {
    boost::system::error_code ec;
    const auto executor = acceptor->threads.next().get_executor();
    auto token = asio::redirect_error(asio::use_awaitable, ec);
    tcp::socket socket = co_await acceptor->socket.async_accept(executor, token);
    if (!acceptor->socket.is_open()) co_return;
    if (ec) {
      // Out of descriptors or memory: connections that end free some.
      if (ec != asio::error::connection_aborted) {
        static LogLimit log;
        log.warn("accept on port {}: {}", listener->port, ec.message());
        pause.expires_after(std::chrono::milliseconds(100));
        boost::system::error_code ignored;
        auto wait_token = asio::redirect_error(asio::use_awaitable, ignored);
        co_await pause.async_wait(wait_token);
      }
      continue;
    }
    socket.set_option(tcp::no_delay(true), ec);
    const bool full = listener->stats.connections_open.load() >=
                      static_cast<int64_t>(listener->options.max_connections);
    std::shared_ptr<Connection> connection;
    try {
      connection = std::make_shared<Connection>(std::move(socket), listener);
    } catch (const std::bad_alloc&) {
      static LogLimit log;
      log.warn("port {}: no memory for a connection", listener->port);
      continue;
    }
    if (full) {
      ++listener->stats.connections_refused;
      connection->refuse_full();
    } else {
      ++listener->stats.connections_accepted;
      connection->start();
    }
  }
}

}  // namespace

IoThreads::Impl::Impl(size_t num_threads) {
  for (size_t i = 0; i < num_threads; ++i) {
    contexts.push_back(std::make_unique<asio::io_context>(/*concurrency_hint=*/1));
  }
  try {
    for (auto& context : contexts) {
      threads.emplace_back([io = context.get()] {
        auto guard = asio::make_work_guard(*io);
        run_contained("an HTTP event loop", [io] { io->run(); });
      });
    }
  } catch (const std::system_error&) {  // no more threads: the started ones must end first
    for (auto& context : contexts) context->stop();
    for (std::thread& t : threads) t.join();
    throw;
  }
}

asio::io_context& IoThreads::Impl::next() {
  return *contexts[turn.fetch_add(1, std::memory_order_relaxed) % contexts.size()];
}

IoThreads::IoThreads(int num_threads)
    : impl_(std::make_unique<Impl>(static_cast<size_t>(std::max(1, num_threads)))) {}

IoThreads::~IoThreads() { stop(); }

void IoThreads::stop() {
  for (auto& context : impl_->contexts) context->stop();
  for (std::thread& t : impl_->threads) {
    if (t.joinable()) t.join();
  }
}

StatusOr<std::unique_ptr<Listener>> Listener::start(IoThreads& threads, ListenerOptions options,
                                                    Router router) {
  if (options.port < 0 || options.port > 65535) {
    return invalid_argument("port {} is not in [0, 65535]", options.port);
  }
  raise_descriptor_limit();
  if (options.budget == nullptr) options.budget = std::make_shared<ByteBudget>();
  auto impl = std::make_shared<Impl>(std::move(options), std::move(router));
  auto acceptor = std::make_shared<Acceptor>(threads.impl());
  tcp::acceptor& socket = acceptor->socket;
  const ListenerOptions& o = impl->options;
  RETURN_IF_ERROR(listen_on(socket, o.host, o.port, o.reuse_port));
  impl->port = socket.local_endpoint().port();
  impl->is_accepting = true;
  asio::co_spawn(socket.get_executor(), accept_loop(acceptor, impl), asio::detached);
  return std::unique_ptr<Listener>(new Listener(std::move(impl), std::move(acceptor)));
}

Listener::~Listener() {
  begin_stop();
  if (!wait_drained(std::chrono::milliseconds(0))) abort_all();
}

int Listener::port() const { return impl_->port; }
const ListenerStats& Listener::stats() const { return impl_->stats; }

void Listener::Impl::remove(Connection* connection) {
  std::lock_guard lock(mutex);
  connections.erase(connection);
  drained.notify_all();
}

std::vector<std::shared_ptr<Connection>> Listener::Impl::snapshot() {
  std::vector<std::shared_ptr<Connection>> out;
  std::lock_guard lock(mutex);
  out.reserve(connections.size());
  for (Connection* c : connections) {
    if (auto strong = c->weak_from_this().lock()) out.push_back(std::move(strong));
  }
  return out;
}

void Listener::begin_stop() {
  if (impl_->draining.exchange(true)) return;
  asio::post(acceptor_->socket.get_executor(), [acceptor = acceptor_] {
    boost::system::error_code ec;
    acceptor->socket.close(ec);
  });
  for (const auto& c : impl_->snapshot()) c->drain();
}

bool Listener::wait_drained(std::chrono::milliseconds grace, const std::atomic<bool>* hurry) {
  const Time end = now() + grace;
  std::unique_lock lock(impl_->mutex);
  while (true) {
    const Time until = hurry == nullptr ? end : std::min(end, now() + kHurryInterval);
    if (impl_->drained.wait_until(
            lock, until, [&] { return impl_->connections.empty() && !impl_->is_accepting; })) {
      return true;
    }
    if (now() >= end || (hurry != nullptr && *hurry)) return false;
  }
}

void Listener::cut_all(std::chrono::milliseconds limit) {
  for (const auto& c : impl_->snapshot()) c->cut();
  wait_drained(limit);
}

void Listener::abort_all() {
  for (const auto& c : impl_->snapshot()) c->abort();
  wait_drained(std::chrono::seconds(1));
}

}  // namespace nereid::front
