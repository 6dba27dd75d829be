// Output of a connection: heads, whole answers, streams, refusals; see connection.h. Every awaited
// argument is a named local: GCC 12 miscompiles some temporaries in co_await expressions.
#include <fmt/chrono.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <ctime>
#include <utility>

#include "base/clock.h"
#include "front/http/connection.h"

namespace nereid::front {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;

namespace {

constexpr size_t kMaxLingerBytes = size_t{1} << 20;
constexpr size_t kSealedBytes = size_t{256} << 10;  // encrypted at once, beside the plain text

// Formatted once a second: the text costs more than the rest of a header.
const std::string& http_date() {
  thread_local std::time_t shown = -1;
  thread_local std::string text;
  if (const std::time_t time = std::time(nullptr); time != shown) {
    text = fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(time));
    shown = time;
  }
  return text;
}

// Status line and headers up to the empty line; `framing` is the length or encoding header.
std::string format_head(const Response& head, std::string_view framing, bool keep_alive,
                        int http_version) {
  std::string out;
  out.reserve(512);
  const auto add = [&out](const auto&... parts) { (out.append(std::string_view(parts)), ...); };
  add(http_version == 10 ? "HTTP/1.0 " : "HTTP/1.1 ", fmt::format_int(head.status).c_str(), " ",
      reason_phrase(head.status), "\r\nDate: ", http_date(), "\r\n");
  if (!head.content_type.empty()) add("Content-Type: ", head.content_type, "\r\n");
  for (const Header& h : head.headers) add(h.name, ": ", h.value, "\r\n");
  add(framing);
  if (!keep_alive) {
    out += "Connection: close\r\n";
  } else if (http_version == 10) {
    out += "Connection: keep-alive\r\n";
  }
  out += "\r\n";
  return out;
}

// A full socket buffer is no error.
void clear_full(error_code& ec) {
  if (ec == asio::error::would_block || ec == asio::error::interrupted) ec = {};
}

std::string chunk_of(std::string_view text) {
  return fmt::format("{:x}\r\n{}\r\n", text.size(), text);
}

}  // namespace

asio::awaitable<bool> Connection::write_text(std::string text, std::string_view more) {
  if (tls_ == nullptr) co_return co_await write_bytes(std::move(text), more);
  if (!tls_->is_ready()) co_return false;
  if (more.size() <= kSealedBytes) text.append(std::exchange(more, {}));
  for (std::string_view part : {std::string_view(text), more}) {
    for (; !part.empty(); part.remove_prefix(std::min(part.size(), kSealedBytes))) {
      std::string sealed;
      tls_->send(part.substr(0, kSealedBytes), sealed);
      const bool sent = co_await write_bytes(std::move(sealed));
      if (!sent) co_return false;
    }
  }
  co_return true;
}

asio::awaitable<void> Connection::answer_tls() {
  std::string bytes;
  tls_->take(bytes);
  if (bytes.empty()) co_return;
  const auto deadline = deadline_at_;  // for the client's next input
  co_await write_bytes(std::move(bytes));
  arm_until(deadline);
}

