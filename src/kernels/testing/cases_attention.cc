// Cases of attention: decode, prefill, chunks and mixed batches over shuffled blocks. Invisible
// cache lines are NaN, and so is block -1, which replaces blocks with invisible lines only.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/api/keys.h"
#include "kernels/ref/ref.h"
#include "kernels/testing/attention_shapes.h"
#include "kernels/testing/cases.h"

namespace nereid::kernels::testing {
namespace {

// Layout of the arguments; offsets into the image.
struct Layout {
  AttentionShape shape;
  int64_t tokens = 0, qkv_width = 0;
  int32_t max_blocks = 0, max_length = 0, num_blocks = 0;
  Offset qkv, k, v, k_scales = 0, v_scales = 0, table, positions, after, cells, row_begin,
                    row_of_token, one_row, zeros, blocks, out, sinks;
  std::vector<int32_t> rows;  // sequence of each token
};

// Block strides of vectors and of scales: with gaps, as in a cache whose blocks have all layers.
int64_t stride_lines(const Layout& l) { return int64_t{l.shape.kv_heads} * l.shape.block + 3; }
int64_t stride_scales(const Layout& l) { return int64_t{l.shape.kv_heads} * l.shape.block + 4; }

// Whether a query of the sequence attends to the position, or it is written.
bool is_used(const AttentionShape& s, const Sequence& sequence, int32_t position) {
  return s.window == 0 || position > sequence.start - s.window || position < s.sink;
}

void add_index_arrays(Layout& l, Image& image) {
  std::vector<int32_t> positions, after, cells, row_begin = {0};
  for (size_t r = 0; r < l.shape.sequences.size(); ++r) {
    const Sequence& s = l.shape.sequences[r];
    for (int32_t i = 0; i < s.count; ++i) {
      const int32_t in_tree = i + static_cast<int32_t>(s.after.size()) - s.count;
      cells.push_back(s.start + i);
      after.push_back(in_tree >= 0 ? s.after[static_cast<size_t>(in_tree)] : 0);
      positions.push_back(after.back() > 0
                              ? positions[positions.size() - static_cast<size_t>(after.back())] + 1
                              : cells.back());
      l.rows.push_back(static_cast<int32_t>(r));
    }
    row_begin.push_back(static_cast<int32_t>(positions.size()));
    l.max_length = std::max(l.max_length, s.start + s.count);
  }
  l.tokens = static_cast<int64_t>(positions.size());
  l.max_blocks = (l.max_length + l.shape.block - 1) / l.shape.block;
  l.num_blocks = l.max_blocks * static_cast<int32_t>(l.shape.sequences.size()) + 1;
  l.positions = image.add(positions);
  l.after = image.add(after);
  l.cells = image.add(cells);
  l.row_begin = image.add(row_begin);
  l.row_of_token = image.add(l.rows);
  std::vector<int32_t> one_row;  // {0, n} for every n: row_begin of a call for part of a sequence
  for (int32_t n = 0; n <= l.tokens; ++n) one_row.insert(one_row.end(), {0, n});
  l.one_row = image.add(one_row);
  l.zeros = image.add(std::vector<int32_t>(static_cast<size_t>(l.tokens), 0));
}

// Allocates a plane of all blocks of `block` bytes, after one that stays NaN: block -1.
Offset add_plane(const Layout& l, Image& image, size_t block) {
  const size_t guard = (block + 255) / 256 * 256;  // keeps the alignment
  return image.add(guard + block * static_cast<size_t>(l.num_blocks)) + guard;
}

// Fills a cached vector with values |x| <= 3.5.
void fill_line(const Layout& l, Image& image, Offset cache, Offset scales, int64_t block,
               int64_t in_block, size_t& next) {
  static const std::vector<BF16> values = noise_bf16(9, 4096);
  const AttentionShape& s = l.shape;
  const auto some = [&] { return values[next++ * 7 % values.size()]; };
  const float limit = s.kv == DType::kI8 ? 127 : kLargestF8E4M3;
  const int64_t line = block * stride_lines(l) + in_block;
  if (has_kv_scales(s.kv))
    image.at<float>(scales)[block * stride_scales(l) + in_block] =
        std::fabs(to_float(some())) / limit;
  for (int64_t c = line * s.d; c < (line + 1) * s.d; ++c) {
    const float x = to_float(some()) / 3.5f;
    if (s.kv == DType::kI8)
      image.at<int8_t>(cache)[c] = static_cast<int8_t>(x * limit);
    else if (s.kv == DType::kF8E4M3)
      image.at<F8E4M3>(cache)[c] = to_f8e4m3(x * x * x * limit);  // small ones, too
    else
      image.at<BF16>(cache)[c] = to_bf16(x * 3.5f);
  }
}

// Permutes the blocks and fills the visible cached positions with values.
void add_cache(Layout& l, Image& image) {
  const AttentionShape& s = l.shape;
  std::vector<int32_t> table;
  for (size_t r = 0; r < s.sequences.size(); ++r)
    for (int32_t b = 0; b < l.max_blocks; ++b)
      table.push_back(static_cast<int32_t>(r + s.sequences.size() * static_cast<size_t>(b)));
  std::reverse(table.begin(), table.end());
  const size_t data = static_cast<size_t>(stride_lines(l) * s.d) * size_of(s.kv);
  l.k = add_plane(l, image, data);
  l.v = s.latent > 0 ? l.k : add_plane(l, image, data);
  if (has_kv_scales(s.kv)) {
    l.k_scales = add_plane(l, image, static_cast<size_t>(stride_scales(l)) * sizeof(float));
    l.v_scales = s.latent > 0
                     ? l.k_scales
                     : add_plane(l, image, static_cast<size_t>(stride_scales(l)) * sizeof(float));
  }
  size_t next = 0;
  for (size_t r = 0; r < s.sequences.size(); ++r) {
    std::vector<bool> used(static_cast<size_t>(l.max_blocks), false);
    const Sequence& sequence = s.sequences[r];
    int32_t* const blocks = table.data() + r * static_cast<size_t>(l.max_blocks);
    for (int32_t at = 0; at < sequence.start + sequence.count; ++at) {
      if (!is_used(s, sequence, at)) continue;
      used[static_cast<size_t>(at / s.block)] = true;
      if (at >= sequence.start) continue;
      for (int32_t head = 0; head < s.kv_heads; ++head) {
        const int64_t in_block = int64_t{head} * s.block + at % s.block;
        fill_line(l, image, l.k, l.k_scales, blocks[at / s.block], in_block, next);
        if (s.latent == 0)
          fill_line(l, image, l.v, l.v_scales, blocks[at / s.block], in_block, next);
      }
    }
    for (int32_t b = 0; b < l.max_blocks; ++b)
      if (!used[static_cast<size_t>(b)]) blocks[b] = -1;
  }
  l.blocks = image.add(table);
}

Attention make_args(const Layout& l, std::byte* base, int64_t begin, int64_t count) {
  const AttentionShape& s = l.shape;
  const auto ints = [&](Offset offset) { return reinterpret_cast<const int32_t*>(base + offset); };
  const bool whole = count == l.tokens;
  Attention a;
  a.heads = {s.heads, s.kv_heads, s.d, s.latent};
  a.qkv = {base + l.qkv + begin * l.qkv_width * 4, DType::kF32, count, l.qkv_width, l.qkv_width};
  a.cache = {.keys = base + l.k,
             .values = base + l.v,
             .block_stride = stride_lines(l) * s.d,
             .scale_stride = stride_scales(l),
             .block_tokens = s.block,
             .window = s.window,
             .sink = s.sink,
             .type = s.kv,
             .layout = s.keys,
             .has_trees = s.has_trees()};
  if (has_kv_scales(s.kv)) {
    a.cache.key_scales = reinterpret_cast<float*>(base + l.k_scales);
    a.cache.value_scales = reinterpret_cast<float*>(base + l.v_scales);
  }
  a.window = s.window;
  a.chunked = s.chunked;
  a.scale = 1 / std::sqrt(static_cast<float>(s.d));
  if (s.rope) a.angles = {reinterpret_cast<const float*>(base + l.table), s.angle_cols()};
  a.interleaved = s.interleaved;
  a.cap = s.cap;
  a.alibi = s.alibi;
  a.alibi_scale = s.alibi_scale;
  a.alibi_first = s.alibi_first, a.alibi_heads = s.alibi_heads;
  if (s.sinks) a.sinks = {base + l.sinks, WeightLayout::kRowMajor, 1, s.heads};
  a.step.positions = ints(l.positions) + begin;
  if (s.has_trees()) a.step.after = ints(l.after) + begin, a.step.cells = ints(l.cells) + begin;
  a.step.num_rows = whole ? static_cast<int32_t>(s.sequences.size()) : 1;
  a.step.row_begin = whole ? ints(l.row_begin) : ints(l.one_row) + 2 * count;
  a.step.row_of_token = whole ? ints(l.row_of_token) : ints(l.zeros);
  a.step.block_table =
      ints(l.blocks) + (whole ? 0 : l.rows[static_cast<size_t>(begin)] * l.max_blocks);
  a.step.max_blocks = l.max_blocks;
  const int64_t width = int64_t{s.heads} * a.heads.value_dim();
  a.out = {base + l.out + begin * width * 2, DType::kBF16, count, width, width};
  return a;
}

// The output is a mean of values weighted by exp(scores). An error ds in the scores changes it by
// <= 2 ds max|v|; scores are sums of d products.
void set_tolerances(const Layout& l, const Image& after, std::vector<Region>& outputs) {
  const AttentionShape& s = l.shape;
  const double score =
      3.5 * 3.5 * std::sqrt(static_cast<double>(s.d));  // bound of |q||k| / sqrt(d)
  const double value = 3.5;
  const double unit = 8 * (s.cap > 0 ? s.cap : score) + 64;  // error of a score / f32's eps
  for (Region& region : outputs) {
    const bool is_out = region.name == "out";
    for (int64_t r = 0; r < region.rows; ++r)
      for (int64_t c = 0; c < region.cols; ++c) {
        const double rounding = kStepBF16 * std::fabs(cell_value(after, region, r, c));
        region.tolerance.push_back(
            static_cast<float>(is_out ? rounding + 2 * value * kEpsF32 * unit : 0));
        const double cached = s.kv == DType::kBF16 ? rounding / kStepBF16 + 1e-3 : 0;
        region.operand_tolerance.push_back(
            static_cast<float>(is_out ? 2 * value * (1 + score / 4) : cached));
      }
  }
}

std::vector<Split> make_splits(const Layout& l) {
  std::vector<Split> splits;
  if (l.tokens == 1) return splits;
  for (const int64_t size : {int64_t{1}, int64_t{5}, int64_t{37}, l.tokens}) {
    Split split;
    int64_t first = 0;
    for (const Sequence& s : l.shape.sequences) {
      for (const auto& [begin, count] : pieces(s.count, size))
        split.emplace_back(first + begin, count);
      first += s.count;
    }
    splits.push_back(split);
  }
  return splits;
}

// Moves all keys' elements from layout kLines to `keys`.
void lay_out_keys(const Layout& l, KeyLayout keys, Image& image) {
  const size_t size = size_of(l.shape.kv);
  const int64_t d = l.shape.d, lines = int64_t{l.shape.kv_heads} * l.shape.block;
  for (int64_t block = 0; block < l.num_blocks; ++block) {
    std::byte* const at =
        image.bytes.data() + l.k + static_cast<size_t>(block * stride_lines(l) * d) * size;
    const std::vector<std::byte> from(at, at + static_cast<size_t>(lines * d) * size);
    for (int64_t line = 0; line < lines; ++line)
      for (int64_t c = 0; c < d; ++c)
        std::memcpy(at + static_cast<size_t>(key_index(keys, line, c, d, size)) * size,
                    from.data() + static_cast<size_t>(line * d + c) * size, size);
  }
}

// Completes a case with images from its layout.
Case<Attention> finish(Case<Attention> c, const Layout& l) {
  const AttentionShape& s = l.shape;
  c.name = fmt::format(
      "sequences={} first={}+{} heads={}/{} d={} block={} window={}{} "
      "sink={} rope={} rotated={}{} cap={} alibi={}*{} sinks={} latent={} kv={} keys={}{}",
      s.sequences.size(), s.sequences[0].start, s.sequences[0].count, s.heads, s.kv_heads, s.d,
      s.block, s.window, s.chunked ? " chunked" : "", s.sink, s.rope, s.angle_cols(),
      s.interleaved ? " interleaved" : "", s.cap, s.alibi, s.alibi_scale, s.sinks, s.latent,
      name_of(s.kv), s.keys == KeyLayout::kPanels ? "panels" : "lines",
      s.has_trees() ? " trees" : "");
  c.tokens = l.tokens;
  c.args = [l](std::byte* base, int64_t begin, int64_t count) {
    return make_args(l, base, begin, count);
  };
  const int64_t lines = l.num_blocks * stride_lines(l);
  const int64_t width = int64_t{s.heads} * (s.latent > 0 ? s.latent : s.d);
  c.outputs = {{"out", l.out, DType::kBF16, l.tokens, width, width, {}, {}},
               {"k_cache", l.k, s.kv, lines, s.d, s.d, {}, {}}};
  if (s.latent == 0) c.outputs.push_back({"v_cache", l.v, s.kv, lines, s.d, s.d, {}, {}});
  if (has_kv_scales(s.kv)) {
    const int64_t scales = l.num_blocks * stride_scales(l);
    c.outputs.push_back({"k_scales", l.k_scales, DType::kF32, scales, 1, 1, {}, {}});
    if (s.latent == 0)
      c.outputs.push_back({"v_scales", l.v_scales, DType::kF32, scales, 1, 1, {}, {}});
  }
  set_tolerances(l, c.after, c.outputs);
  c.splits = make_splits(l);
  return c;
}

// Adds the case with keys in lines, and in panels if the shape allows.
void add_cases(const AttentionShape& shape, std::vector<Case<Attention>>& list) {
  Case<Attention> c;
  Layout l;
  l.shape = shape;
  l.qkv_width = Heads{shape.heads, shape.kv_heads, shape.d, shape.latent}.width();
  add_index_arrays(l, c.before);
  add_cache(l, c.before);
  l.qkv = c.before.add(noise(5, l.tokens * l.qkv_width));
  std::vector<float> angles;
  for (int32_t p = 0; p < l.max_length; ++p)
    for (int32_t j = 0; j < shape.angle_cols(); ++j) {
      const int32_t half = shape.angle_cols() / 2;
      const double angle = p * std::pow(1e-4, 1.0 * (j % half) / half);
      angles.push_back(static_cast<float>(j < half ? std::cos(angle) : std::sin(angle)));
    }
  l.table = c.before.add(angles);
  l.sinks = c.before.add(noise_bf16(7, shape.heads, 2));
  const int32_t value_dim = shape.latent > 0 ? shape.latent : shape.d;
  l.out = c.before.add(static_cast<size_t>(l.tokens * shape.heads * value_dim) * 2);
  c.after = c.before;
  reference(make_args(l, c.after.bytes.data(), 0, l.tokens));
  list.push_back(finish(c, l));
  if (!make_panels(shape.d, shape.block)) return;
  l.shape.keys = KeyLayout::kPanels;
  lay_out_keys(l, l.shape.keys, c.before);
  lay_out_keys(l, l.shape.keys, c.after);
  list.push_back(finish(std::move(c), l));
}

}  // namespace

template <>
const std::vector<Case<Attention>>& cases<Attention>() {
  static const std::vector<Case<Attention>> all = [] {
    std::vector<Case<Attention>> list;
    for (const AttentionShape& s : kAttentionShapes)
      for (const DType kv : {DType::kBF16, DType::kI8, DType::kF8E4M3}) {
        AttentionShape with = s;
        with.kv = kv;
        add_cases(with, list);
      }
    return list;
  }();
  return all;
}

}  // namespace nereid::kernels::testing
