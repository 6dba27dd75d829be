// Incremental detokeniser: ids one at a time to text that never ends inside a UTF-8 character.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "text/decoder.h"
#include "text/tokenizer.h"
#include "text/unicode/utf8.h"

namespace nereid::text {

// The pieces of one sequence, joined, equal Tokenizer::decode of all its ids byte for byte. Text is
// held back only while a following token could still change it. One object per output sequence; not
// thread-safe.
class Detokenizer {
 public:
  // `continues`: the ids continue a text, so a leading space stays that decode() would drop.
  // `tokenizer` may be null when push() is never called.
  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens,
              bool continues = false);

  // The text that `id` completes; empty while a character is still missing bytes.
  std::string push(int32_t id);
  // Ends the sequence: an unfinished character becomes U+FFFD. The object can then start over.
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_tokens_;
  Utf8Stream bytes_;                       // for decoders that are ByteLevel alone
  std::optional<Decoder::Stream> stream_;  // for the others
};

}  // namespace nereid::text
