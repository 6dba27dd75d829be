// Layout and block copies of the KV cache.
#include "exec/kv_cache.h"

#include <algorithm>
#include <cstdlib>

#include "base/round_up.h"

namespace nereid::exec {
namespace {

constexpr size_t kPlaneAlignment = 256;

}  // namespace

KvLayout KvLayout::of(const io::Plan& plan, const RunnerLimits& limits, int32_t num_blocks) {
  const size_t lines = static_cast<size_t>(plan.model.num_kv_heads) * limits.block_tokens;
  KvLayout out;
  out.num_layers = plan.model.num_layers;
  out.data_block = lines * plan.model.head_dim * size_of(limits.kv_type);
  out.data_plane = round_up(out.data_block * num_blocks, kPlaneAlignment);
  if (!kernels::has_kv_scales(limits.kv_type)) return out;
  out.scale_block = lines * sizeof(float);
  out.scale_plane = round_up(out.scale_block * num_blocks, kPlaneAlignment);
  return out;
}

size_t KvLayout::max_padding(const io::Plan& plan) {
  return size_t{4} * plan.model.num_layers * kPlaneAlignment;
}

Status check_copies(std::span<const BlockCopy> copies, const RunnerLimits& limits) {
  const int64_t end = int64_t{limits.num_blocks} + limits.num_host_blocks;
  for (size_t i = 0; i < copies.size(); ++i)
    for (const int32_t block : {copies[i].from, copies[i].to})
      if (block < 0 || block >= end)
        return invalid_argument("copy {}: block {} is not in [0, {})", i, block, end);
  return ok();
}

StatusOr<KvCache> KvCache::create(const io::Plan& plan, const RunnerLimits& limits,
                                  Device& device) {
  KvCache cache;
  cache.num_blocks_ = limits.num_blocks;
  cache.device_layout_ = KvLayout::of(plan, limits, limits.num_blocks);
  cache.host_layout_ = KvLayout::of(plan, limits, limits.num_host_blocks);
  ASSIGN_OR_RETURN(cache.device_, device.allocate(cache.device_layout_.bytes()));
  if (limits.num_host_blocks > 0) {
    ASSIGN_OR_RETURN(cache.host_, device.allocate_host(cache.host_layout_.bytes()));
  }
  return cache;
}

Status KvCache::copy_blocks(std::span<const BlockCopy> copies, Stream& stream) const {
  for (size_t i = 0; i < copies.size();) {
    const BlockCopy& first = copies[i];
    const auto host = [&](int32_t block) { return block >= num_blocks_; };
    // A run must not reach from one pool into the other, nor overlap itself.
    int32_t count = 1;
    for (; i + count < copies.size() && count < std::abs(first.to - first.from); ++count) {
      const BlockCopy& next = copies[i + count];
      if (next.from != first.from + count || next.to != first.to + count ||
          host(next.from) != host(first.from) || host(next.to) != host(first.to))
        break;
    }
    RETURN_IF_ERROR(copy_run(first, count, stream));
    i += count;
  }
  return ok();
}

Status KvCache::copy_run(const BlockCopy& first, int32_t count, Stream& stream) const {
  if (first.from == first.to) return ok();
  struct Side {
    const KvLayout* layout;
    std::byte* data;
    size_t block;
  };
  const auto side = [&](int32_t block) {
    const bool host = block >= num_blocks_;
    return Side{host ? &host_layout_ : &device_layout_, host ? host_.bytes() : device_.bytes(),
                static_cast<size_t>(host ? block - num_blocks_ : block)};
  };
  const Side from = side(first.from), to = side(first.to);
  const auto copy_plane = [&](auto plane, int32_t layer, size_t block_bytes) {
    return stream.copy(to.data + (to.layout->*plane)(layer) + to.block * block_bytes,
                       from.data + (from.layout->*plane)(layer) + from.block * block_bytes,
                       static_cast<size_t>(count) * block_bytes);
  };
  for (int32_t layer = 0; layer < device_layout_.num_layers; ++layer) {
    for (const auto plane : {&KvLayout::keys, &KvLayout::values})
      RETURN_IF_ERROR(copy_plane(plane, layer, device_layout_.data_block));
    if (device_layout_.scale_block == 0) continue;
    for (const auto plane : {&KvLayout::key_scales, &KvLayout::value_scales})
      RETURN_IF_ERROR(copy_plane(plane, layer, device_layout_.scale_block));
  }
  return ok();
}

}  // namespace nereid::exec
