// See otlp_exporter.h. Protocol: opentelemetry-proto 1.x, trace service, JSON mapping; retryable
// responses: the OTLP specification, "Failures".
#include "front/trace/otlp_exporter.h"

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <charconv>
#include <iterator>
#include <optional>

#include "base/contained.h"
#include "base/json.h"
#include "base/log.h"

namespace nereid::front {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr std::chrono::seconds kTimeout(10);  // for a whole POST
constexpr int64_t kMaxPauseSeconds = 60;      // limit of a collector's Retry-After
constexpr int kServerKind = 2;                // SPAN_KIND_SERVER
constexpr char kScope[] = "triton-server";

json::object attribute(const std::string& key, const std::string& text) {
  return {{"key", key}, {"value", json::object{{"stringValue", text}}}};
}

json::object span_json(const Span& span) {
  json::array attributes, events;
  for (const auto& [key, text] : span.texts) attributes.push_back(attribute(key, text));
  for (const auto& [key, number] : span.numbers) {
    // 64-bit numbers are strings in the JSON mapping of protobuf.
    attributes.push_back(
        json::object{{"key", key}, {"value", json::object{{"intValue", std::to_string(number)}}}});
  }
  for (const auto& [name, ns] : span.events) {
    events.push_back(json::object{{"timeUnixNano", std::to_string(ns)}, {"name", name}});
  }
  json::object out{{"traceId", span.trace_id},
                   {"spanId", span.span_id},
                   {"name", span.name},
                   {"kind", kServerKind},
                   {"startTimeUnixNano", std::to_string(span.start_ns)},
                   {"endTimeUnixNano", std::to_string(span.end_ns)},
                   {"attributes", std::move(attributes)},
                   {"events", std::move(events)}};
  if (!span.parent_id.empty()) out["parentSpanId"] = span.parent_id;
  if (!span.trace_state.empty()) out["traceState"] = span.trace_state;
  return out;
}

// One POST on a connection of its own; every step under one deadline.
class Post {
 public:
  // `tls` null: plain text.
  Post(const Url& url, const std::string& body, asio::ssl::context* tls)
      : url_(url), stream_(io_), resolver_(io_) {
    if (tls != nullptr) tls_.emplace(stream_, *tls);
    request_.method(http::verb::post);
    request_.target(url.target);
    request_.version(11);
    const bool is_v6 = url.host.find(':') != std::string::npos;
    const bool is_usual = url.port == (url.is_tls ? "443" : "80");
    request_.set(http::field::host,
                 (is_v6 ? "[" + url.host + "]" : url.host) + (is_usual ? "" : ":" + url.port));
    request_.set(http::field::content_type, "application/json");
    request_.set(http::field::connection, "close");
    request_.body() = body;
    request_.prepare_payload();
    parser_.body_limit(boost::none);  // the body is not read
  }

  // Unavailable: may be retried.
  Status run() {
    resolver_.async_resolve(url_.host, url_.port, [this](error_code ec, auto results) {
      if (note("resolve", ec)) return;
      stream_.expires_after(kTimeout);
      stream_.async_connect(results, [this](error_code e, const auto&) {
        if (note("connect", e)) return;
        tls_ ? handshake() : exchange(stream_);
      });
    });
    io_.run_for(2 * kTimeout);  // a resolver may hang
    if (!failure_.ok()) return failure_;
    if (!done_) return unavailable("no answer within {} s", kTimeout.count());
    const auto status = parser_.get().result_int();
    if (status / 100 == 2) return ok();
    const bool is_busy = status == 429 || status == 502 || status == 503 || status == 504;
    return is_busy ? unavailable("the collector answers {}", status)
                   : invalid_argument("the collector answers {}", status);
  }
  // Seconds in the response's Retry-After; 0 without it.
  Duration pause() const {
    int64_t seconds = 0;
    const std::string_view text = parser_.get()[http::field::retry_after];
    std::from_chars(text.data(), text.data() + text.size(), seconds);
    return std::chrono::seconds(std::clamp<int64_t>(seconds, 0, kMaxPauseSeconds));
  }

 private:
  bool note(const char* step, error_code ec) {
    if (ec) failure_ = unavailable("{}: {}", step, ec.message());
    return static_cast<bool>(ec);
  }
  void handshake() {
    error_code is_name;
    asio::ip::make_address(url_.host, is_name);
    if (is_name) SSL_set_tlsext_host_name(tls_->native_handle(), url_.host.c_str());
    tls_->set_verify_mode(asio::ssl::verify_peer);
    tls_->set_verify_callback(asio::ssl::host_name_verification(url_.host));
    tls_->async_handshake(asio::ssl::stream_base::client, [this](error_code ec) {
      if (!note("TLS handshake", ec)) return exchange(*tls_);
      const bool is_untrusted =
          ec.category() == asio::error::get_ssl_category() &&
          ERR_GET_REASON(static_cast<unsigned long>(ec.value())) == SSL_R_CERTIFICATE_VERIFY_FAILED;
      if (is_untrusted) failure_ = invalid_argument("{}", message(failure_));
    });
  }
  void exchange(auto& stream) {
    http::async_write(stream, request_, [this, &stream](error_code ec, size_t) {
      // Reads only the status: a server that refuses a body need not read all of it.
      http::async_read_header(stream, buffer_, parser_, [this, ec](error_code e, size_t) {
        done_ = !e;
        if (e) note(ec ? "write" : "read", ec ? ec : e);
      });
    });
  }

