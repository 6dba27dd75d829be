#include "cli/tools/trtllm_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/commands/bench.h"
#include "cli/load/bench_report.h"
#include "cli/tools/prepare_dataset.h"

namespace nereid::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// An existing folder; plans do not look inside.
constexpr const char* kFolder = "/tmp";

std::string plan_error(std::vector<std::string> arguments) {
  const auto plan = plan_trtllm_bench(arguments);
  return plan.ok() ? "accepted" : std::string(message(plan.status()));
}

TEST(Bench, StepTimelineHasEachStep) {
  const auto start = std::chrono::system_clock::time_point(std::chrono::seconds(1700000000));
  const auto step = [&](int milliseconds, double latency, int32_t prompt_tokens, int32_t decoding) {
    IterationStats s;
    s.timestamp = start + std::chrono::milliseconds(milliseconds);
    s.iter_latency_ms = latency;
    s.num_ctx_tokens = prompt_tokens;
    s.num_gen_requests = decoding;
    return s;
  };
  IterationStats steps[] = {step(0, 3, 100, 0), step(5, 5, 28, 1), step(7, 2, 0, 2)};
  steps[2].num_queued_requests = 9;
  steps[2].kv_used_blocks = 12;
  const json::value events = parse_json(step_timeline(steps)).value();
  std::vector<std::string> names;
  double end = -3000;
  for (const json::value& event : events.as_array()) {
    if (event.at("ph").as_string() != "X") continue;
    names.emplace_back(event.at("name").as_string());
    EXPECT_DOUBLE_EQ(event.at("ts").to_number<double>(), end);
    end += event.at("dur").to_number<double>();
  }
  EXPECT_THAT(names, ElementsAre("prompts", "prompts + decode", "decode"));
  EXPECT_DOUBLE_EQ(end, 7000);
  const json::array& all = events.as_array();
  EXPECT_EQ(all.back().at("args").at("used").as_int64(), 12);
  EXPECT_EQ(all[all.size() - 2].at("args").at("queued").as_int64(), 9);
  EXPECT_EQ(parse_json(step_timeline({})).value().as_array().size(), 1u);
}

