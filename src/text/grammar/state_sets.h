// The subset construction of a network, computed lazily: a state set is a set of configurations
// (state, call stack).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "text/grammar/network.h"

namespace nereid::text {

// Call stacks share their lower frames, and in large sets their upper ones: frames with the same
// states above them become one frame with several callers, so that choices which stay open at many
// depths of a text add up and do not multiply. Work is counted against the budget: beyond it, or
// when a set or all of them are too large, every step leads to kDead and failed() is true.
class StateSets {
 public:
  static constexpr size_t kMaxConfigs = 4096;  // in a set
  static constexpr int64_t kMostBytes = int64_t{64} << 20;
  static constexpr int32_t kDead = 0;    // nothing can follow, and no text ends here
  static constexpr int32_t kBottom = 0;  // the frame of the outermost rule

  struct Config {
    int32_t state = 0;
    int32_t frame = 0;  // top of its stack
  };

  explicit StateSets(const Network& network);

  int32_t start();  // of the whole text
  // A set of one state: `outermost`, in rule 0 without a caller; else with an unknown caller.
  int32_t inside(int32_t state, bool outermost);
  int32_t behind(int32_t frame);  // the set after the call of `frame` has ended
  int32_t step(int32_t set, uint8_t byte) {
    const size_t entry = static_cast<size_t>(set) * num_classes_ + network_.class_of[byte];
    const int32_t next = next_[entry];
    return next >= 0 ? next : make_step(set, byte, entry);
  }

  bool ends(int32_t set) const { return at(set).ends; }  // the whole text may end
  // A call with an unknown caller may end.
  bool leaves(int32_t set) const { return at(set).leaves; }
  std::span<const Config> configs(int32_t set) const { return at(set).configs; }

  void set_budget(int64_t work) { budget_ = work, failed_ = false; }
  bool spend(int64_t work) {
    budget_ -= work;
    failed_ |= budget_ < 0;
    return !failed_;
  }
  int64_t budget() const { return budget_; }
  bool failed() const { return failed_; }
  int64_t bytes() const { return bytes_; }
  void clear() { clear_but({}); }
  // Drops all sets but these, which are renumbered.
  void clear_but(std::span<int32_t* const> kept);

 private:
  struct Frame {
    int32_t state = 0;   // after the call; kMerged: it stands for those of merged_[parent]
    int32_t parent = 0;  // caller's frame, < this one
  };
  struct Set {
    std::vector<Config> configs;  // configurations of states with byte edges; ascending
    bool ends = false, leaves = false;
  };
  static constexpr int32_t kUnknown = 1;
  static constexpr int32_t kMerged = -1;

  const Set& at(int32_t set) const { return sets_[static_cast<size_t>(set)]; }
  int32_t make_step(int32_t set, uint8_t byte, size_t entry);
  void open(Config config);
  int32_t close();  // the epsilon closure of open_, as a set
  int32_t intern(Set set);
  int32_t push(int32_t state, int32_t parent);
  // The callers of `frame`, which is neither kBottom nor kUnknown; valid until a frame is made.
  std::span<const Frame> callers(int32_t frame) const {
    const Frame& f = frames_[static_cast<size_t>(frame)];
    if (f.state != kMerged) return {&f, 1};
    return merged_[static_cast<size_t>(f.parent)];
  }
  int32_t merged(std::vector<Frame> callers);
  void merge_frames(std::vector<Config>& configs);
  void count_bytes(int64_t bytes) {
    bytes_ += bytes;
    failed_ |= bytes_ > kMostBytes;
  }

  const Network& network_;
  const size_t num_classes_;
  std::vector<Frame> frames_;
  absl::flat_hash_map<uint64_t, int32_t> frame_of_;
  std::vector<std::vector<Frame>> merged_;  // ascending, none of them merged
  absl::flat_hash_map<std::vector<uint64_t>, int32_t> merged_of_;
  std::vector<Set> sets_;
  absl::flat_hash_map<std::vector<uint64_t>, int32_t> set_of_;
  std::vector<int32_t> next_;  // [sets, classes]; -1: not computed yet
  std::vector<Config> open_;
  absl::flat_hash_set<uint64_t> seen_;
  int64_t budget_ = 0, bytes_ = 0;
  bool failed_ = false;
};

}  // namespace nereid::text
