// One client connection as a coroutine on an event loop: reads a request, dispatches it, writes its
// answer, repeats. Internal to front/http.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <vector>

#include "front/http/listen.h"
#include "front/http/listener.h"
#include "front/http/spool.h"
#include "front/http/tls.h"

namespace nereid::front {

// One event loop per thread; a request's state is never shared between threads.
struct IoThreads::Impl {
  explicit Impl(size_t num_threads);
  boost::asio::io_context& next();  // any thread; round robin

  std::vector<std::unique_ptr<boost::asio::io_context>> contexts;
  std::vector<std::thread> threads;
  std::atomic<size_t> turn{0};
};

class Connection;
class RequestParser;

// Shared by the accept loop, the connections and the Listener handle. Refers to no part of the
// IoThreads, which the last reference may outlive.
struct Listener::Impl {
  Impl(ListenerOptions opts, Router r) : options(std::move(opts)), router(std::move(r)) {}

  void remove(Connection* connection);
  // Strong references, so that the last one is never dropped under the mutex.
  std::vector<std::shared_ptr<Connection>> snapshot();

  const ListenerOptions options;
  const Router router;
  ListenerStats stats;
  int port = 0;
  std::atomic<bool> draining{false};

  std::mutex mutex;
  std::condition_variable drained;
  std::unordered_set<Connection*> connections;  // each alive while listed
  bool is_accepting = false;                    // the accept loop runs
};

// Held by the accept loop and the Listener handle.
struct Listener::Acceptor {
  explicit Acceptor(IoThreads::Impl& io) : threads(io), socket(io.next()) {}

  IoThreads::Impl& threads;
  boost::asio::ip::tcp::acceptor socket;  // on its own thread once started
};

// A connection's entry in its listener's list. It is the connection's first member, hence destroyed
// last: a connection that is no longer listed has no parts of the IoThreads left.
class Listing {
 public:
  Listing(std::shared_ptr<Listener::Impl> listener, Connection* connection);
  ~Listing();
  Listing(const Listing&) = delete;
  Listing& operator=(const Listing&) = delete;
  Listener::Impl* operator->() const { return listener_.get(); }
  const std::shared_ptr<Listener::Impl>& listener() const { return listener_; }

 private:
  const std::shared_ptr<Listener::Impl> listener_;
  Connection* const connection_;
};

// The state of one answer. Accessed on the connection's strand only, except for atomics; while it
// is open, by the thread that holds `turn`.
struct Answer {
  void open();
  void close();  // waits for a thread inside deliver()
  void count();  // updates the budget
  // Runs a handler's work; an exception becomes the answer, if it has not begun.
  void run(const std::function<void()>& work);

  std::mutex turn;
  bool is_open = false;  // the connection waits for a change of this answer, and no work is queued
  bool is_inside = false;  // a thread is inside deliver()

  std::atomic<int> num_posted{0};  // work queued for the strand
  Request request;
  Response head;
  std::deque<std::string> chunks;
  std::string rest;  // bytes that the socket did not accept; sent before all others
  size_t unread_bytes = 0;
  bool started = false;
  bool streaming = false;
  bool finished = false;
  int http_version = 11;
  bool keep_alive = false;                         // of the connection, after this answer
  bool head_written = false, all_written = false;  // of a stream; passed to the socket or `rest`
  // Read by any thread. The client left or stalled: no further output.
  std::atomic<bool> gone{false};
  // Read by any thread. The stopping server has ended it: the handler writes no more.
  std::atomic<bool> is_cut{false};
  std::string if_stopped;  // end of a stream in that case
  std::string shortage;    // the error, if there was no memory for the answer
  BudgetShare share;       // for all memory of the request
  size_t body_bytes = 0;   // of the request
  size_t held_bytes = 0;   // held by the handler besides
  std::function<void()> on_disconnect;
  std::vector<Exchange::OnWritten> on_written;
};

// A body on its way to a file.
struct BodySpool {
  Spool file;
  Status status;
  std::shared_ptr<const SpooledBody> body;  // once it is complete
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, std::shared_ptr<Listener::Impl> listener);

