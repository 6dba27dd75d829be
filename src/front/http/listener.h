// A listening HTTP/1.1 port: accepts connections, enforces limits and timeouts, passes complete
// requests to a Router and drains on stop. Boost.Beast is included only by the .cc files.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "front/http/message.h"
#include "front/http/router.h"
#include "front/protection/byte_budget.h"

namespace nereid::front {

class TlsContext;

struct ListenerOptions {
  std::string host = "0.0.0.0";
  int port = 0;             // 0: any free one
  bool reuse_port = false;  // other processes may listen on the same port
  size_t max_header_bytes = 16 << 10;
  size_t max_body_bytes = size_t{64} << 20;
  size_t max_connections = 16384;                   // beyond: 503 and close
  size_t max_unread_bytes = size_t{8} << 20;        // streamed text that the client has not read
  std::shared_ptr<ByteBudget> budget;               // of all front ends; null: own
  std::shared_ptr<TlsContext> tls;                  // null: plain text
  std::chrono::milliseconds idle_timeout{75000};    // between requests
  std::chrono::milliseconds header_timeout{10000};  // first byte to end of header
  std::chrono::milliseconds body_timeout{30000};    // plus 1 s per 64 KiB received
  std::chrono::milliseconds write_timeout{30000};   // for the client to read 64 KiB, or the rest
};

// Counters of one listener; any thread may read.
struct ListenerStats {
  std::atomic<uint64_t> connections_accepted{0};
  std::atomic<uint64_t> connections_refused{0};
  std::atomic<int64_t> connections_open{0};
  std::atomic<int64_t> requests_active{0};
  std::atomic<uint64_t> disconnects{0};  // clients that left before their answer was complete
  std::array<std::atomic<uint64_t>, 6> responses{};  // by first digit of the status

  void count_response(int status) {
    const size_t digit = static_cast<size_t>(status) / 100;
    if (digit < responses.size()) ++responses[digit];
  }
};

// The threads that run connections; several listeners may share them.
class IoThreads {
 public:
  explicit IoThreads(int num_threads);
  ~IoThreads();  // stops the threads; queued work is dropped
  IoThreads(const IoThreads&) = delete;
  IoThreads& operator=(const IoThreads&) = delete;

  void stop();

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

class Listener {
 public:
  // InvalidArgument: bad host; Unavailable: address in use or not bindable. `threads` must
  // outlive the listener.
  static StatusOr<std::unique_ptr<Listener>> start(IoThreads& threads, ListenerOptions options,
                                                   Router router);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const;
  const ListenerStats& stats() const;

  // Closes the port and idle connections; running answers may finish, and requests that still
  // arrive on kept connections get 503. Returns at once.
  void begin_stop();
  // Waits until every connection has ended, at most `grace` or until `hurry`, if given, becomes
  // true. True when all have ended.
  bool wait_drained(std::chrono::milliseconds grace, const std::atomic<bool>* hurry = nullptr);
  // Ends the rest with an error (on_disconnect runs): streams with the text given to
  // begin_stream(), other requests with 503. Waits for that at most `limit`.
  void cut_all(std::chrono::milliseconds limit);
  // Closes the rest (on_disconnect runs); waits for that at most a second.
  void abort_all();

  struct Impl;
  struct Acceptor;

 private:
  Listener(std::shared_ptr<Impl> impl, std::shared_ptr<Acceptor> acceptor)
      : impl_(std::move(impl)), acceptor_(std::move(acceptor)) {}
  std::shared_ptr<Impl> impl_;
  std::shared_ptr<Acceptor> acceptor_;
};

}  // namespace nereid::front
