// What the benchmarks of the runtime share: medians, and requests with the times of their tokens.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/queue.h"
#include "base/rng.h"
#include "base/status.h"
#include "nereid/executor.h"

namespace nereid::bench {

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

inline std::vector<TokenId> random_tokens(const Executor& executor, int32_t count, uint64_t seed) {
  std::vector<TokenId> out(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i)
    out[i] = static_cast<TokenId>(philox(seed, static_cast<uint64_t>(i), 0)[0] %
                                  static_cast<uint32_t>(executor.vocab_size()));
  return out;
}

struct Timing {
  double first_token_seconds = 0;  // from enqueue() to the callback with the first token
  double total_seconds = 0;        // to the last
  RequestMetrics metrics;
};

// Sends all at once and waits. No end ids: every request gives max_tokens.
inline StatusOr<std::vector<Timing>> run_timed(Executor& executor, std::vector<Request> requests) {
  struct Line {
    Time start;
    Timing timing;
    Status status;
    bool started = false;
    Queue<int> done;
  };
  std::vector<std::shared_ptr<Line>> lines;
  for (Request& request : requests) {
    auto line = lines.emplace_back(std::make_shared<Line>());
    request.streaming = true;
    line->start = now();
    const auto on_response = [line](Response response) {
      const double at = seconds(now() - line->start);
      const bool has_token = !response.outputs.empty() && !response.outputs[0].token_ids.empty();
      if (has_token && !std::exchange(line->started, true)) line->timing.first_token_seconds = at;
      if (!response.is_final) return;
      line->timing.total_seconds = at;
      line->timing.metrics = response.metrics;
      line->status = response.status;
      line->done.push(0);
    };
    RETURN_IF_ERROR(executor.enqueue(std::move(request), on_response).status());
  }
  std::vector<Timing> out;
  for (const auto& line : lines) {
    line->done.take();
    RETURN_IF_ERROR(line->status);
    out.push_back(line->timing);
  }
  return out;
}

}  // namespace nereid::bench
