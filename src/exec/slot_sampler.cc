// SlotSampler: slot loads, staging of steps, kernel choice, results.
#include "exec/slot_sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/copy_bytes.h"
#include "base/round_up.h"
#include "exec/memory.h"
#include "exec/slot_check.h"

namespace nereid::exec {
namespace {

using kernels::Sample;
using kernels::SampleParams;
using kernels::SampleResult;
using kernels::SampleRow;
using kernels::TopToken;

constexpr size_t kKeptListBytes = 65536;  // larger buffers: freed by an empty list

// Whether logits must be copied before they are edited.
bool wants_raw_logits(const SampleParams& params, const SampleRow& row) {
  return params.log_probs == kernels::LogProbs::kRaw && kernels::edits_logits(params, row);
}

// Removes `count` entries from the front of an array.
StatusOr<std::span<const int32_t>> take(std::span<const int32_t>& all, int32_t count) {
  RETURN_IF_ERROR(
      check_range("number of cells or tokens", count, 0, static_cast<int64_t>(all.size())));
  const auto taken = all.first(static_cast<size_t>(count));
  all = all.subspan(static_cast<size_t>(count));
  return taken;
}

}  // namespace

StatusOr<std::unique_ptr<SlotSampler>> SlotSampler::create(
    Device& device, const kernels::Registry& registry, const kernels::KernelChoices& forced,
    const RunnerLimits& limits, int32_t vocab_size, int32_t hidden_width) {
  NEREID_CHECK(limits.max_rows > 0 && limits.max_sequence_length > 0);
  auto sampler =
      std::unique_ptr<SlotSampler>(new SlotSampler(device, limits, vocab_size, hidden_width));
  const auto& table = registry.table<Sample>();
  Sample sample;
  sample.problem = {.rows = limits.num_logits_rows(), .vocab = vocab_size};
  ASSIGN_OR_RETURN(sampler->general_, kernels::select(table, sample, device.info(), forced));
  sample.problem.all_greedy = true;
  ASSIGN_OR_RETURN(sampler->greedy_, kernels::select(table, sample, device.info(), forced));
  sample.problem.all_greedy = false, sample.problem.weighs_drafts = true;
  if (const auto kernel = kernels::select(table, sample, device.info(), forced); kernel.ok())
    sampler->weighing_ = *kernel;
  sampler->slots_.resize(static_cast<size_t>(limits.max_rows));
  const SamplingBytes bytes = sampling_bytes(limits);
  ASSIGN_OR_RETURN(sampler->rows_, device.allocate(bytes.rows));
  ASSIGN_OR_RETURN(sampler->params_, device.allocate(bytes.params));
  ASSIGN_OR_RETURN(sampler->results_, device.allocate(bytes.results));
  ASSIGN_OR_RETURN(sampler->history_, device.allocate(bytes.history));
  sampler->staging_bytes_ = bytes.staging;
  sampler->areas_.resize(static_cast<size_t>(limits.depth));
  for (Area& area : sampler->areas_) {
    ASSIGN_OR_RETURN(area.staging, device.allocate_host(bytes.staging));
    ASSIGN_OR_RETURN(area.results, device.allocate_host(bytes.results));
    ASSIGN_OR_RETURN(area.top, device.allocate_host(bytes.top));
    area.paths.reserve(static_cast<size_t>(limits.num_logits_rows()));
    area.likeliest.reserve(static_cast<size_t>(limits.num_logits_rows()));
  }
  return sampler;
}

Status SlotSampler::stage(const StepMessageView& step, int32_t index, const Status& embeddings) {
  RETURN_IF_ERROR(check(step));
  Area& area = areas_[static_cast<size_t>(index)];
  if (std::exchange(area.is_issued, false)) area.retired.clear();
  area.rows.clear(), area.uploads.clear();
  area.outcomes.assign(step.rows.size(), {});
  area.all_greedy = true, area.wants_top = false, area.wants_raw = false;
  area.has_drafts = area.weighs_drafts = false, area.num_draft_logits = 0;
  area.num_logits = area.num_read = area.num_hidden = 0;
  area.num_staged = area.num_extra = 0;
  area.num_masks = 0;
  area.waits_for_masks = false;
  std::span<const int32_t> cells = step.cells, tokens = step.history_tokens;
  for (const SlotLoad& one : step.loads) {
    const auto count = static_cast<size_t>(one.num_cells);
    load(area, one, cells.first(count));
    cells = cells.subspan(count);
  }
  for (const SlotHistory& one : step.histories) {
    const auto count = static_cast<size_t>(one.num_tokens);
    set_history(area, one.slot, tokens.first(count));
    tokens = tokens.subspan(count);
  }
  tokens = step.tokens;
  std::span<const int32_t> parents = step.parents;
  std::span<const float> draft_logits = step.draft_logits;
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const StepRow& row = step.rows[i];
    const auto count = static_cast<size_t>(row.num_tokens);
    const auto in_tree = static_cast<size_t>(row.has_tree ? row.num_drafts : 0);
    const auto own_logits = draft_logits.first(
        row.has_draft_logits ? static_cast<size_t>(row.num_drafts * vocab()) : 0);
    area.outcomes[i].status = add_row(area, row, tokens.first(count), parents.first(in_tree),
                                      own_logits, embeddings, area.outcomes[i]);
    area.outcomes[i].num_masks = row.has_mask != 0 ? 1 + row.num_drafts : 0;
    area.waits_for_masks |= row.has_mask != 0;
    tokens = tokens.subspan(count);
    parents = parents.subspan(in_tree);
    draft_logits = draft_logits.subspan(own_logits.size());
  }
  if (!area.waits_for_masks) upload_rows(area);
  return ok();
}

