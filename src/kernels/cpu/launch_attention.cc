// Divides attention and cross attention into tiles of a row's tokens by KV heads, or by parts of
// their query heads if there are fewer tiles than threads; stores keys and values.
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
void cut_tokens(const BatchView& step, int64_t tile_tokens, std::vector<TokenTile>& tiles) {
  tiles.clear();
  const auto in_tree = [&](int64_t token) { return step.after && step.after[token] > 0; };
  for (int32_t row = 0; row < step.num_rows; ++row) {
    const int64_t end = step.row_begin[row + 1];
    for (int64_t t = step.row_begin[row], count; t < end; t += count) {
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

// For each token the last position that its row sees.
void set_last(const BatchView& step, std::vector<int32_t>& last) {
  last.clear();
  const int32_t* const positions = step.last ? step.last : step.positions;
  for (int32_t row = 0; row < step.num_rows; ++row)
    if (const int32_t end = step.row_begin[row + 1]; end > step.row_begin[row])
      last.insert(last.end(), static_cast<size_t>(end - step.row_begin[row]), positions[end - 1]);
}

AttentionRaw raw_args(const View& x, const Heads& heads, const CacheView& c) {
  return {
      .qkv = x.as<float>(),
      .k_cache = c.keys,
      .v_cache = c.values,
      .k_scales = c.key_scales,
      .v_scales = c.value_scales,
      .qkv_stride = x.stride,
      .block_stride = c.block_stride,
      .scale_stride = c.scale_stride,
      .heads = heads.num,
      .kv_heads = heads.num_kv,
      .head_dim = heads.dim,
      .value_dim = heads.value_dim(),
      .latent = heads.latent > 0,
      .block_tokens = c.block_tokens,
      .cache = c.type == DType::kI8       ? CacheType::kInt8
               : c.type == DType::kF8E4M3 ? CacheType::kFp8
                                          : CacheType::kBf16,
  };
}

AttentionRaw raw_args(const Attention& a, const std::vector<float>& slopes,
                      const std::vector<int32_t>& last) {
  AttentionRaw raw = raw_args(a.qkv, a.heads, a.cache);
  raw.out = a.out.as<uint16_t>();
  raw.out_stride = a.out.stride;
  raw.rotation = {is_given(a.angles) ? a.angles.data : nullptr, a.angles.cols, a.interleaved};
  raw.sinks = is_given(a.sinks) ? static_cast<const uint16_t*>(a.sinks.data) : nullptr;
  raw.slopes = a.alibi > 0 ? slopes.data() : nullptr;
  raw.bias = is_given(a.bias) ? static_cast<const float*>(a.bias.data) : nullptr;
  raw.bias_first = a.bias_first;
  raw.bias_width = a.bias_width;
  raw.positions = a.step.positions;
  raw.last = a.bidirectional ? last.data() : a.step.last;
  raw.row_of_token = a.step.row_of_token;
  raw.block_table = a.step.block_table;
  raw.max_blocks = a.step.max_blocks;
  raw.after = a.step.after;
  raw.cells = a.step.cells;
  raw.window = a.bidirectional ? 0 : a.cache.window;
  raw.sink = a.cache.sink;
  raw.chunk = chunk_of(a);
  raw.scale = a.scale;
  raw.cap = a.cap;
  return raw;
}

AttentionRaw raw_args(const CrossAttention& a, const std::vector<int32_t>& last) {
  AttentionRaw raw = raw_args(a.q, a.heads, a.cache);
  raw.out = a.out.as<uint16_t>();
  raw.out_stride = a.out.stride;
  raw.last = last.data();
  raw.mask = a.step.cross_mask;
  raw.mask_words = a.step.cross_mask_words;
  raw.row_of_token = a.step.row_of_token;
  raw.block_table = a.step.cross_table;
  raw.max_blocks = a.step.max_cross_blocks;
  raw.scale = a.scale;
  return raw;
}

AttentionRaw raw_args(const StoreKv& a) {
  AttentionRaw raw = raw_args(a.kv, {0, a.heads.num_kv, a.heads.dim}, a.cache);
  raw.positions = a.step.positions;
  raw.row_of_token = a.step.row_of_token;
  raw.block_table = a.step.block_table;
  raw.max_blocks = a.step.max_blocks;
  return raw;
}

template <class Op>
bool has_key_panels(const Op& a) {
  return a.cache.layout == KeyLayout::kPanels && a.heads.dim <= kMaxHeadDim;
}

// AMX for scores and values, the rest with AVX-512.
const Raw kTiles = [] {
  Raw raw = kAvx512;
  raw.attention_scratch = attention_scratch_amx;
  raw.attention_tile = attention_tile_amx;
  return raw;
}();

template <class Op>
bool has_tiles(const Op& a) {
  return has_key_panels(a) && a.cache.type == DType::kBF16 && a.heads.latent == 0 &&
         a.heads.dim % 32 == 0;
}

void store_tokens(const Raw& raw, const AttentionRaw& args, int64_t tokens, ThreadPool& pool) {
  constexpr int64_t kStoreGrain = 8;
  if (tokens <= kStoreGrain)
    raw.attention_store(args, 0, tokens);
  else
    pool.parallel_for(tokens, kStoreGrain, [&](int64_t begin, int64_t end, int) {
      raw.attention_store(args, begin, end);
    });
}

Status attend_tokens(const Raw& raw, const AttentionRaw& args, const BatchView& step,
                     int64_t tokens, ThreadPool& pool) {
  const int64_t kv_heads = args.kv_heads, group = args.heads / kv_heads;
  thread_local std::vector<TokenTile> tiles;
  thread_local Scratch scratch;
  const int64_t tile_tokens = std::max<int64_t>(1, kTileRows / group);
  cut_tokens(step, tile_tokens, tiles);
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

Status launch_attention(const Raw& raw, const Attention& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  thread_local std::vector<float> slopes;
  thread_local std::vector<int32_t> last;
  set_slopes(a, slopes);
  if (a.bidirectional) set_last(a.step, last);
  const AttentionRaw args = raw_args(a, slopes, last);
  store_tokens(raw, args, a.qkv.rows, pool);
  return attend_tokens(raw, args, a.step, a.qkv.rows, pool);
}

Status launch_cross_attention(const Raw& raw, const CrossAttention& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  thread_local std::vector<int32_t> last;
  last.clear();
  for (int64_t token = 0; token < a.q.rows; ++token)
    last.push_back(a.step.cross_lengths ? a.step.cross_lengths[a.step.row_of_token[token]] - 1
                                        : -1);
  BatchView step = a.step;
  step.after = nullptr;
  return attend_tokens(raw, raw_args(a, last), step, a.q.rows, pool);
}

Status launch_store_kv(const Raw& raw, const StoreKv& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  AttentionRaw args = raw_args(a);
  args.lengths = a.step.cross_lengths;
  store_tokens(raw, args, a.kv.rows, pool);
  return ok();
}

template <class Op, auto kLaunch>
Table<Op> attention_kernels() {
  Table<Op> kernels = vectors<Op, kLaunch, has_key_panels<Op>>();
  kernels.insert(kernels.begin(),
                 {"amx_bf16", DeviceKind::kCpu,
                  [](const Op& op, const DeviceInfo& d) { return d.has_amx && has_tiles(op); },
                  rank<Op, 0>, run<Op, kLaunch, kTiles>});
  return kernels;
}

}  // namespace

template <>
Table<Attention> table<Attention>() {
  return attention_kernels<Attention, launch_attention>();
}
template <>
Table<CrossAttention> table<CrossAttention>() {
  return attention_kernels<CrossAttention, launch_cross_attention>();
}
template <>
Table<StoreKv> table<StoreKv>() {
  return vectors<StoreKv, launch_store_kv, has_key_panels<StoreKv>>();
}

}  // namespace nereid::kernels::cpu
