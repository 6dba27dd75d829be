// The connection's coroutine over Boost.Beast's parser: reads, dispatches, waits for answers. Every
// awaited argument is a named local: GCC 12 miscompiles some temporaries in co_await expressions.
#include "front/http/connection.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <functional>
#include <utility>

#include "base/clock.h"
#include "base/contained.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "front/http/io_stall.h"
#include "front/http/listen.h"
#include "front/http/request_parser.h"
#include "front/protection/budget_memory.h"

namespace nereid::front {
namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;

namespace {

constexpr size_t kReadBytes = 4096;
constexpr size_t kReceiveBytes = 64 << 10;       // one read of a request that has begun
constexpr size_t kBytesInARow = 256 << 10;       // before other connections have a turn
constexpr size_t kMaxPipelinedBytes = 64 << 10;  // read ahead while an answer runs
constexpr size_t kMaxRequestChunks = 65536;
// Up to this many active requests, pieces of streams are sent by the thread that has them; with
// more, the event loops share that work.
constexpr int64_t kMaxDelivered = 64;
constexpr size_t kSlowestBodyBytesPerSecond = 64 << 10;
constexpr char kServerExiting[] = "Server exiting";

// Splits "http://host/path?x" and "/path?x" alike.
void split_target(std::string_view target, Request& request) {
  if (const size_t scheme = target.find("://");
      !target.starts_with('/') && scheme != std::string_view::npos) {
    target.remove_prefix(scheme + 3);
    const size_t slash = target.find('/');
    request.authority = target.substr(0, std::min(slash, target.find('?')));
    target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
  }
  const size_t query = std::min(target.find('?'), target.size());
  request.path = target.substr(0, query);
  if (query < target.size()) request.query = target.substr(query + 1);
}

// Whether the header part that a parser consumed has a folded line. A parser consumes whole fields,
// so a fold is never split.
bool has_folded_line(std::string_view header) {
  constexpr std::string_view kLineEnd = "\r\n";
  if (header.starts_with(kLineEnd)) return false;  // the empty line; a body follows
  header = header.substr(0, header.find("\r\n\r\n"));
  for (size_t at = 0; (at = header.find(kLineEnd, at)) != header.npos; at += 2) {
    if (at + 2 < header.size() && (header[at + 2] == ' ' || header[at + 2] == '\t')) return true;
  }
  return false;
}

// Feeds the received bytes to `parser`. need_more is no error.
error_code parse(RequestParser& parser, boost::beast::flat_buffer& buffer) {
  const bool in_header = !parser.is_header_done();
  const auto bytes = buffer.data();
  error_code ec;
  const size_t taken = parser.take(bytes, ec);
  if (ec == http::error::need_more) ec = {};
  if (!ec && in_header && has_folded_line({static_cast<const char*>(bytes.data()), taken})) {
    ec = http::error::bad_obs_fold;
  }
  buffer.consume(taken);
  return ec;
}

// Takes the whole request, and its requirements for the answer.
// The rest of a body that is kept in a file.
void finish_spool(RequestParser& parser, BodySpool& spool) {
  spool.status = spool.file.take(parser.get().body());
  if (!spool.status.ok()) return;
  auto body = spool.file.finish();
  spool.status = body.status();
  if (body.ok()) spool.body = *std::move(body);
}

void take_request(RequestParser& parser, Answer& answer, std::shared_ptr<const SpooledBody> body) {
  answer.http_version = parser.get().version() >= 11 ? 11 : 10;
  answer.keep_alive = parser.keep_alive();
  answer.request.headers = parser.release_headers();
  answer.request.body = std::move(parser.get().body());
  answer.request.spooled = std::move(body);
  answer.body_bytes = answer.request.content().size();
  answer.count();
  answer.request.end_ns = now_ns();
}

}  // namespace

Listing::Listing(std::shared_ptr<Listener::Impl> listener, Connection* connection)
    : listener_(std::move(listener)), connection_(connection) {
  ++listener_->stats.connections_open;
  std::lock_guard lock(listener_->mutex);
  listener_->connections.insert(connection_);
}

Listing::~Listing() {
  --listener_->stats.connections_open;
  listener_->remove(connection_);
}

Connection::Connection(tcp::socket socket, std::shared_ptr<Listener::Impl> listener)
    : listener_(std::move(listener), this),
      socket_(std::move(socket)),
      fd_(socket_.native_handle()),
      peer_(peer_of(socket_)),
      wake_(socket_.get_executor()),
      timer_(socket_.get_executor()) {
  error_code ec;
  socket_.non_blocking(true, ec);
  if (const auto& tls = listener_->options.tls) tls_ = std::make_unique<TlsStream>(*tls);
}

bool Connection::is_on_strand() {
  const auto any = socket_.get_executor();
  const auto* loop = any.target<asio::io_context::executor_type>();
  return loop != nullptr && loop->running_in_this_thread();
}

void Connection::start() {
  asio::co_spawn(
      socket_.get_executor(), [self = shared_from_this()] { return self->run(); }, asio::detached);
}

void Connection::drain() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->idle_) self->close();
  });
}

