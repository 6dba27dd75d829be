// The KV cache of a model: the blocks of the device and those of the second-level pool in host
// memory, laid out alike, and copies of whole blocks between and within them.
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

// How a block of a group lies: one piece of memory with all layers of the group in turn, of each
// its keys, then its values, [kv_heads, block_tokens, head_dim] each (keys perhaps in panels, see
// kernels::KeyLayout), then their scales, f32 [kv_heads, block_tokens] each, for a cache type that
// has them. Values that lie in their keys are those. Sizes in bytes.
struct KvLayout {
  size_t data = 0, scales = 0;  // of a layer's keys, or values, in a block; scales 0: none
  size_t layer = 0, block = 0;  // of a layer in a block, and of a block
  bool has_values = true;       // beside the keys

  static KvLayout of(const CacheGroup& group, const RunnerLimits& limits);

  // Where the i-th layer of the group lies, in bytes from the block's start.
  size_t keys(size_t i) const { return i * layer; }
  size_t values(size_t i) const { return keys(i) + (has_values ? data : 0); }
  size_t key_scales(size_t i) const { return values(i) + data; }
  size_t value_scales(size_t i) const { return key_scales(i) + (has_values ? scales : 0); }
};

// InvalidArgument when a copy names a group or a block that there is not.
Status check_copies(std::span<const BlockCopy> copies, size_t num_groups,
                    const RunnerLimits& limits);

// The keys and values of one position go to another, in all layers of a group: cells of blocks of
// the device.
struct CellMove {
  int32_t group = 0;
  int32_t from_block = 0, from_cell = 0;
  int32_t to_block = 0, to_cell = 0;
};

class KvCache {
 public:
  static StatusOr<KvCache> create(const io::Plan& plan, const RunnerLimits& limits, Device& device);

  const std::vector<CacheGroup>& groups() const { return groups_; }
  int32_t group_of(int32_t layer) const { return places_[static_cast<size_t>(layer)].group; }

  // What the kernels of a layer get; the layout of the keys is that of the device.
  kernels::CacheView view(int32_t layer) const;

  // Whether a copy is to or from the host's pool.
  bool touches_host(const BlockCopy& copy) const;

  // On the stream: each copy sees what those before it wrote. The copies have passed
  // check_copies().
  Status copy_blocks(std::span<const BlockCopy> copies, Stream& stream) const;
  Status move_cells(std::span<const CellMove> moves, Stream& stream) const;

 private:
  struct Place {
    int32_t group = 0;
    int32_t index = 0;  // of the layer among those of the group
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
  std::vector<Pool> pools_;    // by group
  std::vector<Place> places_;  // by layer
};

}  // namespace nereid::exec
