// Incremental detokeniser: ids one at a time to text that never ends inside a UTF-8 character.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "text/tokenizer.h"
#include "text/unicode/utf8.h"

namespace nereid::text {

// The pieces of one sequence, joined, equal Tokenizer::decode of all its ids byte for byte. One
// object per output sequence; not thread-safe.
class Detokenizer {
 public:
  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens)
      : tokenizer_(std::move(tokenizer)), skip_special_tokens_(skip_special_tokens) {}

  // The text that `id` completes; empty while a character is still missing bytes.
  std::string push(int32_t id);
  // Ends the sequence: an unfinished character becomes U+FFFD. The object can then start over.
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_tokens_;
  Utf8Stream stream_;
};

}  // namespace nereid::text
