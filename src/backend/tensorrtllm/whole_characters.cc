// Tokens inside a character are held back.
#include "backend/tensorrtllm/whole_characters.h"

#include <algorithm>
#include <utility>

namespace nereid::backend {
namespace {

constexpr size_t kMaxHeld = 16;  // tokens; an unfinished character has at most three bytes

}  // namespace

size_t missing_bytes(std::string_view bytes) {
  for (size_t back = 1; back <= std::min<size_t>(3, bytes.size()); ++back) {
    const auto byte = static_cast<unsigned char>(bytes[bytes.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;  // continuation: the lead byte is further left
    const size_t length = byte >= 0xF0 && byte < 0xF5 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC2 ? 2 : 1;
    return byte < 0xF5 && length > back ? length - back : 0;
  }
  return 0;
}

std::vector<int32_t> WholeCharacters::push(const std::vector<int32_t>& tokens, bool is_final) {
  if (tokenizer_ == nullptr) return tokens;
  size_t boundary = 0;  // tokens at the front of held_ that end at a character boundary
  for (const int32_t id : tokens) {
    held_.push_back(id);
    tail_ += tokenizer_->token_bytes(id);
    if (missing_bytes(tail_) == 0 || held_.size() - boundary >= kMaxHeld) {
      boundary = held_.size();
      tail_.clear();
    }
  }
  if (is_final) boundary = held_.size();
  std::vector<int32_t> out(held_.begin(), held_.begin() + static_cast<ptrdiff_t>(boundary));
  held_.erase(held_.begin(), held_.begin() + static_cast<ptrdiff_t>(boundary));
  return out;
}

}  // namespace nereid::backend
