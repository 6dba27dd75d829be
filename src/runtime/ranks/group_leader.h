// Base of the leaders of launched and of joined processes: a thread that waits for messages of the
// other processes, and the way this process is asked to stop.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "runtime/ranks/launched_group.h"
#include "runtime/ranks/wake.h"

namespace nereid::runtime {

class GroupLeader : public LaunchedGroup {
 public:
  void is_stopping() final;

 protected:
  // Calls `look` again and again on a thread of its own, where signals are blocked, until
  // end_watch(). `look` polls wake_, too.
  void watch(std::function<void()> look);
  // Ends the thread. A derived class's destructor calls it first.
  void end_watch();
  // Sends SIGTERM to this process, unless it is stopping.
  void request_stop();

  Wake wake_;  // to be opened before watch()
  std::atomic<bool> is_stopping_ = false;

 private:
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

}  // namespace nereid::runtime