Status SlotSampler::set_masks(const MaskView& masks, int32_t index) {
  Area& area = areas_[static_cast<size_t>(index)];
  RETURN_IF_ERROR(check_masks(masks, area));
  area.waits_for_masks = false;
  std::span<const uint32_t> words = masks.words;
  for (const int32_t row : masks.rows) {
    const Outcome& outcome = area.outcomes[static_cast<size_t>(row)];
    for (int32_t i = 0; i < outcome.num_masks; ++i) {
      const auto mask = words.first(mask_words());
      words = words.subspan(mask.size());
      if (!outcome.status.ok()) continue;
      area.rows[static_cast<size_t>(outcome.first_sampled + i)].mask =
          static_cast<int32_t>(area.num_masks);
      upload(area, masks_.bytes() + static_cast<size_t>(area.num_masks) * mask.size_bytes(),
             mask.data(), mask.size_bytes());
      ++area.num_masks;
    }
  }
  upload_rows(area);
  return ok();
}

void SlotSampler::upload_rows(Area& area) {
  if (!area.rows.empty())
    upload(area, rows_.data(), area.rows.data(), area.rows.size() * sizeof(SampleRow));
}

Status SlotSampler::check(const StepMessageView& step) {
  const int64_t max_slot = int64_t{limits_.max_rows} - 1;
  std::span<const int32_t> cells = step.cells, tokens = step.history_tokens;
  RETURN_IF_ERROR(
      check_range("number of loads", static_cast<int64_t>(step.loads.size()), 0, limits_.max_rows));
  for (const SlotLoad& load : step.loads) {
    RETURN_IF_ERROR(check_range("load: slot", load.slot, 0, max_slot));
    ASSIGN_OR_RETURN(const auto own, take(cells, load.num_cells));
    if (Status status = check_load(load, own, vocab()); !status.ok())
      return annotate(status, fmt::format("load of slot {}", load.slot));
  }
  for (const SlotHistory& history : step.histories) {
    RETURN_IF_ERROR(check_range("history: slot", history.slot, 0, max_slot));
    RETURN_IF_ERROR(
        check_range("history: tokens", history.num_tokens, 0, limits_.max_sequence_length));
    ASSIGN_OR_RETURN(const auto own, take(tokens, history.num_tokens));
    for (const int32_t token : own)  // ids outside the vocabulary are ignored by the kernels
      RETURN_IF_ERROR(check_range("history: token", token, 0, std::numeric_limits<int32_t>::max()));
  }
  if (!cells.empty() || !tokens.empty())
    return invalid_argument("{} cells and {} tokens of histories belong to no entry", cells.size(),
                            tokens.size());
  RETURN_IF_ERROR(check_rows(step, vocab(), hidden_width_));
  ++num_steps_;
  for (const StepRow& row : step.rows) {
    if (!row.samples) continue;
    if (std::exchange(slot_at(row.slot).sampled_in, num_steps_) == num_steps_)
      return invalid_argument("two rows draw for slot {}", row.slot);
  }
  return ok();
}

