// Token bans of kernels::Sample, from the parameters and lists that its kernels read.
#include "runtime/grammars/token_bans.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "runtime/requests/sample_params.h"
#include "runtime/sequence_payload.h"
#include "text/grammar/token_mask.h"

namespace nereid::runtime {
namespace {

class BansOfSlot {
 public:
  BansOfSlot(const SlotParams& slot, std::span<const TokenId> history, int32_t vocab_size)
      : slot_(slot),
        history_(history),
        vocab_size_(vocab_size),
        left_(static_cast<size_t>(kernels::mask_words(vocab_size)), ~uint32_t{0}) {
    for (int32_t id = vocab_size; id < std::ssize(left_) * 32; ++id) text::clear_bit(left_, id);
  }

  TokenBits take() {
    const kernels::SampleParams& p = slot_.params;
    const int32_t* const cells = slot_.cells.data();
    const kernels::SampleLists lists(p, cells, reinterpret_cast<const float*>(cells));
    const auto is_minus_infinity = [](int32_t cell) {
      return std::bit_cast<float>(cell) == -INFINITY;
    };
    const int32_t* const dense = lists.bad_tokens + p.num_bad_tokens;
    for (int32_t id = 0; p.has_dense_bias && id < vocab_size_; ++id)
      if (is_minus_infinity(dense[id])) ban(id);
    for (int32_t i = 0; i < p.num_biases; ++i)
      if (is_minus_infinity(lists.bias_ids[p.num_biases + i])) ban(lists.bias_ids[i]);
    if (std::ssize(history_) < p.min_length)
      for (int32_t i = 0; i < p.num_end_ids; ++i) ban(lists.end_ids[i]);
    ban_repeated(p.ngram);
    for (int32_t i = 0, begin = 0; i < p.num_bad_words; begin = lists.bad_ends[i++])
      ban_last(std::span(lists.bad_tokens + begin, lists.bad_tokens + lists.bad_ends[i]));
    return std::move(left_);
  }

 private:
  void ban(int32_t id) {
    if (id >= 0 && id < vocab_size_) text::clear_bit(left_, id);
  }
  void ban_repeated(int32_t size) {
    if (size <= 0) return;
    constexpr size_t kMostCompared = 4'000'000;  // comparisons; beyond: no n-gram ban
    const auto n = static_cast<size_t>(size);
    if (history_.size() < n || (history_.size() - n + 1) * n > kMostCompared) return;
    const auto begun = history_.last(n - 1);
    for (size_t i = 0; i + n <= history_.size(); ++i)
      if (std::ranges::equal(history_.subspan(i, n - 1), begun)) ban(history_[i + n - 1]);
  }
  void ban_last(std::span<const int32_t> word) {
    const size_t num_others = word.size() - 1;
    if (num_others <= history_.size() &&
        std::ranges::equal(history_.last(num_others), word.first(num_others)))
      ban(word.back());
  }

  const SlotParams& slot_;
  const std::span<const TokenId> history_;
  const int32_t vocab_size_;
  TokenBits left_;
};

}  // namespace

bool may_ban(const Request& r) {
  return !r.embedding_bias.empty() || !r.bad_words.empty() || !r.suppressed_first_ids.empty() ||
         r.sampling.min_tokens.value_or(0) > 0 || r.sampling.no_repeat_ngram_size.value_or(0) > 0 ||
         std::ranges::any_of(r.logit_bias, [](const auto& b) { return b.second == -INFINITY; });
}

TokenBits tokens_left(const sched::SequenceSpec& spec, int32_t num_prompt,
                      std::span<const TokenId> history, int32_t vocab_size) {
  const SlotParams slot = slot_params(spec, num_prompt, vocab_size);
  return BansOfSlot(slot, history, vocab_size).take();
}

TokenBits first_tokens_left(const Request& r, int32_t vocab_size) {
  const auto payload = std::make_shared<SequencePayload>();
  payload->bad_words = r.bad_words;
  payload->suppressed_first_ids = r.suppressed_first_ids;
  payload->logit_bias = r.logit_bias;
  payload->embedding_bias = r.embedding_bias;
  const sched::SequenceSpec spec{
      .end_ids = r.end_ids, .stop_words = r.stop_words, .sampling = r.sampling, .payload = payload};
  const auto num_prompt = static_cast<int32_t>(r.input_token_ids.size());
  return tokens_left(spec, num_prompt, r.input_token_ids, vocab_size);
}

Status check_some_left(std::span<const uint32_t> left, std::span<const uint32_t> mask,
                       int32_t position) {
  bool any = false;
  for (size_t i = 0; i < left.size() && !any; ++i)
    any = (left[i] & (mask.empty() ? ~uint32_t{0} : mask[i])) != 0;
  if (any) return ok();
  if (mask.empty())
    return invalid_argument(
        "the request's biases (allowed_token_ids among them), bad_words, no_repeat_ngram_size and "
        "min_tokens leave no token for position {}; remove one of them",
        position);
  return invalid_argument(
      "guided_decoding: no token of the model that may come at position {} is left by the "
      "request's biases (allowed_token_ids among them), bad_words, no_repeat_ngram_size and "
      "min_tokens; remove one of them or change the grammar",
      position);
}

}  // namespace nereid::runtime