void Connection::end_tls() {
  if (tls_ == nullptr || is_writing_ || !socket_.is_open()) return;
  std::string bytes;
  tls_->shut();
  tls_->take(bytes);
  // At most an alert is left to send; its arrival is not waited for.
  if (!bytes.empty()) ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

asio::awaitable<bool> Connection::write_bytes(std::string text, std::string_view more) {
  error_code ec;
  const std::array<asio::const_buffer, 2> both = {asio::buffer(text),
                                                  asio::const_buffer(more.data(), more.size())};
  // The kernel usually accepts all at once.
  size_t sent = socket_.write_some(both, ec);
  clear_full(ec);
  const size_t total = text.size() + more.size();
  // The time limit is for each part, not for the whole.
  for (size_t part_end = 0; !ec && sent < total;) {
    is_writing_ = true;
    if (sent >= part_end) {
      part_end = sent + kLeastProgressBytes;
      arm(write_timeout());
    }
    auto token = asio::redirect_error(asio::use_awaitable, ec);
    co_await socket_.async_wait(tcp::socket::wait_write, token);
    if (ec) break;
    const std::array<asio::const_buffer, 2> rest = {
        asio::buffer(text) + sent,
        asio::const_buffer(more.data(), more.size()) + (sent - std::min(sent, text.size()))};
    sent += socket_.write_some(rest, ec);
    clear_full(ec);
  }
  if (std::exchange(is_writing_, false)) disarm();
  if (ec) peer_gone_ = true;
  co_return !ec;
}

milliseconds Connection::write_timeout() const {
  const ListenerOptions& options = listener_->options;
  const bool makes_room =
      current_ != nullptr && current_->share.is_large() && options.budget->is_tight();
  return makes_room ? std::min(options.write_timeout, kTightTimeout) : options.write_timeout;
}

asio::awaitable<void> Connection::write_whole(Answer& answer) {
  Response& head = answer.head;
  listener_->router.finish(answer.request, head);
  // Source: RFC 9110, sections 15.3.5 and 15.4.5.
  const bool is_empty = head.status == 204 || head.status == 304;
  const std::string framing =
      is_empty ? std::string() : fmt::format("Content-Length: {}\r\n", head.body.size());
  std::string text = format_head(head, framing, answer.keep_alive, answer.http_version);
  const bool has_body = answer.request.method != "HEAD" && !is_empty;
  const std::string_view body = has_body ? std::string_view(head.body) : std::string_view();
  co_await write_answer(answer, std::move(text), body);
  answer.on_written.clear();  // its references need not wait for the next request
}

asio::awaitable<bool> Connection::write_answer(Answer& answer, std::string text,
                                               std::string_view more) {
  if (answer.on_written.empty()) co_return co_await write_text(std::move(text), more);
  const uint64_t begin_ns = now_ns();
  const bool sent = co_await write_text(std::move(text), more);
  const uint64_t end_ns = now_ns();
  if (sent)
    for (const auto& callback : answer.on_written) callback(begin_ns, end_ns);
  co_return sent;
}

// The output of a stream: the rest of earlier output, head, chunks, end.
std::string Connection::take_stream_text(Answer& answer) {
  const bool chunked = answer.http_version >= 11;
  std::string text = std::exchange(answer.rest, {});
  if (!std::exchange(answer.head_written, true)) {
    if (listener_->draining) answer.keep_alive = false;
    listener_->router.finish(answer.request, answer.head);
    text += format_head(answer.head, chunked ? "Transfer-Encoding: chunked\r\n" : "",
                        answer.keep_alive, answer.http_version);
  }
  for (const std::string& chunk : answer.chunks) {
    if (!chunk.empty()) text += chunked ? chunk_of(chunk) : chunk;
  }
  answer.chunks.clear();
  if (answer.finished && !std::exchange(answer.all_written, true) && chunked) text += "0\r\n\r\n";
  return text;
}

asio::awaitable<void> Connection::write_stream(Answer& answer) {
  for (;;) {
    std::string text = take_stream_text(answer);
    if (!text.empty()) {
      const size_t handed_over = answer.unread_bytes;
      const bool sent = co_await write_answer(answer, std::move(text));
      answer.unread_bytes -= std::min(handed_over, answer.unread_bytes);
      answer.count();
      if (!sent) co_return;
    }
    if (answer.all_written) co_return;
    watch();
    if (peer_gone_ || answer.gone) co_return;
    if (answer.chunks.empty() && !answer.finished) {
      if (may_open(answer)) answer.open();
      co_await wait_for_change();
      answer.close();
    }
    if (peer_gone_ || answer.gone) co_return;
  }
}

void Connection::send_now(Answer& answer) {
  std::string text = take_stream_text(answer);
  answer.unread_bytes = 0;
  answer.count();
  const ssize_t n = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  text.erase(0, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  if (text.empty()) return;
  // The strand continues, and reports an error if there is one.
  answer.unread_bytes = text.size();
  answer.count();
  answer.rest = std::move(text);
}

asio::awaitable<void> Connection::refuse(const Request& request, int status, std::string message) {
  Response response = listener_->router.error_page(request, status, message);
  listener_->router.finish(request, response);
  listener_->stats.count_response(status);
  const std::string framing = fmt::format("Content-Length: {}\r\n", response.body.size());
  std::string text = format_head(response, framing, false, 11);
  text += response.body;
  const bool sent = co_await write_text(std::move(text));
  if (!sent) co_return;
  co_await stop_watching();
  co_await linger();
}

void Connection::refuse_full() {
  auto body = [self = shared_from_this()]() -> asio::awaitable<void> {
    const Request request;
    co_await self->refuse(request, 503, "too many connections");
    self->close();
  };
  asio::co_spawn(socket_.get_executor(), std::move(body), asio::detached);
}

// Reads on for a moment: closing with unread input makes the kernel reset the connection, and the
// client might not see the answer.
asio::awaitable<void> Connection::linger() {
  error_code ec;
  end_tls();
  socket_.shutdown(tcp::socket::shutdown_send, ec);
  arm(milliseconds(1000));
  auto token = asio::redirect_error(asio::use_awaitable, ec);
  for (size_t total = 0; !ec && total < kMaxLingerBytes;) {
    buffer_.clear();
    const auto space = buffer_.prepare(16 << 10);
    total += co_await socket_.async_read_some(space, token);
  }
  disarm();
}

}  // namespace nereid::front
