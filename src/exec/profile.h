// Accumulated times of a plan's calls, by op, kernel and shape.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "exec/runner.h"

namespace nereid::exec {

// One line of the report: op, kernel, shape.
struct ProfileEntry {
  std::string op, kernel, shape;
  bool operator==(const ProfileEntry&) const = default;
};

class Profile {
 public:
  explicit Profile(const std::vector<ProfileEntry>& entries);

  // Adds a call. `busy`: as OpTime::busy.
  void add(int32_t entry, double seconds, uint64_t bytes, double flops,
           const std::vector<double>& busy);
  std::vector<OpTime> times() const;  // entries with calls, slowest first

 private:
  mutable std::mutex mutex_;  // written by the stream's thread, read by the engine's
  std::vector<OpTime> times_;
};

}  // namespace nereid::exec
