// Checks and packing of a step's rows.
#include "exec/step_data.h"

#include <algorithm>
#include <cstring>

#include "base/round_up.h"
#include "exec/memory.h"

namespace nereid::exec {
namespace {

constexpr size_t padded(size_t num_ints) {
  return round_up(num_ints * sizeof(int32_t), StepData::kAlignment);
}

// A row of the message with its arrays.
struct RowParts {
  const StepRow& row;
  std::span<const int32_t> tokens;
  std::span<const int32_t> parents;  // draft tree
  std::span<const int32_t> blocks;   // [groups, blocks up to end()]
  std::span<const int32_t> cross;    // blocks of the encoder's output
  std::span<const int32_t> components;
  std::span<const int32_t> last;   // of the tokens; empty: their own positions
  std::span<const uint32_t> mask;  // of cross attention, by position; empty: none
};

size_t num_cross_blocks(int32_t length, int32_t block_tokens) {
  return length > 0 ? static_cast<size_t>(num_blocks_for(length, block_tokens)) : 0;
}

// Iterates over the rows of a message, whose counts may disagree.
class RowReader {
 public:
  RowReader(const StepMessageView& message, size_t num_groups, int32_t block_tokens)
      : rows_(message.rows),
        tokens_(message.tokens),
        parents_(message.parents),
        blocks_(message.blocks),
        cross_(message.cross_blocks),
        components_(message.components),
        last_(message.last),
        masks_(message.cross_masks),
        num_groups_(num_groups),
        block_tokens_(block_tokens) {}

  // The next row; slot and positions are checked before its arrays are cut off.
  StatusOr<RowParts> next(const RunnerLimits& limits) {
    const StepRow& row = rows_.front();
    rows_ = rows_.subspan(1);
    if (row.slot < 0 || row.slot >= limits.max_rows)
      return invalid_argument("slot {} is not in [0, {})", row.slot, limits.max_rows);
    if (row.num_tokens < 1) return invalid_argument("no tokens");
    if (row.position_offset < 0)
      return invalid_argument("position_offset {} is negative", row.position_offset);
    if (row.start < 0 || row.last_drawn() > limits.max_sequence_length)
      return invalid_argument("positions [{}, {}) are not in [0, {})", row.start, row.last_drawn(),
                              limits.max_sequence_length);
    const auto num_tokens = static_cast<size_t>(row.num_tokens);
    const size_t num_blocks =
        num_groups_ * static_cast<size_t>(num_blocks_for(row.end(), block_tokens_));
    if (num_tokens > tokens_.size() || num_blocks > blocks_.size())
      return invalid_argument("{} tokens and {} blocks are left for {} positions", tokens_.size(),
                              blocks_.size(), row.end());
    const auto num_parents = static_cast<size_t>(row.has_tree ? std::max(row.num_drafts, 0) : 0);
    if (num_parents > std::min<size_t>(parents_.size(), kMaxTreeDrafts))
      return invalid_argument("a tree of {} drafts; {} parents are left, at most {} are allowed",
                              num_parents, parents_.size(), kMaxTreeDrafts);
    if (row.cross_length < 0 || row.cross_length > limits.cross_length())
      return invalid_argument("cross_length {} is not in [0, {}]", row.cross_length,
                              limits.cross_length());
    const size_t num_cross = num_cross_blocks(row.cross_length, block_tokens_);
    if (num_cross > cross_.size())
      return invalid_argument("{} cross blocks are left for {} positions", cross_.size(),
                              row.cross_length);
    const size_t num_components =
        kernels::kPositionComponents *
        static_cast<size_t>(std::clamp(row.num_components, 0, row.num_tokens));
    if (num_components > components_.size())
      return invalid_argument("{} components of positions are left for {} tokens",
                              components_.size(), row.num_components);
    const size_t num_last = row.has_last != 0 ? num_tokens : 0;
    if (num_last > last_.size())
      return invalid_argument("{} last positions are left for {} tokens", last_.size(), num_last);
    const size_t num_mask =
        row.has_cross_mask != 0
            ? num_tokens * static_cast<size_t>(cross_mask_words(row.cross_length))
            : 0;
    if (num_mask > masks_.size())
      return invalid_argument("{} words of cross_masks are left for {} tokens and {} positions",
                              masks_.size(), num_tokens, row.cross_length);
    RowParts parts{row,
                   tokens_.first(num_tokens),
                   parents_.first(num_parents),
                   blocks_.first(num_blocks),
                   cross_.first(num_cross),
                   components_.first(num_components),
                   last_.first(num_last),
                   masks_.first(num_mask)};
    masks_ = masks_.subspan(num_mask);
    last_ = last_.subspan(num_last);
    components_ = components_.subspan(num_components);
    cross_ = cross_.subspan(num_cross);
    tokens_ = tokens_.subspan(num_tokens);
    parents_ = parents_.subspan(num_parents);
    blocks_ = blocks_.subspan(num_blocks);
    return parts;
  }

