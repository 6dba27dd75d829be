#include "front/openai/log_probs.h"

#include <algorithm>

namespace nereid::front {
namespace {

constexpr float kFloor = -9999.0f;  // JSON has no infinity

double finite(float log_prob) { return std::max(log_prob, kFloor); }

// The token's text; bytes that are no text by themselves become U+FFFD.
std::string token_text(const text::Tokenizer& tokenizer, int32_t id, bool as_id) {
  if (as_id) return fmt::format("token_id:{}", id);
  return tokenizer.decode(std::span(&id, 1), /*skip_special_tokens=*/false);
}

json::object chat_entry(const text::Tokenizer& tokenizer, int32_t id, float log_prob, bool as_id) {
  json::array bytes;
  for (const char c : tokenizer.token_bytes(id)) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", token_text(tokenizer, id, as_id)},
          {"logprob", finite(log_prob)},
          {"bytes", std::move(bytes)}};
}

}  // namespace

size_t num_entries(const std::vector<ScoredToken>& tokens) {
  size_t sum = tokens.size();
  for (const ScoredToken& token : tokens) sum += token.top.size();
  return sum;
}

json::object chat_log_probs(const text::Tokenizer& tokenizer,
                            const std::vector<ScoredToken>& tokens, bool as_ids) {
  json::array content;
  for (const ScoredToken& token : tokens) {
    json::array top;
    for (const auto& [id, log_prob] : token.top) {
      top.push_back(chat_entry(tokenizer, id, log_prob, as_ids));
    }
    json::object entry = chat_entry(tokenizer, token.id, token.log_prob, as_ids);
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

json::object completion_log_probs(const text::Tokenizer& tokenizer,
                                  const std::vector<ScoredToken>& tokens, bool as_ids) {
  json::array offsets, log_probs, texts, tops;
  for (const ScoredToken& token : tokens) {
    offsets.push_back(token.text_offset);
    texts.push_back(json::value(token_text(tokenizer, token.id, as_ids)));
    if (token.is_first) {
      log_probs.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    log_probs.push_back(finite(token.log_prob));
    json::object top;
    for (const auto& [id, log_prob] : token.top) {
      top.emplace(token_text(tokenizer, id, as_ids), finite(log_prob));
    }
    top.emplace(token_text(tokenizer, token.id, as_ids), finite(token.log_prob));
    tops.push_back(std::move(top));
  }
  return {{"text_offset", std::move(offsets)},
          {"token_logprobs", std::move(log_probs)},
          {"tokens", std::move(texts)},
          {"top_logprobs", std::move(tops)}};
}

json::array prompt_log_probs(const text::Tokenizer& tokenizer,
                             const std::vector<ScoredToken>& tokens, size_t num_top) {
  json::array out;
  for (const ScoredToken& token : tokens) {
    if (token.is_first) {
      out.push_back(nullptr);
      continue;
    }
    json::object entries;
    const auto add = [&](int32_t id, float log_prob, size_t rank) {
      entries.emplace(fmt::format("{}", id),
                      json::object{{"logprob", finite(log_prob)},
                                   {"rank", rank},
                                   {"decoded_token", token_text(tokenizer, id, false)}});
    };
    add(token.id, token.log_prob, static_cast<size_t>(token.rank));
    for (size_t k = 0; k < std::min(num_top, token.top.size()); ++k)
      add(token.top[k].first, token.top[k].second, k + 1);
    out.push_back(std::move(entries));
  }
  return out;
}

}  // namespace nereid::front