  void start();        // spawns run()
  void drain();        // any thread: close when idle, else after the running answer
  void cut();          // any thread: end the running answer with an error, then close
  void abort();        // any thread: close now
  void refuse_full();  // spawns: answer 503 and close

  auto executor() { return socket_.get_executor(); }
  bool is_on_strand();
  // Wakes the coroutine after a change of the answer (head, chunk, end); on the strand.
  void notify() { wake_.cancel(); }
  // Called by the thread that holds the answer's turn: sends the available part of a stream. Bytes
  // that the socket does not accept go to `rest`.
  void send_now(Answer& answer);
  // Calls the handler's on_disconnect, once.
  void give_up(Answer& answer);

 private:
  using Work = boost::asio::awaitable<void>;
  using Flag = boost::asio::awaitable<bool>;

  Work run();
  Flag serve_one();  // false: close the connection
  Flag read_request(Answer& answer);
  // Reads until the parser is done, `ec` is set, the spool fails, or the budget is full.
  Work receive_body(RequestParser& parser, Answer& answer, BodySpool& spool,
                    boost::system::error_code& ec);
  Work receive_more(RequestParser& parser, boost::system::error_code& ec);
  // Answers a request that could not be parsed, if it can be answered.
  Work refuse_unread(const Request& request, boost::system::error_code ec);
  Flag wait_first_byte();
  Work answer_request(std::shared_ptr<Answer> answer);
  Work write_whole(Answer& answer);
  Work write_stream(Answer& answer);
  bool may_open(const Answer& answer) const;
  std::string take_stream_text(Answer& answer);
  Work refuse(const Request& request, int status, std::string message);
  // Writes `text`, then `more`, which must outlive the call. False: the client is gone.
  Flag write_text(std::string text, std::string_view more = {});
  Flag write_bytes(std::string text, std::string_view more = {});  // unencrypted, also with TLS
  std::chrono::milliseconds write_timeout() const;                 // for kLeastProgressBytes
  Flag write_answer(Answer& answer, std::string text, std::string_view more = {});
  Work linger();
  Work wait_for_change();
  Work stop_watching();
  void watch();  // starts a wait that notices input and a disconnect
  void on_readable(boost::system::error_code ec);  // end of a wait for input
  // Reads at most `limit` bytes without waiting; true when buffer_ has got some.
  bool read_available(size_t limit);
  Flag receive();  // waits for bytes of a request; false: none came
  // Continues behind all work of this event loop: a client that sends without a pause is read and
  // answered in turns.
  Work let_others_go_on();
  Work answer_tls();  // sends TLS's own output
  void end_tls();
  void arm(std::chrono::milliseconds timeout);  // cancels socket operations after the timeout
  void arm_until(boost::asio::steady_timer::time_point deadline);
  void disarm();
  void start_timer();
  void cut_here();
  void close();

  const Listing listener_;
  boost::asio::ip::tcp::socket socket_;
  const int fd_;  // of socket_
  const Peer peer_;
  std::unique_ptr<TlsStream> tls_;  // null: plain text
  boost::asio::steady_timer wake_;  // used as a condition variable
  // Deadlines change with every request; the timer stays and checks the deadline when it fires, so
  // that most deadlines cost a store.
  static constexpr auto kNever = boost::asio::steady_timer::time_point::max();
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer::time_point timer_at_ = kNever, deadline_at_ = kNever;
  boost::beast::flat_buffer buffer_;  // received bytes not yet parsed
  size_t bytes_in_a_row_ = 0;         // received since other connections had a turn
  std::shared_ptr<Answer> current_;
  bool watching_ = false;
  bool timed_out_ = false;
  bool peer_gone_ = false;
  bool is_writing_ = false;  // a TLS record may be partly written
  bool is_cut_ = false;
  bool idle_ = true;
};

// The exchange for the handler of `answer`, which the connection keeps: dropping the
// exchange ends the answer.
ExchangePtr make_exchange(std::shared_ptr<Connection> connection, std::shared_ptr<Answer> answer,
                          std::shared_ptr<Listener::Impl> listener);

}  // namespace nereid::front
