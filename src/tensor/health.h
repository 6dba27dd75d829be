// Health of a device, or of the ranks of a model. Thread-safe except where noted.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace nereid {

class Health {
 public:
  // `name`: in messages, "device cuda:0".
  explicit Health(std::function<std::string()> name) : name_(std::move(name)) {}
  Health(const Health&) = delete;
  Health& operator=(const Health&) = delete;

  enum class State : uint8_t {
    kHealthy,
    kFailed,  // no more work is executed
    kHung,    // as kFailed, but started work may go on: its memory must not be freed
  };
  State state() const { return state_; }
  bool is_hung() const { return state_ == State::kHung; }

  // Unavailable with the device's name and the first error; OK while healthy.
  Status failure() const;
  // Reports a sticky error (CUDA: until process exit), not OK. The first one counts.
  void fail(const Status& error);
  // Reports work without progress for timeout().
  void hang(const Status& error);

  // Limit of a wait without progress; 0: none.
  void set_timeout(Duration timeout) { timeout_ = timeout.count(); }
  Duration timeout() const { return Duration(timeout_); }

  // Increases while work is executed, that of peers included.
  uint64_t progress() const {
    uint64_t sum = own_progress();
    for (const Health* peer : peers_) sum += peer->own_progress();
    return sum;
  }
  void made_progress() const { progress_.fetch_add(1, std::memory_order_relaxed); }
  // Set before the device is used: devices for whose work this one may wait. They must outlive the
  // use of this one.
  void set_peers(std::vector<const Health*> peers) { peers_ = std::move(peers); }
  // Set before the device is used: addend of progress(), and a callback of the first hang().
  void set_hooks(std::function<uint64_t()> progress, std::function<void()> hung) {
    more_progress_ = std::move(progress);
    hung_ = std::move(hung);
  }

 private:
  void set(State state, const Status& error);
  uint64_t own_progress() const { return progress_ + (more_progress_ ? more_progress_() : 0); }

  const std::function<std::string()> name_;
  std::function<uint64_t()> more_progress_;
  std::function<void()> hung_;
  std::vector<const Health*> peers_;
  mutable std::mutex mutex_;
  Status failure_;  // guarded by mutex_
  std::atomic<State> state_ = State::kHealthy;
  std::atomic<Duration::rep> timeout_ = 0;
  mutable std::atomic<uint64_t> progress_ = 0;
};

// Measures the time of a wait without progress. Single-threaded.
class Stall {
 public:
  // `extra`: share of the timeout added to it.
  explicit Stall(const Health& health, double extra = 0);

  // Called repeatedly during the wait, at least every slice(): whether there was no progress for
  // the timeout. The time between two calls counts as at most one slice, so suspension of the
  // process does not count.
  bool over(Time at = now());
  // Restarts the measurement.
  void restart(Time at = now());
  Duration slice() const { return slice_; }
  // The error for Health::hang().
  Status error() const;

 private:
  const Health& health_;
  const Duration timeout_, slice_;
  Duration idle_{};
  Time last_ = now();
  uint64_t seen_;
};

// Leaks an object that work of a hung device may use, and keeps this library mapped.
void keep_for_ever(std::shared_ptr<void> object);

}  // namespace nereid
