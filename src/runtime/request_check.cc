// Field by field, in the order of the public header.
#include "runtime/request_check.h"

#include <cmath>

namespace nereid::runtime {
namespace {

Status check_sampling(const SamplingConfig& s) {
  if (s.top_k && *s.top_k < 0)
    return invalid_argument("top_k: {} is not allowed; at least 0 (0 = off)", *s.top_k);
  if (s.top_p && !(*s.top_p > 0 && *s.top_p <= 1))
    return invalid_argument("top_p: {} is not in (0, 1]", *s.top_p);
  if (s.temperature && !(*s.temperature >= 0 && std::isfinite(*s.temperature)))
    return invalid_argument("temperature: {} is not allowed; a finite number, at least 0",
                            *s.temperature);
  if (s.min_tokens && *s.min_tokens < 0)
    return invalid_argument("min_tokens: {} is not allowed; at least 0", *s.min_tokens);
  return ok();
}

Status check_stops(const Request& r, bool has_tokenizer) {
  if (r.end_ids.size() > kMaxEndIds)
    return invalid_argument("end_ids: {} of them; at most {}", r.end_ids.size(), kMaxEndIds);
  if (r.stop_words.size() > kMaxStopWords)
    return invalid_argument("stop_words: {} of them; at most {}", r.stop_words.size(),
                            kMaxStopWords);
  for (size_t i = 0; i < r.stop_words.size(); ++i)
    if (const size_t size = r.stop_words[i].size(); size < 1 || size > kMaxStopWordTokens)
      return invalid_argument("stop_words[{}]: {} tokens; allowed are 1 to {}", i, size,
                              kMaxStopWordTokens);
  if (!r.stop_strings.empty() && !has_tokenizer)
    return invalid_argument("stop_strings: the model directory has no usable tokenizer");
  if (r.stop_strings.size() > kMaxStopStrings)
    return invalid_argument("stop_strings: {} of them; at most {}", r.stop_strings.size(),
                            kMaxStopStrings);
  for (size_t i = 0; i < r.stop_strings.size(); ++i)
    if (const size_t size = r.stop_strings[i].size(); size < 1 || size > kMaxStopStringBytes)
      return invalid_argument("stop_strings[{}]: {} bytes; allowed are 1 to {}", i, size,
                              kMaxStopStringBytes);
  return ok();
}

Status check_range(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return ok();
  return invalid_argument("{}: {} is not in [{}, {}]", field, value, low, high);
}

}  // namespace

Status check_request(const Request& r, const sched::Limits& limits, int32_t vocab_size,
                     bool has_tokenizer) {
  RETURN_IF_ERROR(sched::Scheduler::validate(limits, static_cast<int64_t>(r.input_token_ids.size()),
                                             r.max_tokens));
  for (size_t i = 0; i < r.input_token_ids.size(); ++i)
    if (const TokenId id = r.input_token_ids[i]; id < 0 || id >= vocab_size)
      return invalid_argument("input_token_ids[{}]: {} is not in [0, {})", i, id, vocab_size);
  RETURN_IF_ERROR(check_sampling(r.sampling));
  return check_stops(r, has_tokenizer);
}

Status check_config(const ExecutorConfig& c) {
  RETURN_IF_ERROR(check_range("num_threads", c.num_threads, 0, 1024));
  RETURN_IF_ERROR(check_range("memory_bytes", c.memory_bytes, 0, int64_t{1} << 50));
  RETURN_IF_ERROR(check_range("max_batch_size", c.max_batch_size, 1, 4096));
  RETURN_IF_ERROR(check_range("max_num_tokens", c.max_num_tokens, 1, 1 << 20));
  RETURN_IF_ERROR(check_range("max_queue_size", c.max_queue_size, 1, 1 << 24));
  const KvCacheConfig& kv = c.kv_cache;
  if (kv.max_tokens)
    RETURN_IF_ERROR(check_range("kv_cache.max_tokens", *kv.max_tokens, 1, 1 << 30));
  const int32_t t = kv.tokens_per_block;
  if (t != 16 && t != 32 && t != 64 && t != 128)
    return invalid_argument("kv_cache.tokens_per_block: {} is not one of 16, 32, 64, 128", t);
  return ok();
}

}  // namespace nereid::runtime