Status SlotSampler::check_masks(const MaskView& masks, const Area& area) const {
  if (!area.waits_for_masks) return invalid_argument("masks of a step without masked rows");
  int32_t previous = -1;
  size_t num_masks = 0;
  for (const int32_t row : masks.rows) {
    if (row <= previous || row >= static_cast<int64_t>(area.outcomes.size()))
      return invalid_argument("a mask of row {} behind that of row {}; the step has {}", row,
                              previous, area.outcomes.size());
    const int32_t count = area.outcomes[static_cast<size_t>(row)].num_masks;
    if (count == 0) return invalid_argument("a mask of row {}, whose has_mask is 0", row);
    num_masks += static_cast<size_t>(count);
    previous = row;
  }
  if (masks.words.size() == num_masks * mask_words()) return ok();
  return invalid_argument("{} words of masks; {} masks need {} each", masks.words.size(), num_masks,
                          mask_words());
}

// Allocates first, so that a failure leaves the slot unchanged.
void SlotSampler::load(Area& area, const SlotLoad& load, std::span<const int32_t> cells) {
  Slot& slot = slot_at(load.slot);
  slot.num_history = 0;
  constexpr int32_t kBeforeAll = -1;  // a position at which every end-id ban applies
  slot.status = ok();
  if (kernels::weighs_drafts(load.params) && !weighs_drafts())
    slot.status = unsupported("this device tests drafts by equality alone");
  if (slot.status.ok() && wants_raw_logits(load.params, {.position = kBeforeAll}))
    slot.status = reserve_logits(raw_logits_, "log_probs_mode raw");
  if (slot.status.ok()) slot.status = reserve_lists(area, cells.size_bytes(), slot);
  if (slot.status.ok()) slot.status = reserve_staging(area, "lists", cells.size_bytes());
  if (!slot.status.ok()) return;
  slot.params = load.params;
  slot.params.lists = reinterpret_cast<uintptr_t>(slot.lists.data());
  upload(area, static_cast<SampleParams*>(params_.data()) + load.slot, &slot.params,
         sizeof(SampleParams));
  if (!cells.empty()) upload(area, slot.lists.data(), cells.data(), cells.size_bytes());
}

void SlotSampler::set_history(Area& area, int32_t index, std::span<const int32_t> tokens) {
  Slot& slot = slot_at(index);
  slot.num_history = 0;
  if (!slot.status.ok() || tokens.empty()) return;
  slot.status = reserve_staging(area, "tokens", tokens.size_bytes());
  if (!slot.status.ok()) return;
  slot.num_history = static_cast<int32_t>(tokens.size());
  upload(area,
         static_cast<int32_t*>(history_.data()) + int64_t{index} * limits_.max_sequence_length,
         tokens.data(), tokens.size_bytes());
}

