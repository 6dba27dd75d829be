// Test only: the prefix cache reconstructed from events, and the expected result of a match.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "sched/block_pool.h"

namespace nereid::sched {

struct Mirror {
  struct Entry {
    std::optional<uint64_t> parent;
    std::vector<TokenId> tokens;
    int level = 0, priority = 0;
  };
  std::array<std::map<uint64_t, Entry>, kMaxGroups> groups;
  // Input keys of the blocks that have some; events do not contain them.
  std::map<uint64_t, std::vector<InputKey>> input_keys;

  // Number of leading tokens that an entry and `run` have in common.
  int64_t common(uint64_t hash, const Entry& entry, const TokenRun& run) const {
    const auto found = input_keys.find(hash);
    const TokenRun own{entry.tokens, found == input_keys.end() ? std::span<const InputKey>()
                                                               : std::span(found->second)};
    const auto key = [](const TokenRun& r, size_t i) {
      return i < r.keys.size() ? r.keys[i] : InputKey();
    };
    size_t n = 0;
    while (n < std::min(own.tokens.size(), run.tokens.size()) && own.tokens[n] == run.tokens[n] &&
           key(own, n) == key(run, n))
      ++n;
    return static_cast<int64_t>(n);
  }

  void apply(const std::vector<KvCacheEvent>& events, uint64_t& next_id) {
    for (const KvCacheEvent& e : events) {
      ASSERT_EQ(e.event_id, next_id++);
      std::map<uint64_t, Entry>& entries = groups.at(e.group);
      for (uint64_t hash : e.block_hashes) {
        if (e.kind == KvCacheEvent::Kind::kStored) {
          ASSERT_TRUE(!e.parent_hash || groups[0].contains(*e.parent_hash));
          ASSERT_TRUE(
              entries.try_emplace(hash, e.parent_hash, e.tokens, e.level, e.priority).second);
        } else if (e.kind == KvCacheEvent::Kind::kRemoved) {
          ASSERT_EQ(entries.erase(hash), 1u);
        } else {
          entries.at(hash).level = e.level;
          entries.at(hash).priority = e.priority;
        }
      }
    }
  }

  // Whether each windowed group has the blocks that the token behind the first `num_blocks` reads.
  bool serves(const Contents& c, int t, int num_blocks, const PoolConfig& config) const {
    for (size_t g = 1; g < config.groups.size(); ++g) {
      const BlockGroupConfig& group = config.groups[g];
      for (int p = 0; p < num_blocks * t; ++p) {
        const bool seen = group.window == 0 || p > num_blocks * t - group.window || p < group.sink;
        if (seen && !groups[g].contains(c.keys[p / t])) return false;
      }
    }
    return true;
  }

  // (matching tokens, matching whole blocks).
  std::pair<int, int> match(const Contents& c, int t, const PoolConfig& config) const {
    const std::map<uint64_t, Entry>& entries = groups[0];
    int blocks = 0;
    std::optional<uint64_t> at;
    while ((blocks + 1) * t <= static_cast<int>(c.tokens.size())) {
      const auto found = entries.find(c.keys[blocks]);
      if (found == entries.end() || found->second.parent != at ||
          common(found->first, found->second, c.run().subrun(blocks * t, t)) != t)
        break;
      at = found->first;
      ++blocks;
    }
    while (!serves(c, t, blocks, config)) --blocks;
    at = blocks > 0 ? std::optional(c.keys[blocks - 1]) : std::nullopt;
    const TokenRun rest = c.run().subrun(blocks * t);
    int64_t best = 0;
    for (const auto& [hash, entry] : entries) {
      const auto keys = input_keys.find(hash);
      TokenRun run{entry.tokens};
      if (keys != input_keys.end()) run.keys = keys->second;
      if (entry.parent != at || hash != block_key(at.value_or(root_key(c.root)), run)) continue;
      bool complete = true;
      for (size_t g = 1; g < config.groups.size(); ++g) complete &= groups[g].contains(hash);
      if (!complete) continue;
      best = std::max(best, common(hash, entry, rest));
    }
    return {blocks * t + (config.enable_partial_reuse ? static_cast<int>(best) : 0), blocks};
  }
};

}  // namespace nereid::sched
