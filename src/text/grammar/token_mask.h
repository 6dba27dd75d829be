// Bitmasks of tokens: id is bit id % 32 of word id / 32.
#pragma once

#include <cstdint>
#include <span>

namespace nereid::text {

inline void set_bit(std::span<uint32_t> mask, int32_t id) {
  mask[static_cast<size_t>(id) / 32] |= uint32_t{1} << (id % 32);
}

inline void clear_bit(std::span<uint32_t> mask, int32_t id) {
  mask[static_cast<size_t>(id) / 32] &= ~(uint32_t{1} << (id % 32));
}

}  // namespace nereid::text