Status SlotSampler::add_row(Area& area, const StepRow& row, std::span<const int32_t> tokens,
                            std::span<const int32_t> parents, std::span<const float> draft_logits,
                            const Status& embeddings, Outcome& outcome) {
  area.num_logits += row.num_logits;
  if (!embeddings.ok() && std::ranges::find(tokens, kTokenExternal) != tokens.end())
    return embeddings;
  RETURN_IF_ERROR(reserve_rows(area.logits, area.num_read + row.num_read,
                               static_cast<size_t>(vocab()) * sizeof(float), "logits"));
  RETURN_IF_ERROR(reserve_rows(area.hidden, area.num_hidden + row.num_hidden,
                               static_cast<size_t>(hidden_width_) * sizeof(BF16), "hidden states"));
  if (row.samples) {
    outcome.first_sampled = static_cast<int64_t>(area.rows.size());
    RETURN_IF_ERROR(add_sample(area, row, tokens.last(static_cast<size_t>(row.num_drafts)), parents,
                               draft_logits));
    outcome.wants_likeliest = row.wants_likeliest != 0;
    outcome.num_drawn = 1 + row.num_drafts;
  }
  outcome.logits = {area.num_logits - row.num_read, row.num_read, area.num_read};
  outcome.hidden = {area.num_logits - row.num_hidden, row.num_hidden, area.num_hidden};
  area.num_read += row.num_read;
  area.num_hidden += row.num_hidden;
  return ok();
}

// `parents`: draft tree; empty: a chain.
Status SlotSampler::add_sample(Area& area, const StepRow& row, std::span<const int32_t> drafts,
                               std::span<const int32_t> parents,
                               std::span<const float> draft_logits) {
  Slot& slot = slot_at(row.slot);
  RETURN_IF_ERROR(slot.status);
  const SampleParams& params = slot.params;
  if (!drafts.empty() && !params.draws)
    return invalid_argument("{} drafts of a slot that does not sample", drafts.size());
  SampleRow first{.slot = row.slot,
                  .position = static_cast<int32_t>(row.first_sampled()),
                  .logits_row = static_cast<int32_t>(area.num_logits) - row.num_drafts - 1};
  // The previous step could not sample, or its message is missing.
  if (params.keeps_history && slot.num_history < first.position)
    return unavailable("the slot's history has {} tokens; sampling for position {} needs them all",
                       slot.num_history, first.position);
  SampleRow edited = first;
  if (row.has_mask) edited.mask = 0;  // placeholder: masks arrive later
  const bool wants_raw = wants_raw_logits(params, edited);
  if (row.has_mask) {
    if (wants_raw) RETURN_IF_ERROR(reserve_logits(raw_logits_, "log_probs_mode raw"));
    RETURN_IF_ERROR(reserve_masks(area, 1 + row.num_drafts));
  }
  const int64_t first_logits = area.num_draft_logits;
  if (!draft_logits.empty()) RETURN_IF_ERROR(add_draft_logits(area, draft_logits));
  area.has_drafts |= row.num_drafts > 0;
  area.weighs_drafts |= row.num_drafts > 0 && kernels::weighs_drafts(params);
  if (params.keeps_history && params.draws)
    slot.num_history = static_cast<int32_t>(row.last_drawn()) + 1;
  area.all_greedy &= kernels::is_plain_greedy(params) && !row.has_mask;
  area.wants_top |= params.num_top > 0;
  area.wants_raw |= wants_raw;
  area.rows.push_back(first);
  for (int32_t i = 0; i < row.num_drafts; ++i) {
    const auto index = static_cast<size_t>(i);
    const int32_t after = parents.empty() ? 1 : i - parents[index];
    const int32_t position = area.rows[area.rows.size() - static_cast<size_t>(after)].position + 1;
    area.rows.push_back(
        {.slot = row.slot,
         .position = position,
         .logits_row = first.logits_row + 1 + i,
         .after = after,
         .draft = drafts[index],
         .draft_logits = draft_logits.empty() ? -1 : static_cast<int32_t>(first_logits) + i,
         .wants_argmax = row.wants_likeliest});
  }
  return ok();
}