void Connection::cut() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->cut_here(); });
}

void Connection::cut_here() {
  is_cut_ = true;
  if (idle_) return close();
  if (!current_) {  // a request is arriving: read_request() refuses it
    error_code ec;
    socket_.cancel(ec);
    return;
  }
  const auto answer = current_;
  answer->close();
  if (answer->finished || answer->gone) return;
  if (answer->started) {
    answer->chunks.push_back(answer->if_stopped);
  } else {
    answer->head = listener_->router.error_page(answer->request, 503, kServerExiting);
    answer->started = true;
  }
  answer->finished = answer->is_cut = true;
  if (auto callback = std::exchange(answer->on_disconnect, nullptr)) callback();
  notify();
}

void Connection::abort() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->current_) self->give_up(*self->current_);
    self->peer_gone_ = true;
    self->close();
    self->notify();
  });
}

void Connection::give_up(Answer& answer) {
  answer.close();
  if (answer.gone || answer.finished) return;
  answer.gone = true;
  answer.chunks.clear();
  ++listener_->stats.disconnects;
  // The callback may hold the last reference to the exchange: it is kept until it has run.
  if (auto callback = std::exchange(answer.on_disconnect, nullptr)) callback();
}

void Connection::close() {
  error_code ec;
  end_tls();
  socket_.shutdown(tcp::socket::shutdown_both, ec);
  socket_.close(ec);
}

void Connection::arm(milliseconds timeout) {
  timed_out_ = false;
  arm_until(asio::steady_timer::clock_type::now() + timeout);
}

void Connection::arm_until(asio::steady_timer::time_point deadline) {
  deadline_at_ = deadline;
  if (timer_at_ > deadline_at_) start_timer();
}

void Connection::disarm() { deadline_at_ = kNever; }

void Connection::start_timer() {
  timer_at_ = deadline_at_;
  timer_.expires_at(timer_at_);  // cancels and replaces the earlier wait
  timer_.async_wait([weak = weak_from_this()](error_code ec) {
    auto self = weak.lock();
    if (ec || !self) return;
    self->timer_at_ = kNever;
    if (self->deadline_at_ == kNever) return;
    if (self->deadline_at_ > asio::steady_timer::clock_type::now()) {
      if (!contained("a connection's timer", [&] { self->start_timer(); })) self->close();
      return;
    }
    self->disarm();
    self->timed_out_ = true;
    error_code ignored;
    self->socket_.cancel(ignored);
  });
}

asio::awaitable<void> Connection::wait_for_change() {
  error_code ec;
  wake_.expires_at(asio::steady_timer::time_point::max());
  auto token = asio::redirect_error(asio::use_awaitable, ec);
  co_await wake_.async_wait(token);
}

