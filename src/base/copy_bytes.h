// Copies of bytes that may be none.
#pragma once

#include <cstddef>
#include <cstring>

namespace nereid {

// memcpy(), whose pointers may not be null even where there is nothing to copy: an empty vector,
// span or view has such a one.
inline void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace nereid
