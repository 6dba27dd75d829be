// The thread of an engine.
#pragma once

#include <thread>

#include "runtime/engine.h"
#include "runtime/requests/inbox.h"
#include "runtime/watchdog.h"

namespace nereid::runtime {

// Makes the engine's turns until the inbox is closed, supervised by the watchdog.
class EngineThread {
 public:
  // Starts the thread. All references must outlive it; no other thread calls the engine meanwhile.
  // Throws std::bad_alloc if the thread has no memory for its first allocation, which takes address
  // space of its own.
  EngineThread(Engine& engine, Inbox& inbox, Watchdog& watchdog);
  ~EngineThread();  // cancels what still runs, then joins

 private:
  void run();

  Engine& engine_;
  Inbox& inbox_;
  Watchdog& watchdog_;
  std::thread thread_;
};

}  // namespace nereid::runtime
