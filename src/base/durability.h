// Whether files that must outlive a crash of the machine are flushed to disk.
#pragma once

#include <cstdlib>
#include <string_view>

namespace nereid {

// False only with NEREID_FSYNC=0 in the environment: tests write thousands of files, and a
// flush takes milliseconds.
inline bool flushes_files() {
  const char* value = std::getenv("NEREID_FSYNC");
  return value == nullptr || std::string_view(value) != "0";
}

}  // namespace nereid
