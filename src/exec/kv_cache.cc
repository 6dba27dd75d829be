// Layout and block copies of the KV cache.
#include "exec/kv_cache.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/round_up.h"
#include "exec/memory.h"
#include "kernels/api/keys.h"

namespace nereid::exec {
namespace {

constexpr size_t kReadAlignment = 16;  // of kernels' vector reads

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
  return create(cache_groups(plan, limits), plan.model.num_layers, limits, device);
}

StatusOr<KvCache> KvCache::create(std::vector<CacheGroup> groups, int32_t num_layers,
                                  const RunnerLimits& limits, Device& device) {
  KvCache cache;
  cache.limits_ = limits;
  cache.kind_ = device.info().kind;
  cache.groups_ = std::move(groups);
  cache.places_.resize(static_cast<size_t>(num_layers));
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
  const LayerIndex place = places_[static_cast<size_t>(layer)];
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
  view.has_last = limits_.has_last;
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
    // Adjacent copies are merged into one, which must neither cross pools nor overlap itself.
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
  for (const CellMove& move : moves) RETURN_IF_ERROR(move_cell(move, stream));
  return ok();
}

// The cell's lines of all layers, heads, keys and values have one stride if there are no scales:
// one strided copy.
Status KvCache::move_cell(const CellMove& move, Stream& stream) const {
  const auto g = static_cast<size_t>(move.group);
  const CacheGroup& group = groups_[g];
  const KvLayout& layout = pools_[g].layout;
  const std::byte* const from = address(g, move.from_block);
  std::byte* const to = address(g, move.to_block);
  const auto block_tokens = static_cast<size_t>(limits_.block_tokens);
  const auto num_heads = static_cast<size_t>(group.num_kv_heads);
  const size_t line = static_cast<size_t>(group.head_dim) * size_of(limits_.kv_type);
  const bool has_panels = kernels::key_layout(kind_, group.head_dim, limits_.block_tokens) ==
                          kernels::KeyLayout::kPanels;
  // `count` lines of `unit` bytes, one head apart.
  const auto copy = [&](size_t plane, size_t unit, size_t count) {
    const auto from_cell = static_cast<size_t>(move.from_cell) * unit;
    const auto to_cell = static_cast<size_t>(move.to_cell) * unit;
    return stream.copy_rows(to + plane + to_cell, block_tokens * unit, from + plane + from_cell,
                            block_tokens * unit, unit, count);
  };
  if (!has_panels && layout.scales == 0 && layout.data == num_heads * block_tokens * line)
    return copy(0, line, group.layers.size() * num_heads * (layout.has_values ? 2 : 1));
  for (size_t i = 0; i < group.layers.size(); ++i) {
    RETURN_IF_ERROR(has_panels ? move_key_in_panels(move, i, stream)
                               : copy(layout.keys(i), line, num_heads));
    if (layout.has_values) RETURN_IF_ERROR(copy(layout.values(i), line, num_heads));
    if (layout.scales == 0) continue;
    RETURN_IF_ERROR(copy(layout.key_scales(i), sizeof(float), num_heads));
    if (layout.has_values) RETURN_IF_ERROR(copy(layout.value_scales(i), sizeof(float), num_heads));
  }
  return ok();
}

// A key in a panel is split into words of four bytes.
Status KvCache::move_key_in_panels(const CellMove& move, size_t layer, Stream& stream) const {
  constexpr size_t kWord = 4;
  const auto g = static_cast<size_t>(move.group);
  const CacheGroup& group = groups_[g];
  const size_t keys = pools_[g].layout.keys(layer), size = size_of(limits_.kv_type);
  const size_t num_words = static_cast<size_t>(group.head_dim) * size / kWord;
  const size_t stride = kernels::kKeysPerPanel * kWord;
  for (int64_t head = 0; head < group.num_kv_heads; ++head) {
    const auto first_word = [&](int32_t cell) {
      const int64_t index = kernels::key_index(
          kernels::KeyLayout::kPanels, head * limits_.block_tokens + cell, 0, group.head_dim, size);
      return keys + static_cast<size_t>(index) * size;
    };
    RETURN_IF_ERROR(stream.copy_rows(address(g, move.to_block) + first_word(move.to_cell), stride,
                                     address(g, move.from_block) + first_word(move.from_cell),
                                     stride, kWord, num_words));
  }
  return ok();
}

}  // namespace nereid::exec
