#include "runtime/watchdog.h"

#include <cstdlib>
#include <utility>

#include "base/log.h"

namespace nereid::runtime {
namespace {

// The engine thread's own waits end at the timeout; the watchdog's is longer by this share.
constexpr double kExtraTimeout = 0.25;

}  // namespace

Watchdog::Watchdog(Health& health, Outbox& outbox, Progress& progress, bool exits)
    : health_(health), outbox_(outbox), progress_(progress), exits_(exits), thread_([this] {
        run();
      }) {}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watchdog::device_failed() {
  {
    std::lock_guard lock(mutex_);
    has_failed_ = true;
  }
  changed_.notify_all();
}

void Watchdog::run() {
  std::unique_lock lock(mutex_);
  Stall stall(health_, kExtraTimeout);
  uint64_t seen = 0;
  while (!closed_) {
    changed_.wait_for(lock, stall.slice(), [this] { return closed_ || (has_failed_ && exits_); });
    if (closed_) return;
    const uint64_t turn = turn_.load();
    if (turn % 2 == 0 || std::exchange(seen, turn) != turn) {
      stall.restart();
    } else if (!gave_up_ && stall.over()) {
      give_up(stall.error());
    }
    if (exits_ && health_.state() != Health::State::kHealthy) {
      lock.unlock();
      leave_process();
    }
  }
}

void Watchdog::give_up(const Status& error) {
  health_.hang(error);
  const Status failure = health_.failure();
  log_error("{}; the engine thread hangs; its model answers no more requests", message(failure));
  gave_up_ = true;
  progress_.abandon();
  outbox_.end_all(failure);
}

// Skips destructors: on a failed device they may block.
void Watchdog::leave_process() {
  constexpr auto kForAnswers = std::chrono::seconds(10), kForClients = std::chrono::seconds(1);
  progress_.wait_idle(kForAnswers);
  std::this_thread::sleep_for(kForClients);  // responses pass through a front end
  log_error("the process ends (exit_on_device_failure)");
  spdlog::shutdown();
  std::_Exit(1);
}

}  // namespace nereid::runtime
