// Checks of all slot data that kernels read; messages are foreign bytes.
#include "exec/slot_check.h"

#include <cmath>
#include <limits>

#include "kernels/api/sample.h"

namespace nereid::exec {

using kernels::DraftTest;
using kernels::SampleParams;

Status check_range(std::string_view what, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return ok();
  return invalid_argument("{} {} is not in [{}, {}]", what, value, low, high);
}

namespace {

Status check_params(const SampleParams& p) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  RETURN_IF_ERROR(check_range("lists", static_cast<int64_t>(p.lists), 0, 0));
  RETURN_IF_ERROR(check_range("penalty_begin", p.penalty_begin, 0, kMost));
  RETURN_IF_ERROR(check_range("num_prompt", p.num_prompt, 0, kMost));
  RETURN_IF_ERROR(check_range("ngram", p.ngram, 0, kMost));
  RETURN_IF_ERROR(check_range("num_end_ids", p.num_end_ids, 0, kMost));
  RETURN_IF_ERROR(check_range("num_biases", p.num_biases, 0, kMost));
  RETURN_IF_ERROR(check_range("num_bad_words", p.num_bad_words, 0, kMost));
  RETURN_IF_ERROR(check_range("num_bad_tokens", p.num_bad_tokens, 0, kMost));
  RETURN_IF_ERROR(check_range("has_dense_bias", p.has_dense_bias, 0, 1));
  RETURN_IF_ERROR(check_range("num_top", p.num_top, 0, kernels::kMaxTopTokens));
  RETURN_IF_ERROR(check_range("log_probs", static_cast<int64_t>(p.log_probs), 0,
                              static_cast<int64_t>(kernels::LogProbs::kRaw)));
  RETURN_IF_ERROR(check_range("draws", p.draws, 0, 1));
  RETURN_IF_ERROR(check_range("keeps_history", p.keeps_history, 0, 1));
  RETURN_IF_ERROR(check_range("draft_test", static_cast<int64_t>(p.draft_test), 0,
                              static_cast<int64_t>(DraftTest::kRatio)));
  if (!(p.draft_threshold >= 0 && p.draft_threshold <= 1) ||
      (p.draft_test == DraftTest::kTypical && p.draft_threshold == 0))
    return invalid_argument("draft_threshold {} is not in (0, 1]", p.draft_threshold);
  for (const float x :
       {p.top_p, p.top_p_decay, p.top_p_min, p.temperature, p.repetition, p.presence, p.frequency})
    if (!std::isfinite(x)) return invalid_argument("a sampling parameter is {}", x);
  if (p.first_timestamp >= 0 && !p.keeps_history)
    return invalid_argument("first_timestamp {} without keeps_history", p.first_timestamp);
  if (!(p.repetition > 0)) return invalid_argument("repetition {} is not positive", p.repetition);
  if (!(p.min_p_gap <= 0)) return invalid_argument("min_p_gap {} is not in [-inf, 0]", p.min_p_gap);
  return ok();
}

}  // namespace

Status check_load(const SlotLoad& load, std::span<const int32_t> cells, int64_t vocab) {
  const SampleParams& p = load.params;
  RETURN_IF_ERROR(check_params(p));
  const int64_t needed = kernels::SampleLists::num_cells(p, vocab);
  RETURN_IF_ERROR(check_range("num_cells", load.num_cells, needed, needed));
  const kernels::SampleLists lists(p, cells.data(), nullptr);
  int32_t begin = 0;
  for (int32_t i = 0; i < p.num_bad_words; ++i) {
    RETURN_IF_ERROR(check_range("end of a bad word", lists.bad_ends[i], begin, p.num_bad_tokens));
    begin = lists.bad_ends[i];
  }
  return ok();
}

namespace {

Status check_draft_logits(const StepMessageView& step, int64_t vocab) {
  int64_t num_logits = 0;
  for (const StepRow& row : step.rows) {
    if (row.has_draft_logits == 0) continue;
    if (row.has_draft_logits != 1 || row.samples == 0 || row.num_drafts == 0 || row.has_tree)
      return invalid_argument("has_draft_logits {} of a row with samples {} and {} drafts{}",
                              row.has_draft_logits, row.samples, row.num_drafts,
                              row.has_tree ? " in a tree" : "");
    num_logits += row.num_drafts * vocab;
  }
  const auto given = static_cast<int64_t>(step.draft_logits.size());
  return check_range("number of draft_logits", given, num_logits, num_logits);
}

}  // namespace

Status check_rows(const StepMessageView& step, int64_t vocab, int32_t hidden_width) {
  for (const StepRow& row : step.rows) {
    if (row.has_mask != 0 && (row.has_mask != 1 || row.samples == 0 || row.has_tree != 0))
      return invalid_argument("has_mask {} of a row with samples {} and has_tree {}", row.has_mask,
                              row.samples, row.has_tree);
    RETURN_IF_ERROR(check_range("wants_likeliest", row.wants_likeliest, 0, row.samples));
    RETURN_IF_ERROR(
        check_range("num_hidden", row.num_hidden, 0, hidden_width > 0 ? row.num_logits : 0));
  }
  return check_draft_logits(step, vocab);
}

}  // namespace nereid::exec
