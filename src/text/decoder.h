// Decoders of tokenizer.json: tokens back to text, one token at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_node.h"
#include "text/unicode/utf8.h"

namespace nereid::text {

class DecoderStage;

// What a stage keeps between tokens.
struct DecoderStageState {
  std::string held;        // text or bytes that may still change
  std::string last;        // the token before
  uint64_t tokens = 0;     // tokens that ended
  uint64_t stripped = 0;   // characters dropped from the current token
  bool text_seen = false;  // the current token has text that is out
  Utf8Stream utf8;
};

// Immutable.
class Decoder {
 public:
  // The pieces of text of one sequence of tokens, joined, are what the decoder makes of all of
  // them. Copyable; keep the decoder.
  class Stream {
   public:
    // `continues`: the tokens follow others, so that the first one keeps its leading space.
    Stream(const Decoder& decoder, bool continues);

    // Appends the text that is settled with `token`.
    void push(std::string_view token, std::string& out);
    // Appends the rest and starts over, as at construction.
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

  // Removes the blanks that "clean_up_tokenization_spaces" speaks of, behind the other stages.
  void add_clean_up();

  // True when the decoder is ByteLevel alone.
  bool is_byte_level() const { return byte_level_; }
  bool has_byte_fallback() const { return byte_fallback_; }

  // The bytes that `token` adds to a text in which it is not the first token.
  std::string continuation_bytes(std::string_view token) const;

 private:
  friend class Stream;
  friend class DecoderSink;
  Status append(const JsonNode& spec, int depth);

  std::vector<std::shared_ptr<const DecoderStage>> stages_;
  bool byte_level_ = false, byte_fallback_ = false;
  bool joined_ = false;  // the stages so far make one token of all
  size_t growth_ = 1;    // bytes that they can make of one
};

}  // namespace nereid::text
