#include "text/tokenizer.h"

#include <algorithm>
#include <charconv>
#include <deque>

#include "absl/container/flat_hash_map.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/json_fields.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/unicode/utf8.h"

namespace nereid::text {

// Everything a tokenizer is made of; filled once, then constant.
struct Tokenizer::Parts {
  Bpe bpe;
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  std::deque<AddedToken> added;  // stable addresses: the finders point into it
  absl::flat_hash_map<int32_t, AddedToken*> added_by_id;
  StringMap<AddedToken*> added_by_content;
  AddedTokenFinder raw_finder;         // normalized = false: searched first
  AddedTokenFinder normalized_finder;  // then the others
  std::string bytes;                   // of all tokens, by id: bytes[begins[id], begins[id + 1])
  std::vector<uint32_t> begins;
  std::vector<bool> special;  // by id

  Status read_tokenizer(const json::object& tokenizer);
  Status read_config(const json::object& config);
  Status read_special_names(const json::object& config);
  Status add(AddedToken token);
  Status finish();
  std::optional<int32_t> token_id(std::string_view token) const;
  Status encode_text(std::string_view text, Bpe::Scratch& scratch, std::vector<int32_t>& ids) const;
};

namespace {

Status check_normalizer(const json::value& spec) {
  if (spec.is_null()) return ok();
  ASSIGN_OR_RETURN(const json::object* object, as_object(spec, "normalizer"));
  ASSIGN_OR_RETURN(const std::string_view type, string_field(*object, "type"));
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const json::array* list, array_field(*object, "normalizers"));
    if (list->empty()) return ok();
    return check_normalizer((*list)[0]);
  }
  return unsupported("normalizer type '{}': allowed is null", type);
}

Status check_decoder(const json::value& spec) {
  ASSIGN_OR_RETURN(const json::object* object, as_object(spec, "decoder"));
  ASSIGN_OR_RETURN(const std::string_view type, string_field(*object, "type"));
  if (type == "ByteLevel") return ok();
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const json::array* list, array_field(*object, "decoders"));
    if (list->size() == 1) {
      const json::object* inner = (*list)[0].if_object();
      if (inner != nullptr && field_or_null(*inner, "type") == "ByteLevel") return ok();
    }
    return unsupported("decoder Sequence of {}: allowed is one ByteLevel", list->size());
  }
  return unsupported("decoder type '{}': allowed is ByteLevel", type);
}

}  // namespace

// An entry for a known content replaces its flags; the id must stay the same.
Status Tokenizer::Parts::add(AddedToken token) {
  const std::optional<int32_t> known = token_id(token.content);
  if (known && *known != token.id) {
    return invalid_argument("added token '{}' has id {}, but is already known as {}", token.content,
                            token.id, *known);
  }
  if (const auto found = added_by_content.find(token.content); found != added_by_content.end()) {
    *found->second = std::move(token);
    return ok();
  }
  if (const auto other = added_by_id.find(token.id); other != added_by_id.end()) {
    return invalid_argument("added tokens '{}' and '{}' share id {}", other->second->content,
                            token.content, token.id);
  }
  added.push_back(std::move(token));
  added_by_id[added.back().id] = &added.back();
  added_by_content[added.back().content] = &added.back();
  return ok();
}

std::optional<int32_t> Tokenizer::Parts::token_id(std::string_view token) const {
  const auto found = added_by_content.find(token);
  if (found != added_by_content.end()) return found->second->id;
  return bpe.token_id(token);
}

Status Tokenizer::Parts::read_tokenizer(const json::object& tokenizer) {
  ASSIGN_OR_RETURN(bpe, Bpe::from_json(field_or_null(tokenizer, "model")));
  RETURN_IF_ERROR(check_normalizer(field_or_null(tokenizer, "normalizer")));
  RETURN_IF_ERROR(check_decoder(field_or_null(tokenizer, "decoder")));
  ASSIGN_OR_RETURN(pre_tokenizer,
                   PreTokenizer::from_json(field_or_null(tokenizer, "pre_tokenizer")));
  ASSIGN_OR_RETURN(post_processor,
                   PostProcessor::from_json(field_or_null(tokenizer, "post_processor")));
  if (field_or_null(tokenizer, "added_tokens").is_null()) return ok();
  ASSIGN_OR_RETURN(const json::array* list, array_field(tokenizer, "added_tokens"));
  for (const json::value& entry : *list) {
    ASSIGN_OR_RETURN(const json::object* object, as_object(entry, "added_tokens entry"));
    ASSIGN_OR_RETURN(AddedToken token, AddedToken::from_json(entry, field_or_null(*object, "id")));
    RETURN_IF_ERROR(add(std::move(token)));
  }
  return ok();
}

Status Tokenizer::Parts::read_config(const json::object& config) {
  const json::value& decoder = field_or_null(config, "added_tokens_decoder");
  if (!decoder.is_null()) {
    ASSIGN_OR_RETURN(const json::object* entries, as_object(decoder, "added_tokens_decoder"));
    for (const auto& entry : *entries) {
      int32_t id = -1;
      const char* const end = entry.key().data() + entry.key().size();
      const auto [stop, error] = std::from_chars(entry.key().data(), end, id);
      if (error != std::errc() || stop != end) id = -1;
      ASSIGN_OR_RETURN(AddedToken token, AddedToken::from_json(entry.value(), json::value(id)));
      RETURN_IF_ERROR(add(std::move(token)));
    }
  }
  RETURN_IF_ERROR(read_special_names(config));
  return post_processor.apply_config(config,
                                     [this](std::string_view token) { return token_id(token); });
}

