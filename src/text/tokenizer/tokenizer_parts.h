// The parts of a tokenizer, filled by the readers of file formats.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/pre_tokenizer.h"

namespace nereid::text {

// Concatenated strings.
struct StringList {
  std::string all;
  std::vector<uint32_t> begins = {0};

  Status add(std::string_view text);
  std::string_view operator[](int32_t i) const {
    return std::string_view(all).substr(begins[i], begins[i + 1] - begins[i]);
  }
};

// Filled once, then constant, except for the pool of scratch memory.
struct TokenizerParts {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<Model> model;
  PostProcessor post_processor;
  Decoder decoder;

  // An entry for a known content replaces its flags; the id must stay the same.
  Status add(AddedToken token);
  // Makes `text` a special token when the vocabulary has it and it is none yet.
  Status add_special(std::string_view text);
  std::optional<int32_t> token_id(std::string_view token) const;
  // tokenizer_config.json: added tokens, names of special tokens, add_bos_token and
  // the like, clean_up_tokenization_spaces.
  Status read_config(const JsonNode& config);
  // "bos_token" and the like, also of special_tokens_map.json.
  Status read_special_names(const JsonNode& config);
  // To be called when all parts are set.
  Status finish();

  int32_t size() const { return static_cast<int32_t>(known.size()); }

  std::deque<AddedToken> added;  // a deque: the finders point to its elements
  absl::flat_hash_map<int32_t, AddedToken*> added_by_id;
  StringMap<AddedToken*> added_by_content;

  // Spelling of vocabulary tokens where it is not their own text.
  absl::flat_hash_map<int32_t, std::string> shown_as;

  // Made by finish().
  AddedTokenFinder raw_finder;         // normalized = false: searched first
  AddedTokenFinder normalized_finder;  // normalized = true: searched second
  StringList bytes;                    // bytes that a token adds to a text, by id
  StringList texts;                    // decoder input by id; empty for ByteLevel alone
  std::vector<bool> known;             // ids with a token
  std::vector<bool> special;
  bool raw_bytes = false;  // the model takes raw bytes

  // Scratch memory not in use by an encode().
  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<EncodeScratch>> idle;

 private:
  Status make_finders();
  Status make_texts(int32_t max_id);
};

using TokenizerPartsPtr = std::unique_ptr<TokenizerParts>;

// Readers of the formats. `config` is tokenizer_config.json or null; the caller calls finish().
StatusOr<TokenizerPartsPtr> read_tokenizer_json(const json::value& document,
                                                const json::value& config);
// Pieces of type UNUSED in a BPE model: refused, or ids that no text gets.
enum class UnusedPieces : uint8_t { kRefused, kFill };
StatusOr<TokenizerPartsPtr> read_sentencepiece(std::string_view bytes, const json::value& config,
                                               UnusedPieces unused = UnusedPieces::kRefused);
StatusOr<TokenizerPartsPtr> read_tekken(const json::value& document);
// Reads a GGUF file's metadata, with the settings that tokenizer_config.json has elsewhere.
StatusOr<TokenizerPartsPtr> read_gguf_tokenizer(const json::value& metadata);
StatusOr<json::object> gguf_tokenizer_config(const json::value& metadata);
// `name` is the file's name, which selects the word pattern and the special tokens.
StatusOr<TokenizerPartsPtr> read_tiktoken(std::string_view bytes, std::string_view name,
                                          const json::value& config);
// True when `bytes` begin like a rank file: base64, a space, a number.
bool looks_like_tiktoken(std::string_view bytes);

}  // namespace nereid::text
