// One step as a message: arrays of plain data, without pointers, that say all that a runner needs
// to execute it. The same bytes do for the runner of this process and for that of another one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "exec/cache_group.h"
#include "kernels/api/sample.h"
#include "tensor/dtype.h"

namespace nereid::exec {

// One sequence's share of a step, positions [start, end()).
struct StepRow {
  int32_t slot = 0;
  int32_t start = 0;
  int32_t num_tokens = 0;
  int32_t num_logits = 0;  // of the last positions: 0, 1 + num_drafts or num_tokens
  int32_t samples = 0;   // 1: a token is drawn for each position from first_drawn() on, as long as
                         // that for the position before is the row's own: a draft holds
  int32_t num_read = 0;  // last rows of the logits that come back with the result
  int32_t num_hidden = 0;  // the same of the hidden states, of which there are as many as of logits
  int32_t num_drafts = 0;  // of its last tokens, guesses; no later row of its slot may be launched
                           // before the step is done
  int32_t adapter = -1;    // where the pool of adapters holds the row's; -1: it has none
  int32_t has_mask = 0;    // 1: the tokens it draws are of those that its masks allow, which come
                           // in a message of their own: see MaskArrays. Not with a tree
  // The text has so many more positions than the row's KV cache: what is drawn is for positions
  // that lie so far behind.
  int32_t num_skipped = 0;
  int32_t has_tree = 0;  // 1: its drafts come after each other as its `parents` say, 0: in turn
  int32_t has_draft_logits = 0;  // 1: each of its drafts, which are no tree, comes with the logits
                                 // that it was drawn from
  int32_t wants_likeliest = 0;   // 1: see RowResult::likeliest

  int64_t end() const { return int64_t{start} + num_tokens; }
  int64_t last_drawn() const { return end() + num_skipped; }
  int64_t first_drawn() const { return last_drawn() - num_drafts; }
};
inline constexpr int32_t kTokenOnDevice = -1;  // take the id from the slot's sampled token
inline constexpr int32_t kTokenGiven = -2;     // no id: the next one of the step's embeddings
inline constexpr int32_t kNoBlock = -1;
inline constexpr int32_t kMaxTreeDrafts = 64;
inline constexpr int32_t kNoParent = -1;

// A whole block, all layers of its group. Blocks of the device are [0, num_blocks), those of the
// host pool [num_blocks, num_blocks + num_host_blocks).
struct BlockCopy {
  int32_t from = 0, to = 0;
  int32_t group = 0;
};

// From this step on the slot's tokens are drawn like this.
struct SlotLoad {
  kernels::SampleParams params;  // `lists` is 0: where they lie is the runner's business
  int32_t slot = 0;
  int32_t num_cells = 0;  // of its kernels::SampleLists
};

// The tokens of a slot so far, in place of those that the runner holds for it. An id outside of the
// vocabulary, at a position whose embedding was given, is like no other token.
struct SlotHistory {
  int32_t slot = 0;
  int32_t num_tokens = 0;
};

// A part of the weights of an adapter for place `adapter` of the pool: weights [first_weight,
// first_weight + num_weights) of its matrices. Parts come in order, one or several messages long;
// each says the same matrices, which take as many pages as they need from `first_page` on. Rows may
// have the adapter from the message with its last part on. With the first part the place holds
// nothing else any more, nor does a place that had one of these pages.
struct AdapterLoad {
  int32_t adapter = 0;
  int32_t num_matrices = 0;
  int32_t first_page = 0;
  int32_t num_weights = 0;
  int64_t first_weight = 0;
};
// The pages of place `adapter`, whose adapter is whole, become those from `to_page` on, of which no
// other place has one. Made in order before anything is computed. A message with moves has no
// loads.
struct AdapterMove {
  int32_t adapter = 0;
  int32_t to_page = 0;
};
// What an adapter makes of the columns of io::Plan::modules[module]; see kernels::AdapterMatrix.
struct AdapterMatrix {
  int32_t module = 0;  // greater than that of the matrix before
  int32_t rank = 0;
  float scale = 0;
  int32_t has_gain = 0;  // 1: it has
};

// The arrays of a step. What belongs to the i-th entry of `rows`, `loads`, `histories`,
// `adapter_loads` or `adapter_matrices` lies behind what belongs to those before it.
template <template <class> class Array>
struct StepArrays {
  Array<StepRow> rows;
  // num_tokens of each row, ids or kTokenGiven; a row's last may be kTokenOnDevice. A draft is an
  // id.
  Array<int32_t> tokens;
  // num_drafts (at most kMaxTreeDrafts) of each row with a tree: of each draft the one that it
  // comes after, a number below its own, or kNoParent: the row's last token that is no draft. Two
  // drafts after the same one differ. A draft is computed, and a token behind it drawn, as in a row
  // with nothing else between it and the start of the tree. Those that hold are a path, which is
  // then the row's: when the step is done, its keys and values lie behind those of the row's other
  // tokens, as if there had been no other drafts.
  Array<int32_t> parents;
  // For each draft of a row that has some, those of the whole vocabulary; see kernels::Sample.
  Array<float> draft_logits;
  // One for each kTokenGiven, as wide as the model's embedding table, whose row it stands for.
  Array<BF16> embeddings;
  // For each row, for each cache group in turn: the blocks of positions [0, end()). A block that
  // none of the row's tokens sees (window, sink) may be kNoBlock.
  Array<int32_t> blocks;
  Array<BlockCopy> copies;  // made in order before anything is computed
  // Made in order after all `copies` of this message and those before, beside everything else: from
  // the host pool to device blocks that no message uses before Runner::onboarded() told their end.
  Array<BlockCopy> onboards;
  Array<SlotLoad> loads;
  Array<int32_t> cells;  // num_cells of each load
  Array<SlotHistory> histories;
  Array<int32_t> history_tokens;  // num_tokens of each history
  Array<AdapterMove> adapter_moves;
  Array<AdapterLoad> adapter_loads;
  Array<AdapterMatrix> adapter_matrices;  // num_matrices of each load
  // num_weights of each load. Those of a matrix are a [rank, k], b [rank, n], [gain [n], shift
  // [n]].
  Array<BF16> adapter_weights;

