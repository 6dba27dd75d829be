// Holds executions of the test backend until the test lets them go, so that tests need no sleeps. A
// library of its own: the test and the backend, which the server opens, share one gate.
#pragma once

#include <atomic>
#include <cstdint>

namespace nereid::server {

// Instead of milliseconds, where a behavior takes some: waits at the gate.
constexpr int32_t kUntilOpen = -1;

// For the backend: sleeps `ms`, or until the gate opens (at most a minute).
void take_time(int32_t ms);

// Waits until `count` are held; false after a minute.
bool wait_until_held(int count = 1);
// Releases the threads that are held now.
void open_gate();

// How many responses the running "lag_source" has sent.
std::atomic<int32_t>& num_sent();

}  // namespace nereid::server
