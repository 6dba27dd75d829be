#include "cli/load/report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>

#include "base/json_members.h"

namespace nereid::cli {
namespace {

constexpr std::pair<const char*, const char*> kTimes[] = {{"ttft", "Time to first token"},
                                                          {"tpot", "Time per later token"},
                                                          {"itl", "Between events"},
                                                          {"e2el", "Whole request"}};

// Times of one successful request in ms.
struct RequestTimes {
  double ttft = 0, e2el = 0;
  std::optional<double> tpot;  // unset with fewer than two tokens
};

RequestTimes times_of(const Outcome& outcome) {
  RequestTimes times{.ttft = 1e3 * (outcome.first_s - outcome.begin_s),
                     .e2el = 1e3 * (outcome.end_s - outcome.begin_s)};
  if (outcome.output_tokens > 1)
    times.tpot = (times.e2el - times.ttft) / static_cast<double>(outcome.output_tokens - 1);
  return times;
}

bool keeps(const Slo& slo, const RequestTimes& times) {
  return times.ttft <= slo.ttft_ms.value_or(INFINITY) &&
         times.tpot.value_or(0) <= slo.tpot_ms.value_or(INFINITY) &&
         times.e2el <= slo.e2el_ms.value_or(INFINITY);
}

std::string percentile_name(double percent, std::string_view what) {
  return fmt::format("p{:g}_{}_ms", percent, what);
}

void add_spread(json::object& report, std::string_view what, std::vector<double> values,
                const std::vector<double>& percentiles) {
  const Spread spread(std::move(values));
  report[fmt::format("mean_{}_ms", what)] = spread.mean;
  report[fmt::format("median_{}_ms", what)] = spread.percentile(50);
  report[fmt::format("std_{}_ms", what)] = spread.stdev;
  for (const double percent : percentiles)
    report[percentile_name(percent, what)] = spread.percentile(percent);
}

double number_of(const json::object& report, std::string_view name) {
  const json::value& value = member_or_null(report, name);
  return value.is_number() ? value.to_number<double>() : 0;
}

}  // namespace

Spread::Spread(std::vector<double> values) : sorted_(std::move(values)) {
  if (sorted_.empty()) return;
  std::sort(sorted_.begin(), sorted_.end());
  const auto count = static_cast<double>(sorted_.size());
  mean = std::accumulate(sorted_.begin(), sorted_.end(), 0.0) / count;
  double squares = 0;
  for (const double value : sorted_) squares += (value - mean) * (value - mean);
  stdev = std::sqrt(squares / count);
}

double Spread::percentile(double percent) const {
  if (sorted_.empty()) return 0;
  const double rank = percent / 100 * static_cast<double>(sorted_.size() - 1);
  const auto low = static_cast<size_t>(rank);
  const size_t high = std::min(low + 1, sorted_.size() - 1);
  return sorted_[low] + (rank - static_cast<double>(low)) * (sorted_[high] - sorted_[low]);
}

StatusOr<Slo> parse_slo(const std::vector<std::string>& words) {
  Slo slo;
  for (const std::string& word : words) {
    const size_t colon = word.find(':');
    const std::string name = word.substr(0, colon);
    std::optional<double>* const to = name == "ttft"   ? &slo.ttft_ms
                                      : name == "tpot" ? &slo.tpot_ms
                                      : name == "e2el" ? &slo.e2el_ms
                                                       : nullptr;
    double value = 0;
    const char* const end = word.data() + word.size();
    const bool is_number = colon != word.npos &&
                           std::from_chars(word.data() + colon + 1, end, value).ptr == end &&
                           std::isfinite(value) && value > 0;
    if (!to || !is_number)
      return invalid_argument("--goodput: '{}' is not ttft:MS, tpot:MS or e2el:MS", word);
    *to = value;
  }
  return slo;
}

json::object load_report(const std::vector<Outcome>& outcomes, const Slo& slo,
                         const std::vector<double>& percentiles) {
  std::vector<double> ttft, tpot, itl, e2el;
  std::map<std::string, int64_t> errors;
  int64_t completed = 0, good = 0, prompt_tokens = 0, output_tokens = 0;
  double end = 0, begin = INFINITY, latest_send = 0;
  for (const Outcome& outcome : outcomes) {
    begin = std::min(begin, outcome.begin_s);
    end = std::max(end, outcome.end_s);
    latest_send = std::max(latest_send, outcome.begin_s - outcome.planned_s);
    if (!outcome.error.empty()) {
      ++errors[outcome.error];
      continue;
    }
    ++completed;
    prompt_tokens += outcome.prompt_tokens;
    output_tokens += outcome.output_tokens;
    const RequestTimes times = times_of(outcome);
    good += keeps(slo, times);
    ttft.push_back(times.ttft);
    e2el.push_back(times.e2el);
    if (times.tpot) tpot.push_back(*times.tpot);
    for (const double gap : outcome.gaps_s) itl.push_back(1e3 * gap);
  }
  const double duration = outcomes.empty() ? 0 : end - begin;
  const auto rate = [duration](int64_t count) {
    return duration > 0 ? static_cast<double>(count) / duration : 0.0;
  };
  json::object report = {{"duration", duration},
                         {"completed", completed},
                         {"failed", static_cast<int64_t>(outcomes.size()) - completed},
                         {"total_input_tokens", prompt_tokens},
                         {"total_output_tokens", output_tokens},
                         {"request_throughput", rate(completed)},
                         {"output_throughput", rate(output_tokens)},
                         {"total_token_throughput", rate(prompt_tokens + output_tokens)},
                         {"latest_send_ms", 1e3 * latest_send}};
  if (slo.is_set()) report["request_goodput"] = rate(good);
  add_spread(report, "ttft", std::move(ttft), percentiles);
  add_spread(report, "tpot", std::move(tpot), percentiles);
  add_spread(report, "itl", std::move(itl), percentiles);
  add_spread(report, "e2el", std::move(e2el), percentiles);
  json::object counts;
  for (const auto& [text, count] : errors) counts[text] = count;
  report["errors"] = std::move(counts);
  return report;
}

std::string load_report_text(const json::object& report) {
  std::string text;
  const auto line = [&](std::string_view label, std::string_view name, int digits) {
    text += fmt::format("{:<38}{:>14.{}f}\n", label, number_of(report, name), digits);
  };
  line("Requests completed", "completed", 0);
  line("Requests failed", "failed", 0);
  line("Duration (s)", "duration", 2);
  line("Input tokens", "total_input_tokens", 0);
  line("Output tokens", "total_output_tokens", 0);
  line("Requests/s", "request_throughput", 2);
  if (report.contains("request_goodput")) line("Requests/s within the SLO", "request_goodput", 2);
  line("Output tokens/s", "output_throughput", 2);
  line("Input and output tokens/s", "total_token_throughput", 2);
  line("Latest send behind its time (ms)", "latest_send_ms", 2);
  for (const auto& [what, label] : kTimes) {
    text += fmt::format("{} (ms): ", label);
    std::string rest;
    for (const auto& [name, value] : report) {
      const std::string_view key = name;
      const std::string suffix = fmt::format("_{}_ms", what);
      if (!key.ends_with(suffix)) continue;
      rest += fmt::format("{}{} {:.2f}", rest.empty() ? "" : ", ",
                          key.substr(0, key.size() - suffix.size()), value.to_number<double>());
    }
    text += rest + "\n";
  }
  for (const auto& [what, count] : object_member(report, "errors"))
    text += fmt::format("error, {} times: {}\n", json::serialize(count), std::string_view(what));
  return text;
}

}  // namespace nereid::cli
