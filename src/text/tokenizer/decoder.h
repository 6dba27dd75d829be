// Decoders of tokenizer.json: tokens to text, one token at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_files/json_node.h"
#include "text/unicode/utf8.h"

namespace nereid::text {

class DecoderStage;

// State of a stage between tokens.
struct DecoderStageState {
  std::string held;        // text or bytes that may still change
  std::string last;        // the previous token
  uint64_t tokens = 0;     // number of finished tokens
  uint64_t stripped = 0;   // characters dropped from the current token
  bool text_seen = false;  // text of the current token was written
  Utf8Stream utf8;
};

// Immutable.
class Decoder {
 public:
  // The decoder applied to a stream of tokens: the pieces joined are its result for all tokens at
  // once. Copyable; the decoder must outlive it.
  class Stream {
   public:
    // `continues`: the tokens follow others, so the first one keeps its leading space.
    Stream(const Decoder& decoder, bool continues);

    // Appends the text that later tokens can no longer change.
    void push(std::string_view token, std::string& out);
    // Appends the rest and returns to the initial state.
    void finish(std::string& out);

   private:
    friend class DecoderSink;
    const Decoder* decoder_;
    bool continues_;
    std::vector<DecoderStageState> states_;
  };

  Decoder() = default;
  // Null joins tokens with spaces. Errors name path, value and what is allowed.
  static StatusOr<Decoder> from_json(const JsonNode& spec);

  // Adds a last stage that removes blanks as "clean_up_tokenization_spaces" does.
  void add_clean_up();

  // True when the decoder is ByteLevel alone.
  bool is_byte_level() const { return byte_level_; }

  // The bytes that `token` adds to a text in which it is not the first token.
  std::string continuation_bytes(std::string_view token) const;

 private:
  friend class Stream;
  friend class DecoderSink;
  Status append(const JsonNode& spec, int depth);

  std::vector<std::shared_ptr<const DecoderStage>> stages_;
  bool byte_level_ = false, byte_fallback_ = false;
  bool joined_ = false;  // the stages so far join all tokens to one
  size_t growth_ = 1;    // product of the stages' growth()
};

}  // namespace nereid::text
