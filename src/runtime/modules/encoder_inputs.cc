#include "runtime/modules/encoder_inputs.h"

#include <algorithm>

#include "base/check.h"
#include "runtime/prompts/pictures.h"
#include "runtime/sequence_payload.h"

namespace nereid::runtime {
namespace {

using sched::EncoderSpec;

// The tokens of the row that stand for a picture read the rows of its features.
void add_feature_rows(const sched::ScheduledRow& row, size_t index, int32_t block_tokens,
                      const RowMessage& to) {
  const EncoderSpec& input = row.sequence->spec().encoder_inputs[index];
  const auto blocks = row.sequence->result_blocks(index);
  const int32_t end = std::min(input.end, row.end());
  const EncoderRows& rows = runtime::payload_of(row).encoder_inputs[index];
  const int32_t line = rows.row_tokens;
  for (int32_t at = std::max(input.begin, row.start); at < end; ++at) {
    int32_t i = at - input.begin;
    if (line > 0 && i % (line + 1) == line) continue;
    if (line > 0) i -= i / (line + 1);
    if (!rows.result_rows.empty()) i = rows.result_rows[static_cast<size_t>(i)];
    if (i < 0) {
      to.tokens[static_cast<size_t>(at - row.start)] = exec::kTokenRowEnd;
      continue;
    }
    to.tokens[static_cast<size_t>(at - row.start)] = exec::kTokenFeature;
    to.step.feature_rows.push_back(blocks[static_cast<size_t>(i / block_tokens)] * block_tokens +
                                   i % block_tokens);
  }
}

// A picture that tokens of a row read by cross attention.
struct Across {
  const EncoderRows* rows;
  std::span<const sched::BlockId> blocks;
  int32_t first = 0;  // position of cross attention
};

// Bits of the positions that each token of the row reads.
void add_across_mask(const sched::ScheduledRow& row, std::span<const Across> pictures,
                     const RowMessage& to) {
  const auto words = static_cast<size_t>(exec::cross_mask_words(to.out.cross_length));
  std::vector<uint32_t>& all = to.step.cross_masks;
  for (int32_t at = row.start; at < row.end(); ++at) {
    const size_t first = all.size();
    all.resize(first + words);
    for (const Across& picture : pictures) {
      if (at < picture.rows->begin || at >= picture.rows->seen_end) continue;
      const int32_t end = picture.first + picture.rows->num_results;
      for (int32_t i = picture.first; i < end; ++i)
        all[first + static_cast<size_t>(i / 32)] |= 1u << (i % 32);
    }
  }
  to.out.has_cross_mask = 1;
}

// The pictures that tokens of the row read, each from the next multiple of across_unit() on.
void add_across(const sched::ScheduledRow& row, int32_t block_tokens, const RowMessage& to) {
  const std::vector<EncoderRows>& inputs = runtime::payload_of(row).encoder_inputs;
  const int32_t unit = across_unit(block_tokens);
  std::vector<Across> pictures;
  bool is_whole = true;  // each token reads all positions
  for (size_t i = 0; i < inputs.size(); ++i) {
    const EncoderRows& input = inputs[i];
    if (input.begin >= row.start && input.begin < row.end())
      to.tokens[static_cast<size_t>(input.begin - row.start)] = exec::kTokenRowEnd;
    if (input.begin >= row.end() || input.seen_end <= row.start) continue;
    is_whole &= input.begin <= row.start && input.seen_end >= row.end() && pictures.empty();
    std::vector<int32_t>& blocks = to.step.cross_blocks;
    // Positions between two pictures are masked; their blocks are any.
    const int32_t first = (to.out.cross_length + unit - 1) / unit * unit;
    if (!pictures.empty())
      for (int32_t at =
               static_cast<int32_t>(exec::num_blocks_for(to.out.cross_length, block_tokens));
           at < first / block_tokens; ++at)
        blocks.push_back(pictures.back().blocks.back());
    pictures.push_back({&input, row.sequence->result_blocks(i), first});
    blocks.insert(blocks.end(), pictures.back().blocks.begin(), pictures.back().blocks.end());
    to.out.cross_length = first + input.num_results;
  }
  if (!pictures.empty() && !is_whole) add_across_mask(row, pictures, to);
}

// Positions of a prompt with pictures have components; behind it they are cell + offset.
void add_components(const sched::ScheduledRow& row, const SequencePayload& payload,
                    const RowMessage& to) {
  const std::vector<int32_t>& all = payload.components;
  if (all.empty()) return;
  to.out.component_offset = payload.component_offset;
  const int32_t end = std::min(row.end(), row.sequence->num_prompt());
  to.out.num_components = std::max(end - row.start, 0);
  if (to.out.num_components == 0) return;
  constexpr int64_t kCount = kernels::kPositionComponents;
  to.step.components.insert(to.step.components.end(), all.begin() + row.start * kCount,
                            all.begin() + end * kCount);
}

// A token of a whole span attends to positions up to the span's end.
void add_last(const sched::ScheduledRow& row, const RowMessage& to) {
  const std::vector<sched::WholeSpan>& spans = row.sequence->spec().whole_spans;
  const bool has_any = std::ranges::any_of(spans, [&](const sched::WholeSpan& span) {
    return span.begin < row.end() && span.end > row.start;
  });
  if (!has_any) return;
  std::vector<int32_t>& last = to.step.last;
  const auto first = std::ssize(last);
  for (int32_t at = row.start; at < row.end(); ++at) last.push_back(at);
  for (const sched::WholeSpan& span : spans)
    for (int32_t at = std::max(span.begin, row.start); at < std::min(span.end, row.end()); ++at)
      last[static_cast<size_t>(first + at - row.start)] = span.end - 1;
  to.out.has_last = 1;
}

// The row of the mask of each position; those behind the last row have the last one.
void add_mask(const sched::ScheduledRow& row, std::span<const uint32_t> mask, int32_t length,
              const RowMessage& to) {
  if (mask.empty()) return;
  const auto words = static_cast<size_t>(exec::cross_mask_words(length));
  const auto last = static_cast<int32_t>(mask.size() / words) - 1;
  for (int32_t at = row.start; at < row.end(); ++at) {
    const auto own = mask.subspan(static_cast<size_t>(std::min(at, last)) * words, words);
    to.step.cross_masks.insert(to.step.cross_masks.end(), own.begin(), own.end());
  }
  to.out.has_cross_mask = 1;
}

}  // namespace

void EncoderInputs::open(const sched::SequenceSpec& spec, const Submit&) {
  if (spec.output.return_encoder_output)
    open_.emplace(spec.id, Wanted{payload_of(spec).encoder_output});
}

bool EncoderInputs::is_returned(const sched::PlannedEncode& encode, Returned& returned) const {
  const sched::SequenceSpec& spec = encode.sequence->spec();
  const auto wanted = open_.find(spec.leader != 0 ? spec.leader : spec.id);
  if (wanted == open_.end() || wanted->second.is_there) return false;
  returned.push_back(wanted->first);
  return true;
}

void EncoderInputs::encoded(std::span<const exec::EncodedInput> outputs) {
  NEREID_CHECK(outputs.size() == in_flight_.front().size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto wanted = open_.find(in_flight_.front()[i]);
    if (wanted == open_.end() || wanted->second.is_there) continue;
    std::vector<float>& values = wanted->second.output->values;
    NEREID_CHECK(values.size() == outputs[i].values.size());
    std::ranges::transform(outputs[i].values, values.begin(), [](BF16 x) { return to_float(x); });
    wanted->second.is_there = true;
  }
}

Status EncoderInputs::completed(const LandedRow& completed, EngineUpdate& update) {
  if (open_.empty()) return ok();
  const auto wanted = open_.find(completed.row.sequence->id());
  if (wanted == open_.end() || !wanted->second.is_there) return ok();
  update.encoder_output = std::move(wanted->second.output);
  open_.erase(wanted);
  return ok();
}

void EncoderInputs::finished(const FinishedStep& step) {
  if (!step.plan.encodes.empty()) in_flight_.pop_front();
}

bool EncoderInputs::planned(const sched::StepPlan& plan, const sched::Scheduler&,
                            exec::StepMessage& step) {
  if (!plan.encodes.empty()) in_flight_.emplace_back();
  for (const sched::PlannedEncode& encode : plan.encodes) {
    const EncoderRows& input = payload_of(encode.sequence->spec()).encoder_inputs[encode.input];
    step.encoder_inputs.push_back({.num_tokens = input.length,
                                   .num_parts = input.num_parts,
                                   .num_windows = static_cast<int32_t>(input.windows.size()),
                                   .num_padding = input.num_padding,
                                   .num_blends = static_cast<int32_t>(input.blends.size()),
                                   .is_returned = is_returned(encode, in_flight_.back()) ? 1 : 0});
    step.encoder_windows.insert(step.encoder_windows.end(), input.windows.begin(),
                                input.windows.end());
    step.encoder_blends.insert(step.encoder_blends.end(), input.blends.begin(), input.blends.end());
    ++num_computed_;
    if (input.rows.empty())
      step.encoder_tokens.insert(step.encoder_tokens.end(), input.token_ids.begin(),
                                 input.token_ids.end());
    else
      step.encoder_tokens.insert(step.encoder_tokens.end(), static_cast<size_t>(input.length),
                                 exec::kTokenExternal);
    static_assert(sizeof(BF16) == sizeof(input.rows[0]));
    const auto* const numbers = reinterpret_cast<const BF16*>(input.rows.data());
    step.encoder_embeddings.insert(step.encoder_embeddings.end(), numbers,
                                   numbers + input.rows.size());
    step.encoder_components.insert(step.encoder_components.end(), input.components.begin(),
                                   input.components.end());
    step.encoder_blocks.insert(step.encoder_blocks.end(), encode.blocks.begin(),
                               encode.blocks.end());
  }
  return false;
}

void EncoderInputs::write(const sched::ScheduledRow& row, const RowMessage& to) {
  add_components(row, payload_of(row), to);
  add_last(row, to);
  const std::vector<EncoderSpec>& inputs = row.sequence->spec().encoder_inputs;
  if (!inputs.empty() && payload_of(row).encoder_inputs.front().has_mark)
    return add_across(row, block_tokens_, to);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].end == EncoderSpec::kAllTokens) {
      to.out.cross_length = inputs[i].length;
      const auto blocks = row.sequence->result_blocks(i);
      to.step.cross_blocks.insert(to.step.cross_blocks.end(), blocks.begin(), blocks.end());
      add_mask(row, payload_of(row).cross_mask, inputs[i].length, to);
    } else if (inputs[i].begin < row.end() && inputs[i].end > row.start) {
      add_feature_rows(row, i, block_tokens_, to);
    }
  }
}

void EncoderInputs::report(ExecutorStats& stats) const {
  const sched::EncoderCache& cache = scheduler_->encoder_cache();
  if (cache.num_blocks() == 0) return;
  stats.add_figure("encoder_inputs_computed", num_computed_);
  stats.add_figure("encoder_results_found", cache.num_hits());
  stats.add_figure("encoder_blocks", cache.num_blocks());
}

}  // namespace nereid::runtime
