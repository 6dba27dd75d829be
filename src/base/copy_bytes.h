// Copies of byte ranges that may be empty.
#pragma once

#include <cstddef>
#include <cstring>

namespace nereid {

// memcpy() that allows null pointers for 0 bytes: data() of an empty vector, span
// or view may be null.
inline void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace nereid
