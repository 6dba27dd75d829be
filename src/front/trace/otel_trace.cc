#include "front/trace/otel_trace.h"

#include <chrono>
#include <map>
#include <mutex>
#include <random>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "front/bridge/tensor.h"
#include "front/trace/core_trace.h"

namespace nereid::front {
namespace {

constexpr size_t kMaxOpenSpans = 1024;  // of custom activities in one request

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool is_zero(std::string_view text) {
  return text.find_first_not_of('0') == std::string_view::npos;
}

// 16 hexadecimal digits, never all zero.
std::string random_id() {
  thread_local std::mt19937_64 generator = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return fmt::format("{:016x}", generator() | 1);
}

uint64_t wall_minus_steady_ns() {
  using std::chrono::nanoseconds;
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<nanoseconds>(wall).count()) - now_ns();
}

class OtelTrace final : public CoreTrace {
 public:
  OtelTrace(std::shared_ptr<OtlpExporter> exporter, uint32_t level,
            const std::optional<TraceParent>& parent, std::string_view trace_state)
      : CoreTrace(level),
        exporter_(std::move(exporter)),
        trace_id_(parent ? parent->trace_id : random_id() + random_id()),
        trace_state_(parent ? trace_state : "") {
    root_ = make_span("InferRequest", parent ? parent->span_id : "", now_ns());
  }

  ~OtelTrace() override {
    for (auto& [key, span] : open_) close(std::move(span), now_ns());
    close(std::move(root_), now_ns());
    if (!dropped()) exporter_->add(std::move(done_));
  }

  void report(std::string_view name, uint64_t ns) override {
    std::lock_guard lock(mutex_);
    // A request that waited in the socket began before it was read.
    root_.start_ns = std::min(root_.start_ns, unix_ns(ns));
    root_.events.emplace_back(name, unix_ns(ns));
  }

 protected:
  void on_activity(const CoreActivity& a) override {
    std::lock_guard lock(mutex_);
    switch (a.activity) {
      case TRITONSERVER_TRACE_REQUEST_START:
        return start_request(a);
      case TRITONSERVER_TRACE_COMPUTE_START:
        open({a.id, "compute"}, make_span("compute", request_span(a.id), a.ns));
        return event({a.id, "compute"}, a);
      case TRITONSERVER_TRACE_COMPUTE_INPUT_END:
      case TRITONSERVER_TRACE_COMPUTE_OUTPUT_START:
        return event({a.id, "compute"}, a);
      case TRITONSERVER_TRACE_COMPUTE_END:
        event({a.id, "compute"}, a);
        return end({a.id, "compute"}, a.ns);
      case TRITONSERVER_TRACE_REQUEST_END:
        event({a.id, ""}, a);
        return end({a.id, ""}, a.ns);
      case TRITONSERVER_TRACE_CUSTOM_ACTIVITY:
        return custom(a);
      default:
        return event({a.id, ""}, a);
    }
  }

  void on_tensor(const CoreActivity&, const TensorView&) override {}  // no such level

 private:
  using Key = std::pair<uint64_t, std::string>;  // core trace; "" = its request

  uint64_t unix_ns(uint64_t steady_ns) const { return steady_ns + offset_ns_; }

  Span make_span(std::string name, std::string parent_id, uint64_t ns) {
    Span span;
    span.trace_id = trace_id_;
    span.span_id = random_id();
    span.parent_id = std::move(parent_id);
    span.trace_state = trace_state_;
    span.name = std::move(name);
    span.start_ns = unix_ns(ns);
    return span;
  }

