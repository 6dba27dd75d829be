#include "runtime/ranks/hosts/hello_threads.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/log_limit.h"

namespace nereid::runtime {

struct HelloThreads::State {
  std::mutex mutex;
  std::condition_variable ended;
  // Guarded by mutex.
  std::map<uint64_t, comm::Descriptor> waiting;  // copies by number, without a hello so far
  uint64_t num_begun = 0;
  int num_threads = 0;
};

HelloThreads::HelloThreads() : state_(std::make_shared<State>()) {}

HelloThreads::~HelloThreads() {
  std::unique_lock lock(state_->mutex);
  for (const auto& [number, socket] : state_->waiting) ::shutdown(socket.get(), SHUT_RDWR);
  state_->ended.wait(lock, [this] { return state_->num_threads == 0; });
}

void HelloThreads::begin(comm::Descriptor socket, const HostSecrets& secrets,
                         std::function<void(StatusOr<HostConnection>)> take) {
  static LogLimit limit;
  comm::Descriptor copy(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy) {
    limit.warn("a connection of another process is closed: no descriptor is left");
    return;
  }
  std::unique_lock lock(state_->mutex);
  if (state_->waiting.size() >= kMaxWaiting) {
    const auto oldest = state_->waiting.begin();
    ::shutdown(oldest->second.get(), SHUT_RDWR);  // its thread ends
    state_->waiting.erase(oldest);
    limit.warn("{} connections without a hello: the oldest one is closed", kMaxWaiting);
  }
  const uint64_t number = state_->num_begun++;
  state_->waiting.emplace(number, std::move(copy));
  ++state_->num_threads;
  lock.unlock();
  const auto remove = [state = state_, number] {
    const std::lock_guard one(state->mutex);
    state->waiting.erase(number);
  };
  const auto end = [state = state_] {
    const std::lock_guard one(state->mutex);
    --state->num_threads;
    state->ended.notify_all();
  };
  try {
    std::thread([socket = std::move(socket), &secrets, take = std::move(take), remove,
                 end]() mutable {
      auto met = meet_host(std::move(socket), secrets);
      remove();
      take(std::move(met));
      end();
    }).detach();
  } catch (const std::system_error& error) {
    limit.warn("a connection of another process is closed: {}", error.what());
    remove();
    end();
  }
}

}  // namespace nereid::runtime
