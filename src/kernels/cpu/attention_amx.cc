// Paged attention over a bf16 cache with AMX tiles. A query and a weight are the sums of two bf16,
// within 2^-17 of the f32 number. One path for all row counts: a row's sums are the same chain of
// tile products alone or among others.
#include "kernels/cpu/simd_amx.h"
#include "kernels/cpu/simd_attention.h"

namespace nereid::kernels::cpu {
namespace avx512 {
void rotate(const float* x, const RotationRaw& rotation, int64_t position, int64_t head_dim,
            float* out);
}
namespace amx {

void rotate(const float* x, const RotationRaw& rotation, int64_t position, int64_t head_dim,
            float* out) {
  avx512::rotate(x, rotation, position, head_dim, out);
}

namespace {

constexpr int64_t kStepK = 32;                  // bf16 columns of an A tile
constexpr int64_t kTileElements = 16 * kStepK;  // of a B tile
constexpr int64_t kSteps = kTile / kStepK;      // of a tile of keys

// Rows of scratch: whole tiles, if there are several.
int64_t rows_of(int64_t rows) {
  return rows <= kTileRows ? rows : (rows + kTileRows - 1) / kTileRows * kTileRows;
}

// Two bf16 matrices, one behind the other, whose sum is an f32 matrix.
struct SplitRows {
  uint16_t* high;
  int64_t stride, distance;  // elements: of rows, from `high` to the other matrix

