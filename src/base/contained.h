// Exceptions are caught at the entry of a thread, in callbacks of C code and in handlers of an
// event loop: one that left these would end the process.
#pragma once

#include <chrono>
#include <exception>
#include <string_view>
#include <thread>

#include "base/log_limit.h"

namespace nereid {

// Logs the exception that the calling handler has caught; logs nothing when there is no
// memory for a line.
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
  } catch (...) {  // no memory for a log line
  }
}

// Calls `body`. False: it threw; the exception is logged.
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

// Runs a thread's whole work, and runs it again after an exception, so that the
// thread's service goes on.
template <class Body>
void run_contained(std::string_view where, Body&& body) noexcept {
  // Pause between restarts, so that a `body` that always throws does not take a processor.
  constexpr std::chrono::milliseconds kPause{10};
  while (!contained(where, body)) std::this_thread::sleep_for(kPause);
}

}  // namespace nereid
