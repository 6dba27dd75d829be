// Paged attention: scores by linear's register tiles over the cache's key panels, values
// accumulated in order of positions.
#include "kernels/cpu/simd_attention.h"

namespace nereid::kernels::cpu::NEREID_SIMD {
namespace {

constexpr int64_t kHeads = kRegisters == 32 ? 4 : 2;  // rows whose values are summed together

// Values of a tile: widened in scratch, or in the cache.
struct WidenedValues {
  const float* values;
  int64_t width;
  F get(int64_t key, int64_t c) const { return load(values + key * width + c); }
};
template <class Cache>
struct CachedValues {
  const void* const* lines;
  F get(int64_t key, int64_t c) const {
    return Cache::read(static_cast<const typename Cache::Cell*>(lines[key]) + c);
  }
};

// acc[h] += sum over keys of weight * value, for kRows rows with equal visible keys, kVecs vectors
// from c on.
template <int kRows, int kVecs, class Values>
void weigh(const float* weights, const Values& values, int64_t c, int64_t width, const Ranges& seen,
           float* acc) {
  F total[kRows][kVecs];
#pragma GCC unroll 4
  for (int h = 0; h < kRows; ++h)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) total[h][v] = load(acc + h * width + c + v * kLanes);
  for (int part = 0; part < 2; ++part)
    for (int64_t key = seen.begin[part]; key < seen.end[part]; ++key) {
      F value[kVecs];
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) value[v] = values.get(key, c + v * kLanes);
#pragma GCC unroll 4
      for (int h = 0; h < kRows; ++h) {
        const F weight = set1(weights[h * kTile + key]);
#pragma GCC unroll 4
        for (int v = 0; v < kVecs; ++v) total[h][v] = fma(weight, value[v], total[h][v]);
      }
    }
#pragma GCC unroll 4
  for (int h = 0; h < kRows; ++h)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) store(acc + h * width + c + v * kLanes, total[h][v]);
}

template <int kRows, class Values>
void weigh_row(const Values& values, const Ranges& seen, int64_t width, int64_t row,
               const Scratch& s) {
  const float* const weights = s.scores + row * kTile;
  float* const acc = s.acc + row * width;
  int64_t c = 0;
  for (; c + 4 * kLanes <= width; c += 4 * kLanes)
    weigh<kRows, 4>(weights, values, c, width, seen, acc);
  for (; c < width; c += kLanes) weigh<kRows, 1>(weights, values, c, width, seen, acc);
}

template <class Values>
void weigh_rows(const Values& values, const Ranges& seen, int64_t width, int64_t row, int64_t end,
                const Scratch& s) {
  for (; row + kHeads <= end; row += kHeads) weigh_row<kHeads>(values, seen, width, row, s);
  if constexpr (kHeads > 2)
    for (; row + 2 <= end; row += 2) weigh_row<2>(values, seen, width, row, s);
  for (; row < end; ++row) weigh_row<1>(values, seen, width, row, s);
}

// One tile of keys for all queries of the call.
template <class Cache>
void attend_tile(const AttentionRaw& a, const Part& part, int64_t first_key,
                 const uint16_t* const (&panels)[kTilePanels], bool widened, const Scratch& s) {
  const int64_t width = padded(a.value_dim);
  const LinearRaw scores = {.x = s.q,
                            .x_stride = a.head_dim,
                            .weight = nullptr,
                            .panel_stride = 0,
                            .k = a.head_dim,
                            .bias = nullptr,
                            .out = s.scores,
                            .out_stride = kTile,
                            .n = kTile,
                            .out_bf16 = false};
  linear_block<typename Cache::Dot>(scores, ScatteredPanels{panels}, 0, part.rows(), 0,
                                    kTilePanels);
  const auto seen_by = [&](int64_t token) {
    return visible(a, window_of(a, part.begin + token), last_of(a, part.begin + token), first_key);
  };
  for (int64_t t = 0; t < part.count;) {
    const Ranges seen = seen_by(t);
    const int64_t row = t * part.heads;
    do ++t;
    while (t < part.count && seen_by(t) == seen);
    if (seen.empty()) continue;
    const int64_t end = t * part.heads;
    for (int64_t r = row; r < end; ++r) {
      float* const scores_of_row = s.scores + r * kTile;
      const auto put = [&](int64_t i, F weight) {
        if constexpr (Cache::kHasScales) weight = mul(weight, load(s.v_scales + i));
        store(scores_of_row + i, weight);
      };
      soften<Cache>(a, seen, s,
                    {r, part.begin + r / part.heads, part.head + r % part.heads,
                     a.positions ? a.positions[part.begin + r / part.heads] : 0, first_key},
                    scores_of_row, put);
    }
    if (widened)
      weigh_rows(WidenedValues{s.values, width}, seen, width, row, end, s);
    else
      weigh_rows(CachedValues<Cache>{s.v_lines}, seen, width, row, end, s);
  }
}