void Connection::watch() {
  if (watching_ || peer_gone_ || buffer_.size() >= kMaxPipelinedBytes) return;
  watching_ = true;
  // Waits without a buffer: idle connections hold none.
  auto readable = [self = shared_from_this()](error_code ec) {
    self->watching_ = false;
    const bool has_read = contained("a connection", [&] {
      self->on_readable(ec);
      if (!ec && self->current_) self->watch();
    });
    if (!has_read) self->peer_gone_ = true;
    self->notify();
  };
  socket_.async_wait(tcp::socket::wait_read, std::move(readable));
}

void Connection::on_readable(error_code ec) {
  if (!ec) {
    read_available(kReadBytes);
  } else if (ec != asio::error::operation_aborted) {
    peer_gone_ = true;
  }
}

bool Connection::read_available(size_t limit) {
  error_code ec;
  const size_t before = buffer_.size();
  if (tls_ == nullptr) {
    const auto space = buffer_.prepare(limit);
    buffer_.commit(socket_.read_some(space, ec));
  } else {
    std::string sealed(limit, '\0'), plain;
    const size_t n = socket_.read_some(asio::buffer(sealed), ec);
    if (!tls_->receive(std::string_view(sealed).substr(0, n), plain)) peer_gone_ = true;
    const auto space = buffer_.prepare(plain.size());
    buffer_.commit(asio::buffer_copy(space, asio::buffer(plain)));
  }
  if (ec && ec != asio::error::would_block && ec != asio::error::interrupted) peer_gone_ = true;
  return buffer_.size() > before;
}

asio::awaitable<bool> Connection::receive() {
  if (bytes_in_a_row_ >= kBytesInARow) {
    co_await let_others_go_on();
    // No wait was pending that either could have ended.
    if (is_cut_ || timed_out_) co_return false;
  }
  for (;;) {
    const size_t before = buffer_.size();
    const bool has_come = read_available(kReceiveBytes);
    bytes_in_a_row_ += buffer_.size() - before;
    if (tls_ != nullptr) co_await answer_tls();
    if (has_come || peer_gone_) co_return has_come;
    error_code ec;
    auto token = asio::redirect_error(asio::use_awaitable, ec);
    co_await socket_.async_wait(tcp::socket::wait_read, token);
    bytes_in_a_row_ = 0;
    if (ec) co_return false;
  }
}

asio::awaitable<void> Connection::let_others_go_on() {
  bytes_in_a_row_ = 0;
  const auto loop = socket_.get_executor();
  co_await asio::post(loop, asio::use_awaitable);
}

asio::awaitable<void> Connection::stop_watching() {
  // A read that had already completed starts the next one before it notifies: cancel each time.
  while (watching_) {
    error_code ec;
    socket_.cancel(ec);
    co_await wait_for_change();
  }
}

asio::awaitable<void> Connection::run() {
  try {
    for (;;) {
      const bool keep = co_await serve_one();
      if (!keep) break;
    }
  } catch (const std::exception& e) {
    static LogLimit log;
    log.error("connection: {}", e.what());
    if (current_) give_up(*current_);
  }
  current_.reset();
  disarm();
  close();
}

asio::awaitable<bool> Connection::wait_first_byte() {
  if (buffer_.size() > 0) co_await let_others_go_on();  // it was pipelined behind another request
  if (buffer_.size() > 0) co_return true;
  if (listener_->draining || peer_gone_) co_return false;
  idle_ = true;
  const ListenerOptions& options = listener_->options;
  bool is_ready = tls_ == nullptr || tls_->is_ready();
  arm(is_ready ? options.idle_timeout : options.header_timeout);
  while (watching_) co_await wait_for_change();  // begun while the last answer ran
  // Only input can end this wait: the shortest path from the event to the parser. It may end
  // without input: Asio keeps the states of closed descriptors for new ones, and an event for a
  // closed connection then wakes the connection that has its descriptor.
  error_code ec;
  while (!ec && !peer_gone_ && !timed_out_ && buffer_.size() == 0) {
    auto token = asio::redirect_error(asio::use_awaitable, ec);
    co_await socket_.async_wait(tcp::socket::wait_read, token);
    on_readable(ec);
    if (tls_ == nullptr) continue;
    co_await answer_tls();
    if (!is_ready && tls_->is_ready()) arm(options.idle_timeout);
    is_ready = tls_->is_ready();
  }
  disarm();
  idle_ = false;
  co_return buffer_.size() > 0;
}

