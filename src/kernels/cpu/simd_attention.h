// Parts of paged attention that its kernels share: tiles of keys at fixed positions, online softmax
// (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"). A query's arithmetic
// depends on its position only: tiles start at multiples of kTile, and invisible keys take no part.
#pragma once

#include "kernels/cpu/simd_kv.h"
#include "kernels/cpu/simd_raw.h"

namespace nereid::kernels::cpu::NEREID_SIMD {

constexpr int64_t kTile = 64;  // keys
constexpr int64_t kTilePanels = kTile / kKeysPerPanel;

inline int64_t padded(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// Work of a call: tokens [begin, begin + count) by query heads [head, head + heads) of one KV head.
struct Part {
  int64_t begin, count, head, heads;
  int64_t rows() const { return count * heads; }
};

// Scratch of a call: a row per query, token-major.
struct Scratch {
  float* q;              // [rows, d]
  float* scores;         // [rows, kTile]
  float* values;         // [kTile, padded value_dim], f32
  float* acc;            // [rows, padded value_dim]
  float* largest;        // [rows]
  float* sums;           // [rows]
  float* k_scales;       // [kTile], 0 where no key is
  float* v_scales;       // [kTile]
  const void** v_lines;  // [kTile]
  void* keys;            // panels of a tile, for tokens in draft trees
};

inline int64_t layout(const AttentionRaw& a, int64_t rows, float* base, Scratch* s) {
  const int64_t width = padded(a.value_dim);
  float* next = base;
  const auto take = [&next](int64_t count) {
    float* p = next;
    next += (count + 15) / 16 * 16;
    return p;
  };
  s->q = take(rows * a.head_dim);
  s->scores = take(rows * kTile);
  s->values = take(kTile * width);
  s->acc = take(rows * width);
  s->largest = take(rows);
  s->sums = take(rows);
  s->k_scales = take(kTile);
  s->v_scales = take(kTile);
  s->v_lines = reinterpret_cast<const void**>(take(2 * kTile));
  if (a.after) s->keys = take(kTile * a.head_dim / 2);
  return next - base;
}

// Position of a cached vector and its scale: the block's first cell, the vector's index in the
// block, the scale's index.
struct CachePlace {
  int64_t block, line, scale;
};

inline CachePlace place_of(const AttentionRaw& a, int64_t row, int64_t kv_head, int64_t position) {
  const int64_t block = a.block_table[row * a.max_blocks + position / a.block_tokens];
  const int64_t line = kv_head * a.block_tokens + position % a.block_tokens;
  return {block * a.block_stride, line, block * a.scale_stride + line};
}

// kernels::cell_of(): the cell of a position for `token`.
inline int64_t cell_of(const AttentionRaw& a, int64_t token, int64_t position) {
  while (a.after[token] > 0 && a.positions[token] > position) token -= a.after[token];
  return a.after[token] > 0 ? a.cells[token] : position;
}

// Start of the panel of a block's key.
template <class Cache>
typename Cache::Cell* key_panel(const AttentionRaw& a, int64_t block, int64_t line) {
  return static_cast<typename Cache::Cell*>(a.k_cache) + block +
         line / kKeysPerPanel * kKeysPerPanel * a.head_dim;
}

template <class Cache>
void widen_line(const typename Cache::Cell* value, int64_t head_dim, float* out) {
  int64_t c = 0;
  for (; c + kLanes <= head_dim; c += kLanes) store(out + c, Cache::read(value + c));
  if (c < head_dim) store(out + c, read_part<Cache>(value + c, head_dim - c));
}

// MLA values: the last columns of `count` keys of a panel from `first` on.
template <class Cache>
void widen_keys(const AttentionRaw& a, const typename Cache::Cell* panel, int64_t first,
                int64_t count, int64_t stride, float* out) {
  using Cell = typename Cache::Cell;
  constexpr int64_t kWord = 4 / sizeof(Cell);
  const int64_t skipped = a.head_dim - a.value_dim;
  for (int64_t key = 0; key < count; ++key) {
    Cell line[kMaxHeadDim];
    const Cell* from = panel + (first + key) * kWord;
    for (int64_t c = 0; c < a.head_dim; c += kWord, from += kKeysPerPanel * kWord)
      __builtin_memcpy(line + c, from, 4);
    widen_line<Cache>(line + skipped, a.value_dim, out + key * stride);
  }
}

inline void copy_scales(const float* from, int64_t count, float unit, float* to) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(to + i, mul(load(from + i), set1(unit)));
  for (; i < count; ++i) to[i] = from[i] * unit;
}

// Last position visible to a token.
inline int64_t last_of(const AttentionRaw& a, int64_t token) {
  return a.last ? a.last[token] : a.positions[token];
}

// Position from which a token's window is counted; any number without a window.
inline int64_t window_of(const AttentionRaw& a, int64_t token) {
  return a.positions ? a.positions[token] : 0;
}

// Two ranges of a tile's keys, sink and window, in order.
struct Ranges {
  int64_t begin[2], end[2];
  bool empty() const { return begin[0] >= end[0] && begin[1] >= end[1]; }
  bool operator==(const Ranges&) const = default;
};

// Keys of the tile at `first` visible to queries together whose windows are counted from `oldest`
// on, and which see positions up to `newest`; exact for one query. Empty ranges are at 0 or kTile.
inline Ranges visible(const AttentionRaw& a, int64_t oldest, int64_t newest, int64_t first) {
  const int64_t sink = a.window > 0 ? min_of(a.sink, newest + 1) : 0;
  int64_t recent = a.window > 0 ? max_of(sink, oldest + 1 - a.window) : 0;
  if (a.chunk > 0) recent = max_of(recent, oldest - oldest % a.chunk);
  Ranges r = {{0, max_of(0, recent - first)},
              {min_of(kTile, sink - first), min_of(kTile, newest + 1 - first)}};
  if (r.end[0] < 0) r.end[0] = 0;
  if (r.begin[1] >= r.end[1]) r.begin[1] = r.end[1] = kTile;
  return r;
}

// Locates the tile's keys and values in the ranges. A panel without visible keys is replaced by
// another: its scores are masked, its values never read. `widen`: values are widened.
template <class Cache>
void find_tile(const AttentionRaw& a, int64_t row, int64_t kv_head, int64_t first,
               const Ranges& ranges, bool widen, const Scratch& s,
               const uint16_t* (&panels)[kTilePanels]) {
  using Cell = typename Cache::Cell;
  const int64_t width = padded(a.value_dim);
  const uint16_t* any = nullptr;
  for (int64_t p = 0; p < kTilePanels; ++p) panels[p] = nullptr;
  if constexpr (Cache::kHasScales)
    for (int64_t i = 0; i < kTile; ++i) s.k_scales[i] = s.v_scales[i] = 0;
  for (int part = 0; part < 2; ++part)
    for (int64_t i = ranges.begin[part]; i < ranges.end[part];) {
      const int64_t run =
          min_of(a.block_tokens - (first + i) % a.block_tokens, ranges.end[part] - i);
      const CachePlace at = place_of(a, row, kv_head, first + i);
      for (int64_t p = i / kKeysPerPanel; p * kKeysPerPanel < i + run; ++p)
        any = panels[p] = reinterpret_cast<const uint16_t*>(
            key_panel<Cache>(a, at.block, at.line - i + p * kKeysPerPanel));
      if (a.latent) {
        for (int64_t j = 0, count; j < run; j += count) {
          const int64_t line = at.line + j, in_panel = line % kKeysPerPanel;
          count = min_of(kKeysPerPanel - in_panel, run - j);
          widen_keys<Cache>(a, key_panel<Cache>(a, at.block, line), in_panel, count, width,
                            s.values + (i + j) * width);
        }
      } else {
        const Cell* const values =
            static_cast<const Cell*>(a.v_cache) + at.block + at.line * a.head_dim;
        for (int64_t j = 0; j < run; ++j) s.v_lines[i + j] = values + j * a.head_dim;
        for (int64_t j = 0; widen && j < run; ++j)
          widen_line<Cache>(values + j * a.head_dim, a.head_dim, s.values + (i + j) * width);
      }
      if constexpr (Cache::kHasScales) {
        copy_scales(a.k_scales + at.scale, run, Cache::kUnit, s.k_scales + i);
        copy_scales((a.latent ? a.k_scales : a.v_scales) + at.scale, run, Cache::kUnit,
                    s.v_scales + i);
      }
      i += run;
    }
  for (int64_t p = 0; p < kTilePanels; ++p)
    if (!panels[p]) panels[p] = any;
}

// find_tile() for a token in a draft tree, whose keys are not in order of positions: each is copied
// to the panel and column of its position, so that scores are equal.
template <class Cache>
void gather_tile(const AttentionRaw& a, int64_t token, int64_t kv_head, int64_t first,
                 const Ranges& ranges, bool widen, const Scratch& s,
                 const uint16_t* (&panels)[kTilePanels]) {
  using Cell = typename Cache::Cell;
  constexpr int64_t kWord = 4 / sizeof(Cell);
  const int64_t width = padded(a.value_dim);
  Cell* const keys = static_cast<Cell*>(s.keys);
  for (int64_t p = 0; p < kTilePanels; ++p)
    panels[p] = reinterpret_cast<const uint16_t*>(keys + p * kKeysPerPanel * a.head_dim);
  if constexpr (Cache::kHasScales)
    for (int64_t i = 0; i < kTile; ++i) s.k_scales[i] = s.v_scales[i] = 0;
  for (int part = 0; part < 2; ++part)
    for (int64_t i = ranges.begin[part]; i < ranges.end[part]; ++i) {
      const CachePlace at =
          place_of(a, a.row_of_token[token], kv_head, cell_of(a, token, first + i));
      const Cell* const panel = key_panel<Cache>(a, at.block, at.line);
      const int64_t in_panel = at.line % kKeysPerPanel;
      const Cell* from = panel + in_panel * kWord;
      Cell* to = keys + i / kKeysPerPanel * kKeysPerPanel * a.head_dim + i % kKeysPerPanel * kWord;
      for (int64_t c = 0; c < a.head_dim; c += kWord) {
        __builtin_memcpy(to, from, 4);
        from += kKeysPerPanel * kWord, to += kKeysPerPanel * kWord;
      }
      float* const value = s.values + i * width;
      if (a.latent) {
        widen_keys<Cache>(a, panel, in_panel, 1, width, value);
      } else {
        const Cell* const line =
            static_cast<const Cell*>(a.v_cache) + at.block + at.line * a.head_dim;
        s.v_lines[i] = line;
        if (widen) widen_line<Cache>(line, a.head_dim, value);
      }
      if constexpr (Cache::kHasScales) {
        copy_scales(a.k_scales + at.scale, 1, Cache::kUnit, s.k_scales + i);
        copy_scales((a.latent ? a.k_scales : a.v_scales) + at.scale, 1, Cache::kUnit,
                    s.v_scales + i);
      }
    }
}

// A query of the tile whose first key is `first_key`.
struct Query {
  int64_t row, token, head, position, first_key;
};

// Adds the relative position bias to the scores of a query's tile.
inline void add_bias(const AttentionRaw& a, const Query& q, float* scores) {
  const float* const table = a.bias + q.head * a.bias_width;
  const int64_t column = q.first_key - q.position - a.bias_first;  // of the tile's first key
  const int64_t begin = min_of(max_of(-column, 0), kTile);
  const int64_t end = min_of(max_of(a.bias_width - column, begin), kTile);
  float biases[kTile];
  for (int64_t i = 0; i < begin; ++i) biases[i] = table[0];
  for (int64_t i = begin; i < end; ++i) biases[i] = table[column + i];
  for (int64_t i = end; i < kTile; ++i) biases[i] = table[a.bias_width - 1];
  for (int64_t i = 0; i < kTile; i += kLanes)
    store(scores + i, add(load(scores + i), load(biases + i)));
}

// Applies scale, cap, slope and bias to the scores of a query's tile.
inline void bend(const AttentionRaw& a, const Query& q, float* scores) {
  const F scale = set1(a.scale), cap = set1(a.cap);
  for (int64_t i = 0; i < kTile; i += kLanes) {
    F score = mul(load(scores + i), scale);
    if (a.cap > 0) score = mul(cap, tanh(div(score, cap)));
    store(scores + i, score);
  }
  for (int64_t i = 0; a.slopes && i < kTile; i += kLanes) {
    float distances[kLanes];
    for (int64_t j = 0; j < kLanes; ++j)
      distances[j] = static_cast<float>(q.position - q.first_key - i - j);
    store(scores + i, sub(load(scores + i), mul(set1(a.slopes[q.head]), load(distances))));
  }
  if (a.bias) add_bias(a, q, scores);
}

// Scores of masked keys among the first `count` of a query's tile become -infinity.
inline void hide_masked(const AttentionRaw& a, const Query& q, int64_t count, float* scores) {
  const uint32_t* const mask = a.mask + q.token * a.mask_words;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = q.first_key + i;
    if ((mask[at / 32] >> (at % 32) & 1) == 0) scores[i] = -kInfinity;
  }
}

