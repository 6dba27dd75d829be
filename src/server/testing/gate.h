// A gate that holds executions of the test backend until the test opens it, so that tests need no
// sleeps. A library of its own: the test and the backend, which the server opens, share one gate.
#pragma once

#include <atomic>
#include <cstdint>

namespace nereid::server {

// Replaces a number of milliseconds: waits at the gate.
constexpr int32_t kUntilOpen = -1;

// Called by the backend: sleeps `ms`, or until the gate opens (at most a minute).
void take_time(int32_t ms);

// Waits until `count` threads are held; false after a minute.
bool wait_until_held(int count = 1);
// Releases the threads held now.
void open_gate();

// Number of responses sent by the running "lag_source".
std::atomic<int32_t>& num_sent();

}  // namespace nereid::server
