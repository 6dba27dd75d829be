// Whether files that must outlive a crash of the machine are flushed to the disk.
#pragma once

#include <cstdlib>
#include <string_view>

namespace nereid {

// True, but with NEREID_FSYNC=0 in the environment: tests write thousands of files, and a flush
// takes milliseconds.
inline bool flushes_files() {
  const char* value = std::getenv("NEREID_FSYNC");
  return value == nullptr || std::string_view(value) != "0";
}

}  // namespace nereid