  // In the order in which they lie in a message.
  auto all() {
    return std::tie(rows, tokens, parents, draft_logits, embeddings, blocks, copies, onboards,
                    loads, cells, histories, history_tokens, adapter_moves, adapter_loads,
                    adapter_matrices, adapter_weights);
  }
  auto all() const {
    return std::tie(rows, tokens, parents, draft_logits, embeddings, blocks, copies, onboards,
                    loads, cells, histories, history_tokens, adapter_moves, adapter_loads,
                    adapter_matrices, adapter_weights);
  }
};

// Which tokens the rows of a step may draw. A message of its own, since a mask depends on the token
// before, which may be drawn while the step's forward pass is under way.
template <template <class> class Array>
struct MaskArrays {
  // Numbers of the step's rows that get masks here, ascending. A row with `has_mask` that is not
  // among them draws any token, which is not kept.
  Array<int32_t> rows;
  // kernels::mask_words() for each token that they may draw: one, and one for each draft; see
  // kernels::Sample.
  Array<uint32_t> words;

  auto all() { return std::tie(rows, words); }
  auto all() const { return std::tie(rows, words); }
};

template <class T>
using StepSpan = std::span<const T>;
template <class T>
using StepVector = std::vector<T>;

// A step and its masks as they are read: the arrays lie in the message.
using StepView = StepArrays<StepSpan>;
using MaskView = MaskArrays<StepSpan>;

// A step as it is made.
struct Step : StepArrays<StepVector> {
  void clear();  // keeps the memory

  // Adds the row with its tokens, whose number `row` need not have, and with the part of its block
  // tables that it reaches, which they must cover. Embeddings are added by the caller.
  void add(StepRow row, std::span<const int32_t> row_tokens,
           const PerGroup<std::span<const int32_t>>& tables, size_t num_groups,
           int32_t block_tokens);
};

struct Masks : MaskArrays<StepVector> {
  void clear();  // keeps the memory
};

// The message of a step or of its masks, in place of what `message` held.
void encode(const Step& step, std::vector<std::byte>& message);
void encode(const Masks& masks, std::vector<std::byte>& message);

// Where the arrays of a message lie. Says nothing of what is in them: who uses an array checks it.
// InvalidArgument when the bytes are no message of this kind and version or not as many as its
// counts need.
StatusOr<StepView> decode(std::span<const std::byte> message);
StatusOr<MaskView> decode_masks(std::span<const std::byte> message);

// Blocks of one group that hold positions [0, end), end > 0.
constexpr int64_t num_blocks_for(int64_t end, int32_t block_tokens) {
  return (end - 1) / block_tokens + 1;
}

}  // namespace nereid::exec