Status SlotSampler::add_draft_logits(Area& area, std::span<const float> logits) {
  RETURN_IF_ERROR(reserve_logits(draft_logits_, "draft_logits"));
  RETURN_IF_ERROR(reserve_staging(area, "draft_logits", logits.size_bytes()));
  upload(area, static_cast<float*>(draft_logits_.data()) + area.num_draft_logits * vocab(),
         logits.data(), logits.size_bytes());
  area.num_draft_logits += static_cast<int64_t>(logits.size()) / vocab();
  return ok();
}

// Device memory and the area's host memory for set_masks().
Status SlotSampler::reserve_masks(Area& area, int32_t count) {
  const size_t mask_bytes = mask_words() * sizeof(uint32_t);
  if (!masks_.data()) {
    const size_t bytes = static_cast<size_t>(limits_.num_logits_rows()) * mask_bytes;
    auto masks = device_.allocate(bytes);
    if (!masks.ok())
      return annotate(masks.status(), fmt::format("{} bytes of masks of tokens", bytes));
    masks_ = *std::move(masks);
  }
  return reserve_staging(area, "masks",
                         static_cast<size_t>(count) * round_up(mask_bytes, kUploadAlignment));
}

Status SlotSampler::reserve_rows(Buffer& buffer, int64_t num_rows, size_t row_bytes,
                                 std::string_view what) {
  const size_t bytes = static_cast<size_t>(num_rows) * row_bytes;
  if (bytes <= buffer.size()) return ok();
  // Doubling keeps the number of copies low for batches with masks.
  const size_t most = static_cast<size_t>(limits_.num_logits_rows()) * row_bytes;
  auto grown = device_.allocate_host(std::min(std::max(bytes, 2 * buffer.size()), most));
  if (!grown.ok())
    return annotate(grown.status(), fmt::format("{} bytes of {} of one step", bytes, what));
  buffer = *std::move(grown);  // not written for this step yet
  return ok();
}

// Allocates memory for all logits of a step, unless `buffer` has it.
Status SlotSampler::reserve_logits(Buffer& buffer, std::string_view what) {
  if (buffer.data()) return ok();
  const size_t bytes = static_cast<size_t>(limits_.num_logits_rows() * vocab()) * sizeof(float);
  auto logits = device_.allocate(bytes);
  if (!logits.ok())
    return annotate(logits.status(), fmt::format("{}: {} bytes of logits", what, bytes));
  buffer = *std::move(logits);
  return ok();
}

Status SlotSampler::reserve_lists(Area& area, size_t bytes, Slot& slot) {
  // The step in flight may read the old lists; it ends before this area's next use.
  if (slot.lists.size() >= bytes && (bytes > 0 || slot.lists.size() <= kKeptListBytes)) return ok();
  area.retired.push_back(std::exchange(slot.lists, {}));
  if (bytes == 0) return ok();
  auto lists = device_.allocate(std::bit_ceil(bytes));
  if (!lists.ok())
    return annotate(lists.status(),
                    fmt::format("{} bytes of biases, bad words and end ids", bytes));
  slot.lists = *std::move(lists);
  return ok();
}

// Host memory for lists, histories or masks. Rows and parameters have fixed memory: SamplingBytes.
Status SlotSampler::reserve_staging(Area& area, std::string_view what, size_t wanted) {
  const size_t extra = round_up(wanted, kUploadAlignment);
  if (const size_t bytes = staging_bytes_ + area.num_extra + extra; bytes > area.staging.size()) {
    auto grown = device_.allocate_host(std::bit_ceil(bytes));
    if (!grown.ok())
      return annotate(grown.status(), fmt::format("{} bytes of {} to upload", wanted, what));
    copy_bytes(grown->data(), area.staging.data(), area.num_staged);
    area.staging = *std::move(grown);
  }
  area.num_extra += extra;
  return ok();
}