  // Fails unless all arrays are used up.
  Status finish() const {
    if (!parents_.empty()) return invalid_argument("{} parents belong to no row", parents_.size());
    if (!cross_.empty()) return invalid_argument("{} cross blocks belong to no row", cross_.size());
    if (!components_.empty())
      return invalid_argument("{} components belong to no row", components_.size());
    if (!last_.empty()) return invalid_argument("{} last positions belong to no row", last_.size());
    if (!masks_.empty())
      return invalid_argument("{} words of cross_masks belong to no row", masks_.size());
    if (tokens_.empty() && blocks_.empty()) return ok();
    return invalid_argument("{} tokens and {} blocks belong to no row", tokens_.size(),
                            blocks_.size());
  }

 private:
  std::span<const StepRow> rows_;
  std::span<const int32_t> tokens_, parents_, blocks_, cross_, components_, last_;
  std::span<const uint32_t> masks_;
  const size_t num_groups_;
  const int32_t block_tokens_;
};

// Checks the row's blocks in group `g`.
Status check_blocks(std::span<const int32_t> blocks, size_t g, const CacheGroup& group,
                    int32_t start, const RunnerLimits& limits) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    const int32_t block = blocks[i];
    if (block >= 0 && block < limits.num_blocks[g]) continue;
    const int64_t begin = static_cast<int64_t>(i) * limits.block_tokens;
    if (block == kNoBlock && group.is_unseen(begin, begin + limits.block_tokens, start)) continue;
    return invalid_argument("block {} is not in [0, {})", block, limits.num_blocks[g]);
  }
  return ok();
}

Status check_tree(const RowParts& parts, const RunnerLimits& limits) {
  if (parts.row.has_tree == 0) return ok();
  if (parts.row.has_tree != 1 || !limits.has_trees)
    return invalid_argument("has_tree {}; allowed {}", parts.row.has_tree,
                            limits.has_trees ? "are 0 and 1" : "is 0, by the runner's limits");
  const auto drafts = parts.tokens.last(parts.parents.size());
  for (int32_t i = 0; i < parts.row.num_drafts; ++i) {
    const int32_t parent = parts.parents[i];
    if (parent < kNoParent || parent >= i)
      return invalid_argument("draft {} comes after draft {}, which is not in [{}, {})", i, parent,
                              kNoParent, i);
    for (int32_t j = 0; j < i; ++j)
      if (parts.parents[j] == parent && drafts[j] == drafts[i])
        return invalid_argument("drafts {} and {} are the same token {} after draft {}", j, i,
                                drafts[i], parent);
  }
  return ok();
}

Status check_components(const RowParts& parts, const RunnerLimits& limits) {
  const StepRow& row = parts.row;
  if (!limits.has_components && (row.num_components != 0 || row.component_offset != 0))
    return invalid_argument("num_components {} and component_offset {} of a model without",
                            row.num_components, row.component_offset);
  if (row.num_components < 0 || row.num_components > row.num_tokens)
    return invalid_argument("num_components {} is not in [0, {}]", row.num_components,
                            row.num_tokens);
  const int64_t first = int64_t{row.start} + row.num_components;  // without given components
  const int64_t most = limits.max_sequence_length - row.end();
  if (row.num_components < row.num_tokens &&
      (row.component_offset > most || first + row.component_offset < 0))
    return invalid_argument("component_offset {} is not in [-{}, {}]", row.component_offset, first,
                            most);
  for (const int32_t component : parts.components)
    if (component < 0 || component >= limits.max_sequence_length)
      return invalid_argument("component {} of a position is not in [0, {})", component,
                              limits.max_sequence_length);
  return ok();
}

