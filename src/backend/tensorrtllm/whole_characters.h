// Groups streamed tokens so that each group ends at a character boundary: with byte-level
// vocabularies decoding group by group then gives the text of decoding all at once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace nereid::backend {

class WholeCharacters {
 public:
  // Without a tokenizer tokens pass through unchanged.
  explicit WholeCharacters(std::shared_ptr<const text::Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}

  // The tokens that may be sent now; the rest is part of an unfinished character.
  // `is_final` releases all.
  std::vector<int32_t> push(const std::vector<int32_t>& tokens, bool is_final);

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<int32_t> held_;
  std::string tail_;  // bytes of held_, at most an unfinished character
};

// Bytes missing from the UTF-8 character at the end of `bytes`; 0 at a character boundary or
// for invalid UTF-8.
size_t missing_bytes(std::string_view bytes);

}  // namespace nereid::backend