// Copies the bytes to the area's host memory, which outlives the device copy.
void SlotSampler::upload(Area& area, void* to, const void* from, size_t bytes) {
  NEREID_CHECK(area.num_staged + bytes <= area.staging.size());
  area.uploads.push_back({to, area.num_staged, bytes});
  copy_bytes(area.staging.bytes() + area.num_staged, from, bytes);
  area.num_staged = round_up(area.num_staged + bytes, kUploadAlignment);
}

Status SlotSampler::send(int32_t index, Stream& stream) const {
  const Area& area = areas_[static_cast<size_t>(index)];
  for (const Upload& u : area.uploads)
    RETURN_IF_ERROR(stream.copy(u.to, area.staging.bytes() + u.offset, u.bytes));
  return ok();
}

Status SlotSampler::run(int32_t index, const View& logits, int32_t* slot_tokens, Stream& stream,
                        std::span<const View> hidden) const {
  const Area& area = areas_[static_cast<size_t>(index)];
  NEREID_CHECK(logits.rows == area.num_logits && logits.cols == vocab() &&
               logits.stride == vocab());
  RETURN_IF_ERROR(copy_rows(area, logits, hidden, stream));
  const size_t num_rows = area.rows.size();
  if (num_rows == 0) return ok();
  Sample args;
  args.problem = {static_cast<int64_t>(num_rows), vocab(), area.all_greedy, area.weighs_drafts};
  args.logits = logits;
  if (area.wants_raw) {
    args.raw_logits = View::matrix(raw_logits_.data(), DType::kF32, area.num_logits, vocab());
    RETURN_IF_ERROR(stream.copy(raw_logits_.data(), logits.data,
                                static_cast<size_t>(area.num_logits * vocab()) * sizeof(float)));
  }
  args.rows = static_cast<const SampleRow*>(rows_.data());
  args.params = static_cast<const SampleParams*>(params_.data());
  if (area.num_draft_logits > 0)
    args.draft_logits =
        View::matrix(draft_logits_.data(), DType::kF32, area.num_draft_logits, vocab());
  // Set in steps with masks only: the engine thread may allocate it for a later step.
  if (area.num_masks > 0) args.masks = static_cast<const uint32_t*>(masks_.data());
  args.mask_stride = static_cast<int64_t>(mask_words());
  args.history = static_cast<int32_t*>(history_.data());
  args.history_stride = limits_.max_sequence_length;
  // Direct to host memory, unless rows read results of other rows.
  const Buffer& results = area.has_drafts ? results_ : area.results;
  args.results = static_cast<SampleResult*>(results.data());
  args.top = static_cast<TopToken*>(area.top.data());
  args.top_stride = area.wants_top ? kernels::kMaxTopTokens : 0;
  args.slot_tokens = slot_tokens;
  const Kernel* const kernel = area.weighs_drafts ? weighing_
                               : area.all_greedy  ? greedy_
                                                  : general_;
  RETURN_IF_ERROR(kernel->run(args, stream));
  if (!area.has_drafts) return ok();
  return stream.copy(area.results.data(), results_.data(), num_rows * sizeof(SampleResult));
}

