// Block accounting of a request.
#include "sched/capacity.h"

#include <algorithm>

namespace nereid::sched {

int32_t length_limit(const Limits& limits, int64_t num_prompt_tokens, int32_t max_new_tokens) {
  if (max_new_tokens == 0) return static_cast<int32_t>(num_prompt_tokens + 1);
  return static_cast<int32_t>(
      std::min<int64_t>(num_prompt_tokens + max_new_tokens, limits.max_sequence_length));
}

int32_t worst_case_blocks(const Limits& limits, const BlockGroupConfig& group,
                          int32_t num_prompt_tokens, int32_t length_limit, int32_t beam_width) {
  const int64_t t = limits.tokens_per_block;
  const auto blocks = [t](int64_t tokens) { return (tokens + t - 1) / t; };
  const int64_t positions = length_limit - 1;
  int64_t worst = blocks(positions);
  if (beam_width > 1 && positions > num_prompt_tokens) {
    const int64_t shared = num_prompt_tokens / t;
    worst = shared + beam_width * (worst - shared);
  }
  if (group.window > 0) {
    // The chunk may start inside a block; its first token attends to `window` positions.
    const int64_t chunk = std::min<int64_t>(limits.max_num_tokens, positions);
    const int64_t windowed = blocks(group.sink) + blocks(group.window + chunk) + 1;
    worst = std::min(worst, beam_width * windowed);
  }
  return static_cast<int32_t>(std::min<int64_t>(worst, INT32_MAX));
}

Status check_demand(const Limits& limits, int64_t num_prompt_tokens, int32_t max_new_tokens,
                    int32_t beam_width, int32_t num_sequences) {
  if (num_prompt_tokens < 1) return invalid_argument("prompt: no tokens; at least 1 is needed");
  if (max_new_tokens < 0)
    return invalid_argument("max_tokens: {} is not allowed; at least 0 is needed", max_new_tokens);
  const int32_t widest =
      std::min({limits.max_beam_width, limits.max_batch_size, limits.max_num_tokens});
  if (beam_width < 1 || beam_width > widest)
    return invalid_argument(
        "beam_width: {} is not in [1, {}] (max_beam_width {}, max_batch_size {}, max_num_tokens "
        "{})",
        beam_width, widest, limits.max_beam_width, limits.max_batch_size, limits.max_num_tokens);
  if (num_sequences < 1 || num_sequences > limits.max_queue_size)
    return invalid_argument("{} sequences of one request are not in [1, {}] (max_queue_size)",
                            num_sequences, limits.max_queue_size);
  if (max_new_tokens == 0 && num_prompt_tokens > limits.max_sequence_length)
    return invalid_argument("prompt: {} tokens are more than max_sequence_length {}",
                            num_prompt_tokens, limits.max_sequence_length);
  if (max_new_tokens > 0 && num_prompt_tokens >= limits.max_sequence_length)
    return invalid_argument(
        "prompt: {} tokens leave no room for output; max_sequence_length is {} (prompt + output). "
        "Prompt length ({}) exceeds maximum input length ({}).",
        num_prompt_tokens, limits.max_sequence_length, num_prompt_tokens,
        limits.max_sequence_length - 1);
  if (!limits.policy.enable_chunked_context && num_prompt_tokens > limits.max_num_tokens)
    return invalid_argument(
        "prompt: {} tokens do not fit in one step of max_num_tokens {}, and chunked context is "
        "off. Prompt length ({}) exceeds maximum input length ({}).",
        num_prompt_tokens, limits.max_num_tokens, num_prompt_tokens, limits.max_num_tokens);
  const auto prompt = static_cast<int32_t>(num_prompt_tokens);
  const int32_t limit = length_limit(limits, num_prompt_tokens, max_new_tokens);
  for (const BlockGroupConfig& group : limits.groups) {
    const int32_t worst = worst_case_blocks(limits, group, prompt, limit, beam_width);
    if (worst <= group.num_blocks) continue;
    return invalid_argument(
        "prompt of {} tokens with max_tokens {} and beam_width {} needs KV memory for {} tokens in "
        "{} blocks of {}{}; there are {} blocks, memory for {} tokens",
        num_prompt_tokens, max_new_tokens, beam_width, limit - 1, worst, limits.tokens_per_block,
        group.window > 0 ? fmt::format(" for layers with a window of {}", group.window) : "",
        group.num_blocks, int64_t{group.num_blocks} * limits.tokens_per_block);
  }
  return ok();
}

}  // namespace nereid::sched
