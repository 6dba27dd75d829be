// Sampling on the device behind the forward pass, and read-back of logits and hidden states.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "exec/runner.h"
#include "exec/step_message.h"
#include "kernels/api/kernel.h"
#include "kernels/api/ops.h"
#include "kernels/api/registry.h"
#include "tensor/device.h"

namespace nereid::exec {

// Sampling state by slot: parameters, lists and, where needed, the tokens so far, extended on the
// device. Called on the engine thread, except send() and run().
class SlotSampler {
 public:
  // `device` and `registry` must outlive it. InvalidArgument: a `forced` kernel cannot run.
  static StatusOr<std::unique_ptr<SlotSampler>> create(
      Device& device, const kernels::Registry& registry, const kernels::KernelChoices& forced,
      const RunnerLimits& limits, int32_t vocab_size, int32_t hidden_width = 0);

  // Copies all host data of the step's sampling. Preconditions: rows passed StepData::pack(); no
  // step in flight uses `area` < RunnerLimits::depth. InvalidArgument: invalid message, nothing has
  // changed. Rows without memory or slot parameters are skipped; results() has their status.
  // `embeddings`: not OK fails the rows with external embeddings.
  Status stage(const StepMessageView& step, int32_t area, const Status& embeddings = ok());

  // Marks the staged step as submitted, wholly or in part; it will be waited for.
  void issued(int32_t area) { areas_[static_cast<size_t>(area)].is_issued = true; }

  // Stages the masks of a step, before run(). InvalidArgument: bad message, nothing has changed.
  Status set_masks(const MaskView& masks, int32_t area);

  // On the stream, once per staged step, after run() of earlier steps and before run(): uploads
  // parameters, lists and rows.
  Status send(int32_t area, Stream& stream) const;

  // On the stream, once per staged step. `logits`: f32 [m, vocab], in row order; sampled tokens are
  // also written to slot_tokens [max_rows]. `hidden`: bf16 [m, n_i], sum of n_i = hidden_width.
  Status run(int32_t area, const View& logits, int32_t* slot_tokens, Stream& stream,
             std::span<const View> hidden = {}) const;

  // See Runner::weighs_drafts().
  bool weighs_drafts() const { return weighing_ != nullptr; }

  // Results of a finished step; once per step. Valid until its area is staged again.
  StepResult results(int32_t area);

 private:
  using Kernel = kernels::Kernel<kernels::Sample>;

  // State of a slot after the staged steps.
  struct Slot {
    Status status = unavailable("the slot has no sampling parameters");
    kernels::SampleParams params;
    Buffer lists;             // device memory of params.lists
    int32_t num_history = 0;  // if keeps_history; upper bound with drafts in flight
    int64_t sampled_in = 0;   // number of the last step that samples for it
  };
  struct Upload {
    void* to = nullptr;
    size_t offset = 0, bytes = 0;  // in the area's staging
  };
  // Rows to copy back, of logits or of hidden states.
  struct RowsCopy {
    int64_t first_row = 0, num_rows = 0;  // in the step's logits
    int64_t to_row = 0;                   // in Area::logits or Area::hidden
  };
  // Staging outcome of a row of the message.
  struct Outcome {
    Status status;
    int32_t num_masks = 0;  // expected masks
    bool wants_likeliest = false;
    int64_t first_sampled = 0, num_drawn = 0;  // entries of results and top
    RowsCopy logits, hidden;
  };
  struct Area {
    Buffer staging;  // host: rows and uploads of the step
    // Host, written by the device: SampleResult [max_logits], TopToken [max_logits, kMaxTopTokens].
    Buffer results, top;
    Buffer logits;  // host: read-back, grows up to [max_logits, vocab]
    Buffer hidden;  // host: read-back, bf16 [max_logits, hidden_size]
    std::vector<kernels::SampleRow> rows;
    std::vector<Upload> uploads;
    std::vector<Outcome> outcomes;  // by row of the message
    std::vector<RowResult> row_results;
    std::vector<int32_t> paths;      // RowResult::path of all rows
    std::vector<int32_t> likeliest;  // RowResult::likeliest of all rows
    // Replaced device buffers that steps in flight may read; freed after a later step of this area
    // was waited for.
    std::vector<Buffer> retired;
    bool is_issued = false;        // the staged step was submitted
    int64_t num_logits = 0;        // rows of logits of the step
    int64_t num_read = 0;          // rows of Area::logits
    int64_t num_hidden = 0;        // rows of Area::hidden
    size_t num_staged = 0;         // used bytes of staging
    size_t num_extra = 0;          // part of num_staged: lists, tokens and masks
    int64_t num_masks = 0;         // received masks
    int64_t num_draft_logits = 0;  // rows
    bool waits_for_masks = false;
    bool all_greedy = true, wants_top = false, wants_raw = false;
    bool has_drafts = false, weighs_drafts = false;
  };

