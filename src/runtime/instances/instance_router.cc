#include "runtime/instances/instance_router.h"

#include <algorithm>
#include <tuple>

#include "absl/hash/hash.h"
#include "absl/types/span.h"

namespace nereid::runtime {
namespace {

constexpr int64_t kMaxHashedTokens = 32768;  // bounds the time: some 10 us
constexpr int32_t kPrefixSteps = 16;         // see RouteKeys::prefixes

uint64_t bit(size_t instance) { return uint64_t{1} << instance; }

}  // namespace

RouteKeys route_keys(const Request& request, int64_t tokens_per_block) {
  RouteKeys keys;
  if (request.lora) {
    keys.adapter = absl::HashOf("adapter", request.lora->task_id);
    keys.brings_weights = !request.lora->weights.empty() || !request.lora->config.empty();
  }
  if (tokens_per_block < 1) return keys;
  const auto num_tokens = static_cast<int64_t>(request.input_token_ids.size());
  keys.num_blocks = (num_tokens + tokens_per_block - 1) / tokens_per_block;
  uint64_t hash = absl::HashOf(request.lora ? request.lora->task_id : 0, request.cache_salt);
  if (request.prompt_table) hash = absl::HashOf(hash, request.prompt_table->extra_ids);
  const absl::Span<const TokenId> tokens(request.input_token_ids);
  const int64_t end = std::min(num_tokens, kMaxHashedTokens) / tokens_per_block;
  int64_t done = 0;
  for (int64_t n = 1; n <= end; n += std::max<int64_t>(n / kPrefixSteps, 1)) {
    const auto part = tokens.subspan(static_cast<size_t>(done * tokens_per_block),
                                     static_cast<size_t>((n - done) * tokens_per_block));
    hash = absl::HashOf(hash, part);
    keys.prefixes.push_back({hash, static_cast<int32_t>(n)});
    done = n;
  }
  return keys;
}

const InstanceRouter::Entry* InstanceRouter::find(uint64_t hash) const {
  const auto found = index_.find(hash);
  return found == index_.end() ? nullptr : &*found->second;
}

// Blocks of the longest prefix that went to each instance.
std::vector<int64_t> InstanceRouter::cached_blocks(const RouteKeys& keys,
                                                   size_t num_instances) const {
  std::vector<int64_t> cached(num_instances, 0);
  size_t num_found = 0;
  for (auto prefix = keys.prefixes.rbegin(); prefix != keys.prefixes.rend(); ++prefix) {
    const Entry* const entry = find(prefix->hash);
    if (!entry) continue;
    for (size_t i = 0; i < num_instances; ++i) {
      if (cached[i] > 0 || (entry->instances & bit(i)) == 0) continue;
      cached[i] = prefix->num_blocks;
      ++num_found;
    }
    if (num_found == num_instances) break;
  }
  return cached;
}

std::optional<size_t> InstanceRouter::choose(const RouteKeys& keys,
                                             std::span<const InstanceLoad> instances,
                                             uint64_t excluded) {
  uint64_t holders = 0;
  if (keys.adapter)
    if (const Entry* const entry = find(*keys.adapter)) holders = entry->instances;
  const std::vector<int64_t> cached = cached_blocks(keys, instances.size());
  // Smaller is better.
  using Rank = std::tuple<bool, bool, bool, int64_t, int64_t>;
  std::optional<size_t> best;
  Rank least;
  for (size_t turn = 0; turn < instances.size(); ++turn) {
    const size_t i = (next_ + turn) % instances.size();
    const InstanceLoad& load = instances[i];
    if (!load.is_healthy || (excluded & bit(i)) != 0) continue;
    const int64_t missing = std::max<int64_t>(keys.num_blocks - cached[i], 0);
    const bool has_room = load.num_open < load.max_batch_size && load.num_free_blocks >= missing;
    const Rank rank = {holders != 0 && (holders & bit(i)) == 0, !load.has_queue_place, !has_room,
                       missing + load.num_open * kBlocksPerSequence, -load.num_free_blocks};
    if (best && rank >= least) continue;
    best = i;
    least = rank;
  }
  if (best) next_ = (*best + 1) % instances.size();
  return best;
}

void InstanceRouter::add(uint64_t hash, size_t instance) {
  const auto [found, is_new] = index_.try_emplace(hash);
  if (is_new) {
    entries_.push_front({hash, 0});
    found->second = entries_.begin();
  } else {
    entries_.splice(entries_.begin(), entries_, found->second);
  }
  entries_.front().instances |= bit(instance);
  if (entries_.size() <= max_entries_) return;
  index_.erase(entries_.back().hash);
  entries_.pop_back();
}

void InstanceRouter::sent(const RouteKeys& keys, size_t instance) {
  // Short prefixes are more recently used than the long ones that need them.
  for (auto prefix = keys.prefixes.rbegin(); prefix != keys.prefixes.rend(); ++prefix)
    add(prefix->hash, instance);
  if (keys.adapter && keys.brings_weights) add(*keys.adapter, instance);
}

void InstanceRouter::has_adapter(const RouteKeys& keys, size_t instance) {
  if (keys.adapter) add(*keys.adapter, instance);
}

void InstanceRouter::lacks_adapter(const RouteKeys& keys, size_t instance) {
  if (!keys.adapter) return;
  if (const auto found = index_.find(*keys.adapter); found != index_.end())
    found->second->instances &= ~bit(instance);
}

void InstanceRouter::forget(size_t instance) {
  for (Entry& entry : entries_) entry.instances &= ~bit(instance);
}

}  // namespace nereid::runtime
