#include "text/grammar/state_sets.h"

#include <algorithm>

namespace nereid::text {
namespace {

constexpr int64_t kConfigWork = 8;

uint64_t packed(int32_t a, int32_t b) {
  return static_cast<uint64_t>(static_cast<uint32_t>(a)) << 32 | static_cast<uint32_t>(b);
}

}  // namespace

StateSets::StateSets(const Network& network)
    : network_(network), num_classes_(static_cast<size_t>(network.num_classes)) {
  clear();
}

void StateSets::clear_but(std::span<int32_t* const> kept) {
  const std::vector<Frame> frames = std::move(frames_);
  const std::vector<Set> sets = std::move(sets_);
  frames_.assign(2, {});  // kBottom, kUnknown
  sets_ = {};
  frame_of_.clear(), set_of_.clear(), next_.clear();
  bytes_ = 0;
  intern({});                                     // kDead
  std::vector<int32_t> place(frames.size(), -1);  // in the new frames
  const auto moved = [&](int32_t frame) {
    std::vector<int32_t> path;
    for (; frame > kUnknown && place[static_cast<size_t>(frame)] < 0;
         frame = frames[static_cast<size_t>(frame)].parent)
      path.push_back(frame);
    int32_t at = frame > kUnknown ? place[static_cast<size_t>(frame)] : frame;
    for (; !path.empty(); path.pop_back()) {
      const auto from = static_cast<size_t>(path.back());
      at = place[from] = push(frames[from].state, at);
    }
    return at;
  };
  for (int32_t* const number : kept) {
    Set set = sets[static_cast<size_t>(*number)];
    for (Config& config : set.configs) config.frame = moved(config.frame);
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
  const Frame& f = frames_[static_cast<size_t>(frame)];
  open({f.state, f.parent});
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
      const Frame frame = frames_[static_cast<size_t>(config.frame)];
      open({frame.state, frame.parent});
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