// bos_token and friends that are ordinary vocabulary entries become special tokens, as transformers
// makes them.
Status Tokenizer::Parts::read_special_names(const json::object& config) {
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token",
                           "cls_token", "mask_token"}) {
    const json::value& value = field_or_null(config, name);
    const json::value& content =
        value.is_object() ? field_or_null(value.get_object(), "content") : value;
    if (!content.is_string()) continue;
    const std::string_view text(content.get_string().data(), content.get_string().size());
    const std::optional<int32_t> id = bpe.token_id(text);
    if (!id || text.size() > AddedTokenFinder::kMaxContentBytes || text.empty() ||
        added_by_content.contains(text)) {
      continue;
    }
    AddedToken token;
    token.id = *id;
    token.content = text;
    token.normalized = false;
    token.special = true;
    RETURN_IF_ERROR(add(std::move(token)));
  }
  return ok();
}

Status Tokenizer::Parts::finish() {
  int32_t max_id = -1;
  for (const auto& [token, id] : bpe.vocab()) max_id = std::max(max_id, id);
  for (const AddedToken& token : added) max_id = std::max(max_id, token.id);
  if (max_id < 0) return invalid_argument("the vocabulary is empty");
  std::vector<std::string> texts(static_cast<size_t>(max_id) + 1);
  for (const auto& [token, id] : bpe.vocab()) texts[id] = letters_to_bytes(token);
  special.assign(texts.size(), false);
  for (const AddedToken& token : added) {
    texts[token.id] = letters_to_bytes(token.content);
    special[token.id] = token.special;
    (token.normalized ? normalized_finder : raw_finder).add(&token);
  }
  begins.reserve(texts.size() + 1);
  begins.push_back(0);
  for (const std::string& text : texts) {
    if (bytes.size() + text.size() > UINT32_MAX) return resource_exhausted("vocabulary over 4 GiB");
    bytes += text;
    begins.push_back(static_cast<uint32_t>(bytes.size()));
  }
  return post_processor.check(max_id);
}

Status Tokenizer::Parts::encode_text(std::string_view text, Bpe::Scratch& scratch,
                                     std::vector<int32_t>& ids) const {
  ASSIGN_OR_RETURN(const Pieces pieces, pre_tokenizer.run(text));
  for (size_t i = 0; i < pieces.ends.size(); ++i) bpe.encode(pieces.piece(i), scratch, ids);
  return ok();
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::filesystem::path& model_dir) {
  const std::filesystem::path path = model_dir / "tokenizer.json";
  ASSIGN_OR_RETURN(const json::value tokenizer, read_json_file(path));
  json::value config;
  std::error_code ignored;
  if (std::filesystem::exists(model_dir / "tokenizer_config.json", ignored)) {
    ASSIGN_OR_RETURN(config, read_json_file(model_dir / "tokenizer_config.json"));
  }
  auto result = from_json(tokenizer, config);
  if (!result.ok()) return annotate(result.status(), path.string());
  return result;
}

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(const json::value& tokenizer,
                                                                const json::value& config) {
  auto parts = std::make_unique<Parts>();
  ASSIGN_OR_RETURN(const json::object* object, as_object(tokenizer, "tokenizer"));
  RETURN_IF_ERROR(parts->read_tokenizer(*object));
  if (!config.is_null()) {
    ASSIGN_OR_RETURN(const json::object* settings, as_object(config, "tokenizer_config"));
    RETURN_IF_ERROR(parts->read_config(*settings));
  }
  RETURN_IF_ERROR(parts->finish());
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(parts)));
}

StatusOr<std::vector<int32_t>> Tokenizer::encode(std::string_view text,
                                                 const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes) {
    return invalid_argument("text of {} bytes is longer than {}", text.size(), kMaxTextBytes);
  }
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = repair_utf8(text);
    text = repaired;
  }
  std::vector<AddedTokenFinder::Match> matches, inner;
  parts_->raw_finder.split(text, options.parse_special, matches);
  std::vector<int32_t> ids;
  if (options.add_special_tokens) ids = parts_->post_processor.prefix();
  Bpe::Scratch scratch;
  for (const AddedTokenFinder::Match& match : matches) {
    if (match.token != nullptr) {
      ids.push_back(match.token->id);
      continue;
    }
    inner.clear();
    parts_->normalized_finder.split(match.text, options.parse_special, inner);
    for (const AddedTokenFinder::Match& part : inner) {
      if (part.token != nullptr) {
        ids.push_back(part.token->id);
      } else {
        RETURN_IF_ERROR(parts_->encode_text(part.text, scratch, ids));
      }
    }
  }
  if (options.add_special_tokens) {
    const std::vector<int32_t>& suffix = parts_->post_processor.suffix();
    ids.insert(ids.end(), suffix.begin(), suffix.end());
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string out;
  Utf8Stream stream;
  for (const int32_t id : ids) {
    if (skip_special_tokens && is_special(id)) continue;
    stream.push(token_bytes(id), out);
  }
  stream.finish(out);
  return out;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const uint32_t begin = parts_->begins[id];
  return std::string_view(parts_->bytes).substr(begin, parts_->begins[id + 1] - begin);
}

std::optional<int32_t> Tokenizer::token_id(std::string_view token) const {
  return parts_->token_id(token);
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && parts_->special[id];
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(parts_->begins.size()) - 1; }

}  // namespace nereid::text
