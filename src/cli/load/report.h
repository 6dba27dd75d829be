// Statistics of measured requests, and the reports of bench-serve.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/load/load.h"

namespace nereid::cli {

// Statistics of a list of numbers; all 0 when it is empty. Percentiles interpolate
// linearly between ranks.
struct Spread {
  explicit Spread(std::vector<double> values);
  double percentile(double percent) const;  // valid: 0 to 100
  double mean = 0, stdev = 0;

  bool empty() const { return sorted_.empty(); }

 private:
  std::vector<double> sorted_;
};

// Upper limits in milliseconds for a request to count in the goodput; unset: no limit.
struct Slo {
  std::optional<double> ttft_ms, tpot_ms, e2el_ms;
  bool is_set() const { return ttft_ms || tpot_ms || e2el_ms; }
};
// Parses any of "ttft:500 tpot:50 e2el:2000". InvalidArgument.
StatusOr<Slo> parse_slo(const std::vector<std::string>& words);

// A report with the names of `vllm bench serve`: duration, completed, failed, request_throughput,
// request_goodput (with an SLO), output_throughput, total_token_throughput and mean, median, std
// and percentiles of ttft (time to first token), tpot (per later token, (end - first) / (tokens -
// 1)), itl (between events) and e2el (the whole request), in ms; errors: count of each.
json::object load_report(const std::vector<Outcome>& outcomes, const Slo& slo,
                         const std::vector<double>& percentiles);

// The report as text.
std::string load_report_text(const json::object& report);

}  // namespace nereid::cli
