#include "text/decoder_prompt.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/json.h"

namespace nereid::text {
namespace {

// An object of a file; empty: none.
json::object object_of(const std::filesystem::path& path) {
  auto read = read_json_file(path);
  if (!read.ok() || !read->is_object()) return {};
  return std::move(read->get_object());
}

std::optional<int32_t> id_of(const json::object& config, std::string_view key) {
  const json::value* const id = config.if_contains(key);
  if (!id || !id->is_int64() || !std::in_range<int32_t>(id->get_int64()) || id->get_int64() < 0)
    return std::nullopt;
  return static_cast<int32_t>(id->get_int64());
}

// Ids of tokens that are no languages: those with a role in tokenizer_config.json.
std::vector<int32_t> role_ids(const json::object& config, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (const char* role : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    const json::value* token = config.if_contains(role);
    if (token && token->is_object()) token = token->get_object().if_contains("content");
    if (!token || !token->is_string()) continue;
    if (const auto id = tokenizer.token_id(token->get_string())) ids.push_back(*id);
  }
  return ids;
}

constexpr size_t kMostForcedIds = 256;

}  // namespace

StatusOr<std::vector<int32_t>> read_forced_ids(const std::filesystem::path& dir) {
  std::vector<int32_t> ids;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const json::object config = object_of(dir / name);
    const json::value* const list = config.if_contains("forced_decoder_ids");
    if (!list || list->is_null()) continue;
    const auto fault = [&] {
      return invalid_argument(
          "{}: field 'forced_decoder_ids' is {}; expected up to {} pairs of a position and an id "
          "or null",
          (dir / name).string(), json::serialize(*list).substr(0, 200), kMostForcedIds);
    };
    if (!list->is_array() || list->get_array().size() > kMostForcedIds) return fault();
    std::map<int64_t, std::optional<int32_t>> by_position;
    for (const json::value& pair : list->get_array()) {
      const bool is_pair = pair.is_array() && pair.get_array().size() == 2 &&
                           pair.get_array()[0].is_int64() &&
                           (pair.get_array()[1].is_int64() || pair.get_array()[1].is_null());
      if (!is_pair) return fault();
      const json::value& id = pair.get_array()[1];
      if (id.is_int64() && (!std::in_range<int32_t>(id.get_int64()) || id.get_int64() < 0))
        return fault();
      const auto forced =
          id.is_null() ? std::nullopt : std::optional(static_cast<int32_t>(id.get_int64()));
      if (!by_position.emplace(pair.get_array()[0].get_int64(), forced).second) return fault();
    }
    for (auto next = by_position.find(1); next != by_position.end() && next->second;
         next = by_position.find(std::ssize(ids) + 1))
      ids.push_back(*next->second);
    return ids;
  }
  return ids;
}

DecoderPrompts DecoderPrompts::load(const std::filesystem::path& dir,
                                    std::shared_ptr<const Tokenizer> tokenizer) {
  DecoderPrompts out;
  out.tokenizer_ = std::move(tokenizer);
  json::object config = object_of(dir / "config.json");
  if (const json::value* own = config.if_contains("pretrained_config"); own && own->is_object())
    config = json::object(own->get_object());
  const json::object generation = object_of(dir / "generation_config.json");
  const auto id = [&](std::string_view key) {
    const auto own = id_of(config, key);
    return own ? own : id_of(generation, key);
  };
  if (const auto start = id("decoder_start_token_id")) out.usual_.push_back(*start);
  const auto second = id("forced_bos_token_id");
  if (second && !out.usual_.empty()) out.usual_.push_back(*second);
  if (const auto forced = read_forced_ids(dir); !second && !out.usual_.empty() && forced.ok())
    out.usual_.insert(out.usual_.end(), forced->begin(), forced->end());

  const Tokenizer& t = *out.tokenizer_;
  const std::vector<int32_t> roles = role_ids(object_of(dir / "tokenizer_config.json"), t);
  const auto is_language = [&](int32_t one) {
    return t.is_special(one) && std::ranges::find(roles, one) == roles.end();
  };
  out.starts_with_language_ = !out.usual_.empty() && is_language(out.usual_[0]);
  const auto frame = t.encode("");
  if (!frame.ok()) return out;
  for (const int32_t one : *frame)
    if (is_language(one)) out.source_ = one;
  return out;
}

StatusOr<int32_t> DecoderPrompts::language_id(std::string_view language) const {
  for (const std::string& token : {std::string(language), fmt::format("__{}__", language)})
    if (const auto id = tokenizer_->token_id(token); id && tokenizer_->is_special(*id)) return *id;
  return invalid_argument("'{}' is no language of this model: it has no special token of that name",
                          language.substr(0, 40));
}

StatusOr<std::vector<int32_t>> DecoderPrompts::with_second(int64_t id) const {
  if (id < 0 || id >= tokenizer_->vocab_size())
    return invalid_argument("{} is not in a vocabulary of {}", id, tokenizer_->vocab_size());
  if (usual_.empty())
    return invalid_argument("{}: the model's config.json has no decoder_start_token_id", id);
  return std::vector<int32_t>{usual_[0], static_cast<int32_t>(id)};
}

StatusOr<std::vector<int32_t>> DecoderPrompts::into(std::string_view language) const {
  ASSIGN_OR_RETURN(const int32_t id, language_id(language));
  if (starts_with_language_) return std::vector<int32_t>{id};
  return with_second(id);
}

Status DecoderPrompts::set_source(std::string_view language, std::vector<int32_t>& prompt) const {
  ASSIGN_OR_RETURN(const int32_t id, language_id(language));
  for (const bool is_first : {true, false}) {
    if (prompt.empty() || source_ < 0) break;
    int32_t& end = is_first ? prompt.front() : prompt.back();
    if (end != source_) continue;
    end = id;
    return ok();
  }
  return invalid_argument("'{}': the tokenizer adds no language to texts", language.substr(0, 40));
}

}  // namespace nereid::text
