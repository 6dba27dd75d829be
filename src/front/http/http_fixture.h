// A listener with a few routes, and a client socket, for tests of the transport.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "front/http/listener.h"
#include "front/http/workers.h"
#include "front/protection/budget_memory.h"

namespace nereid::front {

// A blocking client socket.
class Client {
 public:
  explicit Client(int port) {
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { close(); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  bool connected() const { return connected_; }
  // Sends the part of the beginning that the kernel accepts without a reader; returns the rest.
  std::string_view send_at_once(std::string_view text) {
    const ssize_t n = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return text.substr(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  }
  void send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      text.remove_prefix(static_cast<size_t>(n));
    }
  }
  void half_close() { shutdown(fd_, SHUT_WR); }
  // Reads one byte of the client's output, in the server's place.
  bool steal_byte() const {
    char byte;
    return recv(server_fd(), &byte, 1, MSG_DONTWAIT) == 1;
  }
  // Waits until bytes sent here are readable by the server.
  void wait_arrived() const {
    pollfd p{server_fd(), POLLIN, 0};
    while (poll(&p, 1, -1) < 0) continue;
  }

  // Reads until `until` was seen or the server closed; "" `until` means to the close.
  std::string read(std::string_view until = "", int timeout_ms = 60000) {
    std::string out;
    char buffer[4096];
    while (until.empty() || out.find(until) == std::string::npos) {
      pollfd p{fd_, POLLIN, 0};
      if (poll(&p, 1, timeout_ms) <= 0) return out + "<timeout>";
      const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) return out;
      out.append(buffer, static_cast<size_t>(n));
    }
    return out;
  }

 private:
  // The server's end of the connection, which is in this process; -1: none.
  int server_fd() const {
    sockaddr_in own{}, peer{};
    socklen_t size = sizeof own;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&own), &size);
    for (int fd = 0; fd < 1024; ++fd) {
      size = sizeof peer;
      if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
          peer.sin_port == own.sin_port)
        return fd;
    }
    return -1;
  }

  int fd_ = -1;
  bool connected_ = false;
};

// Traits of routes whose protection is not tested.
inline constexpr RouteTraits kOpen = {Api::kMetadata, Access::kAnybody, Cost::kNothing,
                                      ErrorShape::kKserve};

// Options without timeouts.
inline ListenerOptions patient() {
  ListenerOptions options;
  options.idle_timeout = options.header_timeout = std::chrono::hours(1);
  options.body_timeout = options.write_timeout = std::chrono::hours(1);
  return options;
}

class HttpTest : public ::testing::Test {
 protected:
  explicit HttpTest(int num_threads = 2) : threads_(num_threads) {}

  void start(ListenerOptions options = patient()) {
    options.host = "127.0.0.1";
    Router router([](ErrorShape, int status, std::string_view message) {
      return Response{status, "text/plain", {}, std::string(message)};
    });
    router.add("GET", "/hello", kOpen, [](const ExchangePtr& x) {
      x->send({200, "text/plain", {}, "hi?" + x->request().query});
    });
    router.add("POST", "/echo", kOpen, [](const ExchangePtr& x) {
      x->send({200, "text/plain", {}, x->request().body});
    });
    router.add("POST", "/order", kOpen, [this](const ExchangePtr& x) {
      {
        std::lock_guard lock(mutex_);
        body_sizes_.push_back(x->request().body.size());
      }
      x->send({200, "text/plain", {}, "done"});
    });
    router.add("GET", "/note", kOpen, [](const ExchangePtr& x) {
      const std::string* note = find_header(x->request().headers, "x-note");
      x->send({200, "text/plain", {}, note == nullptr ? "none" : "[" + *note + "]"});
    });
    router.add("GET", "/drop", kOpen, [](const ExchangePtr&) {});
    const auto lack = [] { throw BudgetIsFull(unavailable("no room")); };
    router.add("GET", "/lack/here", kOpen, [lack](const ExchangePtr&) { lack(); });
    router.add("GET", "/lack/later", kOpen,
               [lack](const ExchangePtr& x) { x->post([x, lack] { lack(); }); });
    router.add("GET", "/lack/worker", kOpen, [this, lack](const ExchangePtr& x) {
      const auto work = [lack] { return lack(), 0; };
      workers_.run(x, false, work, [x](int) { x->send({200, "text/plain", {}, "worked"}); });
    });
    router.add("GET", "/hold", kOpen, [this](const ExchangePtr& x) { hold(x); });
    router.add("GET", "/block", kOpen, [this](const ExchangePtr& x) {
      hold(x);
      gate_.wait();
    });
    router.add("GET", "/block_again", kOpen, [this](const ExchangePtr& x) {
      hold(x);
      gate_again_.wait();
    });
    router.add("GET", "/open", kOpen, [this](const ExchangePtr& x) {
      x->begin_stream({200, "text/plain", {}, ""});
      hold(x);
    });
    router.add("GET", "/stream", kOpen, [](const ExchangePtr& x) {
      x->begin_stream({200, "text/plain", {}, ""});
      x->write("one");
      x->post([x] {
        x->write("two");
        x->end();
      });
    });
    auto listener = Listener::start(threads_, options, std::move(router));
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
  }

  // Keeps the exchange for the test to answer and records a disconnect.
  void hold(const ExchangePtr& x) {
    x->on_disconnect([this] {
      std::lock_guard lock(mutex_);
      disconnected_ = true;
      changed_.notify_all();
    });
    std::lock_guard lock(mutex_);
    held_ = x;
    changed_.notify_all();
  }
  ExchangePtr wait_held() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60), [&] { return held_ != nullptr; });
    return std::exchange(held_, nullptr);
  }
  bool is_disconnected() {
    std::lock_guard lock(mutex_);
    return disconnected_;
  }
  bool wait_disconnected() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return disconnected_; });
  }

  // Body sizes of the requests to /order since the last call.
  std::vector<size_t> take_body_sizes() {
    std::lock_guard lock(mutex_);
    return std::exchange(body_sizes_, {});
  }

  // Waits until the port accepts no more connections.
  static void wait_closed(int port) {
    for (int i = 0; i < 60000 && Client(port).connected(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_FALSE(Client(port).connected());
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  ExchangePtr held_;
  bool disconnected_ = false;
  std::vector<size_t> body_sizes_;      // of /order, for one thread only
  std::latch gate_{1}, gate_again_{1};  // of /block and /block_again
  Workers workers_{1};
  IoThreads threads_;
  std::unique_ptr<Listener> listener_;
};

struct OneThreadHttpTest : HttpTest {
  OneThreadHttpTest() : HttpTest(1) {}
};

}  // namespace nereid::front