  const uint16_t* at(int64_t part, int64_t row, int64_t column) const {
    return high + part * distance + row * stride + column;
  }
  // Each number rounded to bf16, and the rest.
  void put(int64_t row, int64_t column, F first, F second) const {
    const auto rounded = [](F x) {
      const __m512i half = _mm512_set1_epi32(0x8000);
      const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
      return as_floats(_mm512_and_si512(_mm512_add_epi32(as_words(x), half), mask));
    };
    const F first_high = rounded(first), second_high = rounded(second);
    uint16_t* const to = high + row * stride + column;
    const __m512bh highs = _mm512_cvtne2ps_pbh(second_high, first_high);
    const __m512bh lows = _mm512_cvtne2ps_pbh(sub(second, second_high), sub(first, first_high));
    __builtin_memcpy(to, &highs, sizeof(highs));
    __builtin_memcpy(to + distance, &lows, sizeof(lows));
  }
};

struct TileScratch {
  Scratch common;     // values: B tiles, [value_dim / 16][kSteps]; scores: [2, 16, kTile]
  SplitRows queries;  // [rows, head_dim]
  SplitRows weights;  // [2, 16, kTile]
};

int64_t layout_tiles(const AttentionRaw& a, int64_t rows, float* base, TileScratch* s) {
  constexpr int64_t kCells = 2 * kTileRows * kTile;
  const int64_t used = layout(a, rows, base, &s->common);
  float* const weights = base + used;
  s->common.scores = weights + kCells;
  float* const queries = s->common.scores + kCells;
  s->weights = {reinterpret_cast<uint16_t*>(weights), kTile, kCells};
  s->queries = {reinterpret_cast<uint16_t*>(queries), a.head_dim, rows * a.head_dim};
  return used + 2 * kCells + rows * a.head_dim;
}

// Tiles 0 to 3: sums; 4: rows; 5 to 7: keys or values.
void configure_rows(int64_t rows) { configure_low(min_of(rows, kTileRows)); }

// sums[p] += rows of x times panel(p), for kPanels panels.
template <int kPanels, class Panel>
[[gnu::always_inline]] inline void add_products(const uint16_t* x, int64_t x_stride,
                                                const Panel& panel) {
  _tile_loadd(4, x, x_stride * 2);
  _tile_loadd(5, panel(0), kLineBytes);
  _tile_dpbf16ps(0, 4, 5);
  if constexpr (kPanels > 1) {
    _tile_loadd(6, panel(1), kLineBytes);
    _tile_dpbf16ps(1, 4, 6);
  }
  if constexpr (kPanels > 2) {
    _tile_loadd(7, panel(2), kLineBytes);
    _tile_dpbf16ps(2, 4, 7);
  }
  if constexpr (kPanels > 3) {
    _tile_loadd(5, panel(3), kLineBytes);
    _tile_dpbf16ps(3, 4, 5);
  }
}

// Scores of a tile's keys for up to 16 rows from `row` on.
void score_rows(const AttentionRaw& a, int64_t row, const uint16_t* const (&panels)[kTilePanels],
                const TileScratch& s, float* scores) {
  static_assert(kTilePanels == 4);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t c = 0; c < a.head_dim; c += kStepK)
    for (int part = 0; part < 2; ++part)
      add_products<4>(s.queries.at(part, row, c), s.queries.stride,
                      [&](int p) { return panels[p] + c * kKeysPerPanel; });
  _tile_stored(0, scores, kTile * 4);
  _tile_stored(1, scores + 16, kTile * 4);
  _tile_stored(2, scores + 32, kTile * 4);
  _tile_stored(3, scores + 48, kTile * 4);
}

// B tiles of the values of keys in `seen`, zeros for others; false if one is not finite. Two tiles
// share 32 columns: the first has fours 0, 2, 4, 6, the second 1, 3, 5, 7.
bool pair_values(const AttentionRaw& a, const Ranges& seen, const Scratch& s) {
  const auto line_of = [&](int64_t key) {
    const bool is_seen =
        (key >= seen.begin[0] && key < seen.end[0]) || (key >= seen.begin[1] && key < seen.end[1]);
    return is_seen ? static_cast<const uint16_t*>(s.v_lines[key]) : nullptr;
  };
  uint16_t* const tiles = reinterpret_cast<uint16_t*>(s.values);
  const __m512i magnitude = _mm512_set1_epi16(0x7fff);
  __m512i most = _mm512_setzero_si512();
  for (int64_t key = 0; key < kTile; key += 2) {
    const uint16_t* const even = line_of(key);
    const uint16_t* const odd = line_of(key + 1);
    uint16_t* to = tiles + key / kStepK * kTileElements + key % kStepK * 16;
    for (int64_t c = 0; c < a.value_dim; c += 32, to += 2 * kSteps * kTileElements) {
      const __m512i low = even ? _mm512_loadu_si512(even + c) : _mm512_setzero_si512();
      const __m512i high = odd ? _mm512_loadu_si512(odd + c) : _mm512_setzero_si512();
      most = _mm512_max_epu16(most, _mm512_and_si512(low, magnitude));
      most = _mm512_max_epu16(most, _mm512_and_si512(high, magnitude));
      _mm512_storeu_si512(to, _mm512_unpacklo_epi16(low, high));
      _mm512_storeu_si512(to + kSteps * kTileElements, _mm512_unpackhi_epi16(low, high));
    }
  }
  return _mm512_cmpge_epu16_mask(most, _mm512_set1_epi16(0x7f80)) == 0;
}

// Puts the columns of an accumulator in order.
void order_columns(int64_t width, float* acc) {
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
  for (int64_t c = 0; c < width; c += 32) {
    const F even = load(acc + c), odd = load(acc + c + 16);
    store(acc + c, _mm512_permutex2var_ps(even, first, odd));
    store(acc + c + 16, _mm512_permutex2var_ps(even, second, odd));
  }
}

// acc += weights * values for up to 16 rows by kVecs times 16 columns from c on.
template <int kVecs>
void weigh_columns(int64_t row, int64_t weights_row, int64_t width, int64_t c,
                   const TileScratch& s) {
  const auto* const tiles = reinterpret_cast<const uint16_t*>(s.common.values);
  float* const acc = s.common.acc + row * width + c;
  _tile_loadd(0, acc, width * 4);
  if constexpr (kVecs > 1) _tile_loadd(1, acc + 16, width * 4);
  if constexpr (kVecs > 2) _tile_loadd(2, acc + 32, width * 4);
  if constexpr (kVecs > 3) _tile_loadd(3, acc + 48, width * 4);
  for (int64_t k = 0; k < kSteps; ++k)
    for (int part = 0; part < 2; ++part)
      add_products<kVecs>(s.weights.at(part, weights_row, k * kStepK), kTile, [&](int v) {
        return tiles + ((c / 16 + v) * kSteps + k) * kTileElements;
      });
  _tile_stored(0, acc, width * 4);
  if constexpr (kVecs > 1) _tile_stored(1, acc + 16, width * 4);
  if constexpr (kVecs > 2) _tile_stored(2, acc + 32, width * 4);
  if constexpr (kVecs > 3) _tile_stored(3, acc + 48, width * 4);
}

// acc += weights * values for up to 16 rows by all columns.
void weigh_rows(int64_t row, int64_t weights_row, int64_t width, const TileScratch& s) {
  int64_t c = 0;
  for (; c + 64 <= width; c += 64) weigh_columns<4>(row, weights_row, width, c, s);
  if (c + 32 <= width) weigh_columns<2>(row, weights_row, width, c, s);
}

// One tile of keys for all queries of a call, 16 rows at a time. Tile products of the rows behind
// and in front run beside the vector operations on a block of rows.
struct KeyTile {
  const AttentionRaw& a;
  const Part& part;
  int64_t first_key;
  const Ranges& ranges;
  const uint16_t* const (&panels)[kTilePanels];
  const TileScratch& s;
  bool finite;  // all values in `ranges`