// Writes a key to its column of the panel.
template <class Cache>
void store_key(const AttentionRaw& a, const typename Cache::Cell* key, const CachePlace& at) {
  constexpr int64_t kWord = 4 / sizeof(typename Cache::Cell);  // cells
  typename Cache::Cell* to =
      key_panel<Cache>(a, at.block, at.line) + at.line % kKeysPerPanel * kWord;
  for (int64_t c = 0; c < a.head_dim; c += kWord, to += kKeysPerPanel * kWord)
    __builtin_memcpy(to, key + c, 4);
}

template <class Cache>
void store_tokens(const AttentionRaw& a, int64_t begin, int64_t end) {
  using Cell = typename Cache::Cell;
  for (int64_t token = begin; token < end; ++token) {
    const int64_t position = a.positions[token];
    if (a.lengths && position >= a.lengths[a.row_of_token[token]]) continue;
    for (int64_t head = 0; head < a.kv_heads; ++head) {
      const CachePlace at =
          place_of(a, a.row_of_token[token], head, a.cells ? a.cells[token] : position);
      const float* k = a.qkv + token * a.qkv_stride + (a.heads + head) * a.head_dim;
      const float* const v = a.latent ? nullptr : k + a.kv_heads * a.head_dim;
      float rotated[kMaxHeadDim];
      if (a.rotation.angles) rotate(k, a.rotation, position, a.head_dim, rotated);
      if (a.rotation.angles) k = rotated;
      Cell key[kMaxHeadDim];
      Cell* const v_out = static_cast<Cell*>(a.v_cache) + at.block + at.line * a.head_dim;
      if constexpr (Cache::kHasScales) {
        a.k_scales[at.scale] = write_scaled<Cache>(k, a.head_dim, key);
        if (v) a.v_scales[at.scale] = write_scaled<Cache>(v, a.head_dim, v_out);
      } else {
        write_line<Cache>(k, a.head_dim, set1(1), key);
        if (v) write_line<Cache>(v, a.head_dim, set1(1), v_out);
      }
      store_key<Cache>(a, key, at);
    }
  }
}

template <class Cache>
void attend(const AttentionRaw& a, const Part& part, float* scratch) {
  const int64_t kv_head = part.head / (a.heads / a.kv_heads);
  Scratch s;
  layout(a, part.rows(), scratch, &s);
  load_queries<Cache>(a, part, s);
  const int64_t row = a.row_of_token[part.begin];
  const int64_t oldest = window_of(a, part.begin);
  const int64_t newest = last_of(a, part.begin + part.count - 1);
  // Few rows read values from the cache, many widen them once.
  const bool in_tree = a.after && a.after[part.begin] > 0;
  const bool widen = in_tree || a.latent || part.rows() > 2 * kHeads || a.head_dim % kLanes != 0;
  for (int64_t first = 0; first <= newest; first += kTile) {
    const Ranges ranges = visible(a, oldest, newest, first);
    if (ranges.empty()) continue;
    const uint16_t* panels[kTilePanels];
    if (in_tree)
      gather_tile<Cache>(a, part.begin, kv_head, first, ranges, widen, s, panels);
    else
      find_tile<Cache>(a, row, kv_head, first, ranges, widen, s, panels);
    attend_tile<Cache>(a, part, first, panels, widen, s);
  }
  write_outputs<Cache>(a, part, s);
}

}  // namespace

int64_t attention_scratch(const AttentionRaw& a, int64_t rows) {
  Scratch unused;
  float origin[1];
  return layout(a, rows, origin, &unused);
}

void attention_store(const AttentionRaw& a, int64_t begin, int64_t end) {
  if (a.cache == CacheType::kBf16) store_tokens<Bf16Cache>(a, begin, end);
  if (a.cache == CacheType::kInt8) store_tokens<Int8Cache>(a, begin, end);
  if (a.cache == CacheType::kFp8) store_tokens<Fp8Cache>(a, begin, end);
}

void attention_tile(const AttentionRaw& a, int64_t begin, int64_t count, int64_t head,
                    int64_t heads, float* scratch) {
  const Part part = {begin, count, head, heads};
  if (a.cache == CacheType::kBf16) attend<Bf16Cache>(a, part, scratch);
  if (a.cache == CacheType::kInt8) attend<Int8Cache>(a, part, scratch);
  if (a.cache == CacheType::kFp8) attend<Fp8Cache>(a, part, scratch);
}

}  // namespace nereid::kernels::cpu::NEREID_SIMD
