// One client connection as a coroutine on one event loop: read a request, dispatch it, write its
// answer, repeat. Internal to front/http.
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
#include "front/http/tls.h"

namespace nereid::front {

// An event loop for each thread: nothing of a request is shared between threads.
struct IoThreads::Impl {
  explicit Impl(size_t num_threads);
  boost::asio::io_context& next();  // any thread; takes turns

  std::vector<std::unique_ptr<boost::asio::io_context>> contexts;
  std::vector<std::thread> threads;
  std::atomic<size_t> turn{0};
};

class Connection;
class RequestParser;

// Shared by the accept loop, the connections and the Listener handle. Holds nothing of the
// IoThreads: the last reference may outlive them.
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

// A connection's entry in its listener's list. The first member of a connection, hence destroyed
// last: nothing that belongs to the IoThreads is left of a connection that is no longer listed.
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

// The state of one answer. Touched on the connection's strand only, but for what is atomic; while
// it is open, by the thread that has `turn`.
struct Answer {
  void open();
  void close();  // waits for a thread that is inside
  void count();  // tells the budget
  // Does a handler's work; what that throws becomes the answer, if it has not begun.
  void run(const std::function<void()>& work);

  std::mutex turn;
  bool is_open = false;    // the connection waits for news of this answer, and nothing is queued
  bool is_inside = false;  // a thread delivers some

  std::atomic<int> num_posted{0};  // work on its way to the strand
  Request request;
  Response head;
  std::deque<std::string> chunks;
  std::string rest;  // bytes that the socket did not take at once; before all others
  size_t unread_bytes = 0;
  bool started = false;
  bool streaming = false;
  bool finished = false;
  int http_version = 11;
  bool keep_alive = false;                         // of the connection, after this answer
  bool head_written = false, all_written = false;  // of a stream; handed to the socket or `rest`
  // Read by any thread. The client left or stalled: nothing is written any more.
  std::atomic<bool> gone{false};
  // Likewise. The server stopped and has ended it: the handler writes no more.
  std::atomic<bool> is_cut{false};
  std::string if_stopped;  // the end of a stream in that case
  std::string shortage;    // why there was no memory to answer, if that is so
  BudgetShare share;       // of all that is kept for the request
  size_t body_bytes = 0;   // of the request
  size_t held_bytes = 0;   // that the handler keeps beside it
  std::function<void()> on_disconnect;
  std::vector<Exchange::OnWritten> on_written;
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
  // The answer has news (head, chunk, end); on the strand.
  void notify() { wake_.cancel(); }
  // The thread that has the answer's turn: sends what there is of a stream. What the socket does
  // not take is left in `rest`.
  void send_now(Answer& answer);
  // Tells the handler that the client is gone; once.
  void give_up(Answer& answer);

 private:
  using Work = boost::asio::awaitable<void>;
  using Flag = boost::asio::awaitable<bool>;

  Work run();
  Flag serve_one();  // false: close the connection
  Flag read_request(Answer& answer);
  // Until the parser is done, `ec` is set, or the budget has no room.
  Work receive_body(RequestParser& parser, Answer& answer, boost::system::error_code& ec);
  Work receive_more(RequestParser& parser, boost::system::error_code& ec);
  // The answer to a request that could not be read, if there is one.
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
  Flag write_bytes(std::string text, std::string_view more = {});  // as they are, also with TLS
  std::chrono::milliseconds write_timeout() const;                 // for kLeastProgressBytes
  Flag write_answer(Answer& answer, std::string text, std::string_view more = {});
  Work linger();
  Work wait_for_news();
  Work stop_watching();
  void watch();  // pending wait that notices input, and a leaving client
  void on_readable(boost::system::error_code ec);  // of a wait for input
  // What the kernel has, at most `limit` bytes; true when buffer_ has got some.
  bool read_available(size_t limit);
  Flag receive();  // waits for bytes of a request; false: none came
  // Goes on behind all that waits for this event loop: what a client sends without a break is read
  // and answered in turns.
  Work let_others_go_on();
  Work answer_tls();  // sends what TLS has to say by itself
  void end_tls();
  void arm(std::chrono::milliseconds timeout);  // cancels socket operations when it passes
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
  // Deadlines come and go with every request; the timer stays and looks at the deadline when it
  // fires, so that most deadlines cost a store.
  static constexpr auto kNever = boost::asio::steady_timer::time_point::max();
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer::time_point timer_at_ = kNever, deadline_at_ = kNever;
  boost::beast::flat_buffer buffer_;  // bytes received and not yet parsed
  size_t bytes_in_a_row_ = 0;         // received since others had a turn
  std::shared_ptr<Answer> current_;
  bool watching_ = false;
  bool timed_out_ = false;
  bool peer_gone_ = false;
  bool is_writing_ = false;  // bytes of a TLS record may be half-way
  bool is_cut_ = false;
  bool idle_ = true;
};

// For the handler of `answer`, which the connection keeps: a handler that drops it ends the answer.
ExchangePtr make_exchange(std::shared_ptr<Connection> connection, std::shared_ptr<Answer> answer,
                          std::shared_ptr<Listener::Impl> listener);

}  // namespace nereid::front