  const Url& url_;
  asio::io_context io_;
  beast::tcp_stream stream_;
  std::optional<asio::ssl::stream<beast::tcp_stream&>> tls_;
  asio::ip::tcp::resolver resolver_;
  http::request<http::string_body> request_;
  beast::flat_buffer buffer_;
  http::response_parser<http::string_body> parser_;
  Status failure_;
  bool done_ = false;
};

}  // namespace

std::string otlp_body(const OtlpOptions& options, const std::vector<Span>& spans) {
  json::array attributes, list;
  for (const auto& [key, value] : options.resource) attributes.push_back(attribute(key, value));
  for (const Span& span : spans) list.push_back(span_json(span));
  json::object scope{{"scope", json::object{{"name", kScope}}}, {"spans", std::move(list)}};
  json::object resource{{"resource", json::object{{"attributes", std::move(attributes)}}},
                        {"scopeSpans", json::array{std::move(scope)}}};
  return json::serialize(json::object{{"resourceSpans", json::array{std::move(resource)}}});
}

struct OtlpExporter::Tls {
  asio::ssl::context context{asio::ssl::context::tls_client};
};

StatusOr<std::unique_ptr<OtlpExporter>> OtlpExporter::create(OtlpOptions options) {
  ASSIGN_OR_RETURN(Url url, parse_url(options.url));
  std::unique_ptr<Tls> tls;
  if (url.is_tls) {
    tls = std::make_unique<Tls>();
    error_code ec;
    if (options.ca_file.empty()) {
      tls->context.set_default_verify_paths(ec);
    } else {
      tls->context.load_verify_file(options.ca_file, ec);
    }
    if (ec) {
      return invalid_argument("OTEL_EXPORTER_OTLP_CERTIFICATE: '{}' cannot be used: {}",
                              options.ca_file, ec.message());
    }
  }
  return std::unique_ptr<OtlpExporter>(
      new OtlpExporter(std::move(options), std::move(url), std::move(tls)));
}

OtlpExporter::OtlpExporter(OtlpOptions options, Url url, std::unique_ptr<Tls> tls)
    : options_(std::move(options)),
      url_(std::move(url)),
      tls_(std::move(tls)),
      thread_([this] { run_contained("export of traces", [this] { run(); }); }) {}

OtlpExporter::~OtlpExporter() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void OtlpExporter::add(std::vector<Span> spans) {
  {
    std::lock_guard lock(mutex_);
    for (Span& span : spans) {
      if (queue_.size() >= options_.max_queue_size) {
        ++num_dropped_;
      } else {
        queue_.push_back(std::move(span));
      }
    }
    if (!has_work()) return;  // later spans wait for the delay
  }
  changed_.notify_all();
}

bool OtlpExporter::has_work() const {
  return queue_.size() >= (options_.schedule_delay_ms == 0 ? 1 : options_.max_batch_size);
}

std::vector<Span> OtlpExporter::take_batch() {
  const size_t count = std::min<size_t>(queue_.size(), options_.max_batch_size);
  const auto end = queue_.begin() + static_cast<ptrdiff_t>(count);
  std::vector<Span> batch(std::make_move_iterator(queue_.begin()), std::make_move_iterator(end));
  queue_.erase(queue_.begin(), end);
  return batch;
}

void OtlpExporter::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto is_time = [&] { return stopping_ || has_work(); };
    if (options_.schedule_delay_ms == 0) {
      changed_.wait(lock, is_time);
    } else {
      changed_.wait_for(lock, std::chrono::milliseconds(options_.schedule_delay_ms), is_time);
    }
    bool answers = true;
    while (!queue_.empty() && answers) {
      const auto batch = take_batch();
      const uint64_t dropped = std::exchange(num_dropped_, 0);
      lock.unlock();
      const Status sent = send(otlp_body(options_, batch));
      answers = !absl::IsUnavailable(sent);
      // Once for each outage.
      if (!sent.ok() && !is_down_) {
        log_warn("traces to {}: {}; {} spans are lost", options_.url, message(sent), batch.size());
      }
      if (dropped > 0) {
        log_warn("BatchSpanProcessor queue is full - dropping span. {} so far, traces to {}",
                 dropped, options_.url);
      }
      is_down_ = !sent.ok();
      lock.lock();
    }
    if (!stopping_) continue;
    if (!queue_.empty()) log_warn("traces to {}: {} spans are lost", options_.url, queue_.size());
    return;
  }
}

Status OtlpExporter::send(const std::string& body) {
  Duration delay = std::chrono::milliseconds(options_.retry_delay_ms);
  std::unique_lock lock(mutex_);
  for (uint32_t retry = 0;; ++retry) {
    const bool is_last = stopping_ || retry == options_.max_retries;
    lock.unlock();
    Duration pause{};
    const Status sent = post(body, pause);
    if (is_last || !absl::IsUnavailable(sent)) return sent;
    if (retry == 0 && !is_down_) {
      log_info("traces to {}: {}; they are kept and tried again", options_.url, message(sent));
    }
    const double factor = std::uniform_real_distribution(1.0, 1.5)(random_);
    pause = std::max(pause, std::chrono::duration_cast<Duration>(delay * factor));
    delay *= 2;
    lock.lock();
    changed_.wait_for(lock, pause, [&] { return stopping_; });
  }
}

Status OtlpExporter::post(const std::string& body, Duration& pause) const {
  try {
    Post post(url_, body, tls_ == nullptr ? nullptr : &tls_->context);
    const Status status = post.run();
    pause = post.pause();
    return status;
  } catch (const std::exception& e) {
    return internal_error("{}", e.what());
  }
}

}  // namespace nereid::front