Status check_last(const RowParts& parts, const RunnerLimits& limits) {
  const StepRow& row = parts.row;
  if (row.has_last < 0 || row.has_last > (limits.has_last ? 1 : 0))
    return invalid_argument("has_last {}; allowed {}", row.has_last,
                            limits.has_last ? "are 0 and 1" : "is 0, by the runner's limits");
  int64_t position = row.start, least = row.start;
  for (const int32_t last : parts.last) {
    least = std::max(least, position++);
    if (last < least || last >= row.end())
      return invalid_argument("last position {} is not in [{}, {})", last, least, row.end());
    least = last;
  }
  return ok();
}

Status check_features(const StepMessageView& message, const RunnerLimits& limits) {
  const auto count = std::ranges::count(message.tokens, kTokenFeature);
  if (count != std::ssize(message.feature_rows))
    return invalid_argument("{} feature rows of {} tokens", message.feature_rows.size(), count);
  const int64_t end = int64_t{limits.num_feature_blocks} * limits.block_tokens;
  for (const int32_t row : message.feature_rows)
    if (row < 0 || row >= end)
      return invalid_argument("feature row {} is not in [0, {})", row, end);
  return ok();
}

Status check_row(const RowParts& parts, std::span<const CacheGroup> groups,
                 const RunnerLimits& limits, int32_t vocab_size) {
  const StepRow& row = parts.row;
  if (row.num_drafts < 0 || row.num_drafts >= row.num_tokens)
    return invalid_argument("{} drafts of {} tokens; the first token cannot be a draft",
                            row.num_drafts, row.num_tokens);
  for (size_t i = 0; i < parts.tokens.size(); ++i) {
    const int32_t token = parts.tokens[i];
    const bool is_draft = i + row.num_drafts >= parts.tokens.size();
    const bool on_device =
        token == kTokenOnDevice && i + 1 == parts.tokens.size() && row.num_drafts == 0;
    const bool is_given =
        (token == kTokenExternal || token == kTokenFeature || token == kTokenRowEnd) && !is_draft;
    if (!on_device && !is_given && (token < 0 || token >= vocab_size))
      return invalid_argument("token {} is not in [0, {})", token, vocab_size);
  }
  const int32_t num_drawn = 1 + row.num_drafts;
  if (row.num_logits != 0 && row.num_logits != num_drawn && row.num_logits != row.num_tokens)
    return invalid_argument("{} logits of {} tokens; allowed are none, {} and all", row.num_logits,
                            row.num_tokens, num_drawn);
  if (row.samples != 0 && (row.samples != 1 || row.num_logits == 0))
    return invalid_argument("samples {} of {} logits; allowed are 0, and 1 with logits",
                            row.samples, row.num_logits);
  if (row.num_drafts > 0 && row.samples == 0)
    return invalid_argument("{} drafts of a row that does not sample", row.num_drafts);
  RETURN_IF_ERROR(check_tree(parts, limits));
  RETURN_IF_ERROR(check_components(parts, limits));
  RETURN_IF_ERROR(check_last(parts, limits));
  if (row.adapter < -1 || row.adapter >= limits.num_adapters)
    return invalid_argument("adapter {} is not in [-1, {})", row.adapter, limits.num_adapters);
  if (row.num_read < 0 || row.num_read > row.num_logits)
    return invalid_argument("{} rows of logits to read of {}", row.num_read, row.num_logits);
  if (row.has_cross_mask < 0 || row.has_cross_mask > (row.cross_length > 0 ? 1 : 0))
    return invalid_argument("has_cross_mask {} with {} positions of an encoder's output",
                            row.has_cross_mask, row.cross_length);
  for (const int32_t block : parts.cross)
    if (block < 0 || block >= limits.num_cross_blocks)
      return invalid_argument("cross block {} is not in [0, {})", block, limits.num_cross_blocks);
  const size_t per_group = groups.empty() ? 0 : parts.blocks.size() / groups.size();
  for (size_t g = 0; g < groups.size(); ++g)
    RETURN_IF_ERROR(check_blocks(parts.blocks.subspan(g * per_group, per_group), g, groups[g],
                                 row.start, limits));
  return ok();
}

