// Test only: the scheduler fuzz test's requests, random limits, texts and search parameters.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "sched/fake_model.h"

namespace nereid::sched {

struct Client {
  SequenceSpec spec;
  std::vector<TokenId> text;
  SequenceUpdate last;
  bool ended_by_us = false;  // cancel or stop was sent
  bool poisoned = false;     // one of its rows was aborted
  uint64_t place = 0;
  int num_pooled = 0;     // positions of a mean that have completed
  int num_overtaken = 0;  // plans in a row that served only others, some of them behind it

  bool before(const Client& other) const {
    if (spec.priority != other.spec.priority) return spec.priority > other.spec.priority;
    return place < other.place;
  }
};

struct TrafficTotals {
  int64_t requests = 0, preemptions = 0, reused = 0, cancelled = 0, failed = 0, steps = 0;
  int64_t refused = 0, timed_out = 0, beams = 0, followers = 0, copies = 0, offloaded = 0;
  int64_t onboarded = 0, windowed = 0, mixed = 0, drafted = 0, held = 0, pooled = 0;
  int64_t arrivals = 0, lost = 0, beside = 0, ended_on_their_way = 0, trees = 0;
  int64_t limited = 0;    // plans with prefill under a limit, beside decodes
  int64_t in_stages = 0;  // plans of models in stages while steps are in flight
  int most_overtaken = 0;
};

// Host-pool copies from their plan until onboarded().
struct LateCopies {
  std::vector<PlanCopy> copies;
  int64_t after = 0;   // number of steps that must land before, the last one with copies included
  bool early = false;  // true: run as soon as allowed; false: at onboarded()
  bool ok = true, made = false;
};

class RandomRequests {
 protected:
  explicit RandomRequests(uint64_t seed) : rng_(seed), limits_(random_limits()) {}

  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng_); }

  std::vector<TokenId> random_tokens(int n) {
    std::vector<TokenId> tokens(n);
    for (TokenId& t : tokens) t = pick(0, kVocab - 1);
    return tokens;
  }

  // Pools from one sequence's minimum to ample.
  Limits random_limits() {
    Limits l{.max_batch_size = pick(1, 8),
             .max_num_tokens = pick(0, 1) ? pick(1, 8) : pick(4, 64),
             .max_queue_size = pick(2, 20),
             .max_sequence_length = pick(24, 72),
             .max_beam_width = pick(1, 4),
             .tokens_per_block = 1 << pick(0, 3),
             .enable_reuse = pick(0, 4) != 0,
             .enable_partial_reuse = pick(0, 1) == 0,
             .renews_last_cached = pick(0, 3) == 0};
    l.groups.resize(pick(0, 1) ? 1 : pick(2, 3));
    int window = pick(0, 4) ? 0 : pick(2, 24);
    for (BlockGroupConfig& group : l.groups) {
      random_group(l, window, group);
      if (pick(0, 4)) window = pick(2, window > 0 ? window : 24);
    }
    if (pick(0, 2) == 0) l.num_stages = pick(2, 4);
    if (pick(0, 1)) l.max_logits = pick(1, 24);
    if (pick(0, 1)) l.max_scored_tokens = pick(1, 12);
    l.max_adapters = pick(0, 1) ? 0 : pick(1, 4);
    l.max_adapter_pages = pick(3, 8);
    l.offload_min_priority = pick(0, 1) ? 0 : 30;
    l.policy.capacity_policy = static_cast<CapacityPolicy>(std::max(0, pick(-1, 2)));
    l.policy.chunking_policy = static_cast<ChunkingPolicy>(pick(0, 1));
    l.policy.enable_chunked_context = pick(0, 4) != 0;
    if (l.enable_reuse && l.groups[0].num_host_blocks > 0 && pick(0, 1))
      l.policy.pause_policy = PausePolicy::kSwap;
    return l;
  }

  void random_group(const Limits& l, int window, BlockGroupConfig& group) {
    const int t = l.tokens_per_block, one = l.max_sequence_length / t + 1;
    group.num_blocks = pick(0, 1) ? one + pick(0, one) : pick(one, 6 * one);
    if (pick(0, 9) == 0) group.num_blocks = pick(1, one);  // some requests can never run
    if (pick(0, 1)) group.num_host_blocks = pick(1, 2 * one);
    group.window = window;
    if (window == 0) return;
    if (pick(0, 1)) group.sink = pick(1, 6);
    // One sequence's minimum with a window.
    const int needed = (group.sink + window + l.max_num_tokens) / t + 4;
    if (pick(0, 1)) group.num_blocks = std::min(one, needed) + pick(0, 4);
  }

  void random_search(SequenceSpec& s) {
    s.sampling.beam_width = pick(1, limits_.max_beam_width);
    if (s.sampling.beam_width == 1) return;
    if (pick(0, 1)) s.sampling.length_penalty = static_cast<float>(pick(0, 4)) / 2;
    s.sampling.early_stopping = pick(0, 2);
    if (pick(0, 3) == 0) s.sampling.beam_search_diversity_rate = 0.5f;
    if (pick(0, 3) == 0) s.sampling.num_return_sequences = pick(1, s.sampling.beam_width);
    s.streams_beams = pick(0, 1);
  }

 private:
  std::mt19937_64 rng_;

 protected:
  Limits limits_;
};

}  // namespace nereid::sched
