// KeyLayout by device, and element positions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/api/ops.h"
#include "tensor/device.h"

namespace nereid::kernels {

inline constexpr int32_t kKeysPerPanel = 16;

inline bool make_panels(int32_t head_dim, int32_t block_tokens) {
  return head_dim % 4 == 0 && block_tokens % kKeysPerPanel == 0;
}

// Key layout of a device's kernels.
inline KeyLayout key_layout(DeviceKind device, int32_t head_dim, int32_t block_tokens) {
  return device == DeviceKind::kCpu && make_panels(head_dim, block_tokens) ? KeyLayout::kPanels
                                                                           : KeyLayout::kLines;
}

// Index in a block of element c of the key at `line` = head * block_tokens + position in the block.
inline int64_t key_index(KeyLayout layout, int64_t line, int64_t c, int64_t head_dim,
                         size_t element_size) {
  if (layout == KeyLayout::kLines) return line * head_dim + c;
  const auto in_word = static_cast<int64_t>(4 / element_size);
  return line / kKeysPerPanel * kKeysPerPanel * head_dim +
         (c / in_word * kKeysPerPanel + line % kKeysPerPanel) * in_word + c % in_word;
}

}  // namespace nereid::kernels
