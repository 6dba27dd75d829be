#include "text/grammar/state_sets.h"

#include <algorithm>

namespace nereid::text {
namespace {

constexpr int64_t kConfigWork = 8;
constexpr size_t kManyConfigs = 64;  // where frames are merged

uint64_t packed(int32_t a, int32_t b) {
  return static_cast<uint64_t>(static_cast<uint32_t>(a)) << 32 | static_cast<uint32_t>(b);
}

}  // namespace

StateSets::StateSets(const Network& network)
    : network_(network), num_classes_(static_cast<size_t>(network.num_classes)) {
  clear();
}

void StateSets::clear_but(std::span<int32_t* const> kept) {
  std::vector<char> is_used(frames_.size());
  for (const int32_t* const number : kept)
    for (const Config& config : at(*number).configs) is_used[static_cast<size_t>(config.frame)] = 1;
  const auto first = static_cast<size_t>(kUnknown) + 1;
  for (size_t i = frames_.size(); i-- > first;) {
    if (is_used[i] == 0) continue;
    for (const Frame& caller : callers(static_cast<int32_t>(i)))
      is_used[static_cast<size_t>(caller.parent)] = 1;
  }
  const std::vector<Frame> frames = std::move(frames_);
  const std::vector<std::vector<Frame>> lists = std::move(merged_);
  const std::vector<Set> sets = std::move(sets_);
  frames_.assign(first, {});  // kBottom, kUnknown
  sets_ = {}, merged_ = {};
  frame_of_.clear(), merged_of_.clear(), set_of_.clear(), next_.clear();
  bytes_ = 0;
  intern({});                                                  // kDead
  std::vector<int32_t> place(std::max(frames.size(), first));  // in the new frames
  place[kUnknown] = kUnknown;
  for (size_t i = first; i < frames.size(); ++i) {
    if (is_used[i] == 0) continue;
    const auto parent = static_cast<size_t>(frames[i].parent);
    if (frames[i].state != kMerged) {
      place[i] = push(frames[i].state, place[parent]);
      continue;
    }
    std::vector<Frame> list = lists[parent];
    for (Frame& caller : list) caller.parent = place[static_cast<size_t>(caller.parent)];
    place[i] = merged(std::move(list));
  }
  for (int32_t* const number : kept) {
    Set set = sets[static_cast<size_t>(*number)];
    for (Config& config : set.configs) config.frame = place[static_cast<size_t>(config.frame)];
    std::ranges::sort(set.configs, {}, [](const Config& c) { return packed(c.state, c.frame); });
    *number = intern(std::move(set));
  }
}

int32_t StateSets::push(int32_t state, int32_t parent) {
  const auto [found, is_new] =
      frame_of_.try_emplace(packed(state, parent), static_cast<int32_t>(frames_.size()));
  if (is_new) {
    constexpr int64_t kFrameBytes = 32;
    frames_.push_back({state, parent});
    count_bytes(kFrameBytes);
  }
  return found->second;
}

// The frame of these callers.
int32_t StateSets::merged(std::vector<Frame> callers) {
  const auto key_of = [](const Frame& f) { return packed(f.state, f.parent); };
  std::ranges::sort(callers, {}, key_of);
  const auto same = std::ranges::unique(callers, {}, key_of);
  callers.erase(same.begin(), same.end());
  std::vector<uint64_t> key(callers.size());
  std::ranges::transform(callers, key.begin(), key_of);
  const auto [found, is_new] =
      merged_of_.try_emplace(std::move(key), static_cast<int32_t>(frames_.size()));
  if (is_new) {
    constexpr int64_t kListBytes = 120;
    count_bytes(kListBytes + 16 * static_cast<int64_t>(callers.size()));
    frames_.push_back({kMerged, static_cast<int32_t>(merged_.size())});
    merged_.push_back(std::move(callers));
  }
  return found->second;
}

// Makes one frame of those that have the same states above them.
void StateSets::merge_frames(std::vector<Config>& configs) {
  if (!spend(kConfigWork * static_cast<int64_t>(configs.size()))) return;
  std::ranges::sort(configs, {}, [](const Config& c) { return packed(c.frame, c.state); });
  absl::flat_hash_map<std::vector<int32_t>, std::vector<int32_t>> frames_with;
  for (auto at = configs.begin(); at != configs.end();) {
    const int32_t frame = at->frame;
    std::vector<int32_t> states;
    for (; at != configs.end() && at->frame == frame; ++at) states.push_back(at->state);
    if (frame > kUnknown) frames_with[std::move(states)].push_back(frame);
  }
  std::erase_if(configs, [](const Config& c) { return c.frame > kUnknown; });
  for (const auto& [states, frames] : frames_with) {
    int32_t frame = frames[0];
    if (frames.size() > 1) {
      std::vector<Frame> all;
      for (const int32_t one : frames) {
        const auto its = callers(one);
        all.insert(all.end(), its.begin(), its.end());
      }
      frame = merged(std::move(all));
    }
    for (const int32_t state : states) configs.push_back({state, frame});
  }
}

int32_t StateSets::start() {
  open({network_.starts[0], kBottom});
  return close();
}

int32_t StateSets::inside(int32_t state, bool outermost) {
  open({state, outermost ? kBottom : kUnknown});
  return close();
}

int32_t StateSets::behind(int32_t frame) {
  if (frame == kBottom) return intern({.configs = {}, .ends = true});
  for (const Frame& caller : callers(frame)) open({caller.state, caller.parent});
  return close();
}

void StateSets::open(Config config) {
  if (seen_.insert(packed(config.state, config.frame)).second) open_.push_back(config);
}

int32_t StateSets::close() {
  Set set;
  while (!open_.empty() && spend(kConfigWork)) {
    const Config config = open_.back();
    open_.pop_back();
    const NetworkState& state = network_.states[static_cast<size_t>(config.state)];
    if (!state.bytes.empty()) set.configs.push_back(config);
    if (state.ends && config.frame == kBottom) {
      set.ends = true;
    } else if (state.ends && config.frame == kUnknown) {
      set.leaves = true;
    } else if (state.ends) {
      for (const Frame& caller : callers(config.frame)) open({caller.state, caller.parent});
    }
    for (const FreeEdge& edge : state.free) {
      if (edge.rule < 0) {
        open({edge.to, config.frame});
        continue;
      }
      const bool tail = network_.states[static_cast<size_t>(edge.to)].tail;
      open({network_.starts[static_cast<size_t>(edge.rule)],
            tail ? config.frame : push(edge.to, config.frame)});
    }
    if (set.configs.size() > kMaxConfigs) failed_ = true;
    if (failed_) break;
  }
  open_.clear(), seen_.clear();
  if (set.configs.size() >= kManyConfigs) merge_frames(set.configs);
  if (failed_) return kDead;
  std::ranges::sort(set.configs, {}, [](const Config& c) { return packed(c.state, c.frame); });
  return intern(std::move(set));
}

int32_t StateSets::intern(Set set) {
  std::vector<uint64_t> key;
  key.reserve(set.configs.size() + 1);
  for (const Config& config : set.configs) key.push_back(packed(config.state, config.frame));
  key.push_back(uint64_t{set.ends} * 2 + uint64_t{set.leaves});
  const auto size = static_cast<int64_t>(key.size());
  const auto [found, is_new] =
      set_of_.try_emplace(std::move(key), static_cast<int32_t>(sets_.size()));
  if (is_new) {
    constexpr int64_t kSetBytes = 160;
    sets_.push_back(std::move(set));
    next_.resize(next_.size() + num_classes_, -1);
    count_bytes(kSetBytes + 16 * size + 4 * static_cast<int64_t>(num_classes_));
  }
  return found->second;
}

int32_t StateSets::make_step(int32_t set, uint8_t byte, size_t entry) {
  const std::vector<Config>& configs = at(set).configs;
  if (!spend(static_cast<int64_t>(1 + configs.size()))) return kDead;
  for (const Config& config : configs)
    for (const ByteEdge& edge : network_.states[static_cast<size_t>(config.state)].bytes)
      if (edge.bytes.first <= byte && byte <= edge.bytes.last) open({edge.to, config.frame});
  const int32_t next = close();
  if (!failed_) next_[entry] = next;
  return failed_ ? kDead : next;
}

}  // namespace nereid::text
