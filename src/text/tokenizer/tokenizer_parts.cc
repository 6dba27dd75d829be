#include "text/tokenizer/tokenizer_parts.h"

#include <algorithm>
#include <charconv>

#include "text/tokenizer/byte_level.h"

namespace nereid::text {

namespace {

constexpr size_t kMaxAddedTokens = size_t{1} << 20;
// Ids need memory whether they have tokens or not.
constexpr size_t kMaxIdsPerToken = 16;
constexpr size_t kMaxIdsAlways = size_t{1} << 16;

}  // namespace

Status StringList::add(std::string_view text) {
  if (all.size() + text.size() > UINT32_MAX) return resource_exhausted("vocabulary over 4 GiB");
  all += text;
  begins.push_back(static_cast<uint32_t>(all.size()));
  return ok();
}

Status TokenizerParts::add(AddedToken token) {
  const std::optional<int32_t> existing = token_id(token.content);
  if (existing && *existing != token.id) {
    return invalid_argument("added token '{}' has id {}, but is already known as {}", token.content,
                            token.id, *existing);
  }
  if (const auto found = added_by_content.find(token.content); found != added_by_content.end()) {
    *found->second = std::move(token);
    return ok();
  }
  if (const auto other = added_by_id.find(token.id); other != added_by_id.end()) {
    return invalid_argument("added tokens '{}' and '{}' share id {}", other->second->content,
                            token.content, token.id);
  }
  if (added.size() >= kMaxAddedTokens) {
    return invalid_argument("more than {} added tokens", kMaxAddedTokens);
  }
  added.push_back(std::move(token));
  added_by_id[added.back().id] = &added.back();
  added_by_content[added.back().content] = &added.back();
  return ok();
}

Status TokenizerParts::add_special(std::string_view text) {
  const std::optional<int32_t> id = model->vocab().id(text);
  if (!id || text.empty() || text.size() > AddedTokenFinder::kMaxContentBytes ||
      added_by_content.contains(text) || added_by_id.contains(*id)) {
    return ok();
  }
  AddedToken token;
  token.id = *id;
  token.content = text;
  token.normalized = false;
  token.special = true;
  return add(std::move(token));
}

std::optional<int32_t> TokenizerParts::token_id(std::string_view token) const {
  const auto found = added_by_content.find(token);
  if (found != added_by_content.end()) return found->second->id;
  return model->vocab().id(token);
}

Status TokenizerParts::read_config(const JsonNode& config) {
  if (config.is_null()) return ok();
  RETURN_IF_ERROR(config.object().status());
  const JsonNode entries = config["added_tokens_decoder"];
  if (!entries.is_null()) {
    ASSIGN_OR_RETURN(const json::object* list, entries.object());
    for (const auto& entry : *list) {
      const std::string_view key(entry.key().data(), entry.key().size());
      int32_t id = -1;
      const auto [stop, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || stop != key.data() + key.size() || id < 0 || id > kMaxTokenId) {
        return invalid_argument("{}: key '{}': must be a token id in [0, {}]", entries.path(), key,
                                kMaxTokenId);
      }
      ASSIGN_OR_RETURN(AddedToken token, AddedToken::from_json(entries[key], id));
      RETURN_IF_ERROR(add(std::move(token)));
    }
  }
  RETURN_IF_ERROR(read_special_names(config));
  ASSIGN_OR_RETURN(const bool clean_up, config["clean_up_tokenization_spaces"].boolean(false));
  // Byte-level text has no blanks added by a tokenizer.
  if (clean_up && !decoder.is_byte_level()) decoder.add_clean_up();
  return post_processor.apply_config(config,
                                     [this](std::string_view token) { return token_id(token); });
}

// Vocabulary entries named in the configuration become special tokens, as in transformers.
Status TokenizerParts::read_special_names(const JsonNode& config) {
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token",
                           "cls_token", "mask_token"}) {
    RETURN_IF_ERROR(add_special(token_text(config[name])));
  }
  for (const char* name : {"additional_special_tokens", "extra_special_tokens"}) {
    const json::array* list = config[name].value().if_array();
    for (size_t i = 0; list != nullptr && i < list->size(); ++i) {
      RETURN_IF_ERROR(add_special(token_text(config[name][i])));
    }
  }
  return ok();
}

Status TokenizerParts::finish() {
  int32_t max_id = model->vocab().max_id();
  for (const AddedToken& token : added) max_id = std::max(max_id, token.id);
  if (max_id < 0) return invalid_argument("the vocabulary is empty");
  const size_t num_tokens = model->vocab().size() + added.size();
  if (static_cast<size_t>(max_id) > kMaxIdsAlways + num_tokens * kMaxIdsPerToken) {
    return invalid_argument("token id {} in a vocabulary of {} tokens: must be at most {}", max_id,
                            num_tokens, kMaxIdsAlways + num_tokens * kMaxIdsPerToken);
  }
  RETURN_IF_ERROR(make_finders());
  RETURN_IF_ERROR(make_texts(max_id));
  if (pre_tokenizer.ends_in_byte_letters() && model->take_raw_bytes()) {
    raw_bytes = true;
    pre_tokenizer.drop_byte_letters();
  }
  return post_processor.check(max_id);
}

Status TokenizerParts::make_finders() {
  std::vector<AddedTokenFinder::Entry> raw, normalized;
  for (const AddedToken& token : added) {
    if (!token.normalized) {
      raw.push_back({token.content, &token});
      continue;
    }
    EncodeWork work(token.content.size());
    NormalText text{token.content, &work};
    RETURN_IF_ERROR(normalizer.run(text));
    normalized.push_back({std::move(text.text), &token});
  }
  raw_finder = AddedTokenFinder(raw);
  normalized_finder = AddedTokenFinder(normalized);
  return ok();
}

Status TokenizerParts::make_texts(int32_t max_id) {
  const size_t count = static_cast<size_t>(max_id) + 1;
  std::vector<std::string_view> all(count);
  known.assign(count, false);
  special.assign(count, false);
  for (const auto& [token, id] : model->vocab().ids()) {
    all[id] = token;
    known[id] = true;
  }
  for (const auto& [id, text] : shown_as) {
    if (id <= max_id) all[id] = text;
  }
  for (const AddedToken& token : added) {
    all[token.id] = token.content;
    known[token.id] = true;
    special[token.id] = token.special;
  }
  for (size_t id = 0; id < count; ++id) {
    const std::string_view text = all[id];
    if (decoder.is_byte_level()) {
      RETURN_IF_ERROR(bytes.add(letters_to_bytes(text)));
      continue;
    }
    RETURN_IF_ERROR(bytes.add(known[id] ? decoder.continuation_bytes(text) : ""));
    RETURN_IF_ERROR(texts.add(text));
  }
  return ok();
}

}  // namespace nereid::text
