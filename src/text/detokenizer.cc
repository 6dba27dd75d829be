#include "text/detokenizer.h"

namespace nereid::text {

std::string Detokenizer::push(int32_t id) {
  std::string out;
  if (skip_special_tokens_ && tokenizer_->is_special(id)) return out;
  stream_.push(tokenizer_->token_bytes(id), out);
  return out;
}

std::string Detokenizer::finish() {
  std::string out;
  stream_.finish(out);
  return out;
}

}  // namespace nereid::text
