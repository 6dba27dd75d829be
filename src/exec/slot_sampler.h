// Draws the tokens of a step on the device, behind its forward pass, and reads back what its rows
// want of logits and hidden states.
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

// Keeps, by slot, what the messages of steps say of sampling: parameters, lists and, where they are
// needed, tokens, to which the device appends what it draws. Called on the engine thread, but for
// send() and run().
class SlotSampler {
 public:
  // `device` and `registry` must outlive it. InvalidArgument: `forced` names a kernel that cannot.
  static StatusOr<std::unique_ptr<SlotSampler>> create(
      Device& device, const kernels::Registry& registry, const kernels::Choices& forced,
      const RunnerLimits& limits, int32_t vocab_size, int32_t hidden_width = 0);

  // Takes everything that the step's device work reads; its rows have passed StepData::pack().
  // `area`, below RunnerLimits::depth, must not be that of a step in flight. InvalidArgument: the
  // message is invalid, and nothing has changed. A row for which there is no memory, or whose slot
  // holds nothing to draw with, is left out; results() has its status. `embeddings`: what became of
  // the step's embeddings; not OK: neither are the rows that have some.
  Status stage(const StepView& step, int32_t area, const Status& embeddings = ok());

  // The step staged there is on the stream, or a part of it, and will be waited for.
  void issued(int32_t area) { areas_[static_cast<size_t>(area)].is_issued = true; }

  // The masks of the step staged there, before it is run; memory was taken for them. Only where it
  // has rows with a mask. InvalidArgument: the message is invalid, and nothing has changed.
  Status set_masks(const MaskView& masks, int32_t area);

  // On the stream, once for each staged step before run(), behind run() of the steps before it:
  // what the step needs goes to the device, so that it is there when the logits are.
  Status send(int32_t area, Stream& stream) const;

  // On the stream, once for each staged step. `logits`: f32 [m, vocab], those of its rows in order;
  // drawn tokens are written to slot_tokens [max_rows] too. `hidden`: of each hidden state that a
  // position has bf16 [m, n], with hidden_width the sum of all n.
  Status run(int32_t area, const View& logits, int32_t* slot_tokens, Stream& stream,
             std::span<const View> hidden = {}) const;

  // See Runner::weighs_drafts().
  bool weighs_drafts() const { return weighing_ != nullptr; }

  // The results of a step that is done; call it once. Valid until its area is staged again.
  StepResult results(int32_t area);

 private:
  using Kernel = kernels::Kernel<kernels::Sample>;

  // What the device holds for a slot, as soon as the staged steps have run.
  struct Slot {
    Status status = unavailable("the slot has no sampling parameters");
    kernels::SampleParams params;
    Buffer lists;             // device; params.lists points here
    int32_t num_history = 0;  // tokens, when params.keeps_history; while drafts are drawn, at most
    int64_t sampled_in = 0;   // the last step that draws for it
  };
  struct Upload {
    void* to = nullptr;
    size_t offset = 0, bytes = 0;  // in the area's staging
  };
  // Rows that come back, of logits or of hidden states.
  struct RowsCopy {
    int64_t first_row = 0, num_rows = 0;  // of the step's
    int64_t to_row = 0;                   // of Area::logits, Area::hidden
  };
  // What became of a row of the message.
  struct Outcome {
    Status status;
    int32_t num_masks = 0;  // that it waits for
    bool wants_likeliest = false;
    int64_t first_drawn = 0, num_drawn = 0;  // entries of results and top
    RowsCopy logits, hidden;
  };
  struct Area {
    Buffer staging;  // host: rows and uploads of the step
    // Host, and written by the device: SampleResult [max_logits], TopToken [max_logits,
    // kMaxTopTokens].
    Buffer results, top;
    Buffer logits;  // host: what is read back, grows up to [max_logits, vocab]
    Buffer hidden;  // host: likewise, bf16 [max_logits, hidden_size]
    std::vector<kernels::SampleRow> rows;
    std::vector<Upload> uploads;
    std::vector<Outcome> outcomes;  // by row of the message
    std::vector<RowResult> row_results;
    std::vector<int32_t> paths;      // RowResult::path of each
    std::vector<int32_t> likeliest;  // RowResult::likeliest of each
    // Device memory that steps in flight may read, until a step of this area, which comes behind
    // them, has been issued and waited for.
    std::vector<Buffer> retired;
    bool is_issued = false;        // the staged step is on the stream
    int64_t num_logits = 0;        // rows of logits of the step
    int64_t num_read = 0;          // of those, rows of Area::logits
    int64_t num_hidden = 0;        // of those, rows of Area::hidden
    size_t num_staged = 0;         // bytes of staging in use
    size_t num_extra = 0;          // of those, bytes for lists, tokens and masks
    int64_t num_masks = 0;         // that have come
    int64_t num_draft_logits = 0;  // rows
    bool waits_for_masks = false;
    bool all_greedy = true, wants_top = false, wants_raw = false;
    bool has_drafts = false, weighs_drafts = false;
  };

  SlotSampler(Device& device, const RunnerLimits& limits, int32_t vocab_size, int32_t hidden_width)
      : device_(device), limits_(limits), vocab_size_(vocab_size), hidden_width_(hidden_width) {}

  Status check(const StepView& step);
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
  const Kernel* weighing_ = nullptr;  // for steps that weigh drafts; null: the device has none
  std::vector<Slot> slots_;
  int64_t num_steps_ = 0;  // that were checked
  // On the device, used by one step at a time in the stream's order.
  Buffer rows_, params_;
  Buffer results_;  // SampleResult [max_logits], of steps with drafts, whose rows read each other's
  Buffer history_;  // int32 [max_rows, max_sequence_length]
  Buffer raw_logits_;         // f32 [max_logits, vocab], allocated when first needed
  Buffer draft_logits_;       // the same
  Buffer masks_;              // uint32 [max_logits, mask_words()], the same
  size_t staging_bytes_ = 0;  // of an area, without lists and tokens
  std::vector<Area> areas_;   // [depth]
};

}  // namespace nereid::exec
