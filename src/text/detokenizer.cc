#include "text/detokenizer.h"

#include "text/tokenizer/tokenizer_parts.h"

namespace nereid::text {

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens,
                         bool continues)
    : tokenizer_(std::move(tokenizer)), skip_special_tokens_(skip_special_tokens) {
  if (tokenizer_ == nullptr) return;
  const Decoder& decoder = tokenizer_->parts_->decoder;
  if (!decoder.is_byte_level()) stream_.emplace(decoder, continues);
}

std::string Detokenizer::push(int32_t id) {
  std::string out;
  if (stream_) {
    const auto text = tokenizer_->token_text(id, skip_special_tokens_);
    if (text) stream_->push(*text, out);
  } else if (!skip_special_tokens_ || !tokenizer_->is_special(id)) {
    bytes_.push(tokenizer_->token_bytes(id), out);
  }
  return out;
}

std::string Detokenizer::finish() {
  std::string out;
  if (stream_) {
    stream_->finish(out);
  } else {
    bytes_.finish(out);
  }
  return out;
}

}  // namespace nereid::text