// Rounded up by less than 1/4: steps keep one shape (recording) while sequences grow.
int32_t table_width(int32_t num_blocks, int32_t most) {
  int32_t unit = 1;
  while (8 * unit <= num_blocks) unit *= 2;
  return std::min((num_blocks + unit - 1) / unit * unit, most);
}

// The arrays of a step being filled; null: absent.
struct Arrays {
  int32_t* tokens;
  int32_t* positions;
  int32_t* row_of_token;
  int32_t* row_begin;
  int32_t* logit_tokens;
  int32_t* block_tables;
  int32_t* adapters = nullptr;
  int32_t* logit_adapters = nullptr;
  int32_t* after = nullptr;
  int32_t* cells = nullptr;
  int32_t* last = nullptr;
  int32_t* components = nullptr;
  int32_t* cross_lengths = nullptr;
  int32_t* cross_table = nullptr;
  int32_t* cross_mask = nullptr;
};

// Checks all rows; returns the counts of the step.
StatusOr<StepData> check_message(const StepMessageView& message, std::span<const CacheGroup> groups,
                                 const RunnerLimits& limits, int32_t vocab_size) {
  StepData step;
  const std::span<const StepRow> rows = message.rows;
  if (rows.empty() || rows.size() > static_cast<size_t>(limits.max_rows))
    return invalid_argument("a step of {} rows; 1 to {} are allowed", rows.size(), limits.max_rows);
  int64_t num_logits = 0;
  int32_t longest_cross = 1;
  RowReader reader(message, groups.size(), limits.block_tokens);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto parts = reader.next(limits);
    Status status = parts.ok() ? check_row(*parts, groups, limits, vocab_size) : parts.status();
    if (!status.ok()) return annotate(status, fmt::format("row {}", i));
    num_logits += rows[i].num_logits;
    step.max_length = std::max(step.max_length, static_cast<int32_t>(rows[i].end()));
    step.num_positions += rows[i].end();
    longest_cross = std::max(longest_cross, rows[i].cross_length);
  }
  RETURN_IF_ERROR(reader.finish());
  RETURN_IF_ERROR(check_features(message, limits));
  const size_t num_tokens = message.tokens.size();
  if (num_tokens > static_cast<size_t>(limits.max_tokens))
    return invalid_argument("a step of {} tokens; at most {} are allowed", num_tokens,
                            limits.max_tokens);
  if (num_logits > limits.num_logits_rows())
    return invalid_argument("a step of {} logits; at most {} are allowed", num_logits,
                            limits.num_logits_rows());
  step.num_logits = static_cast<int32_t>(num_logits);
  step.num_rows = static_cast<int32_t>(rows.size());
  step.num_tokens = static_cast<int32_t>(num_tokens);
  step.max_blocks =
      table_width((step.max_length - 1) / limits.block_tokens + 1, blocks_per_sequence(limits));
  if (limits.num_cross_blocks > 0)
    step.max_cross_blocks = table_width((longest_cross - 1) / limits.block_tokens + 1,
                                        (limits.cross_length() - 1) / limits.block_tokens + 1);
  if (!message.cross_masks.empty()) step.cross_mask_words = cross_mask_words(longest_cross);
  return step;
}

// Lays out the arrays in `block`, one behind the other; sets step.bytes.
Arrays lay_out(const StepMessageView& message, size_t num_groups, const RunnerLimits& limits,
               std::byte* block, StepData& step) {
  const auto take = [&](size_t num_ints) {
    auto* const ints = reinterpret_cast<int32_t*>(block + step.bytes);
    step.bytes += padded(num_ints);
    return ints;
  };
  const size_t num_tokens = message.tokens.size(), num_rows = message.rows.size();
  // Braces fix the order of evaluation.
  Arrays a{take(num_tokens),      take(num_tokens),
           take(num_tokens),      take(num_rows + 1),
           take(step.num_logits), take(num_groups * num_rows * step.max_blocks)};
  if (std::ranges::any_of(
          message.rows, [](int32_t adapter) { return adapter >= 0; }, &StepRow::adapter)) {
    a.adapters = take(num_tokens);
    a.logit_adapters = take(step.num_logits);
  }
  if (!message.parents.empty()) {
    a.after = take(num_tokens);
    a.cells = take(num_tokens);
  }
  if (!message.last.empty()) a.last = take(num_tokens);
  if (limits.has_components) a.components = take(kernels::kPositionComponents * num_tokens);
  if (step.max_cross_blocks > 0) {
    a.cross_lengths = take(num_rows);
    a.cross_table = take(num_rows * static_cast<size_t>(step.max_cross_blocks));
  }
  if (step.cross_mask_words > 0)
    a.cross_mask = take(num_tokens * static_cast<size_t>(step.cross_mask_words));
  return a;
}

