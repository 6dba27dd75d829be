// Layout and block copies of the KV cache.
#include "exec/kv_cache.h"

#include <algorithm>
#include <cstdlib>

#include "base/round_up.h"
#include "exec/memory.h"
#include "kernels/api/keys.h"

namespace nereid::exec {
namespace {

constexpr size_t kReadAlignment = 16;  // of what kernels read at a time

}  // namespace

KvLayout KvLayout::of(const CacheGroup& group, const RunnerLimits& limits) {
  const size_t lines = static_cast<size_t>(group.num_kv_heads) * limits.block_tokens;
  const size_t line = static_cast<size_t>(group.head_dim) * size_of(limits.kv_type);
  KvLayout out;
  out.data = round_up(lines * line, kReadAlignment);
  if (kernels::has_kv_scales(limits.kv_type))
    out.scales = round_up(lines * sizeof(float), kReadAlignment);
  out.has_values = group.latent == 0;
  out.layer = (out.has_values ? 2 : 1) * (out.data + out.scales);
  out.block = group.layers.size() * out.layer;
  return out;
}

Status check_copies(std::span<const BlockCopy> copies, size_t num_groups,
                    const RunnerLimits& limits) {
  for (size_t i = 0; i < copies.size(); ++i) {
    const BlockCopy& copy = copies[i];
    if (copy.group < 0 || static_cast<size_t>(copy.group) >= num_groups)
      return invalid_argument("copy {}: group {} is not in [0, {})", i, copy.group, num_groups);
    const auto group = static_cast<size_t>(copy.group);
    const int64_t end = int64_t{limits.num_blocks[group]} + limits.num_host_blocks[group];
    for (const int32_t block : {copy.from, copy.to})
      if (block < 0 || block >= end)
        return invalid_argument("copy {}: block {} is not in [0, {})", i, block, end);
  }
  return ok();
}

StatusOr<KvCache> KvCache::create(const io::Plan& plan, const RunnerLimits& limits,
                                  Device& device) {
  KvCache cache;
  cache.limits_ = limits;
  cache.kind_ = device.info().kind;
  cache.groups_ = cache_groups(plan, limits);
  cache.places_.resize(static_cast<size_t>(plan.model.num_layers));
  for (size_t g = 0; g < cache.groups_.size(); ++g) {
    const CacheGroup& group = cache.groups_[g];
    for (size_t i = 0; i < group.layers.size(); ++i)
      cache.places_[static_cast<size_t>(group.layers[i])] = {static_cast<int32_t>(g),
                                                             static_cast<int32_t>(i)};
    Pool& pool = cache.pools_.emplace_back();
    pool.layout = KvLayout::of(group, limits);
    const size_t block = pool.layout.block;
    ASSIGN_OR_RETURN(pool.device,
                     device.allocate(block * static_cast<size_t>(limits.num_blocks[g])));
    if (limits.num_host_blocks[g] == 0) continue;
    ASSIGN_OR_RETURN(pool.host,
                     device.allocate_host(block * static_cast<size_t>(limits.num_host_blocks[g])));
  }
  return cache;
}

kernels::CacheView KvCache::view(int32_t layer) const {
  const Place place = places_[static_cast<size_t>(layer)];
  const CacheGroup& group = groups_[static_cast<size_t>(place.group)];
  const Pool& pool = pools_[static_cast<size_t>(place.group)];
  const auto index = static_cast<size_t>(place.index);
  kernels::CacheView view;
  view.keys = pool.device.bytes() + pool.layout.keys(index);
  view.values = pool.device.bytes() + pool.layout.values(index);
  if (pool.layout.scales > 0) {
    view.key_scales = reinterpret_cast<float*>(pool.device.bytes() + pool.layout.key_scales(index));
    view.value_scales =
        reinterpret_cast<float*>(pool.device.bytes() + pool.layout.value_scales(index));
  }
  view.block_stride = static_cast<int64_t>(pool.layout.block / size_of(limits_.kv_type));
  view.scale_stride = static_cast<int64_t>(pool.layout.block / sizeof(float));
  view.block_tokens = limits_.block_tokens;
  view.window = group.window;
  view.sink = group.sink;
  view.type = limits_.kv_type;
  view.layout = kernels::key_layout(kind_, group.head_dim, limits_.block_tokens);
  view.has_trees = limits_.has_trees;
  return view;
}

std::byte* KvCache::address(size_t group, int32_t block) const {
  const Pool& pool = pools_[group];
  const int32_t num_blocks = limits_.num_blocks[group];
  const bool on_host = block >= num_blocks;
  return (on_host ? pool.host : pool.device).bytes() +
         static_cast<size_t>(on_host ? block - num_blocks : block) * pool.layout.block;
}

bool KvCache::touches_host(const BlockCopy& copy) const {
  return std::max(copy.from, copy.to) >= limits_.num_blocks[static_cast<size_t>(copy.group)];
}

Status KvCache::copy_blocks(std::span<const BlockCopy> copies, Stream& stream) const {
  for (size_t i = 0; i < copies.size();) {
    const BlockCopy& first = copies[i];
    const auto group = static_cast<size_t>(first.group);
    const auto on_host = [&](int32_t block) { return block >= limits_.num_blocks[group]; };
    // Neighbours go in one piece, which must not reach from one pool into the other, nor overlap
    // itself.
    int32_t count = 1;
    for (; i + count < copies.size() && count < std::abs(first.to - first.from); ++count) {
      const BlockCopy& next = copies[i + count];
      if (next.group != first.group || next.from != first.from + count ||
          next.to != first.to + count || on_host(next.from) != on_host(first.from) ||
          on_host(next.to) != on_host(first.to))
        break;
    }
    if (first.from != first.to)
      RETURN_IF_ERROR(stream.copy(address(group, first.to), address(group, first.from),
                                  static_cast<size_t>(count) * pools_[group].layout.block));
    i += count;
  }
  return ok();
}

Status KvCache::move_cells(std::span<const CellMove> moves, Stream& stream) const {
  for (const CellMove& move : moves)
    for (size_t i = 0; i < groups_[static_cast<size_t>(move.group)].layers.size(); ++i)
      RETURN_IF_ERROR(move_cell(move, i, stream));
  return ok();
}

// Moves the cell in one layer: number `layer` of the group.
Status KvCache::move_cell(const CellMove& move, size_t layer, Stream& stream) const {
  const auto g = static_cast<size_t>(move.group);
  const CacheGroup& group = groups_[g];
  const KvLayout& layout = pools_[g].layout;
  const std::byte* const from = address(g, move.from_block);
  std::byte* const to = address(g, move.to_block);
  const size_t size = size_of(limits_.kv_type), line = static_cast<size_t>(group.head_dim) * size;
  const kernels::KeyLayout keys = kernels::key_layout(kind_, group.head_dim, limits_.block_tokens);
  // A key in a panel is words of four bytes apart from each other.
  const size_t piece = keys == kernels::KeyLayout::kPanels ? 4 : line;
  for (int64_t head = 0; head < group.num_kv_heads; ++head) {
    const int64_t from_line = head * limits_.block_tokens + move.from_cell;
    const int64_t to_line = head * limits_.block_tokens + move.to_cell;
    const auto copy = [&](size_t plane, int64_t from_at, int64_t to_at, size_t unit, size_t bytes) {
      return stream.copy(to + plane + static_cast<size_t>(to_at) * unit,
                         from + plane + static_cast<size_t>(from_at) * unit, bytes);
    };
    const auto key_at = [&](int64_t at, size_t byte) {
      return kernels::key_index(keys, at, static_cast<int64_t>(byte / size), group.head_dim, size);
    };
    for (size_t byte = 0; byte < line; byte += piece)
      RETURN_IF_ERROR(
          copy(layout.keys(layer), key_at(from_line, byte), key_at(to_line, byte), size, piece));
    if (layout.has_values)
      RETURN_IF_ERROR(copy(layout.values(layer), from_line, to_line, line, line));
    if (layout.scales == 0) continue;
    constexpr size_t kScale = sizeof(float);
    RETURN_IF_ERROR(copy(layout.key_scales(layer), from_line, to_line, kScale, kScale));
    if (layout.has_values)
      RETURN_IF_ERROR(copy(layout.value_scales(layer), from_line, to_line, kScale, kScale));
  }
  return ok();
}

}  // namespace nereid::exec
