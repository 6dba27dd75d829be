// Groups streamed tokens so that each group ends where a character ends: decoding group by group
// then gives the same text as decoding everything, with byte-level vocabularies.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "text/tokenizer.h"

namespace nereid::backend {

class WholeCharacters {
 public:
  // Without a tokenizer tokens pass through as they come.
  explicit WholeCharacters(std::shared_ptr<const text::Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}

  // The tokens that may leave now; what is held back is part of an unfinished character. `is_final`
  // releases all.
  std::vector<int32_t> push(const std::vector<int32_t>& tokens, bool is_final);

 private:
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<int32_t> held_;
  std::string tail_;  // bytes of held_, at most an unfinished character
};

// Bytes missing to complete the UTF-8 character at the end of `bytes`; 0 when it ends on a boundary
// or is not UTF-8.
size_t missing_bytes(std::string_view bytes);

}  // namespace nereid::backend
