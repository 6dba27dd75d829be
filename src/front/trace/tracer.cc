// Settings and sampling; see tracer.h.
#include "front/trace/tracer.h"

#include <fmt/ranges.h>

#include <atomic>
#include <charconv>
#include <mutex>
#include <optional>

#include "front/bridge/model_info.h"
#include "front/trace/otel_trace.h"
#include "front/trace/setting.h"
#include "front/trace/triton_trace.h"

namespace nereid::front {
namespace {

// `lowest` and `highest` appear in the error for an impossible number.
StatusOr<int64_t> parse_number(std::string_view key, const std::vector<std::string>& values,
                               int64_t lowest, int64_t highest) {
  if (values.size() != 1) return invalid_argument("expect only 1 value for '{}'", key);
  int64_t value = 0;
  const std::string& text = values[0];
  const auto end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  const bool is_too_long = parsed.ec == std::errc::result_out_of_range;
  if (parsed.ptr != end || (parsed.ec != std::errc() && !is_too_long)) {
    return invalid_argument("Unable to parse '{}', got: {}", key, text);
  }
  if (is_too_long || value > highest || value < INT32_MIN) {
    return invalid_argument("Unable to parse '{}', value is out of range [ {}, {} ], got: {}", key,
                            lowest, highest, text);
  }
  return value;
}

// A negative number wraps around, as in the stock server.
Status change(const Tracer::Changes& changes, const char* key, std::optional<uint32_t>& value) {
  const auto it = changes.find(key);
  if (it == changes.end()) return ok();
  value.reset();
  if (it->second.empty()) return ok();
  ASSIGN_OR_RETURN(const int64_t number, parse_number(key, it->second, 0, UINT32_MAX));
  value = static_cast<uint32_t>(number);
  return ok();
}

Status change_count(const Tracer::Changes& changes, std::optional<int64_t>& value) {
  const auto it = changes.find("trace_count");
  if (it == changes.end()) return ok();
  value.reset();
  if (it->second.empty()) return ok();
  ASSIGN_OR_RETURN(const int64_t number, parse_number("trace_count", it->second, -1, INT32_MAX));
  if (number < -1) {
    return invalid_argument("Unable to parse 'trace_count'. Expecting value >= -1, got: {}",
                            number);
  }
  value = number;
  return ok();
}

// Unknown names are ignored, as in the stock server.
Status change_level(const Tracer::Changes& changes, std::optional<uint32_t>& level) {
  const auto it = changes.find("trace_level");
  if (it == changes.end()) return ok();
  level.reset();
  if (it->second.empty()) return ok();
  uint32_t bits = 0;
  for (const std::string& name : it->second) {
    if (name == "OFF" && it->second.size() > 1) {
      return invalid_argument("Expect only one trace level 'OFF' is specified");
    }
    if (name == "TIMESTAMPS") bits |= TRITONSERVER_TRACE_LEVEL_TIMESTAMPS;
    if (name == "TENSORS") bits |= TRITONSERVER_TRACE_LEVEL_TENSORS;
  }
  level = bits;
  return ok();
}

std::vector<std::string> level_names(uint32_t level) {
  std::vector<std::string> names;
  if ((level & TRITONSERVER_TRACE_LEVEL_TIMESTAMPS) != 0) names.emplace_back("TIMESTAMPS");
  if ((level & TRITONSERVER_TRACE_LEVEL_TENSORS) != 0) names.emplace_back("TENSORS");
  if (names.empty()) names.emplace_back("OFF");
  return names;
}

}  // namespace

struct Tracer::Impl {
  // Settings changed by clients; others come from the level above.
  struct Overrides {
    std::optional<uint32_t> level, rate, frequency;
    std::optional<int64_t> count;

    bool none() const { return !level && !rate && !frequency && !count; }
    TraceValues over(TraceValues base) const {
      base.level = level.value_or(base.level);
      base.rate = rate.value_or(base.rate);
      base.log_frequency = frequency.value_or(base.log_frequency);
      base.count = count.value_or(base.count);
      return base;
    }
  };

  struct Scope {
    Overrides overrides;
    std::shared_ptr<TraceSetting> setting;  // effective
  };

  TRITONSERVER_Server* server;
  TraceOptions options;
  std::shared_ptr<TraceFile> file;
  std::shared_ptr<OtlpExporter> exporter;  // mode opentelemetry
  std::atomic<bool> is_on{false};
  std::mutex mutex;
  Scope global;
  std::map<std::string, Scope> models;  // with overrides

  TraceValues defaults() const {
    return {options.level, options.rate, options.count, options.log_frequency};
  }

  std::shared_ptr<TraceSetting> make(const TraceValues& values) const {
    return std::make_shared<TraceSetting>(values, options.mode, file);
  }

  // The effective setting of overrides; unchanged members keep their present value, so that
  // a count continues.
  StatusOr<Scope> apply(const Overrides& next, const Scope* present, const Changes& changes,
                        const TraceValues& above) const {
    Scope out;
    out.overrides = next;
    TraceValues values = next.over(above);
    if (present != nullptr && next.count && !changes.contains("trace_count")) {
      values.count = present->setting->values().count;
    }
    out.setting = make(values);
    RETURN_IF_ERROR(out.setting->check());
    return out;
  }

