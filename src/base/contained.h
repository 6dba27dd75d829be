// Where exceptions end: at the entry of a thread and in callbacks of C code or of an event loop,
// from where they would end the process.
#pragma once

#include <chrono>
#include <exception>
#include <string_view>
#include <thread>

#include "base/log_limit.h"

namespace nereid {

// Logs what the handler that calls this has caught; short of memory, or says nothing.
inline void log_caught(std::string_view where) noexcept {
  static LogLimit log;
  try {
    try {
      throw;
    } catch (const std::exception& e) {
      log.error("{}: {}", where, e.what());
    } catch (...) {
      log.error("{}: an exception of an unknown type", where);
    }
  } catch (...) {  // no memory for a line
  }
}

// Calls `body`. False when it threw, which is logged.
template <class Body>
bool contained(std::string_view where, Body&& body) noexcept {
  try {
    body();
    return true;
  } catch (...) {
    log_caught(where);
    return false;
  }
}

// The whole work of a thread, begun again after an exception: what it is there for goes on.
template <class Body>
void run_contained(std::string_view where, Body&& body) noexcept {
  constexpr std::chrono::milliseconds kPause{10};  // so that what throws each time leaves room
  while (!contained(where, body)) std::this_thread::sleep_for(kPause);
}

}  // namespace nereid
