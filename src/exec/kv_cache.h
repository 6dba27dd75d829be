// The KV cache of a model: the blocks of the device and those of the second-level pool in host
// memory, laid out alike, and copies of whole blocks between and within them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "exec/runner.h"
#include "io/plan.h"
#include "tensor/device.h"

namespace nereid::exec {

// Where the parts of a pool lie. A layer is four planes of whole alignment units: keys and values,
// [num_blocks, kv_heads, block_tokens, head_dim] each (keys of a block's head perhaps in panels,
// see kernels::KeyLayout), then their scales, f32 [num_blocks, kv_heads, block_tokens] each, for a
// cache type that has them.
struct KvLayout {
  int32_t num_layers = 0;
  size_t data_block = 0, data_plane = 0;    // bytes of one block and of all in a plane
  size_t scale_block = 0, scale_plane = 0;  // 0: a type without scales

  static KvLayout of(const io::Plan& plan, const RunnerLimits& limits, int32_t num_blocks);

  // Most that rounding of the planes adds to a pool.
  static size_t max_padding(const io::Plan& plan);

  size_t layer_bytes() const { return 2 * (data_plane + scale_plane); }
  size_t bytes() const { return static_cast<size_t>(num_layers) * layer_bytes(); }
  // Of a layer, from the pool's start.
  size_t keys(int32_t layer) const { return static_cast<size_t>(layer) * layer_bytes(); }
  size_t values(int32_t layer) const { return keys(layer) + data_plane; }
  size_t key_scales(int32_t layer) const { return keys(layer) + 2 * data_plane; }
  size_t value_scales(int32_t layer) const { return key_scales(layer) + scale_plane; }
};

// InvalidArgument when a copy names a block that there is not.
Status check_copies(std::span<const BlockCopy> copies, const RunnerLimits& limits);

class KvCache {
 public:
  static StatusOr<KvCache> create(const io::Plan& plan, const RunnerLimits& limits, Device& device);

  std::byte* device() const { return device_.bytes(); }

  // On the stream: each copy sees what those before it wrote. The copies have passed
  // check_copies().
  Status copy_blocks(std::span<const BlockCopy> copies, Stream& stream) const;

 private:
  // `count` blocks from copies[0] on, whose numbers follow each other.
  Status copy_run(const BlockCopy& first, int32_t count, Stream& stream) const;

  int32_t num_blocks_ = 0;
  KvLayout device_layout_, host_layout_;
  Buffer device_, host_;
};

}  // namespace nereid::exec
