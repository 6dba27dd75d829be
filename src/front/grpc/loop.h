// An event loop on a thread of its own, with its connections. Internal to front/grpc.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "front/grpc/session.h"
#include "front/http/tls.h"

namespace nereid::front {

class Loop;

// A mailbox of a loop: one wake-up for many replies.
class LoopMailbox final : public Mailbox {
 public:
  explicit LoopMailbox(Loop* loop) : loop_(loop) {}
  void post(Work work) override;
  void dispatch(Work work) override;
  // The loop is destroyed; work posted from now on is dropped.
  void close();

 private:
  friend class Loop;
  std::mutex mutex_;
  Loop* loop_;
  std::vector<Work> work_;
};

// One socket and its session. On its loop's thread only.
class GrpcConnection : public std::enable_shared_from_this<GrpcConnection> {
 public:
  GrpcConnection(boost::asio::ip::tcp::socket socket, Loop& loop);

  void start();
  void flush();
  void tick(Session::Time now);
  void drain();
  void end_calls(const Status& status);
  void close() noexcept;

 private:
  // Calls `body`; an exception (mostly bad_alloc) closes the connection.
  template <class Body>
  void guarded(Body&& body) noexcept;
  void wait_readable();
  void on_readable();
  void receive(std::string_view bytes);
  void fill();
  void write_all();
  void check_time(Session::Time now);
  bool send_some();  // false: the socket accepts no more now
  void mark_dirty();

  boost::asio::ip::tcp::socket socket_;
  Loop& loop_;
  std::string out_;
  size_t out_at_ = 0;
  bool waiting_to_write_ = false, dirty_ = false, closed_ = false;
  const Session::Time created_;
  Session::Time last_progress_;
  std::unique_ptr<TlsStream> tls_;  // null: plain text
  Session session_;
};

class Loop {
 public:
  explicit Loop(std::shared_ptr<GrpcShared> shared);
  ~Loop();  // stops the thread; closes all connections
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  boost::asio::io_context& context() { return context_; }
  // Any thread: takes over an accepted socket.
  void adopt(boost::asio::ip::tcp::socket socket);
  // Any thread: refuses further rpcs; each connection ends with its last one.
  void drain();
  // Any thread: running rpcs end with `status`.
  void end_calls(const Status& status);
  // Any thread: closes every connection.
  void abort();

 private:
  friend class LoopMailbox;
  friend class GrpcConnection;

  void run();
  void run_mail();
  void flush_dirty();
  void start_ticking();

  const std::shared_ptr<GrpcShared> shared_;
  boost::asio::io_context context_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_;
  boost::asio::steady_timer ticker_;
  bool ticking_ = false, draining_ = false;
  const std::shared_ptr<LoopMailbox> mailbox_;
  std::unordered_set<std::shared_ptr<GrpcConnection>> connections_;
  std::vector<std::shared_ptr<GrpcConnection>> dirty_;  // connections with output
  std::vector<char> buffer_;  // buffer of reads, shared by all connections
  std::string plain_;         // with TLS: decrypted bytes of a read
  std::thread thread_;
};

}  // namespace nereid::front
