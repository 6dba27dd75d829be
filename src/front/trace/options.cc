// Parsing of --trace-config; see options.h.
#include "front/trace/options.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "front/client/url.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {
namespace {

constexpr char kAllowed[] =
    "level=OFF|TIMESTAMPS|TENSORS, rate=N, count=N, mode=triton|opentelemetry, triton,file=PATH, "
    "triton,log-frequency=N, opentelemetry,url=URL, opentelemetry,resource=KEY=VALUE, "
    "opentelemetry,bsp_max_queue_size=N, opentelemetry,bsp_schedule_delay=MS, "
    "opentelemetry,bsp_max_export_batch_size=N";

struct Entry {
  const std::string& text;
  std::string_view mode, key, value;
};

template <class T>
Status read_number(const Entry& entry, int64_t lowest, int64_t highest, T& out) {
  int64_t value = 0;
  const char* end = entry.value.data() + entry.value.size();
  const auto parsed = std::from_chars(entry.value.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < lowest || value > highest) {
    return invalid_argument("'{}' is not a number in [{}, {}]", entry.value, lowest, highest);
  }
  out = static_cast<T>(value);
  return ok();
}

Status unknown(const Entry& entry) {
  return invalid_argument("no such setting as '{}'; allowed are {}", entry.text, kAllowed);
}

Status read_level(const Entry& entry, TraceOptions& out) {
  if (entry.value == "OFF") {
    out.level = 0;
  } else if (entry.value == "TIMESTAMPS" || entry.value == "MIN" || entry.value == "MAX") {
    out.level |= TRITONSERVER_TRACE_LEVEL_TIMESTAMPS;
  } else if (entry.value == "TENSORS") {
    out.level |= TRITONSERVER_TRACE_LEVEL_TENSORS;
  } else {
    return invalid_argument("'{}' is none of OFF, TIMESTAMPS, TENSORS", entry.value);
  }
  return ok();
}

Status read_mode(const Entry& entry, TraceOptions& out) {
  if (entry.value != "triton" && entry.value != "opentelemetry") {
    return invalid_argument("'{}' is none of triton, opentelemetry", entry.value);
  }
  out.mode = entry.value == "triton" ? TraceMode::kTriton : TraceMode::kOpenTelemetry;
  return ok();
}

Status read_otlp(const Entry& entry, OtlpOptions& out) {
  if (entry.key == "url") {
    out.url = entry.value;
    return ok();
  }
  if (entry.key == "resource") {
    const size_t equals = entry.value.find('=');
    if (equals == 0 || equals == std::string_view::npos) {
      return invalid_argument("'{}' is not KEY=VALUE", entry.value);
    }
    out.resource[std::string(entry.value.substr(0, equals))] = entry.value.substr(equals + 1);
    return ok();
  }
  if (entry.key == "bsp_max_queue_size") return read_number(entry, 1, 1 << 24, out.max_queue_size);
  if (entry.key == "bsp_schedule_delay") {
    return read_number(entry, 0, 86400000, out.schedule_delay_ms);
  }
  if (entry.key == "bsp_max_export_batch_size") {
    return read_number(entry, 1, 1 << 20, out.max_batch_size);
  }
  return unknown(entry);
}

Status read(const Entry& entry, TraceOptions& out) {
  if (entry.mode == "opentelemetry") return read_otlp(entry, out.otlp);
  if (entry.mode == "triton" && entry.key == "file") {
    out.file = entry.value;
    return ok();
  }
  if (entry.mode == "triton" && entry.key == "log-frequency") {
    return read_number(entry, 0, UINT32_MAX, out.log_frequency);
  }
  if (!entry.mode.empty()) return unknown(entry);
  if (entry.key == "level") return read_level(entry, out);
  if (entry.key == "mode") return read_mode(entry, out);
  if (entry.key == "rate") return read_number(entry, 0, UINT32_MAX, out.rate);
  if (entry.key == "count") return read_number(entry, -1, INT32_MAX, out.count);
  return unknown(entry);
}

// `source`: origin of the entry, unless the command line.
Status read_entry(const std::string& text, TraceOptions& out, std::string source = "") {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) {
    return invalid_argument("--trace-config {}: not KEY=VALUE; allowed are {}", text, kAllowed);
  }
  const std::string_view left = std::string_view(text).substr(0, equals);
  const size_t comma = left.find(',');
  Entry entry{text, "", left, std::string_view(text).substr(equals + 1)};
  if (comma != std::string_view::npos) {
    entry.mode = left.substr(0, comma);
    entry.key = left.substr(comma + 1);
  }
  const Status status = read(entry, out);
  if (status.ok()) return status;
  if (source.empty()) source = fmt::format("--trace-config {}", left);
  return invalid_argument("Bad option: \"{}\".\n{}", source, message(status));
}

// The SDK's environment variables, as entries before those of the command line.
Status read_environment(TraceOptions& out) {
  constexpr const char* kNames[][2] = {
      {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "opentelemetry,url="},
      {"OTEL_BSP_MAX_QUEUE_SIZE", "opentelemetry,bsp_max_queue_size="},
      {"OTEL_BSP_SCHEDULE_DELAY", "opentelemetry,bsp_schedule_delay="},
      {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "opentelemetry,bsp_max_export_batch_size="},
      {"OTEL_SERVICE_NAME", "opentelemetry,resource=service.name="},
  };
  const char* list = std::getenv("OTEL_RESOURCE_ATTRIBUTES");
  std::string_view rest = list == nullptr ? "" : list;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    if (comma > 0) {
      RETURN_IF_ERROR(read_entry("opentelemetry,resource=" + std::string(rest.substr(0, comma)),
                                 out, "OTEL_RESOURCE_ATTRIBUTES"));
    }
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  for (const char* name :
       {"OTEL_EXPORTER_OTLP_CERTIFICATE", "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE"}) {
    if (const char* file = std::getenv(name); file != nullptr && *file != 0)
      out.otlp.ca_file = file;
  }
  for (const auto& [name, prefix] : kNames) {
    if (const char* value = std::getenv(name); value != nullptr && *value != 0) {
      RETURN_IF_ERROR(read_entry(prefix + std::string(value), out, name));
    }
  }
  return ok();
}

}  // namespace

StatusOr<TraceOptions> parse_trace_config(const std::vector<std::string>& entries) {
  TraceOptions out;
  const auto is_otel = [](const std::string& e) { return e == "mode=opentelemetry"; };
  bool otel = false;
  for (const std::string& entry : entries) {
    if (entry.starts_with("mode=")) otel = is_otel(entry);
  }
  // Without export the exporter's environment is not read.
  if (otel) RETURN_IF_ERROR(read_environment(out));
  for (const std::string& entry : entries) RETURN_IF_ERROR(read_entry(entry, out));
  if (out.otlp.max_batch_size > out.otlp.max_queue_size) {
    out.otlp.max_batch_size = out.otlp.max_queue_size;
  }
  if (otel) RETURN_IF_ERROR(parse_url(out.otlp.url).status());
  if (!otel && out.rate == 0) {
    return invalid_argument(
        "Bad option: \"--trace-config rate\".\n'0' is for mode opentelemetry only, where clients "
        "may "
        "ask for traces");
  }
  if (otel && (out.level & TRITONSERVER_TRACE_LEVEL_TENSORS) != 0) {
    return invalid_argument("--trace-config level=TENSORS: mode opentelemetry has TIMESTAMPS only");
  }
  if (!otel && out.level != 0 && out.file.empty()) {
    return invalid_argument(
        "--trace-config level: mode triton needs --trace-config triton,file=PATH");
  }
  return out;
}

}  // namespace nereid::front
