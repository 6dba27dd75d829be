// nghttp2's callbacks, admission of rpcs, and the time limits of a connection; see session.h.
#include "front/grpc/session.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <random>

#include "base/check.h"
#include "base/contained.h"
#include "base/log.h"
#include "front/grpc/stream.h"
#include "front/protection/api_keys.h"

namespace nereid::front {
namespace {

constexpr size_t kMaxHeaderBytes = 16 << 10;
constexpr int32_t kStreamWindow = 1 << 20;
constexpr int32_t kConnectionWindow = 8 << 20;
constexpr uint32_t kMaxFrameBytes = 256 << 10;
constexpr uint64_t kResetBurst = 2000, kResetsPerSecond = 200;
constexpr size_t kSlowestBytesPerSecond = 64 << 10;
// Work of a turn, in KiB of messages plus one per message: some milliseconds.
constexpr size_t kMaxWork = 2048;
constexpr std::chrono::seconds kScanInterval{1};
constexpr std::chrono::milliseconds kGoawayDelay{100};
// Interval of pings allowed on an idle connection without keepalive_permit_without_calls, as
// in gRPC's own core.
constexpr std::chrono::hours kIdlePingInterval{2};

std::string_view view(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

bool is_grpc(std::string_view content_type) {
  constexpr std::string_view kType = "application/grpc";
  if (!content_type.starts_with(kType)) return false;
  content_type.remove_prefix(kType.size());
  return content_type.empty() || content_type.front() == '+' || content_type.front() == ';';
}

}  // namespace

struct SessionCallbacks {
  static GrpcStream* stream_of(nghttp2_session* h2, int32_t id) {
    return static_cast<GrpcStream*>(nghttp2_session_get_stream_user_data(h2, id));
  }
  static Session& session_of(void* user) { return *static_cast<Session*>(user); }

  // Adapts a callback of the C library, which must not throw: an exception ends the connection.
  template <auto callback>
  struct NoThrow;
  template <class... Args, int (*callback)(Args...)>
  struct NoThrow<callback> {
    static int call(Args... args) {
      try {
        return callback(args...);
      } catch (...) {
        log_caught("a gRPC connection");
        return NGHTTP2_ERR_CALLBACK_FAILURE;
      }
    }
  };

  static int on_begin_headers(nghttp2_session* h2, const nghttp2_frame* frame, void* user) {
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    const int32_t id = frame->hd.stream_id;
    nghttp2_session_set_stream_user_data(h2, id, session_of(user).open_stream(id));
    return 0;
  }

  static int on_header(nghttp2_session* h2, const nghttp2_frame* frame, const uint8_t* name,
                       size_t name_size, const uint8_t* value, size_t value_size, uint8_t, void*) {
    GrpcStream* stream = stream_of(h2, frame->hd.stream_id);
    if (stream == nullptr || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    // Overhead as in SETTINGS_MAX_HEADER_LIST_SIZE.
    stream->head_.bytes += name_size + value_size + 32;
    if (stream->head_.bytes > kMaxHeaderBytes) return 0;
    stream->add_header(view(name, name_size), view(value, value_size));
    return 0;
  }

  static int on_frame(nghttp2_session* h2, const nghttp2_frame* frame, void* user) {
    Session& session = session_of(user);
    session.got_frame_ = true;
    const bool is_end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    GrpcStream* stream = nullptr;
    switch (frame->hd.type) {
      case NGHTTP2_HEADERS:
        stream = stream_of(h2, frame->hd.stream_id);
        if (stream == nullptr) break;
        if (frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
          stream->run([&] { session.start_call(*stream, is_end); });
        } else if (is_end) {
          stream->run([&] { stream->end_input(); });
        }
        break;
      case NGHTTP2_DATA:
        stream = stream_of(h2, frame->hd.stream_id);
        if (stream != nullptr && is_end) stream->run([&] { stream->end_input(); });
        break;
      case NGHTTP2_PING:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) == 0) session.on_ping();
        break;
      default:
        break;
    }
    return 0;
  }

  static int on_data(nghttp2_session* h2, uint8_t, int32_t id, const uint8_t* data, size_t size,
                     void* user) {
    GrpcStream* stream = stream_of(h2, id);
    if (stream == nullptr) {
      nghttp2_session_consume(h2, id, size);
    } else {
      stream->run([&] { stream->receive(view(data, size)); });
    }
    static_cast<void>(user);
    return 0;
  }