TEST(TrtllmBench, FlagsBecomeARun) {
  const auto plan = plan_trtllm_bench({"-m",
                                       "some/name",
                                       "--model_path",
                                       kFolder,
                                       "throughput",
                                       "--dataset",
                                       "d.txt",
                                       "--streaming",
                                       "--concurrency",
                                       "8",
                                       "--max_batch_size=16",
                                       "--kv_cache_free_gpu_mem_fraction",
                                       "0.5",
                                       "--scheduler_policy",
                                       "max_utilization",
                                       "--eos_id",
                                       "2",
                                       "--warmup",
                                       "0",
                                       "--backend",
                                       "tensorrt",
                                       "--report_json",
                                       "r.json"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->model_name, "some/name");
  EXPECT_EQ(plan->model.model_dir, kFolder);
  EXPECT_EQ(plan->model.executor.max_batch_size, 16);
  EXPECT_EQ(plan->model.executor.kv_cache.memory_fraction, 0.5);
  EXPECT_EQ(plan->model.executor.scheduler.capacity_policy, CapacityPolicy::kMaxUtilization);
  EXPECT_EQ(plan->load.concurrency, 8);
  EXPECT_TRUE(plan->load.streaming);
  EXPECT_EQ(plan->load.end_id, 2);
  EXPECT_EQ(plan->warmup, 0);
  EXPECT_EQ(plan->report_json, "r.json");
  EXPECT_THAT(plan->ignored, ElementsAre("--backend"));
}

TEST(TrtllmBench, LatencyIsOneStreamedRequestAtATime) {
  const auto plan = plan_trtllm_bench({"--model", kFolder, "latency", "--beam_width=4"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->load.streaming);
  EXPECT_EQ(plan->load.concurrency, 1);
  EXPECT_EQ(plan->load.beam_width, 4);
  EXPECT_EQ(plan->model.executor.max_batch_size, 4);
}

TEST(TrtllmBench, FaultsAreNamed) {
  EXPECT_THAT(plan_error({}), HasSubstr("Missing command"));
  EXPECT_THAT(plan_error({"throughput"}), HasSubstr("--model"));
  EXPECT_THAT(plan_error({"-m", kFolder, "fly"}), HasSubstr("'fly'"));
  EXPECT_THAT(plan_error({"-m", kFolder, "build"}), HasSubstr("trtllm-build"));
  EXPECT_THAT(plan_error({"-m", "no/such", "throughput"}), HasSubstr("no/such"));
  for (const auto& [flag, value] :
       {std::pair{"--tp", "65"}, std::pair{"--extra_llm_api_options", "x.yaml"},
        std::pair{"--modality", "image"}, std::pair{"--beam_width", "0"},
        std::pair{"--warmup", "-1"}, std::pair{"--kv_cache_free_gpu_mem_fraction", "2"}})
    EXPECT_THAT(plan_error({"-m", kFolder, "throughput", flag, value}), HasSubstr(flag));
  EXPECT_THAT(plan_error({"-m", kFolder, "latency", "--medusa_choices", "x"}),
              HasSubstr("--medusa_choices"));
}

TEST(TrtllmBench, ReportCountsFromFirstStartToLastEnd) {
  const std::vector<RequestRecord> records = {
      {.input_tokens = 10, .output_tokens = 5, .begin_s = 0, .first_s = 1, .end_s = 3},
      {.input_tokens = 20, .output_tokens = 1, .begin_s = 1, .first_s = 4, .end_s = 4}};
  BenchSetup setup = {.model = "m", .max_sequence_length = 64, .dataset = "d", .streaming = true};
  const json::object report = bench_report(setup, records);
  const json::value& performance = report.at("performance");
  EXPECT_DOUBLE_EQ(performance.at("total_latency_ms").as_double(), 4000);
  EXPECT_DOUBLE_EQ(performance.at("avg_request_latency_ms").as_double(), 3000);
  EXPECT_DOUBLE_EQ(performance.at("request_throughput_req_s").as_double(), 0.5);
  EXPECT_DOUBLE_EQ(performance.at("system_output_throughput_tok_s").as_double(), 1.5);
  EXPECT_DOUBLE_EQ(performance.at("system_total_throughput_tok_s").as_double(), 9);
  const json::value& streaming = report.at("streaming_metrics");
  EXPECT_DOUBLE_EQ(streaming.at("avg_ttft_ms").as_double(), 2000);
  EXPECT_DOUBLE_EQ(streaming.at("tpot_percentiles").at("maximum").as_double(), 500);
  EXPECT_DOUBLE_EQ(report.at("request_info").at("avg_num_concurrent_requests").as_double(), 1.5);
  EXPECT_DOUBLE_EQ(report.at("world_info").at("issue_rate").as_double(), 2);
  EXPECT_DOUBLE_EQ(report.at("dataset").at("isl_stats").at("average").as_double(), 15);
  const std::string text = bench_report_text(report);
  for (const char* part :
       {"= PERFORMANCE OVERVIEW", "Request Throughput (req/sec):                     0.5000\n",
        "Total Latency (ms):                               4000.0000\n",
        "Number of requests:             2\n", "[TTFT] AVERAGE: 2000.0000\n",
        "[GTPS] P50    :", "[Latency] MAXIMUM: 3000.0000\n", "Max Runtime Batch Size: 0\n"})
    EXPECT_THAT(text, HasSubstr(part));
  setup.streaming = false;
  EXPECT_THAT(bench_report_text(bench_report(setup, records)), testing::Not(HasSubstr("TTFT")));
}

std::string dataset_fault(std::vector<std::string> arguments) {
  const auto made = prepare_dataset(arguments);
  return made.ok() ? "accepted" : std::string(message(made.status()));
}

TEST(PrepareDataset, FaultsAreNamed) {
  EXPECT_THAT(dataset_fault({}), HasSubstr("DISTRIBUTION"));
  EXPECT_THAT(dataset_fault({"zipf"}), HasSubstr("'zipf'"));
  EXPECT_THAT(dataset_fault({"real-dataset"}), HasSubstr("real-dataset"));
  EXPECT_THAT(dataset_fault({"token-norm-dist"}), HasSubstr("--tokenizer"));
  const std::vector<std::string> start = {"--tokenizer", kFolder, "token-unif-dist"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), start.begin(), start.end());
    return dataset_fault(more);
  };
  EXPECT_THAT(with({}), HasSubstr("--num-requests"));
  EXPECT_THAT(with({"--num-requests", "2", "--input-min", "9", "--input-max", "8"}),
              HasSubstr("--input-max"));
  EXPECT_THAT(with({"--num-requests", "2", "--input-mean", "9"}), HasSubstr("--input-mean"));
  EXPECT_THAT(with({"--task-id", "3"}), HasSubstr("--task-id"));
}

}  // namespace
}  // namespace nereid::cli
