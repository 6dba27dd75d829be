// Tokens by text and by id.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "text/tokenizer_files/json_node.h"

namespace nereid::text {

// SentencePiece's space mark, U+2581.
inline constexpr char kSpaceMark[] = "\xE2\x96\x81";

// Hashes any string type, so that lookups by view need no copy.
struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
};
template <class T>
using StringMap = absl::flat_hash_map<std::string, T, StringHash, std::equal_to<>>;

class Vocab {
 public:
  static constexpr size_t kMaxTokenBytes = size_t{1} << 16;

  // {"TOKEN": ID, ...}.
  static StatusOr<Vocab> from_json(const JsonNode& spec);

  // The last of equal texts counts. InvalidArgument for an id out of range or a text too long.
  Status add(std::string_view text, int32_t id);
  // Reserves room for `count` tokens.
  void reserve(size_t count) { ids_.reserve(count); }

  std::optional<int32_t> id(std::string_view text) const {
    const auto found = ids_.find(text);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
  }
  size_t size() const { return ids_.size(); }
  const StringMap<int32_t>& ids() const { return ids_; }
  int32_t max_id() const { return max_id_; }  // -1 when empty

  // Id of the token "<0xHH>", or -1.
  int32_t byte_token(uint8_t byte) const;

 private:
  StringMap<int32_t> ids_;
  int32_t max_id_ = -1;
};

// The byte HH of a token "<0xHH>"; nullopt for others.
std::optional<uint8_t> byte_of_token(std::string_view token);

}  // namespace nereid::text
