#include "text/tokenizer/vocab.h"

namespace nereid::text {

StatusOr<Vocab> Vocab::from_json(const JsonNode& spec) {
  ASSIGN_OR_RETURN(const json::object* entries, spec.object());
  Vocab vocab;
  vocab.reserve(entries->size());
  for (const auto& entry : *entries) {
    const int64_t* id = entry.value().if_int64();
    const std::string_view token(entry.key().data(), entry.key().size());
    if (id == nullptr || *id < 0 || *id > kMaxTokenId) return spec[token].token_id().status();
    RETURN_IF_ERROR(vocab.add(token, static_cast<int32_t>(*id)));
  }
  return vocab;
}

Status Vocab::add(std::string_view text, int32_t id) {
  if (id < 0 || id > kMaxTokenId) {
    return invalid_argument("token '{}' has id {}: must be in [0, {}]", text.substr(0, 64), id,
                            kMaxTokenId);
  }
  if (text.size() > kMaxTokenBytes) {
    return invalid_argument("token {} has {} bytes: at most {} are allowed", id, text.size(),
                            kMaxTokenBytes);
  }
  ids_.insert_or_assign(std::string(text), id);
  max_id_ = std::max(max_id_, id);
  return ok();
}

int32_t Vocab::byte_token(uint8_t byte) const {
  return id(fmt::format("<0x{:02X}>", byte)).value_or(-1);
}

std::optional<uint8_t> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int byte = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    byte = byte * 16 + digit;
  }
  return static_cast<uint8_t>(byte);
}

}  // namespace nereid::text
