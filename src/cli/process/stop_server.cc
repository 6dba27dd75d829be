#include "cli/process/stop_server.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/log.h"

namespace nereid::cli {
namespace {

// Time from the deadline to the end of the process; the rest of a second is for the exit itself.
constexpr std::chrono::milliseconds kAfterDeadline{900};

}  // namespace

StopDeadline::StopDeadline(std::chrono::seconds budget, std::function<void()> clean_up)
    : clean_up_(std::move(clean_up)), at_(now() + budget), thread_([this] { watch(); }) {}

StopDeadline::~StopDeadline() {
  {
    std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StopDeadline::watch() {
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    const Time end = at_ + kAfterDeadline;
    if (now() >= end) {
      log_error("Exit timeout expired. Exiting immediately.");
      exit_now();
    }
    changed_.wait_until(lock, end);
  }
}

void StopDeadline::exit_now() const {
  if (clean_up_) clean_up_();
  std::fflush(nullptr);
  ::_exit(1);  // _exit(): running threads must not see destroyed objects
}

void StopDeadline::hurry() {
  std::lock_guard lock(mutex_);
  at_ = std::min(at_, now());
  is_hurried_ = true;
  changed_.notify_all();
}

std::chrono::milliseconds StopDeadline::left() const {
  std::lock_guard lock(mutex_);
  return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(at_ - now()),
                  std::chrono::milliseconds(0));
}

void stop_server(TRITONSERVER_Server* core, front::GrpcServer* grpc,
                 const std::vector<front::HttpServer*>& http, const StopDeadline& deadline) {
  // In parallel, so that one does not use up the others' time.
  std::vector<std::thread> stops;
  if (grpc != nullptr)
    stops.emplace_back([&] { grpc->stop(deadline.left(), &deadline.is_hurried()); });
  for (front::HttpServer* server : http)
    if (server != nullptr)
      stops.emplace_back([&, server] { server->stop(deadline.left(), &deadline.is_hurried()); });
  for (std::thread& stop : stops) stop.join();
  // Requests cancelled at the deadline leave the core within the next second.
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(deadline.left()).count() + 1;
  for (TRITONSERVER_Error* error :
       {TRITONSERVER_ServerSetExitTimeout(core, static_cast<unsigned>(seconds)),
        TRITONSERVER_ServerStop(core)}) {
    if (error == nullptr) continue;
    log_error("failed to stop server: {}", TRITONSERVER_ErrorMessage(error));
    deadline.exit_now();
  }
}

}  // namespace nereid::cli