// The next element to read of each array of a message.
struct Cursor {
  const int32_t* parents;
  const int32_t* feature_rows;
  const int32_t* components;
  const int32_t* last;
};

// Fills the arrays of row `r`, from its first token and logit on.
void fill_tokens(const StepMessageView& message, int32_t r, int32_t token, int32_t logit,
                 Cursor& next, const Arrays& a, StepData& step) {
  const StepRow& row = message.rows[r];
  if (a.adapters) {
    std::fill_n(a.adapters + token, row.num_tokens, row.adapter);
    std::fill_n(a.logit_adapters + logit, row.num_logits, row.adapter);
  }
  for (int32_t i = 0; i < row.num_tokens; ++i, ++token) {
    const int32_t id = message.tokens[token];
    a.tokens[token] = id == kTokenOnDevice   ? -1 - row.slot
                      : id == kTokenExternal ? kernels::kFirstEmbedding + step.num_embeddings++
                      : id == kTokenFeature  ? kernels::kFirstFeature + *next.feature_rows++
                      : id == kTokenRowEnd   ? kernels::kRowEnd
                                             : id;
    a.positions[token] = row.start + i;
    a.row_of_token[token] = r;
    if (a.after) a.after[token] = 0, a.cells[token] = row.start + i;
  }
  for (int32_t i = 0; row.has_tree && i < row.num_drafts; ++i) {
    const int32_t draft = token - row.num_drafts + i;
    a.after[draft] = i - *next.parents++;
    a.positions[draft] = a.positions[draft - a.after[draft]] + 1;
  }
  const int32_t first = token - row.num_tokens;
  if (row.has_last != 0) {
    std::copy_n(next.last, row.num_tokens, a.last + first);
    next.last += row.num_tokens;
    for (int32_t draft = token - row.num_drafts; row.has_tree && draft < token; ++draft)
      a.last[draft] = a.positions[draft];
  } else if (a.last) {
    std::copy_n(a.positions + first, row.num_tokens, a.last + first);
  }
  for (int32_t i = row.num_logits; i > 0; --i) a.logit_tokens[logit++] = token - i;
  if (!a.components) return;
  constexpr int32_t kCount = kernels::kPositionComponents;
  int32_t* to = a.components + int64_t{token - row.num_tokens} * kCount;
  to = std::copy_n(next.components, row.num_components * kCount, to);
  next.components += row.num_components * kCount;
  for (int32_t t = token - row.num_tokens + row.num_components; t < token; ++t)
    to = std::fill_n(to, kCount, a.positions[t] + row.component_offset);
}

// Masks of the row's tokens, from `token` on; `words`: by position, from StepRow::start on.
void fill_masks(const StepRow& row, int32_t token, const uint32_t* words, const Arrays& a,
                const StepData& step) {
  const int32_t own = cross_mask_words(row.cross_length), all = step.cross_mask_words;
  for (int32_t end = token + row.num_tokens; token < end; ++token) {
    int32_t* const to = a.cross_mask + int64_t{token} * all;
    std::fill_n(to, all, -1);
    const int64_t at = a.positions[token] - row.start;  // drafts of a tree share positions
    if (row.has_cross_mask != 0) std::memcpy(to, words + at * own, sizeof(*words) * own);
  }
}

