// The tokenizer in a GGUF file's metadata. Source: gguf-py/gguf/constants.py and
// src/llama-vocab.cpp of ggml-org/llama.cpp.
#include "base/gguf.h"
#include "sentencepiece.pb.h"
#include "text/tokenizer_parts.h"

namespace nereid::text {

namespace {

namespace proto = nereid::sentencepiece;

constexpr const char* kPrefix = "tokenizer.ggml.";
// As in the proto, which has the same numbers.
constexpr int64_t kUnknownType = 2, kControlType = 3, kUserType = 4, kByteType = 6;

struct PatternRow {
  std::string_view name;  // tokenizer.ggml.pre
  const char* pattern;    // nullptr: GPT-2's
  bool ignore_merges;
};
constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr PatternRow kPatterns[] = {{"gpt-2", nullptr, false},
                                    {"llama-bpe", kLlama3Pattern, true},
                                    {"qwen2", kQwen2Pattern, false}};

struct GgufVocab {
  const json::value& metadata;

  JsonNode field(std::string_view name) const {
    return JsonNode(metadata, "metadata")[fmt::format("{}{}", kPrefix, name)];
  }
  // The text of the token with the id that a field gives; empty when there is none.
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

StatusOr<TokenizerPartsPtr> read_pieces(const GgufVocab& vocab, const json::value& config) {
  proto::Model model;
  ASSIGN_OR_RETURN(const json::array* tokens, vocab.field("tokens").array());
  ASSIGN_OR_RETURN(const json::array* scores, vocab.field("scores").array());
  if (scores->size() != tokens->size())
    return vocab.field("scores").wrong("a list as long as the tokens");
  bool has_bytes = false;
  for (size_t i = 0; i < tokens->size(); ++i) {
    proto::Piece* piece = model.add_pieces();
    ASSIGN_OR_RETURN(const std::string_view text, vocab.field("tokens")[i].string());
    ASSIGN_OR_RETURN(const int64_t type, vocab.type_of(i));
    if (!(*scores)[i].is_number()) return vocab.field("scores")[i].wrong("a number");
    piece->set_piece(std::string(text));
    piece->set_score((*scores)[i].to_number<float>());
    piece->set_type(static_cast<proto::Piece::Kind>(type));
    has_bytes |= type == kByteType;
    if (type == kUnknownType) model.mutable_trainer_spec()->set_unk_id(static_cast<int32_t>(i));
  }
  proto::Trainer& trainer = *model.mutable_trainer_spec();
  trainer.set_model_type(proto::Trainer::BPE);
  trainer.set_byte_fallback(has_bytes);
  for (const auto& [name, set] : {std::pair("bos_token_id", &proto::Trainer::set_bos_id),
                                  std::pair("eos_token_id", &proto::Trainer::set_eos_id)}) {
    if (vocab.field(name).is_null()) continue;
    ASSIGN_OR_RETURN(const int32_t id, vocab.field(name).token_id());
    (trainer.*set)(id);
  }
  proto::NormalizerRules& rules = *model.mutable_normalizer_spec();
  ASSIGN_OR_RETURN(const bool prefix, vocab.field("add_space_prefix").boolean(true));
  rules.set_add_dummy_prefix(prefix);
  rules.set_remove_extra_whitespaces(false);
  return read_sentencepiece(model.SerializeAsString(), config);
}

json::value pre_tokenizer(const PatternRow& row) {
  const json::value bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", row.pattern == nullptr}};
  if (!row.pattern) return bytes;
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"},
             {"pattern", {{"Regex", row.pattern}}},
             {"behavior", "Isolated"},
             {"invert", false}},
            bytes}}};
}

StatusOr<TokenizerPartsPtr> read_byte_level(const GgufVocab& vocab, const json::value& config) {
  ASSIGN_OR_RETURN(const std::string_view pre, vocab.field("pre").string("gpt-2"));
  const PatternRow* row = nullptr;
  for (const PatternRow& known : kPatterns)
    if (known.name == pre) row = &known;
  if (!row) return vocab.field("pre").wrong("one of gpt-2, llama-bpe, qwen2");
  ASSIGN_OR_RETURN(const json::array* tokens, vocab.field("tokens").array());
  ASSIGN_OR_RETURN(const json::array* merges, vocab.field("merges").array());
  json::object ids;
  json::array added;
  for (size_t i = 0; i < tokens->size(); ++i) {
    ASSIGN_OR_RETURN(const std::string_view text, vocab.field("tokens")[i].string());
    ASSIGN_OR_RETURN(const int64_t type, vocab.type_of(i));
    ids[json::string_view(text.data(), text.size())] = static_cast<int64_t>(i);
    if (type == kControlType || type == kUserType)
      added.push_back({{"id", static_cast<int64_t>(i)},
                       {"content", json::string_view(text.data(), text.size())},
                       {"special", type == kControlType},
                       {"normalized", false},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false}});
  }
  json::value document = {{"model",
                           {{"type", "BPE"},
                            {"vocab", std::move(ids)},
                            {"merges", *merges},
                            {"ignore_merges", row->ignore_merges}}},
                          {"added_tokens", std::move(added)},
                          {"pre_tokenizer", pre_tokenizer(*row)},
                          {"decoder", {{"type", "ByteLevel"}}}};
  if (pre == "qwen2") document.as_object()["normalizer"] = {{"type", "NFC"}};
  ASSIGN_OR_RETURN(TokenizerPartsPtr parts, read_tokenizer_json(document, config));
  ASSIGN_OR_RETURN(const bool bos, vocab.field("add_bos_token").boolean(pre == "llama-bpe"));
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
  if (model == "llama") return read_pieces(vocab, config);
  // Its marks are put on here, not by the rules of tokenizer_config.json.
  config.erase("add_bos_token"), config.erase("add_eos_token");
  if (model == "gpt2") return read_byte_level(vocab, config);
  return vocab.field("model").wrong("one of llama, gpt2");
}

}  // namespace nereid::text
