// Byte-pair encoding of one word: merge the adjacent pair of lowest rank until none is left.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/json.h"
#include "base/status.h"

namespace nereid::text {

// Hashes any string type, so that lookups by view need no copy.
struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
};
template <class T>
using StringMap = absl::flat_hash_map<std::string, T, StringHash, std::equal_to<>>;

// The "model" of tokenizer.json with type BPE. Immutable.
class Bpe {
 public:
  // Memory that encode() reuses from word to word.
  struct Scratch;

  static StatusOr<Bpe> from_json(const json::value& model);

  // Appends the ids of `word` (valid UTF-8). O(n log n) in its length.
  void encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;

  const StringMap<int32_t>& vocab() const { return vocab_; }
  std::optional<int32_t> token_id(std::string_view token) const;

 private:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };

  static uint64_t pair_key(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  Status read_vocab(const json::object& model);
  Status read_merges(const json::array& merges);
  Status add_merge(std::string_view left, std::string_view right, size_t index);
  void start_symbols(std::string_view word, Scratch& scratch) const;
  bool start_bytes(std::string_view character, Scratch& scratch) const;
  void push_pair(Scratch& scratch, int32_t left) const;

  StringMap<int32_t> vocab_;
  absl::flat_hash_map<uint64_t, Merge> merges_;
  std::array<int32_t, 0x180> by_code_;  // ids of one-character tokens below U+0180, or -1
  std::array<int32_t, 256> byte_ids_;   // ids of "<0xHH>", or -1
  std::optional<int32_t> unknown_;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
};

struct Bpe::Scratch {
  struct Symbol {
    int32_t id;
    int32_t previous, next;  // -1 at the ends
  };
  std::vector<Symbol> symbols;
  // Candidate merges, lowest (rank, position of the left symbol) first; stale ones are skipped.
  std::vector<uint64_t> heap;
};

}  // namespace nereid::text