void fill(const StepMessageView& message, size_t num_groups, const RunnerLimits& limits,
          const Arrays& a, StepData& step) {
  int32_t token = 0, logit = 0;
  Cursor next{message.parents.data(), message.feature_rows.data(), message.components.data(),
              message.last.data()};
  const int32_t* blocks = message.blocks.data();
  const int32_t* cross = message.cross_blocks.data();
  const uint32_t* masks = message.cross_masks.data();
  for (int32_t r = 0; r < step.num_rows; ++r) {
    const StepRow& row = message.rows[r];
    a.row_begin[r] = token;
    fill_tokens(message, r, token, logit, next, a, step);
    if (a.cross_mask) fill_masks(row, token, masks, a, step);
    if (row.has_cross_mask != 0)
      masks += int64_t{row.num_tokens} * cross_mask_words(row.cross_length);
    token += row.num_tokens;
    logit += row.num_logits;
    const auto num_blocks = static_cast<int32_t>(num_blocks_for(row.end(), limits.block_tokens));
    for (size_t g = 0; g < num_groups; ++g) {
      const auto index = static_cast<int64_t>(g) * step.num_rows + r;
      int32_t* const table = a.block_tables + index * step.max_blocks;
      std::copy_n(blocks, num_blocks, table);
      blocks += num_blocks;
      std::fill(table + num_blocks, table + step.max_blocks, 0);
    }
    if (!a.cross_table) continue;
    a.cross_lengths[r] = row.cross_length;
    const auto num_cross =
        static_cast<int32_t>(num_cross_blocks(row.cross_length, limits.block_tokens));
    int32_t* const table = a.cross_table + int64_t{r} * step.max_cross_blocks;
    std::copy_n(cross, num_cross, table);
    std::fill(table + num_cross, table + step.max_cross_blocks, 0);
    cross += num_cross;
  }
  a.row_begin[step.num_rows] = token;
}

}  // namespace

size_t StepData::max_bytes(const RunnerLimits& limits, size_t num_groups) {
  const size_t rows = limits.max_rows, tokens = limits.max_tokens;
  const size_t logits = limits.num_logits_rows();
  const size_t cross_blocks = limits.num_cross_blocks > 0
                                  ? num_cross_blocks(limits.cross_length(), limits.block_tokens)
                                  : 0;
  const auto mask_words = static_cast<size_t>(exec::cross_mask_words(limits.cross_length()));
  const size_t cross =
      cross_blocks > 0 ? padded(rows) + padded(rows * cross_blocks) + padded(tokens * mask_words)
                       : 0;
  const size_t components =
      limits.has_components ? padded(kernels::kPositionComponents * tokens) : 0;
  const size_t adapters = limits.num_adapters > 0 ? padded(tokens) + padded(logits) : 0;
  const size_t last = limits.has_last ? padded(tokens) : 0;
  return last + (limits.has_trees ? 5 : 3) * padded(tokens) + padded(rows + 1) + padded(logits) +
         adapters + components + padded(num_groups * rows * blocks_per_sequence(limits)) + cross;
}

StatusOr<StepData> StepData::pack(const StepMessageView& message,
                                  std::span<const CacheGroup> groups, const RunnerLimits& limits,
                                  int32_t vocab_size, std::byte* block) {
  ASSIGN_OR_RETURN(StepData step, check_message(message, groups, limits, vocab_size));
  const Arrays arrays = lay_out(message, groups.size(), limits, block, step);
  fill(message, groups.size(), limits, arrays, step);
  step.tokens = arrays.tokens;
  step.positions = arrays.positions;
  step.row_of_token = arrays.row_of_token;
  step.row_begin = arrays.row_begin;
  step.logit_tokens = arrays.logit_tokens;
  step.block_tables = arrays.block_tables;
  step.adapters = arrays.adapters;
  step.logit_adapters = arrays.logit_adapters;
  step.after = arrays.after;
  step.cells = arrays.cells;
  step.last = arrays.last;
  step.components = arrays.components;
  step.cross_lengths = arrays.cross_lengths;
  step.cross_table = arrays.cross_table;
  step.cross_mask = arrays.cross_mask;
  return step;
}

StepData StepData::at(const std::byte* block, const std::byte* copy) const {
  StepData moved = *this;
  for (const int32_t** array :
       {&moved.tokens, &moved.positions, &moved.row_of_token, &moved.row_begin, &moved.logit_tokens,
        &moved.blends, &moved.block_tables, &moved.adapters, &moved.logit_adapters, &moved.after,
        &moved.cells, &moved.last, &moved.components, &moved.cross_lengths, &moved.cross_table,
        &moved.cross_mask}) {
    if (!*array) continue;
    const auto offset = reinterpret_cast<const std::byte*>(*array) - block;
    *array = reinterpret_cast<const int32_t*>(copy + offset);
  }
  return moved;
}

}  // namespace nereid::exec
