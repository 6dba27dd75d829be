// NgramPool: a set-associative hash table of runs.
#include "runtime/speculation/ngram_pool.h"

#include <algorithm>
#include <bit>

#include "absl/hash/hash.h"

namespace nereid::runtime {
namespace {

uint64_t hash_of(uint64_t root, std::span<const TokenId> run) {
  uint64_t h = root;
  for (const TokenId token : run) {
    h = (h ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
    h ^= h >> 32;
  }
  return h == 0 ? 1 : h;
}

}  // namespace

NgramPool::NgramPool(size_t num_runs) : entries_(std::bit_ceil(std::max(num_runs, kPlaces))) {}

uint64_t NgramPool::root_hash(std::string_view root) { return absl::HashOf(root); }

std::span<NgramPool::Entry> NgramPool::places_of(uint64_t hash) {
  const size_t first = hash % entries_.size() / kPlaces * kPlaces;
  return std::span(entries_).subspan(first, kPlaces);
}

void NgramPool::learn(uint64_t root, std::span<const TokenId> run, TokenId next) {
  const uint64_t hash = hash_of(root, run);
  const auto places = places_of(hash);
  auto place = std::ranges::find(places, hash, &Entry::hash);
  const auto age = [this](const Entry& entry) { return clock_ - entry.used_at; };
  if (place == places.end()) place = std::ranges::find(places, 0u, &Entry::hash);
  if (place == places.end()) place = std::ranges::max_element(places, {}, age);
  *place = {.hash = hash, .used_at = ++clock_, .next = next};
}

std::optional<TokenId> NgramPool::find(uint64_t root, std::span<const TokenId> run) {
  const uint64_t hash = hash_of(root, run);
  const auto places = places_of(hash);
  const auto place = std::ranges::find(places, hash, &Entry::hash);
  if (place == places.end()) return std::nullopt;
  place->used_at = ++clock_;
  return place->next;
}

}  // namespace nereid::runtime
