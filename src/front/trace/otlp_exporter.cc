// See otlp_exporter.h. Protocol: opentelemetry-proto 1.x, trace service, JSON mapping; retryable
// responses: the OTLP specification, "Failures".
#include "front/trace/otlp_exporter.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/contained.h"
#include "base/json.h"
#include "base/log.h"

namespace nereid::front {
namespace {

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

// Seconds of a Retry-After; 0 without it.
Duration pause_of(const HttpAnswer& answer) {
  int64_t seconds = 0;
  const std::string& text = answer.retry_after;
  std::from_chars(text.data(), text.data() + text.size(), seconds);
  return std::chrono::seconds(std::clamp<int64_t>(seconds, 0, kMaxPauseSeconds));
}

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

StatusOr<std::unique_ptr<OtlpExporter>> OtlpExporter::create(OtlpOptions options) {
  ASSIGN_OR_RETURN(Url url, parse_url(options.url));
  std::shared_ptr<const TlsClient> tls;
  if (url.is_tls) {
    auto made = TlsClient::create(options.ca_file);
    if (!made.ok())
      return invalid_argument("OTEL_EXPORTER_OTLP_CERTIFICATE: {}", message(made.status()));
    tls = *std::move(made);
  }
  return std::unique_ptr<OtlpExporter>(
      new OtlpExporter(std::move(options), std::move(url), std::move(tls)));
}

OtlpExporter::OtlpExporter(OtlpOptions options, Url url, std::shared_ptr<const TlsClient> tls)
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
  const HttpCall call{.headers = {{"Content-Type", "application/json"}}, .body = body};
  // Only the head is read: a server that refuses a body need not read all of it.
  const auto answer = send_call(url_, call, now() + kTimeout, /*on_body=*/nullptr, tls_.get());
  if (absl::IsDeadlineExceeded(answer.status())) return unavailable("{}", message(answer.status()));
  RETURN_IF_ERROR(answer.status());
  pause = pause_of(*answer);
  const int status = answer->status;
  if (status / 100 == 2) return ok();
  const bool is_busy = status == 429 || status == 502 || status == 503 || status == 504;
  return is_busy ? unavailable("the collector answers {}", status)
                 : invalid_argument("the collector answers {}", status);
}

}  // namespace nereid::front
