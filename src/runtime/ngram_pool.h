// What came behind runs of tokens, in the texts of all sequences.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "nereid/request.h"

namespace nereid::runtime {

// A bounded map from runs of kRun tokens to the token that came behind them last. Texts with
// different roots (see sched::Contents::root) know nothing of each other. A run has a few places
// that it may be at; of these the one that was used longest ago is given up for it. A run is told
// by 64 bits of a hash: one in 2^64 gets another one's token, which is a guess like others.
class NgramPool {
 public:
  static constexpr size_t kRun = 4;

  // At least so many runs; 16 bytes each, all of them now.
  explicit NgramPool(size_t num_runs);

  static uint64_t root_hash(std::string_view root);

  // `run`: kRun tokens.
  void learn(uint64_t root, std::span<const TokenId> run, TokenId next);
  std::optional<TokenId> find(uint64_t root, std::span<const TokenId> run);

 private:
  static constexpr size_t kPlaces = 8;  // of a run

  struct Entry {
    uint64_t hash = 0;  // 0: there is none
    uint32_t used_at = 0;
    TokenId next = 0;
  };

  std::span<Entry> places_of(uint64_t hash);

  std::vector<Entry> entries_;  // kPlaces each, a power of two of them
  uint32_t clock_ = 0;          // uses so far; it may wrap around
};

}  // namespace nereid::runtime
