#include "cli/load/bench_report.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

#include "cli/load/report.h"

namespace nereid::cli {
namespace {

constexpr const char* kStatistics[] = {"minimum", "maximum", "average", "p50", "p90", "p95", "p99"};

// Member name and label of a value in the report.
using Label = std::pair<const char*, const char*>;
constexpr Label kEngineLabels[] = {{"Model:\t\t\t", "model"},
                                   {"Model Path:\t\t", "model_path"},
                                   {"Engine Directory:\t", "engine_dir"},
                                   {"nereid Version:\t\t", "version"},
                                   {"Dtype:\t\t\t", "dtype"},
                                   {"KV Cache Dtype:\t\t", "kv_cache_dtype"},
                                   {"Quantization:\t\t", "quantization"},
                                   {"Max Input Length:\t", "max_input_length"},
                                   {"Max Sequence Length:\t", "max_sequence_length"}};
constexpr Label kWorldLabels[] = {{"TP Size:", "tp_size"},
                                  {"PP Size:", "pp_size"},
                                  {"EP Size:", "ep_size"},
                                  {"Max Runtime Batch Size:", "max_batch_size"},
                                  {"Max Runtime Tokens:", "max_num_tokens"},
                                  {"Scheduling Policy:", "scheduling_policy"}};
constexpr Label kRequestLabels[] = {
    {"Number of concurrent requests:", "avg_num_concurrent_requests"},
    {"Average Input Length (tokens):", "avg_input_length"},
    {"Average Output Length (tokens):", "avg_output_length"}};
constexpr Label kStreamingLabels[] = {
    {"Average time-to-first-token [TTFT] (ms):", "avg_ttft_ms"},
    {"Average time-per-output-token [TPOT] (ms):", "avg_tpot_ms"},
    {"Per User Output Speed (tps/user):", "token_output_speed_tok_s"}};
constexpr Label kPerformanceLabels[] = {
    {"Request Throughput (req/sec):", "request_throughput_req_s"},
    {"Total Output Throughput (tokens/sec):", "system_output_throughput_tok_s"},
    {"Total Token Throughput (tokens/sec):", "system_total_throughput_tok_s"},
    {"Total Latency (ms):", "total_latency_ms"},
    {"Average request latency (ms):", "avg_request_latency_ms"},
    {"Per User Output Throughput [w/ ctx] (tps/user):", "output_throughput_per_user_tok_s"},
    {"Per GPU Output Throughput (tps/gpu):", "output_throughput_per_gpu_tok_s"}};

json::object statistics(std::vector<double> values) {
  const Spread spread(std::move(values));
  return {{"p50", spread.percentile(50)},    {"p90", spread.percentile(90)},
          {"p95", spread.percentile(95)},    {"p99", spread.percentile(99)},
          {"minimum", spread.percentile(0)}, {"maximum", spread.percentile(100)},
          {"average", spread.mean}};
}

// Statistics of `value(record)` over all records.
template <class Value>
std::vector<double> values_of(const std::vector<RequestRecord>& records, Value value) {
  std::vector<double> out;
  for (const RequestRecord& record : records) out.push_back(static_cast<double>(value(record)));
  return out;
}

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

json::value named_or_null(const std::string& text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}

json::object performance(const std::vector<RequestRecord>& records, int64_t num_ranks,
                         double total_s, double input, double output) {
  const auto latency_ms =
      values_of(records, [](const RequestRecord& r) { return 1e3 * r.latency_s(); });
  const Spread per_user(values_of(records, [](const RequestRecord& r) {
    return ratio(static_cast<double>(r.output_tokens), r.latency_s());
  }));
  return {
      {"total_latency_ms", 1e3 * total_s},
      {"avg_request_latency_ms", Spread(latency_ms).mean},
      {"request_throughput_req_s", ratio(static_cast<double>(records.size()), total_s)},
      {"system_output_throughput_tok_s", ratio(output, total_s)},
      {"system_total_throughput_tok_s", ratio(input + output, total_s)},
      {"output_throughput_per_user_tok_s", per_user.mean},
      {"output_throughput_per_gpu_tok_s", ratio(output, total_s * static_cast<double>(num_ranks))},
      {"request_latency_percentiles_ms", statistics(latency_ms)}};
}

json::object streaming_metrics(const std::vector<RequestRecord>& records) {
  const auto ttft = values_of(records, [](const RequestRecord& r) { return 1e3 * r.ttft_s(); });
  const auto tpot = values_of(records, [](const RequestRecord& r) { return 1e3 * r.tpot_s(); });
  const auto speed =
      values_of(records, [](const RequestRecord& r) { return ratio(1, r.tpot_s()); });
  return {{"token_output_speed_tok_s", Spread(speed).mean},
          {"avg_ttft_ms", Spread(ttft).mean},
          {"avg_tpot_ms", Spread(tpot).mean},
          {"tpot_percentiles", statistics(tpot)},
          {"ttft_percentiles", statistics(ttft)},
          {"gen_tps_percentiles", statistics(speed)}};
}

std::string header(std::string_view title) {
  const std::string line(59, '=');
  return fmt::format("{}\n= {}\n{}\n", line, title, line);
}

double number_at(const json::value& object, std::string_view key) {
  return object.at(key).to_number<double>();
}
std::string text_at(const json::value& object, std::string_view key) {
  const json::value& value = object.at(key);
  return value.is_string() ? std::string(value.get_string())
         : value.is_null() ? "None"
                           : json::serialize(value);
}

// Lines such as "[TPOT] MINIMUM: 1.0000".
std::string statistics_text(std::string_view name, const json::value& object) {
  std::string text;
  for (std::string key : kStatistics) {
    const double value = number_at(object, key);
    for (char& c : key) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    text += fmt::format("[{}] {:<7}: {:.4f}\n", name, key, value);
  }
  return text;
}

std::string engine_text(const json::value& engine, const json::value& machine) {
  std::string text = "\n\n" + header("ENGINE DETAILS");
  for (const auto& [label, key] : kEngineLabels)
    text += fmt::format("{}{}\n", label, text_at(engine, key));
  text += "\n" + header("MACHINE DETAILS ");
  return text + fmt::format("{}, memory {:.2f} GB\n\n", text_at(machine, "name"),
                            number_at(machine, "memory.total"));
}

std::string world_text(const json::value& world, const json::value& requests) {
  std::string text = header("WORLD + RUNTIME INFORMATION ");
  for (const auto& [label, key] : kWorldLabels)
    text += fmt::format("{:<24}{}\n", label, text_at(world, key));
  const json::value& fraction = world.at("kv_cache_percentage");
  text += fmt::format(
      "{:<24}{}\n", "KV Memory Percentage:",
      fraction.is_null() ? "None" : fmt::format("{:.2f}%", 100 * fraction.to_number<double>()));
  text += fmt::format("{:<24}{:.4E}\n\n", "Issue Rate (req/sec):", number_at(world, "issue_rate"));
  text += header("REQUEST DETAILS ");
  text += fmt::format("{:<32}{}\n", "Number of requests:", text_at(requests, "num_requests"));
  for (const auto& [label, key] : kRequestLabels)
    text += fmt::format("{:<32}{:.4f}\n", label, number_at(requests, key));
  return text;
}

std::string streaming_text(const json::value& streaming) {
  std::string text;
  for (const auto& [label, key] : kStreamingLabels)
    text += fmt::format("{:<50}{:.4f}\n", label, number_at(streaming, key));
  text += "\n-- Per-Request Time-per-Output-Token [TPOT] Breakdown (ms)\n\n" +
          statistics_text("TPOT", streaming.at("tpot_percentiles"));
  text += "\n-- Per-Request Time-to-First-Token [TTFT] Breakdown (ms) \n\n" +
          statistics_text("TTFT", streaming.at("ttft_percentiles"));
  text += "\n-- Per-Request Generation Throughput [GTPS] Breakdown (tps/user)\n\n" +
          statistics_text("GTPS", streaming.at("gen_tps_percentiles"));
  return text;
}

std::string dataset_text(const json::value& dataset) {
  std::string text = header("DATASET DETAILS");
  text += fmt::format("{:<22}{}\n{:<22}{}\n\n", "Dataset Path:", text_at(dataset, "dataset_path"),
                      "Number of Sequences:", text_at(dataset, "num_requests"));
  text += "-- Percentiles statistics ---------------------------------\n\n";
  text += fmt::format("{:<8}{:<19}{:<19}{}\n", "", "Input", "Output", "Seq. Length");
  text += std::string(59, '-') + "\n";
  constexpr const char* kShort[] = {"MIN:", "MAX:", "AVG:", "P50:", "P90:", "P95:", "P99:"};
  for (size_t i = 0; i < std::size(kShort); ++i)
    text += fmt::format("{:<7}{:<19.4f}{:<19.4f}{:.4f}\n", kShort[i],
                        number_at(dataset.at("isl_stats"), kStatistics[i]),
                        number_at(dataset.at("osl_stats"), kStatistics[i]),
                        number_at(dataset.at("seq_len_stats"), kStatistics[i]));
  return text + std::string(59, '=') + "\n";
}

}  // namespace

json::object bench_report(const BenchSetup& setup, const std::vector<RequestRecord>& records) {
  double begin = records[0].begin_s, last_begin = 0, end = 0, latencies = 0;
  for (const RequestRecord& record : records) {
    begin = std::min(begin, record.begin_s), last_begin = std::max(last_begin, record.begin_s);
    end = std::max(end, record.end_s);
    latencies += record.latency_s();
  }
  const auto count = static_cast<double>(records.size());
  const auto inputs = values_of(records, [](const RequestRecord& r) { return r.input_tokens; });
  const auto outputs = values_of(records, [](const RequestRecord& r) { return r.output_tokens; });
  const auto both =
      values_of(records, [](const RequestRecord& r) { return r.input_tokens + r.output_tokens; });
  const double input = Spread(inputs).mean * count, output = Spread(outputs).mean * count;
  json::object report;
  report["engine"] = json::object{{"model", setup.model},
                                  {"model_path", setup.model_path},
                                  {"engine_dir", named_or_null(setup.engine_dir)},
                                  {"version", NEREID_VERSION},
                                  {"backend", "nereid"},
                                  {"dtype", named_or_null(setup.dtype)},
                                  {"kv_cache_dtype", nullptr},
                                  {"quantization", named_or_null(setup.quantization)},
                                  {"max_input_length", setup.max_sequence_length - 1},
                                  {"max_sequence_length", setup.max_sequence_length}};
  report["machine"] =
      json::object{{"name", setup.device_name},
                   {"memory.total", static_cast<double>(setup.device_bytes) / 0x1p30},
                   {"clocks.mem", nullptr}};
  json::value fraction = nullptr;
  if (setup.kv_cache_fraction > 0) fraction = setup.kv_cache_fraction;
  json::value ep = nullptr;
  if (setup.ep > 1) ep = setup.ep;
  report["world_info"] = json::object{{"tp_size", setup.tp},
                                      {"pp_size", setup.pp},
                                      {"ep_size", std::move(ep)},
                                      {"world_size", setup.tp * setup.pp},
                                      {"max_batch_size", setup.max_batch_size},
                                      {"max_num_tokens", setup.max_num_tokens},
                                      {"scheduling_policy", setup.scheduling_policy},
                                      {"kv_cache_percentage", std::move(fraction)},
                                      {"issue_rate", ratio(count, last_begin - begin)}};
  report["request_info"] =
      json::object{{"num_requests", records.size()},
                   {"avg_num_concurrent_requests", ratio(latencies, end - begin)},
                   {"avg_input_length", input / count},
                   {"avg_output_length", output / count}};
  report["performance"] = performance(records, setup.tp * setup.pp, end - begin, input, output);
  if (setup.streaming) report["streaming_metrics"] = streaming_metrics(records);
  report["dataset"] = json::object{{"dataset_path", setup.dataset},
                                   {"num_requests", records.size()},
                                   {"isl_stats", statistics(inputs)},
                                   {"osl_stats", statistics(outputs)},
                                   {"seq_len_stats", statistics(both)}};
  return report;
}

std::string bench_report_text(const json::object& report) {
  std::string text = engine_text(report.at("engine"), report.at("machine")) +
                     world_text(report.at("world_info"), report.at("request_info"));
  const json::value& performance = report.at("performance");
  text += header("PERFORMANCE OVERVIEW ");
  for (const auto& [label, key] : kPerformanceLabels)
    text += fmt::format("{:<50}{:.4f}\n", label, number_at(performance, key));
  if (const json::value* streaming = report.if_contains("streaming_metrics"))
    text += streaming_text(*streaming);
  text += "\n-- Request Latency Breakdown (ms) -----------------------\n\n" +
          statistics_text("Latency", performance.at("request_latency_percentiles_ms"));
  return text + "\n" + dataset_text(report.at("dataset"));
}

}  // namespace nereid::cli
