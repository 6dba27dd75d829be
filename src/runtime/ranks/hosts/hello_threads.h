// Threads that take the hellos of accepted connections: a slow or hostile one makes no other wait.
#pragma once

#include <functional>
#include <memory>

#include "comm/shared_memory.h"
#include "runtime/ranks/hosts/host_socket.h"

namespace nereid::runtime {

class HelloThreads {
 public:
  // Connections whose hello is awaited, each for meet_host()'s limit at most. One more closes the
  // oldest of them.
  static constexpr int kMaxWaiting = 256;

  HelloThreads();
  // Closes the connections without a hello and waits for the threads.
  ~HelloThreads();

  // Meets `socket` on a thread of its own, which then calls `take` with the result of meet_host().
  // `secrets` must outlive the threads. One thread calls it.
  void begin(comm::Descriptor socket, const HostSecrets& secrets,
             std::function<void(StatusOr<HostConnection>)> take);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace nereid::runtime
