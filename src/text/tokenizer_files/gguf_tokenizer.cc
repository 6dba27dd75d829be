// The tokenizer in a GGUF file's metadata. Source: gguf-py/gguf/constants.py and
// src/llama-vocab.cpp of ggml-org/llama.cpp.
#include <initializer_list>
#include <optional>
#include <utility>

#include "base/gguf.h"
#include "sentencepiece.pb.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/tokenizer_files/gguf_words.h"

namespace nereid::text {

namespace {

namespace proto = nereid::sentencepiece;

constexpr const char* kPrefix = "tokenizer.ggml.";
// Numbers of SentencePiece's proto.
constexpr int64_t kUnknownType = 2, kControlType = 3, kUserType = 4, kByteType = 6;

struct GgufVocab {
  const json::value& metadata;

  JsonNode field(std::string_view name) const {
    return JsonNode(metadata, "metadata")[fmt::format("{}{}", kPrefix, name)];
  }
  // The text of the token whose id is in a field; empty without one.
  StatusOr<std::string_view> token_of(std::string_view id_field) const {
    const JsonNode id = field(id_field);
    if (id.is_null()) return std::string_view();
    ASSIGN_OR_RETURN(const int32_t index, id.token_id());
    ASSIGN_OR_RETURN(const json::array* tokens, field("tokens").array());
    if (static_cast<size_t>(index) >= tokens->size()) return id.wrong("the id of a token");
    return field("tokens")[static_cast<size_t>(index)].string();
  }
  StatusOr<int64_t> type_of(size_t i) const {
    const JsonNode types = field("token_type");
    return types.is_null() ? StatusOr<int64_t>(1) : types[i].integer(1, 1, 6);
  }
};

json::value added_token(size_t id, std::string_view text, bool is_special) {
  return {{"id", static_cast<int64_t>(id)},
          {"content", json::string_view(text.data(), text.size())},
          {"special", is_special},
          {"normalized", false},
          {"single_word", false},
          {"lstrip", false},
          {"rstrip", false}};
}

// A user-defined token has spaces in place of space marks.
std::string with_marks(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ' ')
      out += kSpaceMark;
    else
      out += c;
  }
  return out;
}

StatusOr<std::string> read_charsmap(const JsonNode& field) {
  std::string bytes;
  if (field.is_null()) return bytes;
  ASSIGN_OR_RETURN(const json::array* numbers, field.array());
  for (const json::value& number : *numbers) {
    const int64_t* byte = number.if_int64();
    if (!byte || *byte < -128 || *byte > 255) return field.wrong("a list of bytes");
    bytes.push_back(static_cast<char>(*byte));
  }
  return bytes;
}

StatusOr<proto::Model> make_pieces(const GgufVocab& vocab) {
  proto::Model model;
  ASSIGN_OR_RETURN(const json::array* tokens, vocab.field("tokens").array());
  ASSIGN_OR_RETURN(const json::array* scores, vocab.field("scores").array());
  if (scores->size() != tokens->size())
    return vocab.field("scores").wrong("a list as long as the tokens");
  proto::Trainer& trainer = *model.mutable_trainer_spec();
  bool has_unknown = false;
  for (size_t i = 0; i < tokens->size(); ++i) {
    proto::Piece* piece = model.add_pieces();
    ASSIGN_OR_RETURN(const std::string_view text, vocab.field("tokens")[i].string());
    ASSIGN_OR_RETURN(const int64_t type, vocab.type_of(i));
    if (!(*scores)[i].is_number()) return vocab.field("scores")[i].wrong("a number");
    piece->set_piece(type == kUserType ? with_marks(text) : std::string(text));
    piece->set_score((*scores)[i].to_number<float>());
    piece->set_type(static_cast<proto::Piece::Kind>(type));
    if (type == kByteType) trainer.set_byte_fallback(true);
    has_unknown |= type == kUnknownType;
    if (type == kUnknownType) trainer.set_unk_id(static_cast<int32_t>(i));
  }
  if (const JsonNode id = vocab.field("unknown_token_id"); !has_unknown && !id.is_null()) {
    RETURN_IF_ERROR(vocab.token_of("unknown_token_id").status());
    ASSIGN_OR_RETURN(const int32_t unknown, id.token_id());
    model.mutable_pieces(unknown)->set_type(proto::Piece::UNKNOWN);
    trainer.set_unk_id(unknown);
  }
  return model;
}

