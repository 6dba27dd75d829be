// Paged attention over tiles of keys at fixed positions: scores by the register tiles of linear,
// online softmax (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"), values
// accumulated in the order of positions. A query's arithmetic depends on its own position only:
// every tile starts at a multiple of kTile, and keys a query may not see take no part.
#include "kernels/cpu/simd_linear.h"
#include "kernels/cpu/simd_raw.h"

namespace nereid::kernels::cpu::NEREID_SIMD {
namespace {

constexpr int64_t kTile = 64;  // keys
constexpr int64_t kTilePanels = kTile / 16;

int64_t padded(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// One call's scratch: `rows` = tokens x query heads of the kv head, token-major.
struct Scratch {
  float* q;        // [rows, d]
  float* scores;   // [rows, kTile]
  float* values;   // [kTile, padded d], f32
  float* acc;      // [rows, padded d]
  float* largest;  // [rows]
  float* sums;     // [rows]
  uint16_t* keys;  // kTilePanels panels of 16 keys x d, pairs of d as in WeightLayout::kPanel16
};

int64_t layout(const AttentionRaw& a, int64_t tokens, float* base, Scratch* s) {
  const int64_t rows = tokens * (a.heads / a.kv_heads), width = padded(a.head_dim);
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
  s->keys = reinterpret_cast<uint16_t*>(take(kTile * a.head_dim / 2));
  return next - base;
}

// Element index of a position's line in the cache of one kv head.
int64_t cache_line(const AttentionRaw& a, int64_t row, int64_t kv_head, int64_t position) {
  const int64_t block = a.block_table[row * a.max_blocks + position / a.block_tokens];
  return ((block * a.kv_heads + kv_head) * a.block_tokens + position % a.block_tokens) * a.head_dim;
}

// Eight rows of eight 32-bit words become eight columns, `stride` words apart.
void transpose8(const uint16_t* const* rows, int64_t word, uint32_t* out, int64_t stride) {
  __m256 r[8], t[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    r[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(rows[i]) + word);
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    float* p = reinterpret_cast<float*>(out) + i * stride;
    _mm256_storeu_ps(p, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(p + 4 * stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

// Packs sixteen key lines into one panel.
void pack_keys(const uint16_t* const* lines, int64_t head_dim, uint16_t* panel) {
  const int64_t words = head_dim / 2;
  uint32_t* out = reinterpret_cast<uint32_t*>(panel);
  int64_t word = 0;
  for (; word + 8 <= words; word += 8)
    for (int half = 0; half < 2; ++half)
      transpose8(lines + 8 * half, word, out + word * 16 + 8 * half, 16);
  for (; word < words; ++word)
    for (int i = 0; i < 16; ++i)
      __builtin_memcpy(out + word * 16 + i, lines[i] + 2 * word, sizeof(uint32_t));
}

void widen_line(const uint16_t* value, int64_t head_dim, float* out) {
  int64_t c = 0;
  for (; c + kLanes <= head_dim; c += kLanes) store(out + c, load_bf16(value + c));
  if (c < head_dim) store(out + c, load_bf16_part(value + c, head_dim - c));
}

// Loads the keys and values [begin, end) of the tile that starts at position `first`. The other
// lines are copies of line `begin`: their scores are masked and their values never read.
void load_tile(const AttentionRaw& a, int64_t row, int64_t kv_head, int64_t first, int64_t begin,
               int64_t end, const Scratch& s) {
  const uint16_t* lines[kTile];
  const int64_t width = padded(a.head_dim);
  for (int64_t i = begin; i < end;) {
    const int64_t run = min_of(a.block_tokens - (first + i) % a.block_tokens, end - i);
    const int64_t line = cache_line(a, row, kv_head, first + i);
    for (int64_t j = 0; j < run; ++j) {
      lines[i + j] = a.k_cache + line + j * a.head_dim;
      widen_line(a.v_cache + line + j * a.head_dim, a.head_dim, s.values + (i + j) * width);
    }
    i += run;
  }
  for (int64_t i = 0; i < begin; ++i) lines[i] = lines[begin];
  for (int64_t i = end; i < kTile; ++i) lines[i] = lines[begin];
  for (int64_t p = 0; p < kTilePanels; ++p)
    pack_keys(lines + 16 * p, a.head_dim, s.keys + p * 16 * a.head_dim);
}

// What queries see of a tile: keys [begin, end) of it; empty when begin >= end.
struct Visible {
  int64_t begin, end;
};
Visible visible(const AttentionRaw& a, int64_t position, int64_t first) {
  const int64_t oldest = a.window > 0 ? max_of(0, position + 1 - a.window) : 0;
  return {max_of(0, oldest - first), min_of(kTile, position + 1 - first)};
}

// Scores of one query become its weights; its sum and accumulator are rescaled to the new maximum.
void soften(const AttentionRaw& a, const Visible& seen, float* scores, float* largest_so_far,
            float* sum_so_far, float* acc) {
  for (int64_t i = 0; i < seen.begin; ++i) scores[i] = -kInfinity;
  for (int64_t i = seen.end; i < kTile; ++i) scores[i] = -kInfinity;
  const F scale = set1(a.scale);
  F most = set1(-kInfinity);
  for (int64_t i = 0; i < kTile; i += kLanes) most = vmax(most, load(scores + i));
  const float before = *largest_so_far;
  const float tile_largest = largest(most) * a.scale;
  const float now = before < tile_largest ? tile_largest : before;
  F total = set1(0);
  for (int64_t i = 0; i < kTile; i += kLanes) {
    const F weight = exp(sub(mul(load(scores + i), scale), set1(now)));
    store(scores + i, weight);
    total = add(total, weight);
  }
  const F correction = exp(set1(before - now));
  float factor[kLanes];
  store(factor, correction);
  *sum_so_far = *sum_so_far * factor[0] + sum(total);
  *largest_so_far = now;
  if (before == now) return;
  for (int64_t c = 0; c < padded(a.head_dim); c += kLanes)
    store(acc + c, mul(load(acc + c), correction));
}

// acc[h] += sum over keys of weight * value, for kHeads rows that see the same keys, over kVecs
// vectors of the head.
template <int kHeads, int kVecs>
void weigh(const float* weights, const float* values, int64_t width, const Visible& seen,
           float* acc) {
  F total[kHeads][kVecs];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) total[h][v] = load(acc + h * width + v * kLanes);
  for (int64_t key = seen.begin; key < seen.end; ++key) {
    F value[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) value[v] = load(values + key * width + v * kLanes);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const F weight = set1(weights[h * kTile + key]);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) total[h][v] = fma(weight, value[v], total[h][v]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) store(acc + h * width + v * kLanes, total[h][v]);
}

template <int kHeads>
void weigh_heads(const float* weights, const float* values, int64_t width, const Visible& seen,
                 float* acc) {
  int64_t c = 0;
  for (; c + 4 * kLanes <= width; c += 4 * kLanes)
    weigh<kHeads, 4>(weights, values + c, width, seen, acc + c);
  for (; c < width; c += kLanes) weigh<kHeads, 1>(weights, values + c, width, seen, acc + c);
}

// One tile of keys for all queries of the call.
void attend_tile(const AttentionRaw& a, int64_t first_token, int64_t count, int64_t first_key,
                 const Scratch& s) {
  constexpr int64_t kHeads = kRegisters == 32 ? 4 : 2;
  const int64_t group = a.heads / a.kv_heads, width = padded(a.head_dim);
  const LinearRaw scores = {.x = s.q,
                            .x_stride = a.head_dim,
                            .weight = s.keys,
                            .panel_stride = 16 * a.head_dim,
                            .k = a.head_dim,
                            .bias = nullptr,
                            .out = s.scores,
                            .out_stride = kTile,
                            .n = kTile,
                            .out_bf16 = false};
  linear(scores, 0, count * group, 0, kTilePanels);
  for (int64_t t = 0; t < count; ++t) {
    const Visible seen = visible(a, a.positions[first_token + t], first_key);
    if (seen.begin >= seen.end) continue;
    const int64_t row = t * group;
    for (int64_t h = row; h < row + group; ++h)
      soften(a, seen, s.scores + h * kTile, s.largest + h, s.sums + h, s.acc + h * width);
    int64_t h = row;
    for (; h + kHeads <= row + group; h += kHeads)
      weigh_heads<kHeads>(s.scores + h * kTile, s.values, width, seen, s.acc + h * width);
    for (; h < row + group; ++h)
      weigh_heads<1>(s.scores + h * kTile, s.values, width, seen, s.acc + h * width);
  }
}

void load_queries(const AttentionRaw& a, int64_t begin, int64_t count, int64_t kv_head,
                  const Scratch& s) {
  const int64_t group = a.heads / a.kv_heads, width = padded(a.head_dim);
  for (int64_t t = 0; t < count; ++t) {
    const float* angles =
        a.rope_table ? a.rope_table + a.positions[begin + t] * a.head_dim : nullptr;
    for (int64_t g = 0; g < group; ++g) {
      const int64_t row = t * group + g;
      const float* x = a.qkv + (begin + t) * a.qkv_stride + (kv_head * group + g) * a.head_dim;
      float* q = s.q + row * a.head_dim;
      if (angles)
        rotate(x, angles, a.head_dim, q);
      else
        __builtin_memcpy(q, x, static_cast<size_t>(a.head_dim) * sizeof(float));
      s.largest[row] = -kInfinity;
      s.sums[row] = 0;
      for (int64_t c = 0; c < width; c += kLanes) store(s.acc + row * width + c, set1(0));
    }
  }
}

void store_row_bf16(const float* x, int64_t count, F factor, uint16_t* out) {
  int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) store_bf16(out + c, mul(load(x + c), factor));
  if (c < count) store_bf16_part(out + c, mul(load_part(x + c, count - c), factor), count - c);
}

}  // namespace

int64_t attention_scratch(const AttentionRaw& a, int64_t tokens) {
  Scratch unused;
  float origin[1];
  return layout(a, tokens, origin, &unused);
}

void attention_store(const AttentionRaw& a, int64_t begin, int64_t end) {
  const F one = set1(1);
  for (int64_t token = begin; token < end; ++token) {
    const int64_t position = a.positions[token];
    for (int64_t head = 0; head < a.kv_heads; ++head) {
      const int64_t line = cache_line(a, a.row_of_token[token], head, position);
      const float* k = a.qkv + token * a.qkv_stride + (a.heads + head) * a.head_dim;
      const float* v = k + a.kv_heads * a.head_dim;
      store_row_bf16(v, a.head_dim, one, a.v_cache + line);
      if (!a.rope_table) {
        store_row_bf16(k, a.head_dim, one, a.k_cache + line);
        continue;
      }
      rotate_bf16(k, a.rope_table + position * a.head_dim, a.head_dim, a.k_cache + line);
    }
  }
}

void attention_tile(const AttentionRaw& a, int64_t begin, int64_t count, int64_t kv_head,
                    float* scratch) {
  Scratch s;
  layout(a, count, scratch, &s);
  load_queries(a, begin, count, kv_head, s);
  const int64_t row = a.row_of_token[begin];
  const int64_t last = a.positions[begin + count - 1];
  const int64_t oldest = a.window > 0 ? max_of(0, a.positions[begin] + 1 - a.window) : 0;
  for (int64_t first = oldest / kTile * kTile; first <= last; first += kTile) {
    load_tile(a, row, kv_head, first, max_of(0, oldest - first), min_of(kTile, last + 1 - first),
              s);
    attend_tile(a, begin, count, first, s);
  }
  const int64_t group = a.heads / a.kv_heads, width = padded(a.head_dim);
  for (int64_t r = 0; r < count * group; ++r) {
    uint16_t* out =
        a.out + (begin + r / group) * a.out_stride + (kv_head * group + r % group) * a.head_dim;
    store_row_bf16(s.acc + r * width, a.head_dim, set1(1 / s.sums[r]), out);
  }
}

}  // namespace nereid::kernels::cpu::NEREID_SIMD
