// Accumulated times of a plan's calls, grouped by op, kernel and shape.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "exec/runner.h"

namespace nereid::exec {

// A group of calls that one line of the report stands for.
struct ProfileEntry {
  std::string op, kernel, shape;
  bool operator==(const ProfileEntry&) const = default;
};

class Profile {
 public:
  explicit Profile(const std::vector<ProfileEntry>& entries);

  void add(int32_t entry, double seconds, uint64_t bytes);
  std::vector<OpTime> times() const;  // groups that ran, slowest first

 private:
  mutable std::mutex mutex_;  // the stream's thread adds, the engine's reads
  std::vector<OpTime> times_;
};

}  // namespace nereid::exec