// `is_unigram`: a T5 model, whose texts end with an end mark and begin with none.
StatusOr<TokenizerPartsPtr> read_pieces(const GgufVocab& vocab, json::object config,
                                        bool is_unigram) {
  ASSIGN_OR_RETURN(proto::Model model, make_pieces(vocab));
  proto::Trainer& trainer = *model.mutable_trainer_spec();
  trainer.set_model_type(is_unigram ? proto::Trainer::UNIGRAM : proto::Trainer::BPE);
  for (const auto& [name, set] : {std::pair("bos_token_id", &proto::Trainer::set_bos_id),
                                  std::pair("eos_token_id", &proto::Trainer::set_eos_id)}) {
    if (vocab.field(name).is_null()) continue;
    ASSIGN_OR_RETURN(const int32_t id, vocab.field(name).token_id());
    (trainer.*set)(id);
  }
  proto::NormalizerRules& rules = *model.mutable_normalizer_spec();
  ASSIGN_OR_RETURN(const bool prefix, vocab.field("add_space_prefix").boolean(true));
  ASSIGN_OR_RETURN(const bool trims, vocab.field("remove_extra_whitespaces").boolean(false));
  rules.set_add_dummy_prefix(prefix);
  rules.set_remove_extra_whitespaces(trims);
  if (is_unigram) {
    ASSIGN_OR_RETURN(*rules.mutable_precompiled_charsmap(),
                     read_charsmap(vocab.field("precompiled_charsmap")));
    for (const auto& [key, usual] :
         {std::pair("add_bos_token", false), std::pair("add_eos_token", true)})
      if (!config.contains(key)) config[key] = usual;
    if (vocab.field("eos_token_id").is_null()) trainer.set_eos_id(1);
  }
  return read_sentencepiece(model.SerializeAsString(), std::move(config), UnusedPieces::kFill);
}

// BERT's pieces: at the start of a word they have the space mark, inside a word no "##".
StatusOr<TokenizerPartsPtr> read_word_pieces(const GgufVocab& vocab, const json::value& config) {
  ASSIGN_OR_RETURN(const json::array* tokens, vocab.field("tokens").array());
  json::object ids;
  json::array added;
  for (size_t i = 0; i < tokens->size(); ++i) {
    ASSIGN_OR_RETURN(std::string_view text, vocab.field("tokens")[i].string());
    ASSIGN_OR_RETURN(const int64_t type, vocab.type_of(i));
    std::string piece(text);
    const bool is_special = type == kControlType || (text.starts_with('[') && text.ends_with(']'));
    if (text.starts_with(kSpaceMark))
      piece = text.substr(std::string_view(kSpaceMark).size());
    else if (!is_special)
      piece = fmt::format("##{}", text);
    ids[piece] = static_cast<int64_t>(i);
    if (type == kControlType) added.push_back(added_token(i, piece, true));
  }
  ASSIGN_OR_RETURN(const std::string_view unknown, vocab.token_of("unknown_token_id"));
  ASSIGN_OR_RETURN(const bool lower, vocab.field("normalizer.lowercase").boolean(true));
  const std::string unknown_text(unknown.empty() ? "[UNK]" : unknown);
  json::value document = {
      {"model", {{"type", "WordPiece"}, {"unk_token", unknown_text}, {"vocab", ids}}},
      {"added_tokens", std::move(added)},
      {"normalizer", {{"type", "BertNormalizer"}, {"lowercase", lower}}},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"decoder", {{"type", "WordPiece"}}}};
  ASSIGN_OR_RETURN(TokenizerPartsPtr parts, read_tokenizer_json(document, config));
  const auto mark = [&](const char* added_key, std::initializer_list<const char*> fields,
                        const char* text) -> StatusOr<std::optional<int32_t>> {
    ASSIGN_OR_RETURN(const bool is_added, vocab.field(added_key).boolean(true));
    if (!is_added) return std::optional<int32_t>();
    for (const char* field : fields) {
      if (vocab.field(field).is_null()) continue;
      RETURN_IF_ERROR(vocab.token_of(field).status());
      ASSIGN_OR_RETURN(const int32_t id, vocab.field(field).token_id());
      return std::optional(id);
    }
    return parts->token_id(text);
  };
  ASSIGN_OR_RETURN(const auto begin,
                   mark("add_bos_token", {"cls_token_id", "bos_token_id"}, "[CLS]"));
  ASSIGN_OR_RETURN(const auto end, mark("add_sep_token", {"seperator_token_id"}, "[SEP]"));
  if (begin) parts->post_processor.add_prefix(*begin);
  if (end) parts->post_processor.add_suffix(*end);
  return parts;
}

