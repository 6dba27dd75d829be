// Cases of attention: decode, prefill, chunks and mixed batches over shuffled blocks.
#include <cmath>
#include <utility>

#include "kernels/api/keys.h"
#include "kernels/testing/attention_image.h"
#include "kernels/testing/attention_shapes.h"
#include "kernels/testing/cases.h"

namespace nereid::kernels::testing {
namespace {

Attention make_args(const AttentionImage& l, std::byte* base, int64_t begin, int64_t count) {
  const AttentionShape& s = l.shape;
  Attention a;
  a.heads = {s.heads, s.kv_heads, s.d, s.latent};
  a.qkv = input_of(l, base, begin, count);
  a.cache = cache_of(l, base);
  a.window = s.window;
  a.chunked = s.chunked;
  a.bidirectional = s.bidirectional;
  a.scale = 1 / std::sqrt(static_cast<float>(s.d));
  if (s.rope) a.angles = {reinterpret_cast<const float*>(base + l.table), s.angle_cols()};
  a.interleaved = s.interleaved;
  a.cap = s.cap;
  a.alibi = s.alibi;
  a.alibi_scale = s.alibi_scale;
  a.alibi_first = s.alibi_first, a.alibi_heads = s.alibi_heads;
  if (s.sinks) a.sinks = {base + l.sinks, WeightLayout::kRowMajor, 1, s.heads};
  if (s.bias_width > 0) {
    a.bias = {base + l.bias, WeightLayout::kRowMajor, 1, int64_t{s.heads} * s.bias_width};
    a.bias.format = kFloat32;
    a.bias_first = s.bias_first;
    a.bias_width = s.bias_width;
  }
  a.step = step_of(l, base, begin, count);
  const int64_t width = int64_t{s.heads} * a.heads.value_dim();
  a.out = {base + l.out + begin * width * 2, DType::kBF16, count, width, width};
  return a;
}

// Completes a case with images from its layout.
Case<Attention> finish(Case<Attention> c, const AttentionImage& l) {
  const AttentionShape& s = l.shape;
  c.name = fmt::format(
      "sequences={} first={}+{} heads={}/{} d={} block={} window={}{} "
      "sink={} rope={} rotated={}{} cap={} alibi={}*{} sinks={} latent={} kv={} keys={}{}{}{}",
      s.sequences.size(), s.sequences[0].start, s.sequences[0].count, s.heads, s.kv_heads, s.d,
      s.block, s.window, s.chunked ? " chunked" : "", s.sink, s.rope, s.angle_cols(),
      s.interleaved ? " interleaved" : "", s.cap, s.alibi, s.alibi_scale, s.sinks, s.latent,
      name_of(s.kv), s.keys == KeyLayout::kPanels ? "panels" : "lines",
      s.has_trees() ? " trees" : "", s.bidirectional ? " bidirectional" : "",
      s.has_last() ? " pictures" : "");
  if (s.bias_width > 0) c.name += fmt::format(" bias={}+{}", s.bias_first, s.bias_width);
  c.tokens = l.tokens;
  c.args = [l](std::byte* base, int64_t begin, int64_t count) {
    return make_args(l, base, begin, count);
  };
  const int64_t width = int64_t{s.heads} * (s.latent > 0 ? s.latent : s.d);
  c.outputs = cache_regions(l);
  c.outputs.insert(c.outputs.begin(), {"out", l.out, DType::kBF16, l.tokens, width, width, {}, {}});
  set_tolerances(l, c.after, c.outputs);
  c.splits = make_splits(l);
  return c;
}

// Adds the case with keys in lines, and in panels if the shape allows.
void add_cases(const AttentionShape& shape, std::vector<Case<Attention>>& list) {
  Case<Attention> c;
  AttentionImage l;
  l.shape = shape;
  add_arrays(l, Heads{shape.heads, shape.kv_heads, shape.d, shape.latent}.width(), c.before);
  std::vector<float> angles;
  for (int32_t p = 0; p < l.max_length; ++p)
    for (int32_t j = 0; j < shape.angle_cols(); ++j) {
      const int32_t half = shape.angle_cols() / 2;
      const double angle = p * std::pow(1e-4, 1.0 * (j % half) / half);
      angles.push_back(static_cast<float>(j < half ? std::cos(angle) : std::sin(angle)));
    }
  l.table = c.before.add(angles);
  l.sinks = c.before.add(noise_bf16(7, shape.heads, 2));
  l.bias = c.before.add(noise(11, int64_t{shape.heads} * shape.bias_width, 2));
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
