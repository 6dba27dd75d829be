// Draws the next token of every sampling row, on the device, right after the forward pass.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "exec/runner.h"
#include "kernels/api/kernel.h"
#include "kernels/api/ops.h"
#include "kernels/api/registry.h"
#include "runtime/sample_params.h"
#include "sched/step_plan.h"

namespace nereid::runtime {

// A row's token depends only on its logits, parameters, seed, position and the tokens before it:
// not on batch, slot or overlap. The device keeps parameters and, where they are needed, tokens by
// slot; both can be loaded again from the sequence at any time. Owned by the engine thread.
class Sampler {
 public:
  struct Options {
    int32_t max_rows = 0;    // that sample in a step; also the number of slots
    int32_t max_logits = 0;  // rows of logits per step, at least max_rows
    int32_t vocab_size = 0;
    int32_t max_sequence_length = 0;
    bool normalize_log_probs = true;  // see ExecutorConfig
  };

  // The hook for a step, and the area that its results go to.
  struct Prepared {
    exec::PostForward hook;
    int32_t area = 0;
  };

  // `device` and `registry` must outlive the sampler and every hook it made.
  static StatusOr<std::unique_ptr<Sampler>> create(Device& device,
                                                   const kernels::Registry& registry,
                                                   const kernels::Choices& forced,
                                                   const Options& options);

  // Everything that the step's device work reads is staged now, in one of two areas by turns: the
  // step of a hook must have been waited for (or never launched) before the next but one is made.
  // A row for which there is no memory is left out; its status() says so.
  Prepared prepare(std::span<const sched::Row> rows);

  // Of the i-th row that was given to prepare(): OK, or ResourceExhausted with what was too large.
  // Such a row has no result and no logits, and its sequence must be ended.
  const Status& status(int32_t area, size_t i) const;

  // The following are for a step that has been waited for, and valid until its area is prepared
  // again. One result for each row that samples and is OK, in order.
  std::span<const sched::Drawn> results(int32_t area);
  // Raw f32 logits of the i-th row that was given to prepare(), sampling or not: [num_tokens,
  // vocab] when it has all_logits, else empty; and [vocab] when it samples and its request wants
  // generation logits, else empty.
  std::span<const float> context_logits(int32_t area, size_t i) const;
  std::span<const float> generation_logits(int32_t area, size_t i) const;

 private:
  using Kernel = kernels::Kernel<kernels::Sample>;

  // What the device holds for a slot.
  struct Slot {
    RequestId sequence = 0;
    int32_t beam = 0;
    int32_t next_position = -1;  // after the last draw; any other means: load again
    kernels::SampleParams params;
    Buffer lists;  // device; params.lists points here
  };
  struct Upload {
    void* to = nullptr;
    size_t offset = 0, bytes = 0;  // in the area's staging
  };
  struct LogitsCopy {
    int64_t first_row = 0, num_rows = 0;  // of exec::Logits
    int64_t to_row = 0;                   // of Area::logits
  };
  struct LogitsPlace {
    int64_t first_row = 0, num_rows = 0;  // of Area::logits
  };
  struct Area {
    Buffer staging;       // host: rows and uploads of the step
    Buffer results, top;  // host: SampleResult [max_rows], TopToken [max_rows, kMaxTopTokens]
    Buffer logits;        // host: what is read back, grows up to [max_logits, vocab]
    std::vector<kernels::SampleRow> rows;
    std::vector<Upload> uploads;
    std::vector<LogitsCopy> copies;
    std::vector<LogitsPlace> context, generation;  // by row given to prepare()
    std::vector<Status> status;                    // by the same
    std::vector<Buffer> retired;                   // device memory that the former step may read
    std::vector<sched::Drawn> drawn;
    std::vector<TokenLogProb> drawn_top;
    int64_t num_logits = 0;  // rows of logits of the step
    int64_t num_read = 0;    // of those, rows of Area::logits
    size_t num_staged = 0;   // bytes of staging in use
    size_t num_extra = 0;    // of those, bytes for lists and tokens
    bool all_greedy = true, wants_top = false, wants_raw = false;
  };

  explicit Sampler(Device& device, const Options& options) : device_(device), options_(options) {}

  Status add_row(Area& area, size_t i, const sched::Row& row, int64_t first);
  Status add_sample(Area& area, const sched::Row& row, int64_t logits_row);
  Status reserve_logits(Area& area, int64_t num_rows);
  Status reserve_raw_logits();
  Status reserve_lists(Area& area, size_t bytes, Slot& slot);
  Status reserve_staging(Area& area, size_t list_bytes, size_t history_bytes);
  void load(Area& area, const sched::Row& row, SlotParams wanted, Slot& slot);
  void upload(Area& area, void* to, const void* from, size_t bytes);
  Status run(const Area& area, const exec::Logits& in, Stream& stream) const;
  Status copy_logits(const Area& area, const View& logits, Stream& stream) const;
  std::span<const float> logits_at(const Area& area, const LogitsPlace& place) const;
  int64_t vocab() const { return options_.vocab_size; }

  Device& device_;
  const Options options_;
  const Kernel* greedy_ = nullptr;  // for steps in which every row takes the argmax
  const Kernel* general_ = nullptr;
  std::vector<Slot> slots_;
  // On the device, used by one step at a time in the stream's order.
  Buffer rows_, params_, results_, top_;
  Buffer history_;            // int32 [max_rows, max_sequence_length]
  Buffer raw_logits_;         // f32 [max_logits, vocab], allocated when first needed
  size_t staging_bytes_ = 0;  // of an area, without lists and tokens
  std::array<Area, 2> areas_;
  int32_t turn_ = 0;
};

}  // namespace nereid::runtime
