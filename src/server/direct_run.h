// Runs requests of quick models on the thread that brings them: for a model that takes a few
// microseconds, waking an instance's own thread costs more than all the rest.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

namespace nereid::server {

// Private bit of a request's flags: its thread may run the model and take the responses before
// TRITONSERVER_ServerInferAsync returns. Backends never see it.
constexpr uint32_t kMayRunHere = uint32_t{1} << 31;

// Who executes on which instance of a model, and whether the model has proved quick. Thread safe.
class DirectRun {
 public:
  explicit DirectRun(size_t num_instances) : busy_(num_instances) {}

  // An idle instance, now the caller's until leave(). Nothing while the model has not proved quick.
  std::optional<size_t> claim();
  // The instance's own thread, before it executes: waits for another thread that has claimed it.
  void enter(size_t instance) { busy_[instance].lock(); }
  // After executing for `duration_ns`.
  void leave(size_t instance, uint64_t duration_ns);

  // Executions in a row that must have been quick, and how quick. One that takes longer ends it.
  static constexpr uint32_t kProof = 64;
  static constexpr uint64_t kQuickNs = 100'000;

 private:
  std::deque<std::mutex> busy_;
  std::atomic<uint32_t> num_quick_{0};
};

}  // namespace nereid::server
