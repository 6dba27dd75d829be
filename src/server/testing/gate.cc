#include "server/testing/gate.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace nereid::server {
namespace {

constexpr std::chrono::minutes kPatience{1};

struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  int num_held = 0;
  uint64_t num_openings = 0;
};

Gate& gate() {
  static Gate shared;
  return shared;
}

}  // namespace

void take_time(int32_t ms) {
  if (ms != kUntilOpen) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    return;
  }
  std::unique_lock lock(gate().mutex);
  const uint64_t seen = gate().num_openings;
  ++gate().num_held;
  gate().changed.notify_all();
  gate().changed.wait_for(lock, kPatience, [&] { return gate().num_openings != seen; });
  --gate().num_held;
}

bool wait_until_held(int count) {
  std::unique_lock lock(gate().mutex);
  return gate().changed.wait_for(lock, kPatience, [&] { return gate().num_held >= count; });
}

void open_gate() {
  std::lock_guard lock(gate().mutex);
  ++gate().num_openings;
  gate().changed.notify_all();
}

std::atomic<int32_t>& num_sent() {
  static std::atomic<int32_t> shared{0};
  return shared;
}

}  // namespace nereid::server
