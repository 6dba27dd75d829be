#include "runtime/engine_thread.h"

#include <cstddef>
#include <exception>
#include <future>
#include <new>
#include <utility>
#include <vector>

namespace nereid::runtime {

EngineThread::EngineThread(Engine& engine, Inbox& inbox, Watchdog& watchdog)
    : engine_(engine), inbox_(inbox), watchdog_(watchdog) {
  std::promise<void> promise;
  auto started = promise.get_future();
  thread_ = std::thread([this, promise = std::move(promise)]() mutable {
    try {
      const std::vector<std::byte> first(1);
      promise.set_value();
    } catch (const std::bad_alloc&) {
      promise.set_exception(std::current_exception());
      return;
    }
    run();
  });
  try {
    started.get();
  } catch (const std::bad_alloc&) {
    thread_.join();
    throw;
  }
}

EngineThread::~EngineThread() {
  inbox_.push(CancelAll{});
  inbox_.close();
  thread_.join();
}

void EngineThread::run() {
  bool told = false;  // the watchdog, of a device that has failed
  while (engine_.take_commands(/*may_sleep=*/true)) {
    watchdog_.turn_begins();
    engine_.turn();
    watchdog_.turn_ends();
    if (engine_.device_has_failed() && !std::exchange(told, true)) watchdog_.device_failed();
  }
  watchdog_.turn_begins();
  engine_.finish();
  watchdog_.turn_ends();
}

}  // namespace nereid::runtime
