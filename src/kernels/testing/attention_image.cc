// Memory of the attention cases.
#include "kernels/testing/attention_image.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/api/keys.h"

namespace nereid::kernels::testing {
namespace {

// Whether a query of the sequence attends to the position, or it is written.
bool is_used(const AttentionShape& s, const Sequence& sequence, int32_t position) {
  if (s.cross) return position < sequence.start;
  return s.window == 0 || position > sequence.start - s.window || position < s.sink;
}

// Masks by token: one position of three, whole tiles of keys hidden, all hidden, one seen.
void add_mask(AttentionImage& l, Image& image) {
  std::vector<uint32_t> words(static_cast<size_t>(l.tokens * l.mask_words()));
  for (int64_t i = 0; i < l.tokens; ++i)
    for (int32_t at = 0; at < l.max_length; ++at) {
      const bool seen = i % 4 == 0   ? at % 3 == i % 3
                        : i % 4 == 1 ? at >= 64 && at / 32 % 3 == 1
                        : i % 4 == 2 ? false
                                     : at == 37 % l.max_length;
      if (seen) words[static_cast<size_t>(i * l.mask_words() + at / 32)] |= 1u << (at % 32);
    }
  l.mask = image.add(words);
}

void add_index_arrays(AttentionImage& l, Image& image) {
  std::vector<int32_t> positions, after, cells, last, row_begin = {0};
  std::vector<int32_t> lengths;
  for (size_t r = 0; r < l.shape.sequences.size(); ++r) {
    const Sequence& s = l.shape.sequences[r];
    lengths.push_back(s.start + (l.shape.is_partial ? s.whole : 0));
    for (int32_t i = 0; i < s.count; ++i) {
      const int32_t in_tree = i + static_cast<int32_t>(s.after.size()) - s.count;
      cells.push_back(s.start + i);
      after.push_back(in_tree >= 0 ? s.after[static_cast<size_t>(in_tree)] : 0);
      positions.push_back(after.back() > 0
                              ? positions[positions.size() - static_cast<size_t>(after.back())] + 1
                              : cells.back());
      last.push_back(i < s.whole || l.shape.bidirectional ? s.start + s.whole - 1
                                                          : positions.back());
      l.rows.push_back(static_cast<int32_t>(r));
    }
    row_begin.push_back(static_cast<int32_t>(positions.size()));
    l.max_length = std::max(l.max_length, s.start + (l.shape.cross ? 0 : s.count));
  }
  l.tokens = static_cast<int64_t>(positions.size());
  l.max_blocks = (l.max_length + l.shape.block - 1) / l.shape.block;
  l.num_blocks = l.max_blocks * static_cast<int32_t>(l.shape.sequences.size()) + 1;
  l.positions = image.add(positions);
  l.after = image.add(after);
  l.cells = image.add(cells);
  l.last = image.add(last);
  if (l.shape.masked) add_mask(l, image);
  l.row_begin = image.add(row_begin);
  l.row_of_token = image.add(l.rows);
  l.lengths = image.add(lengths);
  std::vector<int32_t> one_row;  // {0, n} for every n: row_begin of a call for part of a sequence
  for (int32_t n = 0; n <= l.tokens; ++n) one_row.insert(one_row.end(), {0, n});
  l.one_row = image.add(one_row);
  l.zeros = image.add(std::vector<int32_t>(static_cast<size_t>(l.tokens), 0));
}

// Allocates a plane of all blocks of `block` bytes, after one that stays NaN: block -1.
Offset add_plane(const AttentionImage& l, Image& image, size_t block) {
  const size_t guard = (block + 255) / 256 * 256;  // keeps the alignment
  return image.add(guard + block * static_cast<size_t>(l.num_blocks)) + guard;
}

// Fills a cached vector with values |x| <= 3.5.
void fill_line(const AttentionImage& l, Image& image, Offset cache, Offset scales, int64_t block,
               int64_t in_block, size_t& next) {
  static const std::vector<BF16> values = noise_bf16(9, 4096);
  const AttentionShape& s = l.shape;
  const auto some = [&] { return values[next++ * 7 % values.size()]; };
  const float limit = s.kv == DType::kI8 ? 127 : kLargestF8E4M3;
  const int64_t line = block * l.stride_lines() + in_block;
  if (has_kv_scales(s.kv))
    image.at<float>(scales)[block * l.stride_scales() + in_block] =
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
void add_cache(AttentionImage& l, Image& image) {
  const AttentionShape& s = l.shape;
  std::vector<int32_t> table;
  for (size_t r = 0; r < s.sequences.size(); ++r)
    for (int32_t b = 0; b < l.max_blocks; ++b)
      table.push_back(static_cast<int32_t>(r + s.sequences.size() * static_cast<size_t>(b)));
  std::reverse(table.begin(), table.end());
  const size_t data = static_cast<size_t>(l.stride_lines() * s.d) * size_of(s.kv);
  l.k = add_plane(l, image, data);
  l.v = s.latent > 0 ? l.k : add_plane(l, image, data);
  if (has_kv_scales(s.kv)) {
    l.k_scales = add_plane(l, image, static_cast<size_t>(l.stride_scales()) * sizeof(float));
    l.v_scales = s.latent > 0
                     ? l.k_scales
                     : add_plane(l, image, static_cast<size_t>(l.stride_scales()) * sizeof(float));
  }
  size_t next = 0;
  for (size_t r = 0; r < s.sequences.size(); ++r) {
    std::vector<bool> used(static_cast<size_t>(l.max_blocks), false);
    const Sequence& sequence = s.sequences[r];
    int32_t* const blocks = table.data() + r * static_cast<size_t>(l.max_blocks);
    const int32_t end = sequence.start + (s.cross ? 0 : sequence.count);
    for (int32_t at = 0; at < end; ++at) {
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

}  // namespace

void add_arrays(AttentionImage& l, int64_t width, Image& image) {
  l.width = width;
  add_index_arrays(l, image);
  add_cache(l, image);
  l.x = image.add(noise(5, l.tokens * width));
}

View input_of(const AttentionImage& l, std::byte* base, int64_t begin, int64_t count) {
  return {base + l.x + begin * l.width * 4, DType::kF32, count, l.width, l.width};
}

CacheView cache_of(const AttentionImage& l, std::byte* base) {
  const AttentionShape& s = l.shape;
  CacheView cache = {.keys = base + l.k,
                     .values = base + l.v,
                     .block_stride = l.stride_lines() * s.d,
                     .scale_stride = l.stride_scales(),
                     .block_tokens = s.block,
                     .window = s.window,
                     .sink = s.sink,
                     .type = s.kv,
                     .layout = s.keys,
                     .has_trees = s.has_trees(),
                     .has_last = s.has_last()};
  if (has_kv_scales(s.kv)) {
    cache.key_scales = reinterpret_cast<float*>(base + l.k_scales);
    cache.value_scales = reinterpret_cast<float*>(base + l.v_scales);
  }
  return cache;
}

BatchView step_of(const AttentionImage& l, std::byte* base, int64_t begin, int64_t count) {
  const AttentionShape& s = l.shape;
  const auto ints = [&](Offset offset) { return reinterpret_cast<const int32_t*>(base + offset); };
  const bool whole = count == l.tokens;
  const int64_t row = whole ? 0 : l.rows[static_cast<size_t>(begin)];
  BatchView step;
  step.num_rows = whole ? static_cast<int32_t>(s.sequences.size()) : 1;
  step.row_begin = whole ? ints(l.row_begin) : ints(l.one_row) + 2 * count;
  step.row_of_token = whole ? ints(l.row_of_token) : ints(l.zeros);
  const int32_t* const blocks = ints(l.blocks) + row * l.max_blocks;
  if (s.cross) {
    step.cross_lengths = l.max_length > 0 ? ints(l.lengths) + row : nullptr;
    step.cross_table = blocks;
    step.max_cross_blocks = l.max_blocks;
    if (s.masked) {
      step.cross_mask = reinterpret_cast<const uint32_t*>(base + l.mask) + begin * l.mask_words();
      step.cross_mask_words = l.mask_words();
    }
    return step;
  }
  step.positions = ints(l.positions) + begin;
  if (s.has_trees()) step.after = ints(l.after) + begin, step.cells = ints(l.cells) + begin;
  if (s.has_last()) step.last = ints(l.last) + begin;
  if (s.is_partial) step.cross_lengths = ints(l.lengths) + row;
  step.block_table = blocks;
  step.max_blocks = l.max_blocks;
  return step;
}

std::vector<Region> cache_regions(const AttentionImage& l) {
  const AttentionShape& s = l.shape;
  const int64_t lines = l.num_blocks * l.stride_lines();
  std::vector<Region> regions = {{"k_cache", l.k, s.kv, lines, s.d, s.d, {}, {}}};
  if (s.latent == 0) regions.push_back({"v_cache", l.v, s.kv, lines, s.d, s.d, {}, {}});
  if (!has_kv_scales(s.kv)) return regions;
  const int64_t scales = l.num_blocks * l.stride_scales();
  regions.push_back({"k_scales", l.k_scales, DType::kF32, scales, 1, 1, {}, {}});
  if (s.latent == 0) regions.push_back({"v_scales", l.v_scales, DType::kF32, scales, 1, 1, {}, {}});
  return regions;
}

// The output is a mean of values weighted by exp(scores). An error ds in the scores changes it by
// <= 2 ds max|v|; scores are sums of d products.
void set_tolerances(const AttentionImage& l, const Image& after, std::vector<Region>& outputs) {
  const AttentionShape& s = l.shape;
  const double score =
      3.5 * 3.5 * std::sqrt(static_cast<double>(s.d));  // bound of |q||k| / sqrt(d)
  const double value = 3.5;
  const double bias = s.bias_width > 0 ? 7 : 0;
  const double unit = 8 * (s.cap > 0 ? s.cap : score) + bias + 64;  // error of a score / f32's eps
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

std::vector<Split> make_splits(const AttentionImage& l) {
  std::vector<Split> splits;
  if (l.tokens == 1) return splits;
  for (const int64_t size : {int64_t{1}, int64_t{5}, int64_t{37}, l.tokens}) {
    if ((l.shape.bidirectional || l.shape.has_last()) && size < l.tokens) continue;
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

void lay_out_keys(const AttentionImage& l, KeyLayout keys, Image& image) {
  const size_t size = size_of(l.shape.kv);
  const int64_t d = l.shape.d, lines = int64_t{l.shape.kv_heads} * l.shape.block;
  for (int64_t block = 0; block < l.num_blocks; ++block) {
    std::byte* const at =
        image.bytes.data() + l.k + static_cast<size_t>(block * l.stride_lines() * d) * size;
    const std::vector<std::byte> from(at, at + static_cast<size_t>(lines * d) * size);
    for (int64_t line = 0; line < lines; ++line)
      for (int64_t c = 0; c < d; ++c)
        std::memcpy(at + static_cast<size_t>(key_index(keys, line, c, d, size)) * size,
                    from.data() + static_cast<size_t>(line * d + c) * size, size);
  }
}

}  // namespace nereid::kernels::testing
