// What `nereid bench` measures, apart from how it is printed.
#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "nereid/executor.h"

namespace nereid::cli {

struct BenchCase {
  int32_t batch = 1;
  int32_t prompt_tokens = 0;
  int32_t new_tokens = 0;
};

struct BenchResult {
  BenchCase what;
  double prefill_tokens_per_s = 0;  // all prompts' tokens over the time to the last first token
  double decode_tokens_per_s = 0;  // tokens after each first one, while all sequences run; 0: never
  double output_tokens_per_s = 0;  // all tokens made over the whole time
  double step_seconds = 0;         // decode: median time between two tokens of one sequence
};

// Runs one case on an idle executor: `batch` requests with different random prompts, no end ids,
// prefix cache unused.
StatusOr<BenchResult> run_case(Executor& executor, const BenchCase& what, uint64_t seed);

// Steps as a timeline that Perfetto (ui.perfetto.dev) and chrome://tracing show: a JSON list of
// events of the Trace Event Format. `steps` in order.
std::string step_timeline(std::span<const IterationStats> steps);

// Peak resident memory of this process in bytes since reset_peak_rss() or its start, from /proc; 0
// when unknown.
void reset_peak_rss();
int64_t peak_rss_bytes();

}  // namespace nereid::cli