  static int on_close(nghttp2_session* h2, int32_t id, uint32_t error_code, void* user) {
    if (GrpcStream* stream = stream_of(h2, id)) session_of(user).close_stream(*stream, error_code);
    return 0;
  }

  static int on_sent(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    session_of(user).on_frame_sent(frame->hd.stream_id, frame->hd.type,
                                   (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0);
    return 0;
  }

  static int send_data(nghttp2_session*, nghttp2_frame*, const uint8_t* head, size_t length,
                       nghttp2_data_source* source, void* user) {
    std::string& out = *session_of(user).out_;
    out.append(view(head, 9));
    static_cast<GrpcStream*>(source->ptr)->copy_out(out, length);
    return 0;
  }

  static nghttp2_session* make(Session* session) {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_option* option = nullptr;
    NEREID_CHECK(nghttp2_session_callbacks_new(&callbacks) == 0);
    NEREID_CHECK(nghttp2_option_new(&option) == 0);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks,
                                                            NoThrow<on_begin_headers>::call);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, NoThrow<on_header>::call);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, NoThrow<on_frame>::call);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, NoThrow<on_data>::call);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, NoThrow<on_close>::call);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, NoThrow<on_sent>::call);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, NoThrow<send_data>::call);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_stream_reset_rate_limit(option, kResetBurst, kResetsPerSecond);
    // Closed streams are only for the priority tree, which gRPC does not use.
    nghttp2_option_set_no_closed_streams(option, 1);
    // A value may end in a blank, as with gRPC's own core.
    nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(option, 1);
    nghttp2_session* h2 = nullptr;
    NEREID_CHECK(nghttp2_session_server_new2(&h2, callbacks, session, option) == 0);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return h2;
  }
};

Session::Session(std::shared_ptr<const GrpcShared> shared, std::shared_ptr<Mailbox> mailbox,
                 Time now, std::function<void()> on_output)
    : shared_(std::move(shared)),
      mailbox_(std::move(mailbox)),
      on_output_(std::move(on_output)),
      h2_(SessionCallbacks::make(this)),
      now_(now),
      created_(now),
      last_receive_(now),
      next_deadline_(Time::max()),
      next_scan_(now + kScanInterval),
      age_limit_(Time::max()),
      age_grace_limit_(Time::max()) {
  const GrpcOptions& options = shared_->options;
  if (options.max_connection_age.count() > 0) {
    // Up to 10 % more or less, so that connections of the same age do not end together.
    thread_local std::minstd_rand random(std::random_device{}());
    const double factor = std::uniform_real_distribution<double>(0.9, 1.1)(random);
    age_limit_ = now + std::chrono::milliseconds(static_cast<int64_t>(
                           static_cast<double>(options.max_connection_age.count()) * factor));
  }
  const std::array<nghttp2_settings_entry, 4> settings = {{
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, static_cast<uint32_t>(options.max_streams)},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindow},
      {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, kMaxFrameBytes},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kMaxHeaderBytes},
  }};
  nghttp2_submit_settings(h2_, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
  nghttp2_session_set_local_window_size(h2_, NGHTTP2_FLAG_NONE, 0, kConnectionWindow);
}

Session::~Session() {
  dead_ = true;
  const auto streams = std::exchange(streams_, {});
  for (const auto& [id, stream] : streams) stream->detach();
  nghttp2_session_del(h2_);
}

GrpcStream* Session::open_stream(int32_t id) {
  auto stream = std::make_shared<GrpcStream>(this, id);
  stream->started_ = now_;
  return (streams_[id] = std::move(stream)).get();
}

void Session::close_stream(GrpcStream& stream, uint32_t) {
  const auto it = streams_.find(stream.id_);
  if (it == streams_.end()) return;
  const auto keep = std::move(it->second);
  streams_.erase(it);
  keep->detach();
}

namespace {

// A stream has any number of requests, which the limits could not count.
Status check_limits(const KeyLimits& limits, const Method& method) {
  if (limits.tokens_per_minute > 0 && method.protection.cost == Cost::kUncounted)
    return Status(absl::StatusCode::kPermissionDenied, kTokensAreNotCounted);
  if (!limits.any() || method.unary != nullptr) return ok();
  return Status(absl::StatusCode::kPermissionDenied,
                "the requests of this API key are limited, so it may not open streams of them");
}

}  // namespace