  void refresh_is_on() {
    bool on = global.setting->is_on();
    for (const auto& [name, scope] : models) on = on || scope.setting->is_on();
    is_on.store(on, std::memory_order_relaxed);
  }

  Status change(const std::string& model, const Changes& changes);
  Settings show(const std::string& model);
};

Status Tracer::Impl::change(const std::string& model, const Changes& changes) {
  if (changes.contains("trace_file")) {
    return unsupported("trace file location can not be updated through network protocol");
  }
  const auto it = models.find(model);
  const Scope* present = model.empty() ? &global : it == models.end() ? nullptr : &it->second;
  Overrides next = present == nullptr ? Overrides{} : present->overrides;
  RETURN_IF_ERROR(front::change(changes, "trace_rate", next.rate));
  RETURN_IF_ERROR(change_count(changes, next.count));
  RETURN_IF_ERROR(front::change(changes, "log_frequency", next.frequency));
  RETURN_IF_ERROR(change_level(changes, next.level));
  if (!model.empty()) {
    if (next.none()) {
      models.erase(model);
      return ok();
    }
    ASSIGN_OR_RETURN(Scope scope, apply(next, present, changes, global.setting->values()));
    models[model] = std::move(scope);
    return ok();
  }
  ASSIGN_OR_RETURN(Scope scope, apply(next, present, changes, defaults()));
  std::map<std::string, Scope> followers;
  for (const auto& [name, old] : models) {
    ASSIGN_OR_RETURN(followers[name], apply(old.overrides, &old, {}, scope.setting->values()));
  }
  global = std::move(scope);
  models = std::move(followers);
  return ok();
}

Tracer::Settings Tracer::Impl::show(const std::string& model) {
  const auto it = models.find(model);
  const TraceValues values = (it == models.end() ? global : it->second).setting->values();
  Settings out{{"trace_level", level_names(values.level)},
               {"trace_rate", {std::to_string(values.rate)}},
               {"trace_count", {std::to_string(values.count)}}};
  if (options.mode == TraceMode::kTriton) {
    out.push_back({"log_frequency", {std::to_string(values.log_frequency)}});
    out.push_back({"trace_file", {options.file}});
    out.push_back({"trace_mode", {"triton"}});
    return out;
  }
  const OtlpOptions& otlp = options.otlp;
  out.push_back({"trace_mode", {"opentelemetry"}});
  out.push_back({"url", {otlp.url}});
  for (const auto& [key, value] : otlp.resource) {
    if (out.back().first != "resource") out.push_back({"resource", {}});
    out.back().second.push_back(key + "=" + value);
  }
  out.push_back({"bsp_max_queue_size", {std::to_string(otlp.max_queue_size)}});
  out.push_back({"bsp_schedule_delay", {std::to_string(otlp.schedule_delay_ms)}});
  out.push_back({"bsp_max_export_batch_size", {std::to_string(otlp.max_batch_size)}});
  return out;
}

Tracer::Tracer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tracer::~Tracer() = default;

StatusOr<std::shared_ptr<Tracer>> Tracer::create(TRITONSERVER_Server* server,
                                                 TraceOptions options) {
  auto impl = std::make_unique<Impl>();
  impl->server = server;
  impl->options = std::move(options);
  impl->file = std::make_shared<TraceFile>(impl->options.file);
  if (impl->options.mode == TraceMode::kOpenTelemetry) {
    ASSIGN_OR_RETURN(impl->exporter, OtlpExporter::create(impl->options.otlp));
  }
  impl->global.setting = impl->make(impl->defaults());
  const bool clients_choose = impl->exporter != nullptr && impl->options.rate == 0;
  if (!clients_choose) RETURN_IF_ERROR(impl->global.setting->check());
  impl->refresh_is_on();
  return std::shared_ptr<Tracer>(new Tracer(std::move(impl)));
}

bool Tracer::is_on() const { return impl_->is_on.load(std::memory_order_relaxed); }

RequestTracePtr Tracer::sample(const std::string& model, std::string_view traceparent,
                               std::string_view tracestate) {
  if (!is_on()) return nullptr;
  std::shared_ptr<TraceSetting> setting;
  {
    std::lock_guard lock(impl_->mutex);
    const auto it = impl_->models.find(model);
    setting = (it == impl_->models.end() ? impl_->global : it->second).setting;
  }
  if (impl_->options.mode == TraceMode::kTriton) {
    return setting->take_sample() ? make_triton_trace(std::move(setting)) : nullptr;
  }
  const auto parent = parse_traceparent(traceparent);
  if (parent ? !setting->is_on() : !setting->take_sample()) return nullptr;
  return make_otel_trace(impl_->exporter, setting->values().level, parent, tracestate);
}

StatusOr<Tracer::Settings> Tracer::update(const std::string& model, const Changes& changes) {
  if (!model.empty() && !model_info(impl_->server, model, -1).ok()) {
    return invalid_argument("Request for unknown model : {}", model);
  }
  std::lock_guard lock(impl_->mutex);
  if (!changes.empty()) {
    RETURN_IF_ERROR(impl_->change(model, changes));
    impl_->refresh_is_on();
  }
  return impl_->show(model);
}

}  // namespace nereid::front
