// The KV cache: device blocks and the host pool in one layout, and copies of whole blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "exec/runner.h"
#include "exec/step_message.h"
#include "io/plan.h"
#include "kernels/api/op.h"
#include "tensor/device.h"

namespace nereid::exec {

// Layout of a block: contiguous; for each layer of the group keys, then values, [kv_heads,
// block_tokens, head_dim] each (keys may be in panels, see kernels::KeyLayout), then f32 scales
// [kv_heads, block_tokens] of each for 8-bit types. Values stored in their keys (MLA) take no
// space. Sizes in bytes.
struct KvLayout {
  size_t data = 0, scales = 0;  // of one layer's keys (or values) in a block; scales 0: none
  size_t layer = 0, block = 0;  // of one layer in a block; of a block
  bool has_values = true;       // separate from the keys

  static KvLayout of(const CacheGroup& group, const RunnerLimits& limits);

  // Byte offsets of the i-th layer of the group in a block.
  size_t keys(size_t i) const { return i * layer; }
  size_t values(size_t i) const { return keys(i) + (has_values ? data : 0); }
  size_t key_scales(size_t i) const { return values(i) + data; }
  size_t value_scales(size_t i) const { return key_scales(i) + (has_values ? scales : 0); }
};

// InvalidArgument: a group or block id out of range.
Status check_copies(std::span<const BlockCopy> copies, size_t num_groups,
                    const RunnerLimits& limits);

// Move of one position's keys and values, all layers of a group, between cells of device blocks.
struct CellMove {
  int32_t group = 0;
  int32_t from_block = 0, from_cell = 0;
  int32_t to_block = 0, to_cell = 0;
};

class KvCache {
 public:
  static StatusOr<KvCache> create(const io::Plan& plan, const RunnerLimits& limits, Device& device);
  // A cache of `groups`, whose layers are in [0, num_layers).
  static StatusOr<KvCache> create(std::vector<CacheGroup> groups, int32_t num_layers,
                                  const RunnerLimits& limits, Device& device);

  const std::vector<CacheGroup>& groups() const { return groups_; }
  int32_t group_of(int32_t layer) const { return places_[static_cast<size_t>(layer)].group; }

  // The cache arguments of a layer's kernels; the key layout is the device's.
  kernels::CacheView view(int32_t layer) const;

  // Whether source or target is in the host pool.
  bool touches_host(const BlockCopy& copy) const;

  // Run on the stream in order: each copy sees earlier writes. Precondition: check_copies().
  Status copy_blocks(std::span<const BlockCopy> copies, Stream& stream) const;
  Status move_cells(std::span<const CellMove> moves, Stream& stream) const;

 private:
  struct LayerIndex {
    int32_t group = 0;
    int32_t index = 0;  // of the layer in its group
  };
  struct Pool {
    KvLayout layout;
    Buffer device, host;
  };
  std::byte* address(size_t group, int32_t block) const;
  Status move_cell(const CellMove& move, Stream& stream) const;
  Status move_key_in_panels(const CellMove& move, size_t layer, Stream& stream) const;

  RunnerLimits limits_;
  DeviceKind kind_ = DeviceKind::kCpu;
  std::vector<CacheGroup> groups_;
  std::vector<Pool> pools_;         // by group
  std::vector<LayerIndex> places_;  // by layer
};

}  // namespace nereid::exec
