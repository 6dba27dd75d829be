// Cases of cross attention, of its scores, and of storing an encoder's keys and values.
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
int64_t input_width(const AttentionShape& s, const CrossScores*) { return int64_t{s.heads} * s.d; }
int64_t input_width(const AttentionShape& s, const StoreKv*) {
  return int64_t{2} * s.kv_heads * s.d;
}
std::vector<Region> outputs_of(const AttentionImage& l, const CrossAttention*) {
  return {{"out", l.out, DType::kBF16, l.tokens, l.width, l.width, {}, {}}};
}
std::vector<Region> outputs_of(const AttentionImage& l, const CrossScores*) {
  return {{"out", l.out, DType::kF32, l.tokens, l.max_length, l.max_length, {}, {}}};
}
std::vector<Region> outputs_of(const AttentionImage& l, const StoreKv*) { return cache_regions(l); }

void set_args(const AttentionImage& l, std::byte* base, int64_t begin, int64_t count,
              CrossAttention& a) {
  a.q = input_of(l, base, begin, count);
  a.scale = 1 / std::sqrt(static_cast<float>(l.shape.d));
  a.out = {base + l.out + begin * l.width * 2, DType::kBF16, count, l.width, l.width};
}
void set_args(const AttentionImage& l, std::byte* base, int64_t begin, int64_t count,
              CrossScores& a) {
  a.q = input_of(l, base, begin, count);
  a.head = l.shape.heads / 2;
  a.scale = 1 / std::sqrt(static_cast<float>(l.shape.d));
  a.out = {base + l.out + begin * l.max_length * 4, DType::kF32, count, l.max_length, l.max_length};
}
void set_args(const AttentionImage& l, std::byte* base, int64_t begin, int64_t count, StoreKv& a) {
  a.kv = input_of(l, base, begin, count);
}

template <class Op>
void add_out(AttentionImage& l, Image& image, const Op*) {
  l.out = image.add(static_cast<size_t>(l.tokens * l.shape.heads * l.shape.d) * 2);
}
// Zeros, of which columns behind a row's length stay.
void add_out(AttentionImage& l, Image& image, const CrossScores*) {
  l.out = image.add(std::vector<float>(static_cast<size_t>(l.tokens * l.max_length)));
}

template <class Op>
void set_tolerances_of(const AttentionImage& l, Case<Op>& c) {
  set_tolerances(l, c.after, c.outputs);
}
// Error of a sum of d products of numbers up to 3.5.
void set_tolerances_of(const AttentionImage& l, Case<CrossScores>& c) {
  const auto error = static_cast<float>(sum_error(l.shape.d) * 3.5 * 3.5 * std::sqrt(l.shape.d));
  Region& out = c.outputs[0];
  out.tolerance.assign(static_cast<size_t>(out.rows * out.cols), error);
  out.operand_tolerance.assign(out.tolerance.size(), 0);
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
  c.name = fmt::format("sequences={} first={}+{} heads={}/{} d={} block={} kv={} keys={}{}",
                       s.sequences.size(), s.sequences[0].start, s.sequences[0].count, s.heads,
                       s.kv_heads, s.d, s.block, name_of(s.kv),
                       s.keys == KeyLayout::kPanels ? "panels" : "lines",
                       s.masked       ? " masked"
                       : s.is_partial ? " partial"
                                      : "");
  c.tokens = l.tokens;
  c.args = [l](std::byte* base, int64_t begin, int64_t count) {
    return make_cross_args<Op>(l, base, begin, count);
  };
  c.outputs = outputs_of(l, static_cast<const Op*>(nullptr));
  set_tolerances_of(l, c);
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
  add_out(l, c.before, static_cast<const Op*>(nullptr));
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
const std::vector<Case<CrossScores>>& cases<CrossScores>() {
  static const auto all = [] {
    std::vector<Case<CrossScores>> list = cases_of<CrossScores>(kCrossAttentionShapes);
    // Without encoder output there is nothing to write.
    std::erase_if(list, [](const Case<CrossScores>& c) { return c.outputs[0].cols == 0; });
    return list;
  }();
  return all;
}

template <>
const std::vector<Case<StoreKv>>& cases<StoreKv>() {
  static const auto all = cases_of<StoreKv>(kStoreKvShapes);
  return all;
}

}  // namespace nereid::kernels::testing
