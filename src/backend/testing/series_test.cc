// Everything a model publishes: every series of the metrics page, values, and log lines.
#include <algorithm>

#include "backend/testing/backend_fixture.h"

namespace nereid::backend {
namespace {

// Lines with one of these prefixes, without values, in order.
std::vector<std::string> lines_of(const std::string& page, const std::set<std::string>& prefixes) {
  std::set<std::string> found;
  for (size_t begin = 0; begin < page.size();) {
    const size_t end = std::min(page.find('\n', begin), page.size());
    std::string line = page.substr(begin, end - begin);
    begin = end + 1;
    const bool wanted = std::any_of(prefixes.begin(), prefixes.end(),
                                    [&](const auto& prefix) { return line.starts_with(prefix); });
    if (wanted && line[0] != '#') line.resize(line.rfind(' '));
    if (wanted) found.insert(std::move(line));
  }
  return {found.begin(), found.end()};
}

struct Family {
  std::string name, kind, help, label;
  std::vector<std::string> values;
};

// The page's lines for these families of model "tensorrt_llm" 1; labels sorted, "le" last.
std::vector<std::string> expected_lines(const std::vector<Family>& families) {
  std::set<std::string> lines;
  for (const Family& f : families) {
    lines.insert(fmt::format("# HELP {} {}", f.name, f.help));
    lines.insert(fmt::format("# TYPE {} {}", f.name, f.kind));
    for (const auto& value : f.values) {
      std::set<std::string> labels = {"model=\"tensorrt_llm\"", "version=\"1\"",
                                      fmt::format("{}=\"{}\"", f.label, value)};
      const std::string text = fmt::format("{}", fmt::join(labels, ","));
      if (f.kind != "histogram") {
        lines.insert(fmt::format("{}{{{}}}", f.name, text));
        continue;
      }
      for (const char* part : {"count", "sum"}) {
        lines.insert(fmt::format("{}_{}{{{}}}", f.name, part, text));
      }
      for (const char* bound : {"10", "50", "100", "500", "1000", "+Inf"}) {
        lines.insert(fmt::format("{}_bucket{{{},le=\"{}\"}}", f.name, text, bound));
      }
    }
  }
  return {lines.begin(), lines.end()};
}

std::vector<Family> families_with(Family own) {
  return {{"nv_trt_llm_request_metrics",
           "gauge",
           "TRT LLM request metrics",
           "request_type",
           {"active", "max", "scheduled", "context", "waiting"}},
          {"nv_trt_llm_runtime_memory_metrics",
           "gauge",
           "TRT LLM runtime memory metrics",
           "memory_type",
           {"cpu", "gpu", "pinned"}},
          {"nv_trt_llm_kv_cache_block_metrics",
           "gauge",
           "TRT LLM KV cache block metrics",
           "kv_cache_block_type",
           {"max", "free", "used", "tokens_per", "reused", "fraction"}},
          {"nv_trt_llm_disaggregated_serving_metrics",
           "counter",
           "TRT LLM disaggregated serving metrics",
           "disaggregated_serving_type",
           {"kv_cache_transfer_ms", "request_count"}},
          {"nv_trt_llm_general_metrics",
           "gauge",
           "General TRT LLM metrics",
           "general_type",
           {"timestamp", "iteration_counter"}},
          {"nv_llm_output_token_len",
           "histogram",
           "TRT LLM response metrics",
           "response_metric_type",
           {"total_output_tokens"}},
          {"nv_llm_input_token_len",
           "histogram",
           "TRT LLM response metrics",
           "response_metric_type",
           {"total_input_tokens"}},
          std::move(own)};
}

const std::set<std::string> kPrefixes = {"nv_trt_llm",        "nv_llm",        "# HELP nv_trt_llm",
                                         "# TYPE nv_trt_llm", "# HELP nv_llm", "# TYPE nv_llm"};

class SeriesTest : public BackendTest {
 protected:
  static void SetUpTestSuite() { start(server_, dir_, {{"max_beam_width", "3"}}); }
};

TEST_F(SeriesTest, AllFamiliesAndLabels) {
  EXPECT_EQ(lines_of(metrics_page(server_), kPrefixes),
            expected_lines(families_with({"nv_trt_llm_inflight_batcher_metrics",
                                          "gauge",
                                          "TRT LLM inflight_batcher-specific metrics",
                                          "inflight_batcher_specific_metric",
                                          {"total_context_tokens", "generation_requests",
                                           "micro_batch_id", "paused_requests"}})));
}

TEST_F(SeriesTest, EverySequenceAndBeamCounts) {
  const std::string labels = "{engine=\"0\",model_name=\"tensorrt_llm\",version=\"1\"";
  const std::string series[] = {"vllm:request_generation_tokens_sum" + labels,
                                "vllm:request_generation_tokens_count" + labels,
                                "vllm:request_prompt_tokens_sum" + labels,
                                "vllm:request_generation_tokens_bucket" + labels + ",le=\"10\"}",
                                "vllm:request_generation_tokens_bucket" + labels + ",le=\"20\"}",
                                "nv_llm_output_token_len_sum",
                                "nv_llm_input_token_len_sum"};
  const auto grown = [&](std::vector<Output> more) {
    const std::string before = metrics_page(server_);
    more.push_back(int_input("end_id", -1));
    const auto got = ask("ensemble", kPrompt, 4, std::move(more));
    EXPECT_TRUE(got.status.ok()) << got.status;
    const std::string after = metrics_page(server_);
    std::vector<double> out;
    for (const auto& s : series) out.push_back(metric(after, s) - metric(before, s));
    return out;
  };
  using Values = std::vector<double>;
  EXPECT_EQ(grown({}), (Values{4, 1, 5, 1, 1, 4, 5}));
  const auto stream = bool_input("stream", true);
  EXPECT_EQ(grown({stream}), (Values{4, 1, 5, 1, 1, 4, 5}));
  const auto three = int_input("num_return_sequences", 3);
  EXPECT_EQ(grown({three}), (Values{12, 1, 5, 0, 1, 12, 5}));
  EXPECT_EQ(grown({three, stream}), (Values{12, 1, 5, 0, 1, 12, 5}));
  EXPECT_EQ(grown({int_input("beam_width", 3)}), (Values{12, 1, 5, 0, 1, 12, 5}));
}

class StaticSeriesTest : public BackendTest {
 protected:
  static void SetUpTestSuite() { start(server_, dir_, {{"batching_strategy", "V1"}}); }
};

TEST_F(StaticSeriesTest, AllFamiliesAndLabels) {
  EXPECT_EQ(lines_of(metrics_page(server_), kPrefixes),
            expected_lines(families_with(
                {"nv_trt_llm_v1_metrics",
                 "gauge",
                 "TRT LLM v1-specific metrics",
                 "v1_specific_metric",
                 {"total_context_tokens", "total_generation_tokens", "empty_generation_slots"}})));
}

// Streaming is switched off; as in a stream the single response has no prompt.
TEST_F(StaticSeriesTest, StreamsBecomeOneResponse) {
  for (const char* model : {"ensemble", "tensorrt_llm_bls"}) {
    const auto whole = ask(model, kPrompt, 6, {bool_input("exclude_input_in_output", true)});
    ASSERT_TRUE(whole.status.ok()) << whole.status;
    const auto got = ask(model, kPrompt, 6, {bool_input("stream", true)});
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_EQ(got.texts, whole.texts) << model;
    EXPECT_EQ(got.texts.size(), 1u) << model;
  }
}

}  // namespace
}  // namespace nereid::backend
