// A step as a message: arrays of plain data without pointers, complete for a runner in any process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "exec/cache_group.h"
#include "kernels/api/op.h"
#include "kernels/api/sample.h"
#include "tensor/dtype.h"

namespace nereid::exec {

// One row of a step: positions [start, end()) of a slot's sequence.
struct StepRow {
  int32_t slot = 0;
  int32_t start = 0;
  int32_t num_tokens = 0;
  int32_t num_logits = 0;  // positions with logits, the last ones: 0, 1 + num_drafts or num_tokens
  int32_t samples = 0;     // 1: a token is sampled for position first_sampled() and, behind each
                           // accepted draft, for the next position
  int32_t num_read = 0;    // rows of logits to return, the last ones
  int32_t num_hidden = 0;  // rows of hidden states to return, the last ones of num_logits
  int32_t num_drafts = 0;  // drafts: the last num_drafts tokens; no later row of the slot is
                           // launched before the step is done
  int32_t adapter = -1;    // adapter slot; -1: none
  int32_t has_mask = 0;    // 1: sampled tokens are restricted by masks, which come in a message of
                           // MaskArrays. Excludes has_tree
  // Position offset: position in the text = position in the KV cache + position_offset. Sampling
  // uses positions of the text.
  int32_t position_offset = 0;
  int32_t has_tree = 0;          // 1: draft tree, order in `parents`; 0: chain
  int32_t has_draft_logits = 0;  // 1: chain of drafts, each with its logits
  int32_t wants_likeliest = 0;   // 1: fills RowResult::likeliest
  int32_t cross_length = 0;      // positions of the encoder's output that it attends to
  // Components of positions (RunnerLimits::has_components): those of the first num_components
  // tokens are in `components`, those of the others are position + component_offset.
  int32_t num_components = 0;
  int32_t component_offset = 0;
  int32_t num_scored_heads = 0;  // heads of cross attention whose scores are returned
  int32_t has_last = 0;          // 1: the last positions that its tokens attend to are in `last`
  int32_t has_cross_mask = 0;    // 1: its tokens' masks of cross attention are in `cross_masks`

