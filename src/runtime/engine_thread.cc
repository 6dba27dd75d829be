#include "runtime/engine_thread.h"

#include <utility>

namespace nereid::runtime {

EngineThread::EngineThread(Engine& engine, Inbox& inbox, Watchdog& watchdog)
    : engine_(engine), inbox_(inbox), watchdog_(watchdog), thread_([this] { run(); }) {}

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