  SlotSampler(Device& device, const RunnerLimits& limits, int32_t vocab_size, int32_t hidden_width)
      : device_(device), limits_(limits), vocab_size_(vocab_size), hidden_width_(hidden_width) {}

  Status check(const StepMessageView& step);
  Status check_masks(const MaskView& masks, const Area& area) const;
  void load(Area& area, const SlotLoad& load, std::span<const int32_t> cells);
  void set_history(Area& area, int32_t slot, std::span<const int32_t> tokens);
  Status add_row(Area& area, const StepRow& row, std::span<const int32_t> tokens,
                 std::span<const int32_t> parents, std::span<const float> draft_logits,
                 const Status& embeddings, Outcome& outcome);
  Status add_draft_logits(Area& area, std::span<const float> logits);
  Status add_sample(Area& area, const StepRow& row, std::span<const int32_t> drafts,
                    std::span<const int32_t> parents, std::span<const float> draft_logits);
  void upload_rows(Area& area);
  void take_drawn(Area& area, const Outcome& outcome, RowResult& result);
  Status reserve_rows(Buffer& buffer, int64_t num_rows, size_t row_bytes, std::string_view what);
  Status reserve_logits(Buffer& buffer, std::string_view what);
  Status reserve_masks(Area& area, int32_t count);
  Status reserve_lists(Area& area, size_t bytes, Slot& slot);
  Status reserve_staging(Area& area, std::string_view what, size_t bytes);
  void upload(Area& area, void* to, const void* from, size_t bytes);
  Status copy_rows(const Area& area, const View& logits, std::span<const View> hidden,
                   Stream& stream) const;
  Slot& slot_at(int32_t slot) { return slots_[static_cast<size_t>(slot)]; }
  int64_t vocab() const { return vocab_size_; }
  size_t mask_words() const { return static_cast<size_t>(kernels::mask_words(vocab_size_)); }

  Device& device_;
  const RunnerLimits limits_;
  const int32_t vocab_size_;
  const int32_t hidden_width_;
  const Kernel* greedy_ = nullptr;  // for steps in which every row takes the argmax
  const Kernel* general_ = nullptr;
  const Kernel* weighing_ = nullptr;  // for draft tests by probability; null: unsupported
  std::vector<Slot> slots_;
  int64_t num_steps_ = 0;  // checked steps
  // Device memory, used by one step at a time in stream order.
  Buffer rows_, params_;
  Buffer results_;            // SampleResult [max_logits]: rows with drafts read each other's
  Buffer history_;            // int32 [max_rows, max_sequence_length]
  Buffer raw_logits_;         // f32 [max_logits, vocab], allocated on first use
  Buffer draft_logits_;       // f32 [max_logits, vocab], allocated on first use
  Buffer masks_;              // uint32 [max_logits, mask_words()], likewise
  size_t staging_bytes_ = 0;  // per area, without lists and tokens
  std::vector<Area> areas_;   // [depth]
};

}  // namespace nereid::exec