  int64_t end() const { return int64_t{start} + num_tokens; }
  int64_t last_drawn() const { return end() + position_offset; }
  int64_t first_sampled() const { return last_drawn() - num_drafts; }
};
inline constexpr int32_t kTokenOnDevice = -1;  // input id = the slot's last sampled token
inline constexpr int32_t kTokenExternal = -2;  // input = the next of the step's embeddings
inline constexpr int32_t kTokenFeature = -3;   // input = the next of the step's feature_rows
inline constexpr int32_t kTokenRowEnd = -4;    // input = kernels::Embed::row_end
inline constexpr int32_t kNoBlock = -1;
inline constexpr int32_t kMaxTreeDrafts = 64;
inline constexpr int32_t kNoParent = -1;

// Copy of a whole block, all layers of a group. Device blocks are [0, num_blocks), host blocks
// [num_blocks, num_blocks + num_host_blocks).
struct BlockCopy {
  int32_t from = 0, to = 0;
  int32_t group = 0;
};

// Input of the encoder, whole. Its result (keys and values for cross attention, or features) is
// stored before the rows of the step run.
struct EncoderInput {
  int32_t num_tokens = 0;
  int32_t num_parts = 1;    // equal parts, each of which attends to itself alone
  int32_t num_windows = 0;  // of its tokens in order, for attention in windows; 0: it has none
  // Its last positions, which attend to the others alone and have no results.
  int32_t num_padding = 0;
  int32_t num_blends = 0;   // rows of its result, of a model whose PictureFacts::blended_tiles > 0
  int32_t adapter = -1;     // adapter slot; -1: none
  int32_t is_returned = 0;  // 1: its output is among Runner::encoder_outputs()
};

// A head of cross attention.
struct ScoredHead {
  int32_t layer = 0;  // of the decoder
  int32_t head = 0;
};

// Sampling parameters of a slot from this step on.
struct SlotLoad {
  kernels::SampleParams params;  // `lists` must be 0: the runner sets it
  int32_t slot = 0;
  int32_t num_cells = 0;  // of its kernels::SampleLists
};

// Replaces the runner's token history of a slot. Ids outside the vocabulary, at positions with
// external embeddings, equal no token.
struct SlotHistory {
  int32_t slot = 0;
  int32_t num_tokens = 0;
};

// Weights [first_weight, first_weight + num_weights) of an adapter's matrices for adapter slot
// `adapter`. Parts come in order, in one or more messages, each with the same matrices, whose pages
// begin at `first_page`. Rows may use the adapter from the message with the last part on. The first
// part empties the slot, and every slot with one of these pages.
struct AdapterLoad {
  int32_t adapter = 0;
  int32_t num_matrices = 0;
  int32_t first_page = 0;
  int32_t num_weights = 0;
  int64_t first_weight = 0;
};
// Moves the pages of a completely loaded adapter to `to_page` and on; no other adapter slot may
// have one of them. Moves run in order before the rows. A message has moves or loads, not both.
struct AdapterMove {
  int32_t adapter = 0;
  int32_t to_page = 0;
};
// LoRA matrix pair of module io::Plan::modules[module]; see kernels::LoraMatrix.
struct LoraMatrixInfo {
  int32_t module = 0;  // ascending
  int32_t rank = 0;
  float scale = 0;
  int32_t has_gain = 0;  // 0 or 1
};

// Arrays of a step. The parts of entry i of `rows`, `loads`, `histories`, `adapter_loads` and
// `adapter_matrices` follow those of entry i - 1.
template <template <class> class Array>
struct StepArrays {
  Array<StepRow> rows;
  // num_tokens per row: ids, kTokenExternal, kTokenFeature or kTokenRowEnd; the last one may be
  // kTokenOnDevice. Drafts are ids.
  Array<int32_t> tokens;
  // num_drafts (<= kMaxTreeDrafts) per row with a tree: parents[i] < i is the draft before draft i,
  // kNoParent the row's last token that is no draft. Siblings differ. A draft is computed, and its
  // successor sampled, as if only its path preceded it. The accepted drafts are a path; after the
  // step its keys and values are in the cells of a chain.
  Array<int32_t> parents;
  // For each draft of a row with has_draft_logits: [vocab]; see kernels::Sample.
  Array<float> draft_logits;
  // One row per kTokenExternal, as wide as the embedding table, in place of its row.
  Array<BF16> embeddings;
  // One per kTokenFeature: row of the feature pool, block * block_tokens + row in the block.
  Array<int32_t> feature_rows;
  // num_components per row, kernels::kPositionComponents numbers each.
  Array<int32_t> components;
  // num_tokens per row with has_last: kernels::BatchView::last.
  Array<int32_t> last;
  // Per row and cache group: the blocks of positions [0, end()). kNoBlock is allowed where no token
  // of the row attends (window, sink).
  Array<int32_t> blocks;
  // Per row: the cross attention's blocks of positions [0, cross_length).
  Array<int32_t> cross_blocks;
  // Per row with has_cross_mask: cross_mask_words(cross_length) for each position of [start, end),
  // kernels::BatchView::cross_mask.
  Array<uint32_t> cross_masks;
  Array<ScoredHead> scored_heads;  // num_scored_heads per row
  Array<EncoderInput> encoder_inputs;
  Array<int32_t> encoder_tokens;      // num_tokens per input: ids or kTokenExternal
  Array<BF16> encoder_embeddings;     // one row per kTokenExternal
  Array<int32_t> encoder_components;  // as `components`, of each token; none: the encoder has none
  Array<int32_t> encoder_windows;     // num_windows per input: tokens of each
  Array<kernels::BlendedRow> encoder_blends;  // num_blends per input, of its tokens
  // Per input: cross attention's blocks of [0, num_tokens), or feature blocks of its features.
  Array<int32_t> encoder_blocks;
  Array<BlockCopy> copies;  // run in order before the rows
  // Host-pool copies, run in order after all `copies` of this and earlier messages, beside all
  // other work; no message uses their device blocks before Runner::onboarded() has returned them.
  Array<BlockCopy> onboards;
  Array<SlotLoad> loads;
  Array<int32_t> cells;  // num_cells per load
  Array<SlotHistory> histories;
  Array<int32_t> history_tokens;  // num_tokens per history
  Array<AdapterMove> adapter_moves;
  Array<AdapterLoad> adapter_loads;
  Array<LoraMatrixInfo> adapter_matrices;  // num_matrices per load
  // num_weights per load. Per matrix: a [rank, k], b [rank, n]; with has_gain gain [n], shift [n].
  Array<BF16> adapter_weights;