json::value pre_tokenizer(const GgufWords& words) {
  json::array steps;
  for (const std::string_view pattern : words.patterns)
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", json::string_view(pattern.data(), pattern.size())}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

StatusOr<TokenizerPartsPtr> read_byte_level(const GgufVocab& vocab, const json::value& config) {
  ASSIGN_OR_RETURN(const std::string_view pre, vocab.field("pre").string("gpt-2"));
  const GgufWords* words = find_gguf_words(pre);
  if (!words) return vocab.field("pre").wrong("one of " + gguf_words_names());
  ASSIGN_OR_RETURN(const json::array* tokens, vocab.field("tokens").array());
  ASSIGN_OR_RETURN(const json::array* merges, vocab.field("merges").array());
  json::object ids;
  json::array added;
  for (size_t i = 0; i < tokens->size(); ++i) {
    ASSIGN_OR_RETURN(const std::string_view text, vocab.field("tokens")[i].string());
    ASSIGN_OR_RETURN(const int64_t type, vocab.type_of(i));
    ids[json::string_view(text.data(), text.size())] = static_cast<int64_t>(i);
    if (type == kControlType || type == kUserType)
      added.push_back(added_token(i, text, type == kControlType));
  }
  json::value document = {{"model",
                           {{"type", "BPE"},
                            {"vocab", std::move(ids)},
                            {"merges", *merges},
                            {"ignore_merges", words->ignore_merges}}},
                          {"added_tokens", std::move(added)},
                          {"pre_tokenizer", pre_tokenizer(*words)},
                          {"decoder", {{"type", "ByteLevel"}}}};
  if (words->is_nfc) document.as_object()["normalizer"] = {{"type", "NFC"}};
  ASSIGN_OR_RETURN(TokenizerPartsPtr parts, read_tokenizer_json(document, config));
  ASSIGN_OR_RETURN(const bool bos, vocab.field("add_bos_token").boolean(words->adds_bos));
  if (bos) {
    ASSIGN_OR_RETURN(const int32_t id, vocab.field("bos_token_id").token_id());
    if (static_cast<size_t>(id) >= tokens->size())
      return vocab.field("bos_token_id").wrong("the id of a token");
    parts->post_processor.add_prefix(id);
  }
  return parts;
}

}  // namespace

StatusOr<json::object> gguf_tokenizer_config(const json::value& metadata) {
  const GgufVocab vocab{metadata};
  json::object config;
  const auto copy = [&](const JsonNode& from, const char* to) {
    if (!from.is_null()) config[to] = from.value();
  };
  copy(vocab.field("add_bos_token"), "add_bos_token");
  copy(vocab.field("add_eos_token"), "add_eos_token");
  copy(JsonNode(metadata, "metadata")["tokenizer.chat_template"], "chat_template");
  for (const char* name : {"bos", "eos"}) {
    ASSIGN_OR_RETURN(const std::string_view token,
                     vocab.token_of(fmt::format("{}_token_id", name)));
    if (!token.empty()) config[fmt::format("{}_token", name)] = json::string(token);
  }
  return config;
}

StatusOr<TokenizerPartsPtr> read_gguf_tokenizer(const json::value& metadata) {
  const GgufVocab vocab{metadata};
  ASSIGN_OR_RETURN(json::object config, gguf_tokenizer_config(metadata));
  ASSIGN_OR_RETURN(const std::string_view model, vocab.field("model").string());
  if (model == "llama" || model == "t5") return read_pieces(vocab, config, model == "t5");
  // The begin and end marks are added here, not by the rules of tokenizer_config.json.
  config.erase("add_bos_token"), config.erase("add_eos_token");
  if (model == "gpt2") return read_byte_level(vocab, config);
  if (model == "bert") return read_word_pieces(vocab, config);
  return vocab.field("model").wrong("one of llama, gpt2, t5, bert");
}

}  // namespace nereid::text
