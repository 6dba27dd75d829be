// trtllm-bench: throughput and latency of a model on a dataset, in this process.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cli/flags/options.h"
#include "cli/load/executor_load.h"

namespace nereid::cli {

// A parsed command line.
struct BenchPlan {
  std::string help;                      // printed instead of a run, unless empty
  std::vector<std::string> for_dataset;  // arguments of prepare_dataset; empty: a run
  std::vector<std::string> ignored;      // flags without effect

  std::string model_name;  // of --model
  std::string model_dir;   // the model's folder, with the tokenizer for an engine
  bool is_engine = false;
  ModelOptions model;
  ExecutorLoad load;
  std::string dataset;       // "": standard input
  int64_t num_requests = 0;  // 0: all
  int64_t warmup = 0;
  std::string scheduling_policy, report_json, output_json, request_json, iteration_log;
};

// `arguments` exclude the program's name. InvalidArgument: a wrong command line; Unimplemented: an
// unsupported value or subcommand, by name.
StatusOr<BenchPlan> plan_trtllm_bench(const std::vector<std::string>& arguments);

}  // namespace nereid::cli
