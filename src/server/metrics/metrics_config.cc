#include "server/metrics/metrics_config.h"

#include <charconv>

#include "base/log.h"

namespace nereid::server {
namespace {

Status set_switch(std::string_view setting, std::string_view value, bool& out) {
  if (value == "true" || value == "True" || value == "1") {
    out = true;
  } else if (value == "false" || value == "False" || value == "0") {
    out = false;
  } else {
    return invalid_argument("metrics setting '{}': '{}' is neither true nor false", setting, value);
  }
  return ok();
}

// As in the stock server text behind the number is ignored, with a warning.
bool parse_fraction(std::string_view text, double& out) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), out);
  if (parsed.ec != std::errc() || out < 0 || out > 1) return false;
  if (parsed.ptr != text.data() + text.size()) {
    log_warn("metrics setting 'summary_quantiles': '{}' is read as {}", text, out);
  }
  return true;
}

Status set_quantiles(std::string_view value, std::vector<SummaryQuantile>& out) {
  std::vector<SummaryQuantile> list;
  for (size_t begin = 0; begin <= value.size();) {
    const size_t end = std::min(value.find(',', begin), value.size());
    const std::string_view pair = value.substr(begin, end - begin);
    const size_t colon = pair.find(':');
    SummaryQuantile q;
    if (colon == std::string_view::npos || !parse_fraction(pair.substr(0, colon), q.quantile) ||
        !parse_fraction(pair.substr(colon + 1), q.error)) {
      return invalid_argument(
          "metrics setting 'summary_quantiles': '{}' is not <quantile>:<error> with both from 0 to "
          "1",
          pair);
    }
    list.push_back(q);
    begin = end + 1;
  }
  out = std::move(list);
  return ok();
}

}  // namespace

Status set_metrics_config(MetricsConfig& config, std::string_view setting, std::string_view value) {
  if (setting == "counter_latencies") return set_switch(setting, value, config.counter_latencies);
  if (setting == "summary_latencies") return set_switch(setting, value, config.summary_latencies);
  if (setting == "histogram_latencies") {
    return set_switch(setting, value, config.histogram_latencies);
  }
  if (setting == "summary_quantiles") return set_quantiles(value, config.quantiles);
  return invalid_argument(
      "metrics setting '{}' is unknown; there are counter_latencies, summary_latencies, "
      "histogram_latencies and summary_quantiles",
      setting);
}

}  // namespace nereid::server
