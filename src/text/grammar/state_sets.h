// The deterministic automaton of a network, made as it is walked: a set of states, each with the
// stack of calls that it is in.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "text/grammar/network.h"

namespace nereid::text {

// Stacks share their lower parts. Work is counted: `spend` says how much is left; without it, or
// when a set or all of them are too large, every step leads to kDead and failed() is true.
class StateSets {
 public:
  static constexpr size_t kMaxConfigs = 4096;  // of a set
  static constexpr int64_t kMostBytes = int64_t{64} << 20;
  static constexpr int32_t kDead = 0;    // nothing can follow, and no text ends here
  static constexpr int32_t kBottom = 0;  // the frame of what no rule has called

  struct Config {
    int32_t state = 0;
    int32_t frame = 0;  // the top of its stack
  };

  explicit StateSets(const Network& network);

  int32_t start();  // of the whole text
  // In this state of the first rule, called by none, or with calls that are not known.
  int32_t inside(int32_t state, bool outermost);
  int32_t behind(int32_t frame);  // where the call of the frame has ended
  int32_t step(int32_t set, uint8_t byte) {
    const size_t entry = static_cast<size_t>(set) * num_classes_ + network_.class_of[byte];
    const int32_t next = next_[entry];
    return next >= 0 ? next : make_step(set, byte, entry);
  }

  bool ends(int32_t set) const { return at(set).ends; }      // the whole text may end
  bool leaves(int32_t set) const { return at(set).leaves; }  // a call that is not known may end
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
  // Forgets all sets but these, whose numbers change.
  void clear_but(std::span<int32_t* const> kept);

 private:
  struct Frame {
    int32_t state = 0;   // behind the call
    int32_t parent = 0;  // frame
  };
  struct Set {
    std::vector<Config> configs;  // whose states have bytes; ascending
    bool ends = false, leaves = false;
  };
  static constexpr int32_t kUnknown = 1;

  const Set& at(int32_t set) const { return sets_[static_cast<size_t>(set)]; }
  int32_t make_step(int32_t set, uint8_t byte, size_t entry);
  void open(Config config);
  int32_t close();  // the set of what is open and all that it leads to without a byte
  int32_t intern(Set set);
  int32_t push(int32_t state, int32_t parent);
  void count_bytes(int64_t bytes) {
    bytes_ += bytes;
    failed_ |= bytes_ > kMostBytes;
  }

  const Network& network_;
  const size_t num_classes_;
  std::vector<Frame> frames_;
  absl::flat_hash_map<uint64_t, int32_t> frame_of_;
  std::vector<Set> sets_;
  absl::flat_hash_map<std::vector<uint64_t>, int32_t> set_of_;
  std::vector<int32_t> next_;  // [sets, classes]; -1: not known yet
  std::vector<Config> open_;
  absl::flat_hash_set<uint64_t> seen_;
  int64_t budget_ = 0, bytes_ = 0;
  bool failed_ = false;
};

}  // namespace nereid::text
