// The report of trtllm-bench. Source of member names and
// labels: TensorRT-LLM's bench/dataclasses/reporting.py.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/load/executor_load.h"

namespace nereid::cli {

// The setup of a run, for the report.
struct BenchSetup {
  std::string model, model_path, engine_dir;  // engine_dir "": built from the model
  std::string dtype, quantization;            // "": unknown, none
  int64_t max_sequence_length = 0;
  std::string device_name;
  size_t device_bytes = 0;
  int64_t max_batch_size = 0, max_num_tokens = 0;
  std::string scheduling_policy;
  double kv_cache_fraction = 0;  // 0: cache sized otherwise
  std::string dataset;
  bool streaming = false;
  int64_t tp = 1, pp = 1, ep = 1;
};

// `records` is not empty. Percentiles interpolate between ranks.
json::object bench_report(const BenchSetup& setup, const std::vector<RequestRecord>& records);

// The report as text.
std::string bench_report_text(const json::object& report);

}  // namespace nereid::cli
