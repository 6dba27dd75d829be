// Whether what a model runs on works: a device, later a group of ranks. Any thread, unless it says
// otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace nereid {

class Health {
 public:
  // `name`: of the device in messages, "device cuda:0".
  explicit Health(std::function<std::string()> name) : name_(std::move(name)) {}
  Health(const Health&) = delete;
  Health& operator=(const Health&) = delete;

  enum class State : uint8_t {
    kHealthy,
    kFailed,  // no more work is done, for good
    kHung,    // likewise, and work that has begun may go on: nothing that it may use is freed
  };
  State state() const { return state_; }
  bool is_hung() const { return state_ == State::kHung; }

  // Unavailable, naming the device and the first error. OK while it is healthy.
  Status failure() const;
  // Called where an error that stays is met (of CUDA: until the process ends); not OK. The first
  // one counts.
  void fail(const Status& error);
  // Called where work has not ended and timeout() has passed without progress.
  void hang(const Status& error);

  // The longest time without progress that a wait for work puts up with; 0: no limit.
  void set_timeout(Duration timeout) { timeout_ = timeout.count(); }
  Duration timeout() const { return Duration(timeout_); }

  // Grows while work is being done.
  uint64_t progress() const { return progress_ + (more_progress_ ? more_progress_() : 0); }
  void made_progress() const { progress_.fetch_add(1, std::memory_order_relaxed); }
  // Before the device is used: what progress() adds, and what is called once by the first hang().
  void set_hooks(std::function<uint64_t()> progress, std::function<void()> hung) {
    more_progress_ = std::move(progress);
    hung_ = std::move(hung);
  }

 private:
  void set(State state, const Status& error);

  const std::function<std::string()> name_;
  std::function<uint64_t()> more_progress_;
  std::function<void()> hung_;
  mutable std::mutex mutex_;
  Status failure_;  // guarded by mutex_
  std::atomic<State> state_ = State::kHealthy;
  std::atomic<Duration::rep> timeout_ = 0;
  mutable std::atomic<uint64_t> progress_ = 0;
};

// Counts the time for which a wait has seen no progress. One thread.
class Stall {
 public:
  // `extra`: of the timeout, granted on top.
  explicit Stall(const Health& health, double extra = 0);

  // To be called again and again while the wait goes on, at least every slice(): whether no
  // progress was made for the timeout. A time between two calls counts as one slice at most: a
  // process that was suspended has not waited.
  bool over(Time at = now());
  // The count begins anew.
  void restart(Time at = now());
  Duration slice() const { return slice_; }
  // What to tell Health::hang().
  Status error() const;

 private:
  const Health& health_;
  const Duration timeout_, slice_;
  Duration idle_{};
  Time last_ = now();
  uint64_t seen_;
};

// Keeps what work of a device that hangs may still use until the process ends, together with the
// code of this library.
void keep_for_ever(std::shared_ptr<void> object);

}  // namespace nereid
