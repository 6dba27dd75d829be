// Stalls of event loops: the time that a turn lasts, in which the other clients of the loop wait.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "base/clock.h"

namespace nereid::front {

// A histogram of the turns of all event loops of the process.
class IoStalls {
 public:
  static IoStalls& get();
  void add(uint64_t ns);
  // Prometheus histogram nereid_io_stall_seconds.
  std::string text() const;
  uint64_t num_longer_than(double seconds) const;  // `seconds`: one of the bounds

  static constexpr std::array<double, 9> kBounds = {0.0001, 0.0005, 0.001, 0.005, 0.01,
                                                    0.05,   0.1,    0.5,   1};

 private:
  // Mostly one shard per loop.
  struct alignas(64) Shard {
    std::array<std::atomic<uint64_t>, kBounds.size() + 1> counts{};
    std::atomic<uint64_t> sum_ns{0};
  };
  std::array<Shard, 16> shards_;
};

// Measures one turn, as a local of the loop's work.
class IoTurn {
 public:
  IoTurn() : begin_ns_(now_ns()) {}
  ~IoTurn() { IoStalls::get().add(now_ns() - begin_ns_); }
  IoTurn(const IoTurn&) = delete;
  IoTurn& operator=(const IoTurn&) = delete;

 private:
  const uint64_t begin_ns_;
};

}  // namespace nereid::front
