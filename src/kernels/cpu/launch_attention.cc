// Divides attention into tiles of a row's tokens by KV heads, or by parts of their query heads if
// there are fewer tiles than threads.
#include <algorithm>
#include <vector>

#include "kernels/api/keys.h"
#include "kernels/api/validate.h"
#include "kernels/cpu/launch.h"
#include "kernels/cpu/scratch.h"

namespace nereid::kernels::cpu {
namespace {

static_assert(kSmallestScaledVector == kSmallestScaled);
static_assert(cpu::kKeysPerPanel == kernels::kKeysPerPanel);

constexpr int64_t kTileRows = 48;  // maximum tokens x query heads per tile
constexpr int64_t kPartHeads = 8;  // minimum query heads for which reading the keys again pays

struct TokenTile {
  int32_t begin, count;
};

// A prefill's longest tiles are the last of a row: they are started first. Tokens in draft trees
// are single tiles.
void cut_tokens(const Attention& a, int64_t tile_tokens, std::vector<TokenTile>& tiles) {
  tiles.clear();
  const auto in_tree = [&](int64_t token) { return a.step.after && a.step.after[token] > 0; };
  for (int32_t row = 0; row < a.step.num_rows; ++row) {
    const int64_t end = a.step.row_begin[row + 1];
    for (int64_t t = a.step.row_begin[row], count; t < end; t += count) {
      for (count = 1; count < std::min(tile_tokens, end - t); ++count)
        if (in_tree(t) || in_tree(t + count)) break;
      tiles.push_back({static_cast<int32_t>(t), static_cast<int32_t>(count)});
    }
  }
  std::reverse(tiles.begin(), tiles.end());
}

void set_slopes(const Attention& a, std::vector<float>& slopes) {
  slopes.clear();
  for (int32_t head = 0; a.alibi > 0 && head < a.heads.num; ++head)
    slopes.push_back(alibi_slope(a, head));
}

AttentionRaw raw_args(const Attention& a, const std::vector<float>& slopes) {
  const CacheView& c = a.cache;
  return {
      .qkv = a.qkv.as<float>(),
      .k_cache = c.keys,
      .v_cache = c.values,
      .k_scales = c.key_scales,
      .v_scales = c.value_scales,
      .out = a.out.as<uint16_t>(),
      .rotation = {is_given(a.angles) ? a.angles.data : nullptr, a.angles.cols, a.interleaved},
      .sinks = is_given(a.sinks) ? static_cast<const uint16_t*>(a.sinks.data) : nullptr,
      .slopes = a.alibi > 0 ? slopes.data() : nullptr,
      .positions = a.step.positions,
      .row_of_token = a.step.row_of_token,
      .block_table = a.step.block_table,
      .after = a.step.after,
      .cells = a.step.cells,
      .qkv_stride = a.qkv.stride,
      .out_stride = a.out.stride,
      .max_blocks = a.step.max_blocks,
      .block_stride = c.block_stride,
      .scale_stride = c.scale_stride,
      .heads = a.heads.num,
      .kv_heads = a.heads.num_kv,
      .head_dim = a.heads.dim,
      .value_dim = a.heads.value_dim(),
      .latent = a.heads.latent > 0,
      .block_tokens = c.block_tokens,
      .window = c.window,
      .sink = c.sink,
      .chunk = chunk_of(a),
      .scale = a.scale,
      .cap = a.cap,
      .cache = c.type == DType::kI8       ? CacheType::kInt8
               : c.type == DType::kF8E4M3 ? CacheType::kFp8
                                          : CacheType::kBf16,
  };
}

bool has_key_panels(const Attention& a) {
  return a.cache.layout == KeyLayout::kPanels && a.heads.dim <= kMaxHeadDim;
}

Status launch_attention(const Raw& raw, const Attention& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const int64_t tokens = a.qkv.rows, kv_heads = a.heads.num_kv, group = a.heads.num / kv_heads;
  thread_local std::vector<float> slopes;
  set_slopes(a, slopes);
  const AttentionRaw args = raw_args(a, slopes);
  constexpr int64_t kStoreGrain = 8;
  if (tokens <= kStoreGrain)
    raw.attention_store(args, 0, tokens);
  else
    pool.parallel_for(tokens, kStoreGrain, [&](int64_t begin, int64_t end, int) {
      raw.attention_store(args, begin, end);
    });

  thread_local std::vector<TokenTile> tiles;
  thread_local Scratch scratch;
  const int64_t tile_tokens = std::max<int64_t>(1, kTileRows / group);
  cut_tokens(a, tile_tokens, tiles);
  const auto groups = static_cast<int64_t>(tiles.size()) * kv_heads;
  const int64_t wanted = (pool.num_threads() + groups - 1) / groups;
  const int64_t parts = std::clamp<int64_t>(group / kPartHeads, 1, wanted);  // per KV head
  const int64_t floats =
      raw.attention_scratch(args, std::min(tile_tokens, tokens) * ((group + parts - 1) / parts));
  ASSIGN_OR_RETURN(void* const memory,
                   scratch.get(static_cast<size_t>(floats * pool.num_threads()) * sizeof(float)));
  const TokenTile* const first = tiles.data();
  pool.parallel_for(groups * parts, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t item = begin; item < end; ++item) {
      const TokenTile& tile = first[item / parts / kv_heads];
      const int64_t part = item % parts, head = group * part / parts;
      raw.attention_tile(args, tile.begin, tile.count, item / parts % kv_heads * group + head,
                         group * (part + 1) / parts - head,
                         static_cast<float*>(memory) + thread * floats);
    }
  });
  return ok();
}

}  // namespace

template <>
Table<Attention> table<Attention>() {
  return vectors<Attention, launch_attention, has_key_panels>();
}

}  // namespace nereid::kernels::cpu
