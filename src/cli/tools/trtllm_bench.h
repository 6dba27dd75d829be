// trtllm-bench: throughput and latency of a model on a dataset, in this process.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cli/flags/options.h"
#include "cli/load/executor_load.h"

namespace nereid::cli {

// What a command line asks for.
struct BenchPlan {
  std::string help;                      // shown instead of a run, unless empty
  std::vector<std::string> for_dataset;  // arguments of prepare_dataset; empty: a run
  std::vector<std::string> ignored;      // flags without effect

  std::string model_name;  // of --model
  std::string model_dir;   // folder of the model, also of an engine's tokenizer
  bool is_engine = false;
  ModelOptions model;
  ExecutorLoad load;
  std::string dataset;       // "": standard input
  int64_t num_requests = 0;  // 0: all
  int64_t warmup = 0;
  std::string scheduling_policy, report_json, output_json, request_json, iteration_log;
};

// `arguments` without the program's name. InvalidArgument: a wrong command line; Unimplemented: a
// value or subcommand that is not there, by name.
StatusOr<BenchPlan> plan_trtllm_bench(const std::vector<std::string>& arguments);

}  // namespace nereid::cli