Status Session::take_permit(const ApiKeys::Caller& caller, const Method& method,
                            GrpcStream& stream) {
  RETURN_IF_ERROR(check_limits(caller.limits, method));
  auto result = caller.use->begin(caller.limits, now());
  if (const auto* refusal = std::get_if<KeyRefusal>(&result))
    return resource_exhausted("{}; try again in {} s", refusal->reason, refusal->retry_after_s);
  stream.permit_ = std::get<KeyUse::PermitPtr>(std::move(result));
  return ok();
}

Status Session::check_call(GrpcStream& stream) const {
  const auto& head = stream.head_;
  if (head.bytes > kMaxHeaderBytes) {
    return resource_exhausted("the request's metadata exceeds {} bytes", kMaxHeaderBytes);
  }
  if (shared_->stopping) {
    return unavailable("GRPC server is shutting down and has stopped accepting new requests.");
  }
  const auto found = shared_->methods.find(head.path);
  if (found == shared_->methods.end()) return Status(absl::StatusCode::kUnimplemented, "");
  if (head.bad_timeout) return invalid_argument("grpc-timeout is malformed");
  if (!head.encoding.empty() && head.encoding != "identity" && head.encoding != "gzip" &&
      head.encoding != "deflate") {
    return unsupported("Compression algorithm '{}' is not supported: identity, gzip, deflate are",
                       head.encoding);
  }
  RETURN_IF_ERROR(check_caller(found->second, stream));
  stream.method_ = &found->second;
  return ok();
}

Status Session::check_caller(const Method& method, GrpcStream& stream) const {
  const auto& metadata = stream.head_.metadata;
  const auto& keys = shared_->options.api_keys;
  const Access access = method.protection.access;
  const auto unknown = [] {
    return Status(absl::StatusCode::kUnauthenticated, "an API key is missing or not known");
  };
  std::optional<ApiKeys::Caller> caller;
  for (const auto& m : metadata)
    if (keys && !caller && m.first == "authorization")
      caller = keys->find(ApiKeys::bearer(m.second));
  if (keys && keys->are_for_callers() && access != Access::kAnybody && !caller) return unknown();
  stream.tenant_ = caller ? caller->tenant : peer_.tenant;
  bool has_secret = false;
  if (!method.required_name.empty()) {
    has_secret = std::ranges::any_of(metadata, [&](const auto& m) {
      return m.first == method.required_name && same_secret(m.second, method.required_value);
    });
    if (!has_secret)
      return unavailable("This protocol is restricted, expecting header '{}'",
                         method.required_name);
  }
  const AdminCaller admin = {.has_admin_key = caller && caller->is_admin,
                             .has_secret = has_secret,
                             .needs_key = keys != nullptr,
                             .is_on_loopback = peer_.is_on_loopback};
  stream.admin_refusal_ = admin_refusal(access, shared_->options.admin, admin);
  // Settings may be read by all: their rpcs check the request first.
  if (access == Access::kModels && !stream.admin_refusal_.empty())
    return keys && !caller
               ? unknown()
               : Status(absl::StatusCode::kPermissionDenied, std::string(stream.admin_refusal_));
  if (caller && method.protection.cost != Cost::kNothing)
    return take_permit(*caller, method, stream);
  return ok();
}

void Session::start_call(GrpcStream& stream, bool end_stream) {
  const auto& head = stream.head_;
  const char* http_status = nullptr;
  if (head.bytes <= kMaxHeaderBytes && head.method != "POST") {
    http_status = "405";
  } else if (head.bytes <= kMaxHeaderBytes && !is_grpc(head.content_type)) {
    http_status = "415";
  }
  if (http_status != nullptr) {
    stream.discarding_ = stream.finished_ = true;
    const std::string_view name = ":status";
    const nghttp2_nv pair = {reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
                             reinterpret_cast<uint8_t*>(const_cast<char*>(http_status)),
                             name.size(), 3, NGHTTP2_NV_FLAG_NONE};
    nghttp2_submit_headers(h2_, NGHTTP2_FLAG_END_STREAM, stream.id_, nullptr, &pair, 1, nullptr);
    return;
  }
  const auto keep = stream.shared_from_this();
  const Status status = check_call(stream);
  if (!status.ok()) return stream.finish(status);
  log_debug("gRPC request: {}", head.path);
  const auto call =
      std::make_shared<Call>(keep, mailbox_, shared_->stats, std::move(stream.head_.metadata));
  call->set_admin_refusal(stream.admin_refusal_);
  call->set_tenant(stream.tenant_);
  stream.call_ = call;
  stream.answer_encoding_ = head.accepted;
  if (head.timeout.count() > 0) {
    stream.deadline_ =
        now_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(head.timeout);
    next_deadline_ = std::min(next_deadline_, stream.deadline_);
  }
  if (stream.is_unary()) {
    stream.waiting_call_ = call;
  } else {
    auto handler = stream.method_->stream(call);
    if (!stream.finished_) stream.handler_ = std::move(handler);
  }
  if (end_stream) stream.end_input();
}

