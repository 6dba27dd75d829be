// The measurements of `nereid bench`, without their printing.
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
  // Prompt tokens of all sequences / time until the last first token.
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;  // later tokens / time, while all sequences run; 0: never
  double output_tokens_per_s = 0;  // all output tokens / total time
  double step_seconds = 0;         // decode: median time between two tokens of a sequence
};

// Runs one case on an idle executor: `batch` requests with different random prompts, no end ids,
// and without prefix reuse.
StatusOr<BenchResult> run_case(Executor& executor, const BenchCase& what, uint64_t seed);

// The steps as a timeline for Perfetto (ui.perfetto.dev) and chrome://tracing: a JSON list of
// events in the Trace Event Format. `steps` in order.
std::string step_timeline(std::span<const IterationStats> steps);

// Peak resident memory of this process in bytes since reset_peak_rss() or its start, from
// /proc; 0: unknown.
void reset_peak_rss();
int64_t peak_rss_bytes();

}  // namespace nereid::cli