  void start_request(const CoreActivity& a) {
    const TracedRequest request = traced_request(a.trace);
    Span span =
        make_span(request.model,
                  request.parent_id == 0 ? root_.span_id : request_span(request.parent_id), a.ns);
    span.texts = {{"triton.model_name", request.model}};
    if (!request.request_id.empty()) {
      span.texts.emplace_back("triton.request_id", request.request_id);
    }
    span.numbers = {{"triton.model_version", request.version},
                    {"triton.trace_id", static_cast<int64_t>(a.id)},
                    {"triton.trace_parent_id", static_cast<int64_t>(request.parent_id)}};
    // Backends that call further services read it there.
    const std::string context = json::serialize(
        json::object{{"traceparent", fmt::format("00-{}-{}-01", trace_id_, span.span_id)}});
    take_error(TRITONSERVER_InferenceTraceSetContext(a.trace, context.c_str())).IgnoreError();
    open({a.id, ""}, std::move(span));
    event({a.id, ""}, a);
  }

  // Spans opened by backends; other names are events of the request.
  void custom(const CoreActivity& a) {
    constexpr std::string_view kStart = "_START", kEnd = "_END";
    const std::string_view name = a.name;
    if (name.ends_with(kStart) && name.size() > kStart.size()) {
      const std::string stem(name.substr(0, name.size() - kStart.size()));
      open({a.id, ":" + stem}, make_span(stem, request_span(a.id), a.ns));
      event({a.id, ":" + stem}, a);
    } else if (name.ends_with(kEnd) && name.size() > kEnd.size() &&
               open_.contains({a.id, ":" + a.name.substr(0, name.size() - kEnd.size())})) {
      const Key key{a.id, ":" + a.name.substr(0, name.size() - kEnd.size())};
      event(key, a);
      end(key, a.ns);
    } else {
      event({a.id, ""}, a);
    }
  }

  const std::string& request_span(uint64_t id) const {
    const auto it = open_.find({id, ""});
    return it == open_.end() ? root_.span_id : it->second.span_id;
  }

  void open(Key key, Span span) {
    end(key, 0);
    if (open_.size() < kMaxOpenSpans) open_.emplace(std::move(key), std::move(span));
  }

  void event(const Key& key, const CoreActivity& a) {
    const auto it = open_.find(key);
    if (it != open_.end()) it->second.events.emplace_back(a.name, unix_ns(a.ns));
  }

  void end(const Key& key, uint64_t ns) {
    const auto it = open_.find(key);
    if (it == open_.end()) return;
    Span span = std::move(it->second);
    open_.erase(it);
    close(std::move(span), ns == 0 ? now_ns() : ns);
  }

  void close(Span span, uint64_t ns) {
    span.end_ns = std::max(span.start_ns, unix_ns(ns));
    done_.push_back(std::move(span));
  }

  const std::shared_ptr<OtlpExporter> exporter_;
  const std::string trace_id_, trace_state_;
  const uint64_t offset_ns_ = wall_minus_steady_ns();
  std::mutex mutex_;
  Span root_;
  std::map<Key, Span> open_;
  std::vector<Span> done_;
};

}  // namespace

std::optional<TraceParent> parse_traceparent(std::string_view header) {
  // version "-" trace-id "-" parent-id "-" flags; later versions may append.
  if (header.size() < 55 || header[2] != '-' || header[35] != '-' || header[52] != '-') return {};
  const std::string_view version = header.substr(0, 2), flags = header.substr(53, 2);
  const std::string_view trace_id = header.substr(3, 32), span_id = header.substr(36, 16);
  if (!is_hex(version) || !is_hex(trace_id) || !is_hex(span_id) || !is_hex(flags)) return {};
  if (version == "ff" || is_zero(trace_id) || is_zero(span_id)) return {};
  if (header.size() > 55 && (version == "00" || header[55] != '-')) return {};
  return TraceParent{std::string(trace_id), std::string(span_id)};
}

RequestTracePtr make_otel_trace(std::shared_ptr<OtlpExporter> exporter, uint32_t level,
                                const std::optional<TraceParent>& parent,
                                std::string_view trace_state) {
  return std::make_shared<OtelTrace>(std::move(exporter), level, parent, trace_state);
}

}  // namespace nereid::front
