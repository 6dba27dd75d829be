// Runs a dataset's requests on an executor in this process, and records the times of their tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "cli/load/dataset.h"
#include "nereid/executor.h"

namespace nereid::cli {

struct ExecutorLoad {
  int64_t concurrency = 0;  // most requests in flight; 0: all
  bool streaming = false;
  int32_t beam_width = 1;
  std::optional<TokenId> end_id;  // unset: every request generates all of its output_tokens
};

// Measurements of one request; times in seconds since the run began.
struct RequestRecord {
  int64_t input_tokens = 0, output_tokens = 0;  // output_tokens: of the best beam
  double begin_s = 0, first_s = 0, end_s = 0;   // times of queueing, first token and last token
  int64_t num_responses = 0;
  std::vector<TokenId> token_ids;  // of the output

  double latency_s() const { return end_s - begin_s; }
  double ttft_s() const { return first_s - begin_s; }
  // Mean time per later token; 0 with fewer than two tokens.
  double tpot_s() const {
    return output_tokens > 1 ? (end_s - first_s) / static_cast<double>(output_tokens - 1) : 0;
  }
};

// Runs greedily, in order; record i is that of request i. `requests` have input_ids. The first
// failure ends the run, with the request's number.
StatusOr<std::vector<RequestRecord>> run_on_executor(Executor& executor,
                                                     std::span<const BenchRequest> requests,
                                                     const ExecutorLoad& load);

}  // namespace nereid::cli
