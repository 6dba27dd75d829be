// n-gram pool: the token behind each run of tokens, over the texts of all sequences.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "nereid/request.h"

namespace nereid::runtime {

// A bounded map: run of kRun tokens -> the token that last followed it. Texts with different roots
// (sched::Contents::root) are separate. Set-associative with kPlaces entries per set; the least
// recently used is replaced. Runs are compared by a 64-bit hash; a collision costs a draft.
class NgramPool {
 public:
  static constexpr size_t kRun = 4;

  // At least num_runs entries of 16 bytes, allocated at once.
  explicit NgramPool(size_t num_runs);

  static uint64_t root_hash(std::string_view root);

  // `run`: kRun tokens.
  void learn(uint64_t root, std::span<const TokenId> run, TokenId next);
  std::optional<TokenId> find(uint64_t root, std::span<const TokenId> run);

 private:
  static constexpr size_t kPlaces = 8;  // entries per set

  struct Entry {
    uint64_t hash = 0;  // 0: empty
    uint32_t used_at = 0;
    TokenId next = 0;
  };

  std::span<Entry> places_of(uint64_t hash);

  std::vector<Entry> entries_;  // sets of kPlaces, a power of two of sets
  uint32_t clock_ = 0;          // uses so far; may wrap around
};

}  // namespace nereid::runtime
