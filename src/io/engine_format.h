// Fixed-size prefix of an engine file.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/hash.h"

namespace nereid::io {

static_assert(std::endian::native == std::endian::little, "files are read in place");

inline constexpr char kEngineMagic[8] = {'N', 'E', 'R', 'E', 'I', 'D', 'E', 'N'};
inline constexpr uint64_t kBlobAlignment = 4096;
inline constexpr uint64_t kMaxEngineHeaderBytes = uint64_t{256} << 20;

struct EnginePrefix {
  char magic[8] = {};
  uint32_t format_version = 0;
  uint32_t reserved = 0;
  uint64_t header_bytes = 0;
  uint64_t header_checksum = 0;
  uint64_t blob_offset = 0;  // from the start of the file
  uint64_t blob_bytes = 0;
  uint64_t reserved2 = 0;
  uint64_t checksum = 0;  // of the preceding bytes

  uint64_t compute_checksum() const { return hash64(this, offsetof(EnginePrefix, checksum)); }
};
static_assert(sizeof(EnginePrefix) == 64);

}  // namespace nereid::io