  static int64_t slot(int64_t row) { return row / kTileRows % 2 * kTileRows; }
  float* scores(int64_t row) const { return s.common.scores + slot(row) * kTile; }
  int64_t end(int64_t row) const { return min_of(row + kTileRows, part.rows()); }
  Ranges seen_by(int64_t token) const {
    return visible(a, window_of(a, token), last_of(a, token), first_key);
  }

  void score(int64_t row) const { score_rows(a, row, panels, s, scores(row)); }

  void soften_rows(int64_t row) const {
    int64_t token = part.begin + row / part.heads, head = row % part.heads;
    Ranges seen = seen_by(token);
    float* from = scores(row);
    for (int64_t r = row; r < end(row); ++r, ++head, from += kTile) {
      if (head == part.heads) head = 0, seen = seen_by(++token);
      F first = set1(0);
      const auto put = [&](int64_t i, F weight) {
        if (i % kStepK == 0)
          first = weight;
        else
          s.weights.put(slot(row) + r - row, i - kLanes, first, weight);
      };
      if (seen.empty())
        for (int64_t i = 0; i < kTile; i += kLanes) put(i, set1(0));
      else
        soften<Bf16Cache>(
            a, seen, s.common,
            {r, token, part.head + head, a.positions ? a.positions[token] : 0, first_key}, from,
            put);
    }
  }

  void weigh(int64_t row) const {
    if (finite) return weigh_rows(row, slot(row), a.value_dim, s);
    // A weight of 0 does not hide a value that is no number: each row with its own keys.
    configure_rows(1);
    for (int64_t r = row; r < end(row); ++r) {
      const Ranges seen = seen_by(part.begin + r / part.heads);
      if (seen.empty()) continue;
      pair_values(a, seen, s.common);
      weigh_rows(r, slot(row) + r - row, a.value_dim, s);
    }
    configure_rows(part.rows());
  }

  void attend() const {
    const int64_t rows = part.rows();
    score(0);
    for (int64_t row = 0; row < rows; row += kTileRows) {
      if (row + kTileRows < rows) score(row + kTileRows);
      if (row > 0) weigh(row - kTileRows);
      soften_rows(row);
    }
    weigh((rows - 1) / kTileRows * kTileRows);
  }
};

}  // namespace
}  // namespace amx

int64_t attention_scratch_amx(const AttentionRaw& a, int64_t rows) {
  amx::TileScratch unused;
  float origin[1];
  return amx::layout_tiles(a, amx::rows_of(rows), origin, &unused);
}

void attention_tile_amx(const AttentionRaw& a, int64_t begin, int64_t count, int64_t head,
                        int64_t heads, float* scratch) {
  using namespace amx;
  const Part part = {begin, count, head, heads};
  const int64_t kv_head = head / (a.heads / a.kv_heads), rows = rows_of(part.rows());
  TileScratch s;
  layout_tiles(a, rows, scratch, &s);
  load_queries<Bf16Cache>(a, part, s.common);
  for (int64_t row = 0; row < part.rows(); ++row)
    for (int64_t c = 0; c < a.head_dim; c += kStepK) {
      const float* const from = s.common.q + row * a.head_dim + c;
      s.queries.put(row, c, load(from), load(from + kLanes));
    }
  const int64_t oldest = window_of(a, begin), newest = last_of(a, begin + count - 1);
  const bool in_tree = a.after && a.after[begin] > 0;
  configure_rows(part.rows());
  for (int64_t first = 0; first <= newest; first += kTile) {
    const Ranges ranges = visible(a, oldest, newest, first);
    if (ranges.empty()) continue;
    const uint16_t* panels[kTilePanels];
    if (in_tree)
      gather_tile<Bf16Cache>(a, begin, kv_head, first, ranges, false, s.common, panels);
    else
      find_tile<Bf16Cache>(a, a.row_of_token[begin], kv_head, first, ranges, false, s.common,
                           panels);
    const bool finite = pair_values(a, ranges, s.common);
    KeyTile{a, part, first, ranges, panels, s, finite}.attend();
  }
  _tile_release();
  for (int64_t row = 0; row < part.rows(); ++row)
    order_columns(a.value_dim, s.common.acc + row * a.value_dim);
  write_outputs<Bf16Cache>(a, part, s.common);
}

}  // namespace nereid::kernels::cpu
