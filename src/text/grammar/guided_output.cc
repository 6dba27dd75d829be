#include "text/grammar/guided_output.h"

#include <algorithm>
#include <utility>

#include "base/blanks.h"
#include "text/grammar/token_mask.h"

namespace nereid::text {
namespace {

std::string_view without_blanks_in_front(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kBlanks), text.size()));
}

// Whether the text behind the first `close` in `text`, if any, begins an answer.
StatusOr<bool> closes_well(const OutputConstraint& guide, std::string_view text,
                           StepBudget& effort) {
  const std::string_view close = guide.reasoning->close;
  const size_t found = text.find(close);
  if (found == std::string_view::npos) return true;
  const std::string_view rest = without_blanks_in_front(text.substr(found + close.size()));
  if (rest.empty()) return true;
  return guide.grammar->begins(rest, effort);
}

// The trie node of `text`; -1: no token begins with it.
int32_t node_of(const TokenTrie& tokens, std::string_view text) {
  int32_t node = 0;
  for (const char c : text) {
    node = tokens.child(node, static_cast<uint8_t>(c));
    if (node < 0) return -1;
  }
  return node;
}

}  // namespace

StatusOr<std::vector<int32_t>> invalid_closing_tokens(const OutputConstraint& guide) {
  std::vector<int32_t> ids;
  if (!guide.grammar || !guide.reasoning) return ids;
  StepBudget effort;  // for all of them together
  for (int32_t id = 0; id < guide.tokens->vocab_size(); ++id) {
    ASSIGN_OR_RETURN(const bool well, closes_well(guide, guide.tokens->token(id), effort));
    if (!well) ids.push_back(id);
  }
  return ids;
}

ConstrainedOutput::ConstrainedOutput(std::shared_ptr<const OutputConstraint> guide)
    : guide_(std::move(guide)) {
  if (guide_->grammar) matcher_.emplace(guide_->grammar);
  if (const auto& reasoning = guide_->reasoning)
    phase_ = reasoning->begun ? Phase::kReasoning : Phase::kStart;
}

// Markers may be special tokens, which have no bytes in the trie.
std::string_view ConstrainedOutput::bytes_of(int32_t id) const {
  if (const auto& reasoning = guide_->reasoning; reasoning && phase_ != Phase::kAnswer)
    for (const auto& [mark_id, bytes] : reasoning->marks)
      if (id == mark_id) return bytes;
  return guide_->tokens->token(id);
}

Status ConstrainedOutput::accept(int32_t id, StepBudget& effort) {
  if (phase_ == Phase::kAnswer) return answer(bytes_of(id), effort);
  ConstrainedOutput next = *this;  // a copy, so that an Unavailable changes nothing
  RETURN_IF_ERROR(next.go_on(id, effort));
  *this = std::move(next);
  return ok();
}

// Accepts a token before the answer.
Status ConstrainedOutput::go_on(int32_t id, StepBudget& effort) {
  const std::string_view bytes = bytes_of(id);
  if (phase_ == Phase::kStart) return start(bytes, effort);
  const std::vector<int32_t>& closing = guide_->reasoning->close_ids;
  const bool closes = is_closing() ? num_closing_ < closing.size() && id == closing[num_closing_]
                                   : begins_close(id);
  num_closing_ += closes ? 1 : 0;
  ++num_reasoned_;
  RETURN_IF_ERROR(reason(bytes, effort));
  if (closes && num_closing_ == closing.size()) phase_ = Phase::kAnswer;
  return ok();
}

Status ConstrainedOutput::start(std::string_view bytes, StepBudget& effort) {
  const std::string_view open = guide_->reasoning->open;
  begun_ += bytes;
  begun_ = without_blanks_in_front(begun_);
  if (std::string_view(begun_).starts_with(open)) {
    phase_ = Phase::kReasoning;
    if (guide_->grammar) matcher_.emplace(guide_->grammar);
    return reason(std::string_view(begun_).substr(open.size()), effort);
  }
  if (!open.starts_with(begun_)) {
    phase_ = Phase::kAnswer;
    return answer(bytes, effort);
  }
  if (!matcher_) return ok();
  const Status status = matcher_->accept(bytes, effort);
  if (absl::IsUnavailable(status)) return status;
  if (!status.ok()) matcher_.reset();
  return ok();
}

Status ConstrainedOutput::reason(std::string_view bytes, StepBudget& effort) {
  const std::string_view close = guide_->reasoning->close;
  tail_ += bytes;
  const size_t found = tail_.find(close);
  if (found == std::string::npos) {
    tail_.erase(0, tail_.size() - std::min(tail_.size(), close.size() - 1));
    return ok();
  }
  phase_ = Phase::kAnswer;
  const std::string_view rest =
      without_blanks_in_front(std::string_view(tail_).substr(found + close.size()));
  return rest.empty() ? ok() : answer(rest, effort);
}