// Weights of a query's tile by put(first key, vector); sum and accumulator are rescaled to the new
// maximum. Scores are overwritten.
template <class Cache, class Put>
[[gnu::always_inline]] inline void soften(const AttentionRaw& a, const Ranges& seen,
                                          const Scratch& s, const Query& q, float* scores,
                                          const Put& put) {
  const int64_t row = q.row;
  if constexpr (Cache::kHasScales)
    for (int64_t i = 0; i < kTile; i += kLanes)
      store(scores + i, mul(load(scores + i), load(s.k_scales + i)));
  const bool bent = a.cap > 0 || a.slopes || a.bias;
  if (bent) bend(a, q, scores);
  const float unit = bent ? 1 : a.scale;
  for (int64_t i = seen.end[0]; i < seen.begin[1]; ++i) scores[i] = -kInfinity;
  for (int64_t i = seen.end[1]; i < kTile; ++i) scores[i] = -kInfinity;
  if (a.mask) hide_masked(a, q, seen.end[1], scores);
  const F scale = set1(unit);
  F most = set1(-kInfinity);
  for (int64_t i = 0; i < kTile; i += kLanes) most = vmax(most, load(scores + i));
  const float most_of_all = largest(most);
  if (a.mask && most_of_all == -kInfinity) {  // exp(-infinity - -infinity) is no number
    for (int64_t i = 0; i < kTile; i += kLanes) put(i, set1(0));
    return;
  }
  const float before = s.largest[row];
  const float tile_largest = most_of_all * unit;
  const float now = before < tile_largest ? tile_largest : before;
  F total = set1(0);
#pragma GCC unroll 8
  for (int64_t i = 0; i < kTile; i += kLanes) {
    const F weight = exp(sub(mul(load(scores + i), scale), set1(now)));
    put(i, weight);
    total = add(total, weight);
  }
  if (before == now) {
    s.sums[row] += sum(total);
    return;
  }
  const F correction = exp(set1(before - now));
  float factor[kLanes];
  store(factor, correction);
  s.sums[row] = s.sums[row] * factor[0] + sum(total);
  s.largest[row] = now;
  const int64_t width = padded(a.value_dim);
  float* const acc = s.acc + row * width;
  for (int64_t c = 0; c < width; c += kLanes) store(acc + c, mul(load(acc + c), correction));
}