void Session::fail(const char* why) {
  if (std::exchange(dead_, true)) return;
  log_debug("gRPC connection: {}", why);
  on_output_();
}

void Session::count_work(size_t message_bytes) { work_ += 1 + (message_bytes >> 10); }

bool Session::turn_is_over() const { return work_ >= kMaxWork; }

void Session::go_on_later(std::weak_ptr<GrpcStream> stream) {
  resting_.push_back(std::move(stream));
  if (resting_.size() > 1) return;  // already posted
  try {
    mailbox_->post([weak = std::weak_ptr<Session*>(self_)] {
      if (const auto self = weak.lock()) (*self)->go_on_with_resting();
    });
  } catch (...) {
    resting_.clear();
    throw;
  }
}

void Session::go_on_with_resting() {
  work_ = 0;
  auto streams = std::exchange(resting_, {});
  for (; !streams.empty() && !turn_is_over(); streams.pop_front()) {
    const auto stream = streams.front().lock();
    if (stream == nullptr || stream->session_ == nullptr) continue;
    stream->is_resting_ = false;
    stream->run([&] { stream->go_on(); });
  }
  for (auto& stream : streams) go_on_later(std::move(stream));
}

void Session::receive(std::string_view bytes, Time now) {
  now_ = last_receive_ = now;
  work_ = 0;
  if (dead_ || bytes.empty()) return;
  const ssize_t n =
      nghttp2_session_mem_recv(h2_, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  // nghttp2 answers protocol errors of the client with GOAWAY and returns normally.
  if (n < 0) fail(nghttp2_strerror(static_cast<int>(n)));
  on_output_();
}

void Session::fill(std::string& out, size_t limit) {
  out_ = &out;
  while (out.size() < limit) {
    const uint8_t* data = nullptr;
    const size_t before = out.size();
    const ssize_t n = nghttp2_session_mem_send(h2_, &data);
    if (n < 0) {
      fail(nghttp2_strerror(static_cast<int>(n)));
      break;
    }
    out.append(view(data, static_cast<size_t>(n)));
    if (n == 0 && out.size() == before) break;
  }
  out_ = nullptr;
}

bool Session::is_over() const {
  return dead_ || (nghttp2_session_want_read(h2_) == 0 && nghttp2_session_want_write(h2_) == 0);
}

void Session::on_frame_sent(int32_t stream_id, int type, bool end_stream) {
  if (type != NGHTTP2_HEADERS && type != NGHTTP2_DATA) return;
  // After data was sent, pings of both sides are legitimate.
  ping_strikes_ = 0;
  last_ping_received_ = Time();
  pings_without_data_ = 0;
  if (!end_stream) return;
  GrpcStream* stream = SessionCallbacks::stream_of(h2_, stream_id);
  // The answer is complete; further input of the client is dropped.
  if (stream != nullptr && !stream->half_closed_) {
    nghttp2_submit_rst_stream(h2_, NGHTTP2_FLAG_NONE, stream_id, NGHTTP2_NO_ERROR);
  }
}

void Session::on_ping() {
  const GrpcOptions& options = shared_->options;
  const bool is_idle = streams_.empty() && !options.keepalive_permit_without_calls;
  const std::chrono::milliseconds interval = is_idle ? std::chrono::milliseconds(kIdlePingInterval)
                                                     : options.min_recv_ping_interval_without_data;
  const bool too_soon = last_ping_received_ != Time() && now_ < last_ping_received_ + interval;
  last_ping_received_ = now_;
  if (!too_soon || options.max_ping_strikes == 0 || ++ping_strikes_ <= options.max_ping_strikes) {
    return;
  }
  const std::string_view why = "too_many_pings";
  nghttp2_submit_goaway(h2_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(h2_),
                        NGHTTP2_ENHANCE_YOUR_CALM, reinterpret_cast<const uint8_t*>(why.data()),
                        why.size());
  fail("too many pings");
}

void Session::check_keepalive(Time now) {
  const GrpcOptions& options = shared_->options;
  if (ping_pending_) {
    if (last_receive_ >= ping_sent_) {
      ping_pending_ = false;
    } else if (now - ping_sent_ >= options.keepalive_timeout) {
      return fail("no answer to a keepalive ping");
    }
    return;
  }
  if (now - last_receive_ < options.keepalive_time) return;
  if (ping_sent_ != Time() && now - ping_sent_ < options.keepalive_time) return;
  if (streams_.empty() && !options.keepalive_permit_without_calls) return;
  if (options.max_pings_without_data > 0 && pings_without_data_ >= options.max_pings_without_data) {
    return;
  }
  ++pings_without_data_;
  nghttp2_submit_ping(h2_, NGHTTP2_FLAG_NONE, nullptr);
  ping_pending_ = true;
  ping_sent_ = now;
  on_output_();
}

// Checks deadlines of rpcs, requests that do not arrive, answers that are not read.
void Session::check_streams(Time now) {
  next_scan_ = now + kScanInterval;
  next_deadline_ = Time::max();
  const GrpcOptions& options = shared_->options;
  std::vector<std::shared_ptr<GrpcStream>> all;
  for (const auto& [id, stream] : streams_) all.push_back(stream);
  for (const auto& stream : all) {
    if (stream->session_ == nullptr) continue;
    if (!stream->finished_ && stream->method_ == nullptr &&
        now - stream->started_ > options.handshake_timeout) {
      return fail("the headers of a request did not arrive");
    }
    const bool is_running = !stream->finished_ && stream->method_ != nullptr;
    const std::chrono::seconds extra(stream->reader_.size() / kSlowestBytesPerSecond);
    if (is_running && stream->deadline_ <= now) {
      stream->give_up(deadline_exceeded("Deadline Exceeded"));
    } else if (now - options.message_timeout - extra > stream->arriving_since()) {
      stream->give_up(deadline_exceeded("the request did not arrive in time"));
    } else if (stream->arriving_since() != Time::max() && stream->share_.is_large() &&
               shared_->budget->is_tight() && now - stream->last_receive_ > kTightTimeout) {
      stream->give_up(resource_exhausted(
          "the request stalled for {} s while the server was short of memory for requests",
          std::chrono::duration_cast<std::chrono::seconds>(kTightTimeout).count()));
    } else if ((stream->out_bytes_ > 0 || stream->finished_) &&
               now - stream->last_progress_ > stream->write_timeout()) {
      stream->reset(NGHTTP2_ENHANCE_YOUR_CALM);
    } else if (is_running) {
      next_deadline_ = std::min(next_deadline_, stream->deadline_);
    }
  }
}

void Session::tick(Time now) {
  now_ = now;
  if (dead_) return;
  const GrpcOptions& options = shared_->options;
  if (!got_frame_ && now - created_ > options.handshake_timeout) return fail("no handshake");
  if (now >= next_deadline_ || (now >= next_scan_ && !streams_.empty())) check_streams(now);
  check_keepalive(now);
  if (now >= age_limit_) {
    age_limit_ = Time::max();
    if (options.max_connection_age_grace.count() > 0) {
      age_grace_limit_ = now + options.max_connection_age_grace;
    }
    drain();
  }
  if (now >= age_grace_limit_) return fail("the connection is too old");
  if (drain_ == Drain::kNoticed && now - drain_began_ >= kGoawayDelay) {
    drain_ = Drain::kDone;
    nghttp2_submit_goaway(h2_, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(h2_),
                          NGHTTP2_NO_ERROR, nullptr, 0);
    on_output_();
  }
}

void Session::stop_streams() {
  std::vector<std::shared_ptr<StreamHandler>> handlers;
  for (const auto& [id, stream] : streams_) {
    if (stream->handler_ != nullptr) handlers.push_back(stream->handler_);
  }
  for (const auto& handler : handlers) handler->on_stop();
}

void Session::end_calls(const Status& status) {
  std::vector<std::shared_ptr<GrpcStream>> all;
  for (const auto& [id, stream] : streams_) all.push_back(stream);
  for (const auto& stream : all) {
    if (stream->session_ != nullptr && stream->method_ != nullptr) stream->give_up(status);
  }
}

void Session::drain() {
  if (drain_ != Drain::kNo) {
    if (shared_->stopping) stop_streams();
    return;
  }
  drain_ = Drain::kNoticed;
  drain_began_ = now_;
  nghttp2_submit_shutdown_notice(h2_);
  if (shared_->stopping) stop_streams();
  on_output_();
}

}  // namespace nereid::front