asio::awaitable<bool> Connection::serve_one() {
  const bool got_byte = co_await wait_first_byte();
  if (!got_byte) co_return false;
  auto answer = std::make_shared<Answer>();
  answer->request.begin_ns = now_ns();
  answer->request.is_on_loopback = peer_.is_on_loopback;
  answer->request.tenant = peer_.tenant;
  answer->share = BudgetShare(listener_->options.budget);
  bool complete = false;
  std::string no_memory;
  try {
    complete = co_await read_request(*answer);
  } catch (const std::bad_alloc& e) {
    no_memory = shortage(e);
  }
  if (!no_memory.empty()) co_await refuse(answer->request, 503, std::move(no_memory));
  if (!complete) co_return false;
  co_await answer_request(answer);
  co_return answer->keep_alive && !peer_gone_;
}

asio::awaitable<bool> Connection::read_request(Answer& answer) {
  Request& request = answer.request;
  const ListenerOptions& options = listener_->options;
  RequestParser parser;
  parser.header_limit(static_cast<std::uint32_t>(options.max_header_bytes));
  parser.body_limit(options.max_body_bytes);
  BodySpool spool;
  size_t num_chunks = 0;
  // A lambda has no linkage, which a type in the coroutine's frame must have.
  std::function<void(std::uint64_t, boost::beast::string_view, error_code&)> count_chunk =
      [&num_chunks](std::uint64_t, boost::beast::string_view, error_code& chunk_error) {
        if (++num_chunks > kMaxRequestChunks) chunk_error = http::error::bad_chunk;
      };
  parser.on_chunk_header(count_chunk);

  // Most requests are complete in the buffer: then no timer runs and nothing waits.
  parser.eager(true);
  error_code ec = parse(parser, buffer_);
  if (!ec && !parser.is_done()) co_await stop_watching();
  if (!ec && !parser.is_header_done()) {
    arm(options.header_timeout);
    while (!ec && !parser.is_header_done()) co_await receive_more(parser, ec);
    disarm();
  }
  const auto& head = parser.get();
  if (parser.got_some()) {
    request.method = std::string(head.method_string());
    split_target(std::string_view(head.target().data(), head.target().size()), request);
  }
  // Source: RFC 9112, section 3.2. A missing Host is accepted, as in the stock server: every
  // browser sends one (http/web_pages.h).
  if (!ec && head.count(http::field::host) > 1) {
    co_await refuse(request, 400, "malformed HTTP request: more than one Host");
    co_return false;
  }
  if (!ec && head.count(http::field::transfer_encoding) > 0 && !parser.chunked()) {
    co_await refuse(request, 501, "Transfer-Encoding other than chunked is not supported");
    co_return false;
  }
  if (!ec && !parser.is_done()) {
    const auto expect = head[http::field::expect];
    if (!expect.empty() && buffer_.size() == 0) {
      const bool sent = co_await write_text("HTTP/1.1 100 Continue\r\n\r\n");
      if (!sent) co_return false;
    }
    co_await receive_body(parser, answer, spool, ec);
  }
  if (!ec && parser.is_done() && spool.file.size() > 0) finish_spool(parser, spool);
  if (!spool.status.ok()) {
    co_await refuse(request, 503, std::string(message(spool.status)));
    co_return false;
  }
  if (!ec && !parser.is_done()) {
    co_await refuse(request, 503, std::string(message(options.budget->refusal())));
    co_return false;
  }
  if (ec) {
    co_await refuse_unread(request, ec);
    co_return false;
  }

  take_request(parser, answer, std::move(spool.body));
  co_return true;
}

