// Incremental detokeniser: one id at a time to text that never ends inside a UTF-8 character.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "text/tokenizer/decoder.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/utf8.h"

namespace nereid::text {

// Pieces of text, joined, equal Tokenizer::decode of all ids byte for byte. Text is held back only
// while a following token could change it. One object per output sequence; not thread safe.
class Detokenizer {
 public:
  // `continues`: the ids continue a text, so a leading space stays that decode() would drop.
  // `tokenizer` may be null if push() is never called.
  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens,
              bool continues = false);

  // The text completed by `id`; empty while bytes of a character are missing.
  std::string push(int32_t id);
  // Ends the sequence: an unfinished character becomes U+FFFD. The object is then in
  // its initial state.
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_tokens_;
  Utf8Stream bytes_;                       // for decoders that are ByteLevel alone
  std::optional<Decoder::Stream> stream_;  // for all others
};

}  // namespace nereid::text