Status ConstrainedOutput::answer(std::string_view bytes, StepBudget& effort) {
  if (!guide_->grammar) return ok();
  if (matcher_) return matcher_->accept(bytes, effort);
  return invalid_argument("the output began as '{}' and went on as neither reasoning nor answer",
                          begun_);
}

// A special token that is only the beginning of `close` ends the reasoning: the rest is forced.
bool ConstrainedOutput::begins_close(int32_t id) const {
  const std::vector<int32_t>& closing = guide_->reasoning->close_ids;
  return closing.size() > 1 && id == closing[0] && guide_->tokens->token(id).empty();
}

bool ConstrainedOutput::is_closing() const {
  const auto& most = guide_->reasoning->max_tokens;
  return num_closing_ > 0 || (most && num_reasoned_ >= *most);
}

bool ConstrainedOutput::limits_next() const {
  return guide_->grammar || (phase_ == Phase::kReasoning && is_closing());
}

Status ConstrainedOutput::fill_mask(std::span<uint32_t> mask, std::span<const int32_t> end_ids,
                                    StepBudget& effort) {
  if (phase_ != Phase::kReasoning && matcher_)
    RETURN_IF_ERROR(matcher_->fill_mask(mask, end_ids, effort));
  if (phase_ == Phase::kAnswer) return ok();
  if (phase_ == Phase::kStart) {
    if (!matcher_) std::ranges::fill(mask, 0);
    allow_open(mask);
    return ok();
  }
  std::ranges::fill(mask, 0);
  const std::vector<int32_t>& closing = guide_->reasoning->close_ids;
  if (is_closing() && num_closing_ < closing.size()) {
    set_bit(mask, closing[num_closing_]);
    return ok();
  }
  const auto num_ids = static_cast<size_t>(guide_->tokens->vocab_size());
  std::ranges::fill(mask.first(std::min(mask.size(), num_ids / 32)), ~uint32_t{0});
  for (size_t id = num_ids / 32 * 32; id < num_ids; ++id) set_bit(mask, static_cast<int32_t>(id));
  if (guide_->grammar) RETURN_IF_ERROR(forbid_broken_closings(mask, effort));
  for (const int32_t id : end_ids) clear_bit(mask, id);
  return ok();
}

std::vector<int32_t> ConstrainedOutput::forced(size_t most, StepBudget& effort) {
  constexpr size_t kUsualTokenBytes = 8;
  std::vector<int32_t> ids;
  if (phase_ != Phase::kAnswer || !matcher_ || most == 0) return ids;
  const std::string text = matcher_->forced(most * kUsualTokenBytes, effort);
  for (std::string_view left = text; !left.empty() && ids.size() < most;) {
    const int32_t id = guide_->tokens->longest(left);
    if (id < 0) break;
    ids.push_back(id);
    left.remove_prefix(guide_->tokens->token(id).size());
  }
  return ids;
}

// Tokens that contain all of `close` are known in advance; where the text ends with a part of
// `close`, tokens that begin with the rest are checked.
Status ConstrainedOutput::forbid_broken_closings(std::span<uint32_t> mask,
                                                 StepBudget& effort) const {
  for (const int32_t id : guide_->broken_ids) clear_bit(mask, id);
  const std::string_view close = guide_->reasoning->close;
  for (size_t begun = 1; begun <= tail_.size() && begun < close.size(); ++begun) {
    if (!tail_.ends_with(close.substr(0, begun))) continue;
    const int32_t node = node_of(*guide_->tokens, close.substr(begun));
    if (node < 0) continue;
    const int32_t end = guide_->tokens->nodes()[static_cast<size_t>(node)].end;
    for (const int32_t id : guide_->tokens->ids_of(node, end)) {
      constexpr int64_t kTokenSteps = 50;
      effort.steps -= kTokenSteps;
      if (effort.steps < 0 && !effort.waits) return unavailable("more steps are needed");
      ASSIGN_OR_RETURN(
          const bool well,
          closes_well(*guide_, tail_ + std::string(guide_->tokens->token(id)), effort));
      well ? set_bit(mask, id) : clear_bit(mask, id);
    }
  }
  return ok();
}

// Allows the tokens that continue `open` and do not go beyond it.
void ConstrainedOutput::allow_open(std::span<uint32_t> mask) const {
  const ReasoningPart& reasoning = *guide_->reasoning;
  const std::string_view left = std::string_view(reasoning.open).substr(begun_.size());
  for (const auto& [id, bytes] : reasoning.marks)
    if (left.starts_with(bytes)) set_bit(mask, id);
  for (size_t length = 1; length <= left.size(); ++length) {
    const int32_t node = node_of(*guide_->tokens, left.substr(0, length));
    if (node < 0) return;
    for (const int32_t id : guide_->tokens->ids(node)) set_bit(mask, id);
  }
}

}  // namespace nereid::text
