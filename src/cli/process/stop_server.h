// The stop of a serving process, in bounded time: running requests finish or end with an error.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "front/grpc/server.h"
#include "front/server.h"
#include "triton/core/tritonserver.h"

namespace nereid::cli {

// The time limit of a stop. A second after the deadline the process ends with exit code 1, whatever
// its threads do, unless this object was destroyed before.
class StopDeadline {
 public:
  // `clean_up` runs before an exit with code 1.
  explicit StopDeadline(std::chrono::seconds budget, std::function<void()> clean_up = {});
  ~StopDeadline();
  StopDeadline(const StopDeadline&) = delete;
  StopDeadline& operator=(const StopDeadline&) = delete;

  // Moves the deadline to now. Any thread.
  void hurry();
  const std::atomic<bool>& is_hurried() const { return is_hurried_; }
  std::chrono::milliseconds left() const;  // at least 0
  [[noreturn]] void exit_now() const;

 private:
  void watch();

  std::atomic<bool> is_hurried_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()> clean_up_;
  Time at_;
  bool is_over_ = false;
  std::thread thread_;
};

// Waits for running responses until the deadline, ends the others with an error, then unloads the
// models. Ends the process with exit code 1 when requests still run in the core. `grpc` and
// elements of `http` may be null.
void stop_server(TRITONSERVER_Server* core, front::GrpcServer* grpc,
                 const std::vector<front::HttpServer*>& http, const StopDeadline& deadline);

}  // namespace nereid::cli