// Consecutive rows are copied at once; a hidden state may be a column range of a wider matrix.
Status SlotSampler::copy_rows(const Area& area, const View& logits, std::span<const View> hidden,
                              Stream& stream) const {
  const auto copy_logits = [&](const RowsCopy& copy) {
    return stream.copy(static_cast<float*>(area.logits.data()) + copy.to_row * vocab(),
                       logits.row<float>(copy.first_row),
                       static_cast<size_t>(copy.num_rows * vocab()) * sizeof(float));
  };
  const auto copy_states = [&](const RowsCopy& copy) -> Status {
    BF16* to = static_cast<BF16*>(area.hidden.data()) + copy.to_row * hidden_width_;
    for (const View& state : hidden) {
      RETURN_IF_ERROR(stream.copy_rows(
          to, static_cast<size_t>(hidden_width_) * sizeof(BF16), state.row<BF16>(copy.first_row),
          static_cast<size_t>(state.stride) * sizeof(BF16),
          static_cast<size_t>(state.cols) * sizeof(BF16), static_cast<size_t>(copy.num_rows)));
      to += state.cols;
    }
    return ok();
  };
  const auto copy_all = [&](RowsCopy Outcome::*rows, const auto& copy_piece) -> Status {
    RowsCopy piece;
    for (const Outcome& outcome : area.outcomes) {
      const RowsCopy& next = outcome.*rows;
      if (next.num_rows == 0) continue;
      if (piece.num_rows > 0 && next.first_row == piece.first_row + piece.num_rows &&
          next.to_row == piece.to_row + piece.num_rows) {
        piece.num_rows += next.num_rows;
        continue;
      }
      if (piece.num_rows > 0) RETURN_IF_ERROR(copy_piece(piece));
      piece = next;
    }
    return piece.num_rows > 0 ? copy_piece(piece) : ok();
  };
  RETURN_IF_ERROR(copy_all(&Outcome::logits, copy_logits));
  return copy_all(&Outcome::hidden, copy_states);
}

StepResult SlotSampler::results(int32_t index) {
  Area& area = areas_[static_cast<size_t>(index)];
  area.row_results.clear();
  area.paths.clear(), area.likeliest.clear();
  for (const Outcome& outcome : area.outcomes) {
    RowResult& result = area.row_results.emplace_back(RowResult{.status = outcome.status});
    if (const RowsCopy& copy = outcome.logits; copy.num_rows > 0)
      result.logits = {static_cast<const float*>(area.logits.data()) + copy.to_row * vocab(),
                       static_cast<size_t>(copy.num_rows * vocab())};
    if (const RowsCopy& copy = outcome.hidden; copy.num_rows > 0)
      result.hidden = {static_cast<const BF16*>(area.hidden.data()) + copy.to_row * hidden_width_,
                       static_cast<size_t>(copy.num_rows * hidden_width_)};
    if (outcome.num_drawn > 0) take_drawn(area, outcome, result);
  }
  return area.row_results;
}

// Gathers the accepted drafts and the next token, and advances the slot.
void SlotSampler::take_drawn(Area& area, const Outcome& outcome, RowResult& result) {
  auto* const all = static_cast<SampleResult*>(area.results.data()) + outcome.first_sampled;
  auto* const top =
      static_cast<TopToken*>(area.top.data()) + outcome.first_sampled * kernels::kMaxTopTokens;
  if (outcome.wants_likeliest) {
    const size_t first = area.likeliest.size();
    for (int64_t i = 0; i < outcome.num_drawn; ++i)
      area.likeliest.push_back(all[i].token >= 0 ? all[i].token : all[i].likeliest);
    result.likeliest = std::span(area.likeliest).subspan(first);
  }
  const size_t first_of_path = area.paths.size();
  int64_t num_drawn = 1;
  for (int64_t i = 1; i < outcome.num_drawn; ++i) {
    if (all[i].token < 0) continue;
    if (i > num_drawn) {
      all[num_drawn] = all[i];
      if (area.wants_top)
        std::copy_n(top + i * kernels::kMaxTopTokens, kernels::kMaxTopTokens,
                    top + num_drawn * kernels::kMaxTopTokens);
    }
    area.paths.push_back(static_cast<int32_t>(i) - 1);
    ++num_drawn;
  }
  result.drawn = {all, static_cast<size_t>(num_drawn)};
  result.path = std::span(area.paths).subspan(first_of_path);
  if (area.wants_top) result.top = {top, result.drawn.size() * kernels::kMaxTopTokens};
  if (outcome.num_drawn == 1) return;
  const SampleRow& row = area.rows[static_cast<size_t>(outcome.first_sampled)];
  int32_t& num_history = slot_at(row.slot).num_history;
  num_history = std::min(num_history, row.position + static_cast<int32_t>(num_drawn));
}

}  // namespace nereid::exec