inline float widened(uint16_t x) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(x) << 16);
}

template <class Cache>
void load_queries(const AttentionRaw& a, const Part& part, const Scratch& s) {
  const int64_t width = padded(a.value_dim);
  for (int64_t row = 0; row < part.rows(); ++row) {
    const int64_t token = part.begin + row / part.heads, head = part.head + row % part.heads;
    const float* x = a.qkv + token * a.qkv_stride + head * a.head_dim;
    float* q = s.q + row * a.head_dim;
    if (a.rotation.angles)
      rotate(x, a.rotation, a.positions[token], a.head_dim, q);
    else
      __builtin_memcpy(q, x, static_cast<size_t>(a.head_dim) * sizeof(float));
    if constexpr (Cache::kUnit != 1)
      for (int64_t c = 0; c < a.head_dim; ++c) q[c] *= Cache::kUnit;
    // A sink logit is the first score, of weight 1 until a larger one comes.
    s.largest[row] = a.sinks ? widened(a.sinks[head]) : -kInfinity;
    s.sums[row] = a.sinks ? 1 : 0;
    for (int64_t c = 0; c < width; c += kLanes) store(s.acc + row * width + c, set1(0));
  }
}

template <class Cache>
void write_outputs(const AttentionRaw& a, const Part& part, const Scratch& s) {
  for (int64_t r = 0; r < part.rows(); ++r) {
    uint16_t* out = a.out + (part.begin + r / part.heads) * a.out_stride +
                    (part.head + r % part.heads) * a.value_dim;
    const float factor = s.sums[r] == 0 ? 0 : Cache::kUnit / s.sums[r];  // without keys: 0
    write_line<Bf16Cache>(s.acc + r * padded(a.value_dim), a.value_dim, set1(factor), out);
  }
}

}  // namespace nereid::kernels::cpu::NEREID_SIMD
