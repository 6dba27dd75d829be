// Stable 64- and 128-bit hashes (XXH3), for checksums in files and for keys that
// outlive the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nereid {

uint64_t hash64(const void* data, size_t bytes, uint64_t seed = 0);
inline uint64_t hash64(std::string_view s, uint64_t seed = 0) {
  return hash64(s.data(), s.size(), seed);
}

// 16 lower-case hex digits.
std::string hex64(uint64_t value);

}  // namespace nereid
