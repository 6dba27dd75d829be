// Sequence: end conditions and prefix keys.
#include "sched/sequence.h"

#include <algorithm>
#include <utility>

namespace nereid::sched {
Sequence::Sequence(SequenceSpec spec, int32_t limit, int32_t tokens_per_block, uint64_t place,
                   std::vector<int32_t> worst_blocks)
    : num_prompt_(static_cast<int32_t>(spec.prompt.size())),
      tokens_(std::move(spec.prompt)),
      spec_(std::move(spec)),
      limit_(limit),
      worst_blocks_(std::move(worst_blocks)),
      tokens_per_block_(tokens_per_block),
      place_(place),
      drafts_(spec_.drafts),
      beam_slots_(static_cast<size_t>(spec_.sampling.beam_width)),
      results_(spec_.encoder_inputs.size()) {
  metrics_.arrival = spec_.arrival;
}

bool Sequence::append(TokenId token) {
  const bool may_end = num_generated() >= spec_.sampling.min_tokens.value_or(0);
  if (may_end && std::ranges::find(spec_.end_ids, token) != spec_.end_ids.end()) {
    reason_ = FinishReason::kEndId;
    return false;
  }
  tokens_.push_back(token);
  const bool enough = num_generated() >= spec_.sampling.min_tokens.value_or(0);
  if (enough && completes_stop_word()) {
    reason_ = FinishReason::kStopWords;
  } else if (static_cast<int32_t>(tokens_.size()) >= limit_) {
    reason_ = FinishReason::kLength;
  }
  return true;
}

void Sequence::check_drafts(TokenId token) {
  if (drafts_.empty()) return;
  if (drafts_.front() == token && draft_parents_.empty()) {
    drafts_.erase(drafts_.begin());
  } else {
    drafts_.clear();
    draft_parents_.clear();
  }
}

// As in TensorRT-LLM a match may begin in the prompt; its last token is always a new one.
bool Sequence::completes_stop_word() const {
  return std::ranges::any_of(spec_.stop_words, [&](const std::vector<TokenId>& word) {
    return !word.empty() && word.size() <= tokens_.size() &&
           std::equal(word.rbegin(), word.rend(), tokens_.rbegin());
  });
}

BeamRules Sequence::beam_rules() const {
  const SamplingConfig& s = spec_.sampling;
  return {.width = s.beam_width,
          .num_prompt = num_prompt_,
          .limit = limit_,
          .length_penalty = s.length_penalty.value_or(0),
          .early_stopping = s.early_stopping.value_or(1),
          .diversity_rate = s.beam_search_diversity_rate.value_or(0),
          .min_tokens = s.min_tokens.value_or(0),
          .end_ids = spec_.end_ids,
          .stop_words = spec_.stop_words};
}

void Sequence::forget_beams() {
  beams_ = {};
  candidates_.clear();
}

std::span<const BlockKey> Sequence::keys() {
  const size_t size = static_cast<size_t>(tokens_per_block_);
  while ((keys_.size() + 1) * size <= tokens_.size()) {
    const BlockKey parent = keys_.empty() ? root_key(spec_.cache_salt) : keys_.back();
    keys_.push_back(
        block_key(parent, TokenRun{tokens_, spec_.input_keys}.subrun(keys_.size() * size, size)));
  }
  return keys_;
}

Contents Sequence::contents() {
  return {.root = spec_.cache_salt,
          .keys = keys(),
          .tokens = tokens_,
          .input_keys = spec_.input_keys,
          .retention = spec_.retention ? &*spec_.retention : nullptr,
          .num_prompt = num_prompt_};
}

}  // namespace nereid::sched