asio::awaitable<void> Connection::receive_body(RequestParser& parser, Answer& answer,
                                               BodySpool& spool, error_code& ec) {
  const ListenerOptions& options = listener_->options;
  const bool spools = listener_->router.has_large_bodies(answer.request);
  const Time begin = now();
  while (!ec && !parser.is_done()) {
    std::string& text = parser.get().body();
    if (spools && text.size() >= (spool.file.size() > 0 ? kSpoolWriteBytes : kSpoolBytes))
      spool.status = spool.file.take(text);
    if (!spool.status.ok()) break;
    const size_t received = spool.file.size() + text.size();
    answer.share.set(received);
    if (answer.share.is_large() && options.budget->is_full()) break;
    const milliseconds left = std::chrono::duration_cast<milliseconds>(begin - now()) +
                              options.body_timeout +
                              milliseconds(1000 * received / kSlowestBodyBytesPerSecond);
    // A stalled large request makes room for others.
    const bool is_tight = answer.share.is_large() && options.budget->is_tight();
    arm(is_tight ? std::min(left, kTightTimeout) : left);
    co_await receive_more(parser, ec);
  }
  disarm();
}

asio::awaitable<void> Connection::receive_more(RequestParser& parser, error_code& ec) {
  const bool has_come = co_await receive();
  ec = has_come ? parse(parser, buffer_) : make_error_code(asio::error::eof);
}

asio::awaitable<void> Connection::refuse_unread(const Request& request, error_code ec) {
  const ListenerOptions& options = listener_->options;
  if (ec == http::error::body_limit) {
    co_await refuse(
        request, 413,
        fmt::format("request body exceeds the limit of {} bytes", options.max_body_bytes));
  } else if (ec == http::error::header_limit || ec == http::error::buffer_overflow) {
    co_await refuse(
        request, 431,
        fmt::format("request header exceeds the limit of {} bytes", options.max_header_bytes));
  } else if (is_cut_) {
    co_await refuse(request, 503, kServerExiting);
  } else if (timed_out_) {
    co_await refuse(request, 408, "the request did not arrive in time");
  } else if (ec.category() == http::make_error_code(http::error::bad_target).category() &&
             ec != http::error::end_of_stream && ec != http::error::partial_message) {
    co_await refuse(request, 400, fmt::format("malformed HTTP request: {}", ec.message()));
  }
}

// Whether other threads may send pieces of a stream while the connection waits. Not with many
// active requests, whose work the event loops share; nor for HTTP/1.0, which ends a stream by
// closing, nor with TLS, whose state is on the strand.
bool Connection::may_open(const Answer& answer) const {
  return tls_ == nullptr && answer.http_version >= 11 && answer.on_written.empty() &&
         listener_->stats.requests_active <= kMaxDelivered;
}

asio::awaitable<void> Connection::answer_request(std::shared_ptr<Answer> answer) {
  current_ = answer;
  ++listener_->stats.requests_active;
  {
    const IoTurn turn;
    const ExchangePtr exchange = make_exchange(shared_from_this(), answer, listener_.listener());
    if (listener_->draining) {
      exchange->send(listener_->router.error_page(answer->request, 503, kServerExiting));
    } else {
      log_debug("HTTP request: {} {}", exchange->request().method, exchange->request().path);
      answer->run([&] { listener_->router.handle(exchange); });
    }
  }
  while (!answer->started && !peer_gone_ && !answer->gone) {
    watch();
    if (may_open(*answer)) answer->open();
    co_await wait_for_change();
    answer->close();
  }
  if (listener_->draining) answer->keep_alive = false;
  if (answer->started && !answer->gone) {
    listener_->stats.count_response(answer->head.status);
    if (answer->streaming) {
      if (answer->http_version == 10) answer->keep_alive = false;
      co_await write_stream(*answer);
    } else {
      co_await write_whole(*answer);
    }
  }
  if (!answer->finished) {
    give_up(*answer);
    peer_gone_ = true;  // the answer is incomplete: the connection cannot be reused
  }
  current_.reset();
  --listener_->stats.requests_active;
}

}  // namespace nereid::front
