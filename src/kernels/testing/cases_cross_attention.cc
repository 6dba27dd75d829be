// Cases of cross attention and of storing an encoder's keys and values.
#include <cmath>
#include <utility>

#include "kernels/api/keys.h"
#include "kernels/testing/attention_image.h"
#include "kernels/testing/attention_shapes.h"
#include "kernels/testing/cases.h"

namespace nereid::kernels::testing {
namespace {

// Columns of a token in the op's input, and the op's outputs.
int64_t input_width(const AttentionShape& s, const CrossAttention*) {
  return int64_t{s.heads} * s.d;
}
int64_t input_width(const AttentionShape& s, const StoreKv*) {
  return int64_t{2} * s.kv_heads * s.d;
}
std::vector<Region> outputs_of(const AttentionImage& l, const CrossAttention*) {
  return {{"out", l.out, DType::kBF16, l.tokens, l.width, l.width, {}, {}}};
}
std::vector<Region> outputs_of(const AttentionImage& l, const StoreKv*) { return cache_regions(l); }

void set_args(const AttentionImage& l, std::byte* base, int64_t begin, int64_t count,
              CrossAttention& a) {
  a.q = input_of(l, base, begin, count);
  a.scale = 1 / std::sqrt(static_cast<float>(l.shape.d));
  a.out = {base + l.out + begin * l.width * 2, DType::kBF16, count, l.width, l.width};
}
void set_args(const AttentionImage& l, std::byte* base, int64_t begin, int64_t count, StoreKv& a) {
  a.kv = input_of(l, base, begin, count);
}

template <class Op>
Op make_cross_args(const AttentionImage& l, std::byte* base, int64_t begin, int64_t count) {
  Op a;
  a.heads = {l.shape.heads, l.shape.kv_heads, l.shape.d};
  a.cache = cache_of(l, base);
  a.step = step_of(l, base, begin, count);
  set_args(l, base, begin, count, a);
  return a;
}

// Completes a case with images from its layout.
template <class Op>
Case<Op> finish_cross(Case<Op> c, const AttentionImage& l) {
  const AttentionShape& s = l.shape;
  c.name = fmt::format("sequences={} first={}+{} heads={}/{} d={} block={} kv={} keys={}",
                       s.sequences.size(), s.sequences[0].start, s.sequences[0].count, s.heads,
                       s.kv_heads, s.d, s.block, name_of(s.kv),
                       s.keys == KeyLayout::kPanels ? "panels" : "lines");
  c.tokens = l.tokens;
  c.args = [l](std::byte* base, int64_t begin, int64_t count) {
    return make_cross_args<Op>(l, base, begin, count);
  };
  c.outputs = outputs_of(l, static_cast<const Op*>(nullptr));
  set_tolerances(l, c.after, c.outputs);
  c.splits = make_splits(l);
  return c;
}

// Adds the case with keys in lines, and in panels if the shape allows.
template <class Op>
void add_cross_cases(const AttentionShape& shape, std::vector<Case<Op>>& list) {
  Case<Op> c;
  AttentionImage l;
  l.shape = shape;
  add_arrays(l, input_width(shape, static_cast<const Op*>(nullptr)), c.before);
  l.out = c.before.add(static_cast<size_t>(l.tokens * shape.heads * shape.d) * 2);
  c.after = c.before;
  reference(make_cross_args<Op>(l, c.after.bytes.data(), 0, l.tokens));
  list.push_back(finish_cross(c, l));
  if (!make_panels(shape.d, shape.block)) return;
  l.shape.keys = KeyLayout::kPanels;
  lay_out_keys(l, l.shape.keys, c.before);
  lay_out_keys(l, l.shape.keys, c.after);
  list.push_back(finish_cross(std::move(c), l));
}

template <class Op, class Shapes>
std::vector<Case<Op>> cases_of(const Shapes& shapes) {
  std::vector<Case<Op>> list;
  for (const AttentionShape& s : shapes)
    for (const DType kv : {DType::kBF16, DType::kI8, DType::kF8E4M3}) {
      AttentionShape with = s;
      with.kv = kv;
      add_cross_cases(with, list);
    }
  return list;
}

}  // namespace

template <>
const std::vector<Case<CrossAttention>>& cases<CrossAttention>() {
  static const auto all = cases_of<CrossAttention>(kCrossAttentionShapes);
  return all;
}

template <>
const std::vector<Case<StoreKv>>& cases<StoreKv>() {
  static const auto all = cases_of<StoreKv>(kStoreKvShapes);
  return all;
}

}  // namespace nereid::kernels::testing
