// List inputs of a tensorrt_llm request: words, biases, retention ranges.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/tensorrtllm/tensor_fields.h"

namespace nereid::backend {

StatusOr<std::vector<std::vector<TokenId>>> read_words(const std::vector<int32_t>& flat) {
  const auto listing = [&] {
    std::string text;
    for (int32_t v : flat) text += fmt::format("{} ", v);
    return text;
  };
  if (flat.size() % 2 != 0) {
    return invalid_argument("Sparse list must not have odd length: {}", listing());
  }
  const size_t width = flat.size() / 2;
  std::vector<std::vector<TokenId>> words;
  int64_t begin = 0;
  for (size_t i = 0; i < width; ++i) {
    const int64_t end = flat[width + i];
    if (end == -1) {
      if (std::any_of(flat.begin() + static_cast<ptrdiff_t>(width + i), flat.end(),
                      [](int32_t v) { return v != -1; })) {
        return invalid_argument("Sparse list must not have additional -1s: {}", listing());
      }
      break;
    }
    if (end > static_cast<int64_t>(width)) {
      return invalid_argument("Sparse list must not have out-of-bound offsets: {}", listing());
    }
    if (end <= begin) {
      return invalid_argument("Sparse list must not have non-increasing offsets: {}", listing());
    }
    words.emplace_back(flat.begin() + begin, flat.begin() + end);
    begin = end;
  }
  return words;
}

namespace {

// -inf bans the token; NaN and +inf are refused.
Status check_bias(const char* name, size_t index, float value) {
  if (std::isfinite(value) || value == -std::numeric_limits<float>::infinity()) return ok();
  return invalid_argument("input '{}[{}]' is {}, expected a finite number or -inf", name, index,
                          value);
}

}  // namespace

namespace {

// Tokens outside of the list get -inf.
Status read_allowed(const Item& item, size_t vocab, nereid::Request& out) {
  ASSIGN_OR_RETURN(const auto allowed, item.values<int32_t>("allowed_token_ids"));
  if (!allowed || allowed->empty()) return ok();
  std::vector<float> bias(vocab, -std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < allowed->size(); ++i) {
    const TokenId id = (*allowed)[i];
    RETURN_IF_ERROR(check_value(fmt::format("allowed_token_ids[{}]", i), id,
                                {0, static_cast<double>(vocab) - 1}));
    const auto at = static_cast<size_t>(id);
    bias[at] = out.embedding_bias.empty() ? 0 : out.embedding_bias[at];
  }
  out.embedding_bias = std::move(bias);
  return ok();
}

}  // namespace

Status read_biases(const Item& item, const ReadContext& context, nereid::Request& out) {
  const auto vocab = static_cast<size_t>(context.vocab_size);
  ASSIGN_OR_RETURN(auto dense, item.values<float>("embedding_bias"));
  if (dense && dense->size() > vocab) {
    return invalid_argument("input 'embedding_bias' has {} values, expected at most {} (or none)",
                            dense->size(), vocab);
  }
  for (size_t i = 0; dense && i < dense->size(); ++i) {
    RETURN_IF_ERROR(check_bias("embedding_bias", i, (*dense)[i]));
  }
  if (dense && !dense->empty()) {
    dense->resize(vocab);  // a tokenizer may have fewer tokens than the model has embedding rows
    out.embedding_bias = *std::move(dense);
  }
  ASSIGN_OR_RETURN(const auto ids, item.values<int32_t>("logit_bias_ids"));
  ASSIGN_OR_RETURN(const auto values, item.values<float>("logit_bias_values"));
  const size_t count = ids ? ids->size() : 0;
  if (count != (values ? values->size() : 0)) {
    return invalid_argument("inputs 'logit_bias_ids' and 'logit_bias_values' must be equally long");
  }
  for (size_t i = 0; i < count; ++i) {
    const TokenId id = (*ids)[i];
    RETURN_IF_ERROR(
        check_value(fmt::format("logit_bias_ids[{}]", i), id, {0, static_cast<double>(vocab) - 1}));
    RETURN_IF_ERROR(check_bias("logit_bias_values", i, (*values)[i]));
    out.logit_bias.emplace_back(id, (*values)[i]);
  }
  return read_allowed(item, vocab, out);
}

namespace {

std::optional<std::chrono::milliseconds> duration_of(int32_t ms) {
  if (ms < 0) return std::nullopt;
  return std::chrono::milliseconds(ms);
}

Status check_retention_priority(const std::string& name, int32_t priority) {
  if (priority >= 0 && priority <= 100) return ok();
  return invalid_argument("input '{}' is {}: Invalid priority value. Must be between 0 and 100",
                          name, priority);
}

Status read_token_ranges(const Item& item, const std::vector<int32_t>& starts,
                         KvCacheRetentionConfig& out) {
  ASSIGN_OR_RETURN(const auto ends, item.values<int32_t>("retention_token_range_ends"));
  ASSIGN_OR_RETURN(const auto priorities, item.values<int32_t>("retention_token_range_priorities"));
  ASSIGN_OR_RETURN(const auto durations,
                   item.values<int32_t>("retention_token_range_durations_ms"));
  for (const auto& [name, list] :
       {std::pair("ends", &ends), std::pair("priorities", &priorities)}) {
    if (*list && (*list)->size() == starts.size()) continue;
    return invalid_argument(
        "retention_token_range_{} must be provided, and have the same length as "
        "retention_token_range_starts",
        name);
  }
  if (durations && durations->size() != starts.size()) {
    return invalid_argument(
        "retention_token_range_durations_ms must have the same length as "
        "retention_token_range_starts");
  }
  for (size_t i = 0; i < starts.size(); ++i) {
    KvCacheRetentionConfig::TokenRange range;
    range.token_start = starts[i];
    if ((*ends)[i] != -1) range.token_end = (*ends)[i];
    range.priority = (*priorities)[i];
    if (durations) range.duration = duration_of((*durations)[i]);
    if (range.token_start < 0 || (range.token_end && *range.token_end <= range.token_start)) {
      return invalid_argument(
          "retention_token_range_starts[{}] is {} and its end {}: expected 0 <= start < end, or an "
          "end of -1",
          i, range.token_start, (*ends)[i]);
    }
    RETURN_IF_ERROR(check_retention_priority(fmt::format("retention_token_range_priorities[{}]", i),
                                             range.priority));
    out.token_ranges.push_back(range);
  }
  return ok();
}

}  // namespace

StatusOr<std::optional<KvCacheRetentionConfig>> read_retention(const Item& item) {
  ASSIGN_OR_RETURN(const auto starts, item.values<int32_t>("retention_token_range_starts"));
  ASSIGN_OR_RETURN(const auto priority, item.scalar<int32_t>("retention_decode_priority"));
  ASSIGN_OR_RETURN(const auto duration, item.scalar<int32_t>("retention_decode_duration_ms"));
  if (!starts && !priority && !duration) return std::nullopt;
  KvCacheRetentionConfig out;
  if (starts) RETURN_IF_ERROR(read_token_ranges(item, *starts, out));
  if (priority) {
    RETURN_IF_ERROR(check_retention_priority("retention_decode_priority", *priority));
    out.decode_priority = *priority;
  }
  if (duration) out.decode_duration = duration_of(*duration);
  return std::optional(std::move(out));
}

}  // namespace nereid::backend
