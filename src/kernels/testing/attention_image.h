// Memory of the attention cases: index arrays of a step, a cache of shuffled blocks. Invisible
// cache lines are NaN, and so is block -1, which replaces blocks with invisible lines only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/testing/attention_shapes.h"
#include "kernels/testing/cases.h"
#include "kernels/testing/image.h"

namespace nereid::kernels::testing {

// Layout of the arguments; offsets into the image.
struct AttentionImage {
  AttentionShape shape;
  int64_t tokens = 0, width = 0;  // of the input
  int32_t max_blocks = 0, max_length = 0, num_blocks = 0;
  Offset x = 0, k = 0, v = 0, k_scales = 0, v_scales = 0, table = 0, positions = 0, after = 0,
         cells = 0, row_begin = 0, row_of_token = 0, one_row = 0, zeros = 0, blocks = 0,
         lengths = 0, last = 0, mask = 0, out = 0, sinks = 0, bias = 0;
  std::vector<int32_t> rows;  // sequence of each token

  // Block strides of vectors and of scales: with gaps, as in a cache whose blocks have all layers.
  int64_t stride_lines() const { return int64_t{shape.kv_heads} * shape.block + 3; }
  int64_t stride_scales() const { return int64_t{shape.kv_heads} * shape.block + 4; }
  int32_t mask_words() const { return (max_length + 31) / 32; }
};

// Adds index arrays, cache and the input [tokens, width] to the image.
void add_arrays(AttentionImage& l, int64_t width, Image& image);

// Input, cache and step of a call for tokens [begin, begin + count), with the image at `base`.
View input_of(const AttentionImage& l, std::byte* base, int64_t begin, int64_t count);
CacheView cache_of(const AttentionImage& l, std::byte* base);
BatchView step_of(const AttentionImage& l, std::byte* base, int64_t begin, int64_t count);

// Regions of the cache.
std::vector<Region> cache_regions(const AttentionImage& l);

void set_tolerances(const AttentionImage& l, const Image& after, std::vector<Region>& outputs);

// Each sequence by tokens and in pieces; bidirectional: as a whole.
std::vector<Split> make_splits(const AttentionImage& l);

// Moves all keys' elements from layout kLines to `keys`.
void lay_out_keys(const AttentionImage& l, KeyLayout keys, Image& image);

}  // namespace nereid::kernels::testing
