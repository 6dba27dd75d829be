// Timeline of the batch over the last minute, for Executor::batch_timeline(): the spans of each
// sequence. Recorded only while calls of take() come.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <vector>

#include "base/clock.h"
#include "nereid/stats.h"

namespace nereid::runtime {

// Times are those of the engine's clock. take() is thread-safe, all other calls are made by the
// engine's own thread.
class BatchRecorder {
 public:
  // A row of a step.
  struct Row {
    RequestId id = 0;
    bool is_prefill = false;
    int32_t tokens = 0;
  };

  // Snapshot; recording begins, or goes on for kWatched.
  BatchTimeline take(Time now);

  bool is_recording(Time now) const {
    return now.time_since_epoch().count() < watched_until_.load(std::memory_order_relaxed);
  }
  // A sequence as a plan finds it; `waits`: without a place in the batch.
  void seen(RequestId id, Time since, int32_t prompt_tokens, bool waits, bool was_started,
            Time now);
  // The rows of a step that ran from `begin` to `end`.
  void ran(std::span<const Row> rows, Time begin, Time end);
  void generated(RequestId id, int32_t tokens);
  void ended(RequestId id);
  // Forgets all sequences.
  void stop();

 private:
  struct Span {
    BatchSpan::Kind kind;
    Time begin, end;
    int32_t tokens = 0;
  };
  struct Entry {
    RequestId id = 0;
    int32_t prompt_tokens = 0, generated_tokens = 0;
    bool ended = false;
    std::deque<Span> spans;
  };

  Entry* find(RequestId id);
  void add(Entry& entry, const Span& span);
  void forget_before(Time time);

  std::atomic<Time::rep> watched_until_ = Time::min().time_since_epoch().count();
  std::mutex mutex_;
  std::deque<Entry> entries_;  // by id, which is by arrival
  int64_t num_left_out_ = 0;
  RequestId last_left_out_ = 0;
};

}  // namespace nereid::runtime