  // In message order.
  auto all() {
    return std::tie(rows, tokens, parents, draft_logits, embeddings, feature_rows, components, last,
                    blocks, cross_blocks, cross_masks, scored_heads, encoder_inputs, encoder_tokens,
                    encoder_embeddings, encoder_components, encoder_windows, encoder_blends,
                    encoder_blocks, copies, onboards, loads, cells, histories, history_tokens,
                    adapter_moves, adapter_loads, adapter_matrices, adapter_weights);
  }
  auto all() const {
    return std::tie(rows, tokens, parents, draft_logits, embeddings, feature_rows, components, last,
                    blocks, cross_blocks, cross_masks, scored_heads, encoder_inputs, encoder_tokens,
                    encoder_embeddings, encoder_components, encoder_windows, encoder_blends,
                    encoder_blocks, copies, onboards, loads, cells, histories, history_tokens,
                    adapter_moves, adapter_loads, adapter_matrices, adapter_weights);
  }
};

// Token masks of a step's rows, in a message of their own: a mask depends on the previous token,
// which may be sampled during the step's forward pass.
template <template <class> class Array>
struct MaskArrays {
  // Indices of rows with masks, ascending. A row with `has_mask` that is missing samples without a
  // mask; its token is discarded.
  Array<int32_t> rows;
  // kernels::mask_words() for each position to sample: one, and one per draft; see kernels::Sample.
  Array<uint32_t> words;

  auto all() { return std::tie(rows, words); }
  auto all() const { return std::tie(rows, words); }
};

template <class T>
using StepSpan = std::span<const T>;
template <class T>
using StepVector = std::vector<T>;

// A decoded step and its masks: the arrays point into the message.
using StepMessageView = StepArrays<StepSpan>;
using MaskView = MaskArrays<StepSpan>;

// A step being built.
struct StepMessage : StepArrays<StepVector> {
  void clear();  // keeps the memory

  // Adds a row with its tokens (sets num_tokens) and the blocks of [0, end()) from its block
  // tables. The caller adds embeddings.
  void add(StepRow row, std::span<const int32_t> row_tokens,
           const PerGroup<std::span<const int32_t>>& tables, size_t num_groups,
           int32_t block_tokens);
};

struct Masks : MaskArrays<StepVector> {
  void clear();  // keeps the memory
};

// Encodes a step or its masks into `message`, replacing its contents.
void encode(const StepMessage& step, std::vector<std::byte>& message);
void encode(const Masks& masks, std::vector<std::byte>& message);

// Spans of a message's arrays; their contents are unchecked. InvalidArgument: wrong kind, version,
// or size for its counts.
StatusOr<StepMessageView> decode(std::span<const std::byte> message);
StatusOr<MaskView> decode_masks(std::span<const std::byte> message);

// Words of a position's mask of cross attention.
constexpr int32_t cross_mask_words(int32_t cross_length) { return (cross_length + 31) / 32; }

// Blocks that hold positions [0, end), end > 0.
constexpr int64_t num_blocks_for(int64_t end, int32_t block_tokens) {
  return (end - 1) / block_tokens + 1;
}

}  // namespace nereid::exec
