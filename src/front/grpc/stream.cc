// HTTP/2 streams; see stream.h.
#include "front/grpc/stream.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <array>

#include "base/log.h"

namespace nereid::front {
namespace {

constexpr std::string_view kContentType = "application/grpc";
constexpr char kEncodings[] = "identity, deflate, gzip";

nghttp2_nv pair(std::string_view name, std::string_view value, bool copy_value) {
  return {reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
          reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(), value.size(),
          static_cast<uint8_t>(NGHTTP2_NV_FLAG_NO_COPY_NAME |
                               (copy_value ? 0 : NGHTTP2_NV_FLAG_NO_COPY_VALUE))};
}

std::string_view status_digits(absl::StatusCode code) {
  constexpr std::array<std::string_view, 17> kDigits = {
      "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"};
  const auto i = static_cast<size_t>(code);
  return i < kDigits.size() ? kDigits[i] : "2";
}

// Levels of the stock server: gzip if the client accepts it, else deflate.
Encoding wanted_encoding(const std::string& level, std::string_view accept) {
  if (level == "none") return Encoding::kIdentity;
  if (accept.find("gzip") != std::string_view::npos) return Encoding::kGzip;
  return accept.find("deflate") != std::string_view::npos ? Encoding::kDeflate
                                                          : Encoding::kIdentity;
}

// Compressed messages up to this size are decompressed on the event loop: they become some
// megabytes at most.
constexpr size_t kQuickCompressedBytes = 4096;

StatusOr<std::string> open_message(std::string_view message, std::string_view encoding,
                                   size_t max_bytes, BudgetShare& share) {
  auto opened = decompress(message, Encoding::kGzip, max_bytes, share);
  switch (opened.status().code()) {
    case absl::StatusCode::kOk:
      return opened;
    case absl::StatusCode::kUnavailable:
      return resource_exhausted("{}", nereid::message(opened.status()));
    case absl::StatusCode::kResourceExhausted:
      return resource_exhausted("Received message larger than max ({} bytes) when decompressed",
                                max_bytes);
    default:
      return internal_error("the message is not valid {}", encoding);
  }
}

// Checks results of nghttp2_submit_*: an error other than no memory means that the stream is over.
void check_submitted(int result) {
  if (result == NGHTTP2_ERR_NOMEM) throw std::bad_alloc();
}

int zlib_level(const std::string& level) { return level == "low" ? 1 : level == "high" ? 9 : 6; }

ssize_t read_answer(nghttp2_session*, int32_t, uint8_t*, size_t length, uint32_t* flags,
                    nghttp2_data_source* source, void*) {
  auto& stream = *static_cast<GrpcStream*>(source->ptr);
  const size_t n = stream.readable(length);
  if (n == 0 && !stream.is_complete()) return NGHTTP2_ERR_DEFERRED;
  *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  return static_cast<ssize_t>(n);
}

}  // namespace

GrpcStream::~GrpcStream() = default;

void GrpcStream::add_header(std::string_view name, std::string_view value) {
  if (name == ":path") {
    head_.path = value;
  } else if (name == ":method") {
    head_.method = value;
  } else if (name == "content-type") {
    head_.content_type = value;
  } else if (name == "grpc-timeout") {
    const auto timeout = parse_grpc_timeout(value);
    head_.bad_timeout = !timeout;
    head_.timeout =
        std::max(timeout.value_or(std::chrono::nanoseconds(1)), std::chrono::nanoseconds(1));
  } else if (name == "grpc-encoding") {
    head_.encoding = value;
  } else if (name == "grpc-accept-encoding") {
    head_.accepted = wanted_encoding(session_->shared_->options.response_compression_level, value);
  } else if (!name.starts_with(':') && !name.starts_with("grpc-") && name != "te" &&
             name != "user-agent") {
    head_.metadata.emplace_back(name, value);
  }
}

void GrpcStream::account() {
  const size_t bytes = reader_.size() + message_.size() + held_.size();
  session_->shared_->stats->buffered_bytes += bytes - accounted_;
  accounted_ = bytes;
  share_.set(accounted_ + out_bytes_);
}

GrpcStream::Time GrpcStream::arriving_since() const {
  if (finished_ || method_ == nullptr || is_held()) return Time::max();
  if (is_unary()) return half_closed_ ? Time::max() : started_;
  return message_began_;
}

void GrpcStream::receive(std::string_view data) {
  const size_t size = data.size();
  last_receive_ = session_->now_;
  nghttp2_session_consume_connection(session_->h2_, size);
  if (discarding_) {
    nghttp2_session_consume_stream(session_->h2_, id_, size);
    return;
  }
  if (is_held()) {
    held_.append(data);
    unconsumed_ += size;
  } else {
    feed(data);
    if (session_ == nullptr) return;
    if (is_held()) {
      unconsumed_ += size;
    } else {
      nghttp2_session_consume_stream(session_->h2_, id_, size);
    }
  }
  account();
  refuse_when_full();
}

void GrpcStream::refuse_when_full() {
  const ByteBudget& budget = *session_->shared_->budget;
  if (accounted_ > 0 && budget.is_full() && share_.is_large()) {
    give_up(resource_exhausted("{}", message(budget.refusal())));
  }
}

// Divides data into messages until it ends, the handler pauses, or the call is over.
void GrpcStream::feed(std::string_view data) {
  feeding_ = true;
  const auto alive = shared_from_this();
  while (!data.empty() && !discarding_ && session_ != nullptr) {
    if (!is_held() && session_->turn_is_over()) {
      is_resting_ = true;
      session_->go_on_later(weak_from_this());
    }
    if (is_held()) {
      held_.append(data);
      break;
    }
    const Status status = reader_.take(data, session_->shared_->options.max_message_bytes);
    if (!status.ok()) {
      give_up(status);
    } else if (reader_.has_message()) {
      take_message();
    }
  }
  feeding_ = false;
  if (session_ == nullptr || reader_.is_empty()) {
    message_began_ = Time::max();
  } else if (message_began_ == Time::max()) {
    message_began_ = session_->now_;
  }
}

void GrpcStream::take_message() {
  message_began_ = Time::max();
  bool compressed = false;
  std::string message = reader_.release(compressed);
  session_->count_work(message.size());
  BudgetShare share(session_->shared_->budget);
  if (!compressed) return take_opened(std::move(message), share);
  if (head_.encoding.empty() || head_.encoding == "identity") {
    return give_up(
        internal_error("a message is flagged as compressed, but no grpc-encoding was sent"));
  }
  const GrpcShared& shared = *session_->shared_;
  const size_t max_bytes = shared.options.max_message_bytes;
  if (shared.workers == nullptr || message.size() <= kQuickCompressedBytes) {
    auto opened = open_message(message, head_.encoding, max_bytes, share);
    if (opened.ok()) session_->count_work(opened->size());
    return take_opened(std::move(opened), share);
  }
  is_opening_ = true;
  // Counted until the message is handed over, even if the stream ends before.
  auto arrived = std::make_shared<BudgetShare>(shared.budget, message.size());
  auto held = std::make_shared<BudgetShare>(std::move(share));
  shared.workers->push([weak = weak_from_this(), mailbox = session_->mailbox_, arrived, held,
                        message = std::move(message), encoding = head_.encoding,
                        max_bytes]() mutable {
    if (weak.expired()) return;
    StatusOr<std::string> opened = std::string();
    const Status status =
        without_exceptions([&] { opened = open_message(message, encoding, max_bytes, *held); });
    if (!status.ok()) opened = status;
    std::string().swap(message);
    arrived->set(0);
    mailbox->post([weak, held, opened = std::move(opened)]() mutable {
      const auto alive = weak.lock();
      if (alive == nullptr || alive->session_ == nullptr) return;
      alive->is_opening_ = false;
      alive->run([&] {
        alive->feeding_ = true;
        if (!alive->discarding_) alive->take_opened(std::move(opened), *held);
        alive->feeding_ = false;
        alive->go_on();
      });
    });
  });
}

// `share`: of the message, until the handler has it.
void GrpcStream::take_opened(StatusOr<std::string> message, BudgetShare& share) {
  if (!message.ok()) return give_up(message.status());
  if (handler_ != nullptr) {
    const auto handler = handler_;
    handler->on_message(*std::move(message));
  } else if (std::exchange(has_message_, true)) {
    give_up(internal_error("more than one message in a unary request"));
  } else {
    message_ = *std::move(message);
    share.set(0);
    account();
  }
}

void GrpcStream::end_input() {
  half_closed_ = true;
  if (!is_held() && !discarding_) deliver_end();
}

void GrpcStream::deliver_end() {
  if (std::exchange(end_delivered_, true)) return;
  if (!reader_.is_empty()) return give_up(internal_error("the request ends inside a message"));
  if (handler_ != nullptr) {
    const auto handler = handler_;
    handler->on_half_close();
    return;
  }
  if (!has_message_) return give_up(internal_error("the request has no message"));
  std::string message = std::move(message_);
  message_.clear();
  account();
  const CallPtr call = std::move(waiting_call_);
  method_->unary(call, std::move(message));
}

void GrpcStream::pause(bool paused) {
  paused_ = paused;
  go_on();
}

void GrpcStream::go_on() {
  if (is_held() || feeding_ || session_ == nullptr || discarding_) return;
  const std::string held = std::exchange(held_, {});
  feed(held);
  if (session_ == nullptr) return;
  account();
  refuse_when_full();
  if (is_held() || discarding_) return;
  nghttp2_session_consume_stream(session_->h2_, id_, std::exchange(unconsumed_, 0));
  if (half_closed_) deliver_end();
  session_->on_output_();
}

void GrpcStream::send(std::string message) {
  if (session_ == nullptr || finished_ || reset_) return;
  const auto& options = session_->shared_->options;
  bool compressed = false;
  if (answer_encoding_ != Encoding::kIdentity) {
    message.replace(kGrpcPrefixBytes, std::string::npos,
                    compress(std::string_view(message).substr(kGrpcPrefixBytes), answer_encoding_,
                             zlib_level(options.response_compression_level)));
    compressed = true;
  }
  write_grpc_prefix(message, compressed);
  const size_t size = message.size();
  const size_t unread = out_bytes_, total = session_->unread_bytes_;
  // One message may always wait, so a client that reads gets all of them.
  if (unread > 0 &&
      (unread + size > options.max_unread_bytes || total + size > 4 * options.max_unread_bytes ||
       (share_.is_large() && session_->shared_->budget->is_full()))) {
    return reset(NGHTTP2_ENHANCE_YOUR_CALM);
  }
  if (unread == 0) begin_reading();
  out_.push_back(std::move(message));
  out_bytes_ += size;
  session_->unread_bytes_ += size;
  share_.set(accounted_ + out_bytes_);
  head_sent_ ? resume() : submit_head();
  session_->on_output_();
}

void GrpcStream::finish(const Status& status) {
  if (session_ == nullptr || std::exchange(finished_, true) || reset_) return;
  if (permit_) permit_->end();
  status_ = status;
  discarding_ = true;
  if (out_bytes_ == 0) begin_reading();
  const auto keep = std::exchange(handler_, nullptr);
  head_sent_ ? resume() : submit_head();
  session_->on_output_();
}

void GrpcStream::begin_reading() {
  last_progress_ = session_->now_;
  progress_bytes_ = 0;
}

std::chrono::milliseconds GrpcStream::write_timeout() const {
  const auto timeout = session_->shared_->options.write_timeout;
  const bool makes_room = share_.is_large() && session_->shared_->budget->is_tight();
  return makes_room ? std::min(timeout, kTightTimeout) : timeout;
}

void GrpcStream::cancel_call() {
  const CallPtr call = call_.lock();
  if (call == nullptr || !call->is_open()) return;
  log_debug("Cancellation notification received for {}", head_.path);
  call->cancel();
}

void GrpcStream::give_up(const Status& status) {
  // A cancelled stream still gets its status.
  const auto alive = shared_from_this();
  cancel_call();
  finish(status);
}

void GrpcStream::reset(uint32_t error_code) {
  if (session_ == nullptr || std::exchange(reset_, true)) return;
  discarding_ = true;
  check_submitted(nghttp2_submit_rst_stream(session_->h2_, NGHTTP2_FLAG_NONE, id_, error_code));
  session_->on_output_();
  const auto alive = shared_from_this();
  cancel_call();
}

void GrpcStream::detach() {
  if (session_ == nullptr) return;
  session_->shared_->stats->buffered_bytes -= accounted_;
  session_->unread_bytes_ -= out_bytes_;
  session_ = nullptr;
  share_.set(0);
  const auto alive = shared_from_this();
  cancel_call();
  const auto keep = std::exchange(handler_, nullptr);
  waiting_call_.reset();
}

void GrpcStream::resume() {
  if (std::exchange(deferred_, false)) nghttp2_session_resume_data(session_->h2_, id_);
}

// Submits response headers; with a status and no message they are the whole answer.
void GrpcStream::submit_head() {
  head_sent_ = true;
  if (finished_ && out_bytes_ == 0) {
    const std::string text = encode_grpc_message(message(status_));
    std::array<nghttp2_nv, 5> head = {
        pair(":status", "200", false), pair("content-type", kContentType, false),
        pair("grpc-status", status_digits(status_.code()), false),
        pair("grpc-accept-encoding", kEncodings, false), pair("grpc-message", text, true)};
    check_submitted(nghttp2_submit_headers(session_->h2_, NGHTTP2_FLAG_END_STREAM, id_, nullptr,
                                           head.data(), head.size() - (text.empty() ? 1 : 0),
                                           nullptr));
    return;
  }
  const bool compresses = answer_encoding_ != Encoding::kIdentity;
  std::array<nghttp2_nv, 4> head = {
      pair(":status", "200", false), pair("content-type", kContentType, false),
      pair("grpc-accept-encoding", kEncodings, false),
      pair("grpc-encoding", answer_encoding_ == Encoding::kGzip ? "gzip" : "deflate", false)};
  nghttp2_data_provider provider;
  provider.source.ptr = this;
  provider.read_callback = [](nghttp2_session* h2, int32_t id, uint8_t* buffer, size_t length,
                              uint32_t* flags, nghttp2_data_source* source, void* user) {
    auto& stream = *static_cast<GrpcStream*>(source->ptr);
    const ssize_t n = read_answer(h2, id, buffer, length, flags, source, user);
    if (n == NGHTTP2_ERR_DEFERRED) {
      stream.deferred_ = true;
    } else if (stream.finished_ && static_cast<size_t>(n) == stream.out_bytes_) {
      *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
      stream.submit_trailers();
    }
    return n;
  };
  check_submitted(nghttp2_submit_response(session_->h2_, id_, head.data(),
                                          head.size() - (compresses ? 0 : 1), &provider));
}

void GrpcStream::submit_trailers() {
  const std::string text = encode_grpc_message(message(status_));
  std::array<nghttp2_nv, 2> trailers = {pair("grpc-status", status_digits(status_.code()), false),
                                        pair("grpc-message", text, true)};
  check_submitted(
      nghttp2_submit_trailer(session_->h2_, id_, trailers.data(), text.empty() ? 1 : 2));
}

void GrpcStream::copy_out(std::string& out, size_t length) {
  out_bytes_ -= length;
  share_.set(accounted_ + out_bytes_);
  session_->unread_bytes_ -= length;
  progress_bytes_ += length;
  if (progress_bytes_ >= kLeastProgressBytes || out_bytes_ == 0) begin_reading();
  while (length > 0) {
    const std::string& front = out_.front();
    const size_t n = std::min(length, front.size() - out_at_);
    out.append(front, out_at_, n);
    out_at_ += n;
    length -= n;
    if (out_at_ == front.size()) {
      out_.pop_front();
      out_at_ = 0;
    }
  }
}

}  // namespace nereid::front
