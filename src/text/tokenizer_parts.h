// What a tokenizer is made of, while it is read from one of the file formats.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/model.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"

namespace nereid::text {

// Strings one behind the other.
struct StringList {
  std::string all;
  std::vector<uint32_t> begins = {0};

  Status add(std::string_view text);
  std::string_view operator[](int32_t i) const {
    return std::string_view(all).substr(begins[i], begins[i + 1] - begins[i]);
  }
};

// Filled once, then constant, but for the pool of scratch memory.
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
  // tokenizer_config.json: added tokens, names of special tokens, add_bos_token and its like,
  // clean_up_tokenization_spaces.
  Status read_config(const JsonNode& config);
  // "bos_token" and its like, also of special_tokens_map.json.
  Status read_special_names(const JsonNode& config);
  // To be called once everything is in.
  Status finish();

  int32_t size() const { return static_cast<int32_t>(known.size()); }

  std::deque<AddedToken> added;  // stable addresses: the finders point into it
  absl::flat_hash_map<int32_t, AddedToken*> added_by_id;
  StringMap<AddedToken*> added_by_content;

  // What tokens of the vocabulary are written as, where it is not their own text.
  absl::flat_hash_map<int32_t, std::string> shown_as;

  // Made by finish().
  AddedTokenFinder raw_finder;         // normalized = false: searched first
  AddedTokenFinder normalized_finder;  // then the others
  StringList bytes;                    // that a token adds to a text, by id
  StringList texts;                    // what the decoder gets, by id; empty for ByteLevel alone
  std::vector<bool> known;             // ids with a token
  std::vector<bool> special;
  bool raw_bytes = false;  // the model takes raw bytes

  // Scratch memory that no encode() uses right now.
  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<EncodeScratch>> idle;

 private:
  Status make_finders();
  Status make_texts(int32_t max_id);
};

using TokenizerPartsPtr = std::unique_ptr<TokenizerParts>;

// The formats. `config` is tokenizer_config.json or null; finish() is left to the caller.
StatusOr<TokenizerPartsPtr> read_tokenizer_json(const json::value& document,
                                                const json::value& config);
// What pieces of type UNUSED are in a model that merges: refused, or places that no text takes.
enum class UnusedPieces : uint8_t { kRefused, kFill };
StatusOr<TokenizerPartsPtr> read_sentencepiece(std::string_view bytes, const json::value& config,
                                               UnusedPieces unused = UnusedPieces::kRefused);
StatusOr<TokenizerPartsPtr> read_tekken(const json::value& document);
// A GGUF file's metadata, and what tokenizer_config.json would say of it.
StatusOr<TokenizerPartsPtr> read_gguf_tokenizer(const json::value& metadata);
StatusOr<json::object> gguf_tokenizer_config(const json::value& metadata);
// `name` is the file's; it tells whose word pattern and special tokens go with the ranks.
StatusOr<TokenizerPartsPtr> read_tiktoken(std::string_view bytes, std::string_view name,
                                          const json::value& config);
// True when `bytes` begin like a rank file: base64, a space, a number.
bool looks_like_tiktoken(std::string_view bytes);

}  // namespace nereid::text
