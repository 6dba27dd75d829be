// Cases of table lookups: embed, add_positions, add_features, gather_rows.
#include <array>

#include "kernels/api/pack.h"
#include "kernels/testing/cases_rows.h"

namespace nereid::kernels::testing {
namespace {

Case<Embed> embed_case(const RowsShape& s, WeightLayout layout, float scale,
                       const WeightFormat& format = {}, bool has_row_end = false) {
  Case<Embed> c;
  c.name = fmt::format("tokens={} hidden={} layout={} table={} scale={} row_end={}", s.tokens,
                       s.width, static_cast<int>(layout), text_of(format), scale, has_row_end);
  constexpr int64_t kNumGiven = 3;  // external embeddings; one token has an index past them
  constexpr int64_t kNumFeatures = 2;
  const int64_t vocab = 37, hidden = s.width, stride = hidden + 2;
  const int64_t feature_width = 2 * hidden;
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < s.tokens; ++i)
    tokens.push_back(static_cast<int32_t>(i % 5 == 3   ? -1 - i % 3
                                          : i % 7 == 6 ? vocab
                                          : i % 9 == 4 ? kRowEnd
                                          : i % 7 == 2 ? kFirstFeature + i % (kNumFeatures + 1)
                                          : i % 4 == 1 ? kFirstEmbedding + i % (kNumGiven + 1)
                                                       : i * 11 % vocab));
  const Offset given = c.before.add(noise_bf16(4, kNumGiven * hidden));
  const Offset features = c.before.add(noise_bf16(5, kNumFeatures * feature_width));
  const Offset row_end = c.before.add(noise_bf16(6, hidden));
  const Offset ids = c.before.add(tokens);
  const Offset slots = c.before.add(std::vector<int32_t>{5, -1, 36});
  std::vector<BF16> values = noise_bf16(3, vocab * hidden);
  const StoredWeight table = add_weight(c.before, values, {nullptr, layout, vocab, hidden, format});
  const Offset out = c.before.add(static_cast<size_t>(s.tokens * stride) * 4);
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    Embed a;
    a.step.tokens = ints(base, ids, begin);
    a.step.slot_tokens = ints(base, slots, 0);
    a.step.embeddings = reinterpret_cast<const BF16*>(base + given);
    a.step.num_embeddings = kNumGiven;
    a.step.features = reinterpret_cast<const BF16*>(base + features);
    a.step.num_features = kNumFeatures;
    a.step.feature_width = static_cast<int32_t>(feature_width);
    a.table = table.at(base);
    if (has_row_end) a.row_end = {base + row_end, WeightLayout::kRowMajor, 1, hidden};
    a.scale = scale;
    a.out = view(base, out, DType::kF32, begin, count, hidden, stride);
    return a;
  };
  c.outputs = {{"out", out, DType::kF32, s.tokens, hidden, stride, {}, {}}};
  finish(c, s.tokens);
  return c;
}

Case<AddPositions> add_positions_case(const RowsShape& s, WeightLayout layout) {
  Case<AddPositions> c;
  c.name =
      fmt::format("tokens={} hidden={} layout={}", s.tokens, s.width, static_cast<int>(layout));
  const int64_t positions = 37, hidden = s.width, stride = hidden + 2;
  std::vector<int32_t> at;  // the last one is past the table
  for (int64_t i = 0; i < s.tokens; ++i)
    at.push_back(static_cast<int32_t>(i * 11 % (positions + 1)));
  const Offset position = c.before.add(at);
  const std::vector<BF16> values = noise_bf16(3, positions * hidden);
  Offset table;
  if (layout == WeightLayout::kPanel16) {
    const size_t bytes = panel16_bytes(positions, hidden);
    table = c.before.add(bytes);
    const std::vector<RowMajorPart> parts = {{values.data(), positions}};
    NEREID_CHECK(pack_panel16(parts, hidden, {c.before.at<std::byte>(table), bytes}).ok());
  } else {
    table = c.before.add(values);
  }
  const Offset x = c.before.add(noise(1, s.tokens * stride));
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    AddPositions a;
    a.step.positions = ints(base, position, begin);
    a.table = {base + table, layout, positions, hidden};
    a.x = a.out = view(base, x, DType::kF32, begin, count, hidden, stride);
    return a;
  };
  c.outputs = {{"x", x, DType::kF32, s.tokens, hidden, stride, {}, {}}};
  finish(c, s.tokens);
  return c;
}

// Rows of planes of 1 x 1, 2 x 5 and 7 x 3 places, and a part of one; a call has all tokens.
Case<AddPositions> plane_case(const RowsShape& s, int32_t side, WeightLayout layout) {
  Case<AddPositions> c;
  c.name = fmt::format("tokens={} hidden={} side={} layout={}", s.tokens, s.width, side,
                       static_cast<int>(layout));
  constexpr std::array<std::array<int32_t, 2>, 3> kPlanes = {{{1, 1}, {2, 5}, {7, 3}}};
  std::vector<int32_t> components, row_of_token, row_begin = {0};
  for (size_t row = 0; std::ssize(row_of_token) < s.tokens; ++row) {
    const auto [height, width] = kPlanes[row % kPlanes.size()];
    for (int32_t i = 0; i < height * width && std::ssize(row_of_token) < s.tokens; ++i) {
      components.insert(components.end(), {0, i / width, i % width});
      row_of_token.push_back(static_cast<int32_t>(row));
    }
    row_begin.push_back(static_cast<int32_t>(row_of_token.size()));
  }
  const int64_t hidden = s.width, stride = hidden + 2;
  const Offset at = c.before.add(components), rows = c.before.add(row_of_token);
  const Offset begins = c.before.add(row_begin);
  std::vector<BF16> values = noise_bf16(3, side * side * hidden);
  const StoredWeight table =
      add_weight(c.before, values, {nullptr, layout, side * side, hidden, {}});
  const Offset x = c.before.add(noise(1, s.tokens * stride));
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    AddPositions a;
    a.step.components = ints(base, at, 0);
    a.step.row_of_token = ints(base, rows, 0);
    a.step.row_begin = ints(base, begins, 0);
    a.side = side;
    a.table = table.at(base);
    a.x = a.out = view(base, x, DType::kF32, begin, count, hidden, stride);
    return a;
  };
  finish(c, s.tokens);
  c.splits.clear();
  Region region{"x", x, DType::kF32, s.tokens, hidden, stride, {}, {}};
  for (int64_t r = 0; r < region.rows; ++r)
    for (int64_t col = 0; col < region.cols; ++col)
      region.tolerance.push_back(
          static_cast<float>(8 * kEpsF32 * (1 + std::fabs(cell_value(c.after, region, r, col)))));
  c.outputs = {region};
  return c;
}

Case<AddFeatures> add_features_case(const RowsShape& s, int32_t column) {
  Case<AddFeatures> c;
  c.name = fmt::format("tokens={} width={} column={}", s.tokens, s.width, column);
  constexpr int64_t kNumFeatures = 3;  // one token has an index past them
  const int64_t width = s.width, stride = width + 2, feature_width = 3 * width;
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < s.tokens; ++i)
    tokens.push_back(static_cast<int32_t>(i % 5 == 3   ? -1 - i
                                          : i % 7 == 6 ? kFirstEmbedding + i
                                          : i % 2 == 0 ? kFirstFeature + i % (kNumFeatures + 1)
                                                       : i));
  const Offset features = c.before.add(noise_bf16(5, kNumFeatures * feature_width));
  const Offset ids = c.before.add(tokens);
  const Offset x = c.before.add(noise(1, s.tokens * stride));
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    AddFeatures a;
    a.step.tokens = ints(base, ids, begin);
    a.step.features = reinterpret_cast<const BF16*>(base + features);
    a.step.num_features = kNumFeatures;
    a.step.feature_width = static_cast<int32_t>(feature_width);
    a.column = column;
    a.x = a.out = view(base, x, DType::kF32, begin, count, width, stride);
    return a;
  };
  c.outputs = {{"x", x, DType::kF32, s.tokens, width, stride, {}, {}}};
  finish(c, s.tokens);
  return c;
}

Case<ScaleByPosition> scale_by_position_case(const RowsShape& s, float growth, int32_t offset) {
  Case<ScaleByPosition> c;
  c.name = fmt::format("tokens={} width={} growth={} offset={}", s.tokens, s.width, growth, offset);
  const int64_t width = s.width, stride = width + 2;
  std::vector<int32_t> at;
  for (int64_t i = 0; i < s.tokens; ++i) at.push_back(static_cast<int32_t>(i * 1237 % 40000));
  const Offset position = c.before.add(at);
  const Offset x = c.before.add(noise(1, s.tokens * stride));
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    ScaleByPosition a;
    a.step.positions = ints(base, position, begin);
    a.growth = growth, a.period = 16, a.offset = offset;
    a.x = a.out = view(base, x, DType::kF32, begin, count, width, stride);
    return a;
  };
  finish(c, s.tokens);
  Region region{"x", x, DType::kF32, s.tokens, width, stride, {}, {}};
  set_relative(c.after, region, 4 * kEpsF32);  // of the scale and the product
  c.outputs = {region};
  return c;
}

Case<GatherRows> gather_case(const RowsShape& s, int32_t merged = 1, DType type = DType::kF32) {
  Case<GatherRows> c;
  c.name = fmt::format("rows={} width={} count={} {}", s.tokens, s.width, merged, name_of(type));
  const int64_t n = s.tokens + 2 + merged, width = s.width, stride = width + 1;
  const Offset x = type == DType::kF32 ? c.before.add(noise(1, n * stride))
                                       : c.before.add(noise_bf16(1, n * stride));
  std::vector<int32_t> picked;
  for (int64_t i = 0; i < s.tokens; ++i)
    picked.push_back(static_cast<int32_t>((i * 7 + 1) % (n - merged + 1) + merged - 1));
  const Offset rows = c.before.add(picked);
  const Offset out = c.before.add(static_cast<size_t>(s.tokens * width * merged) * size_of(type));
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    GatherRows a;
    a.x = view(base, x, type, 0, n, width, stride);
    a.count = merged;
    a.step.logit_tokens = ints(base, rows, begin);
    a.out = view(base, out, type, begin, count, width * merged, width * merged);
    return a;
  };
  c.outputs = {{"out", out, type, s.tokens, width * merged, width * merged, {}, {}}};
  finish(c, s.tokens);
  return c;
}

// `given`: the step has blends, of tokens that repeat.
Case<BlendRows> blend_case(const RowsShape& s, bool given) {
  Case<BlendRows> c;
  c.name = fmt::format("rows={} width={} given={}", s.tokens, s.width, given);
  const int64_t n = s.tokens + 3, width = s.width, stride = width + 1;
  const std::vector<float> values = noise(1, n * stride), weights = noise(2, 4 * s.tokens);
  std::vector<BlendedRow> all(static_cast<size_t>(s.tokens));
  for (int64_t i = 0; i < 4 * s.tokens; ++i) {
    all[i / 4].tokens[i % 4] = static_cast<int32_t>((i * 5 + i % 4) % n);
    all[i / 4].weights[i % 4] = weights[i];
  }
  const Offset x = c.before.add(values), blends = c.before.add(all);
  const Offset out = c.before.add(static_cast<size_t>(s.tokens * width) * 4);
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    BlendRows a;
    if (given) a.step.blends = reinterpret_cast<const BlendedRow*>(base + blends) + begin;
    a.x = view(base, x, DType::kF32, 0, n, width, stride);
    a.out = view(base, out, DType::kF32, begin, count, width, width);
    return a;
  };
  finish(c, s.tokens);
  Region region{"out", out, DType::kF32, s.tokens, width, width, {}, {}};
  for (const BlendedRow& row : all)
    for (int64_t k = 0; k < width; ++k) {
      double norm = 0;
      for (int j = 0; j < 4; ++j)
        norm += std::fabs(double{row.weights[j]} * values[row.tokens[j] * stride + k]);
      region.tolerance.push_back(static_cast<float>(given ? 5 * kEpsF32 * norm : 0));
    }
  c.outputs = {region};
  return c;
}

// Rows of five positions.
Case<ShiftRows> shift_case(const RowsShape& s) {
  Case<ShiftRows> c;
  c.name = fmt::format("tokens={} width={}", s.tokens, s.width);
  const int64_t n = s.tokens, width = s.width, stride = width + 1;
  std::vector<int32_t> at;
  for (int64_t i = 0; i < n; ++i) at.push_back(static_cast<int32_t>(i % 5));
  const Offset position = c.before.add(at);
  const Offset x = c.before.add(noise(1, n * stride));
  const Offset out = c.before.add(static_cast<size_t>(n * width) * 4);
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    ShiftRows a;
    a.step.positions = ints(base, position, begin);
    a.x = view(base, x, DType::kF32, begin, count, width, stride);
    a.out = view(base, out, DType::kF32, begin, count, width, width);
    return a;
  };
  c.outputs = {{"out", out, DType::kF32, n, width, width, {}, {}}};
  finish(c, n);
  return c;
}

}  // namespace

template <>
const std::vector<Case<Embed>>& cases<Embed>() {
  return over_shapes<Embed>([](const RowsShape& s, auto& list) {
    list.push_back(embed_case(s, WeightLayout::kRowMajor, 1));
    list.push_back(embed_case(s, WeightLayout::kPanel16, 5.65625f));
    list.push_back(embed_case(s, WeightLayout::kRowMajor, 2, {}, true));
    WeightFormat zeros = kInt4Groups, minima = kInt8PerRow;
    zeros.group = 32, zeros.zeros = true;
    minima.group = 16, minima.minima = true;
    for (const WeightLayout layout : {WeightLayout::kRowMajor, WeightLayout::kPanel16})
      for (const WeightFormat& format : {kInt8PerRow, kInt8Both, kFp8PerRow, zeros, minima})
        list.push_back(embed_case(s, layout, 3, format));
  });
}

template <>
const std::vector<Case<AddPositions>>& cases<AddPositions>() {
  return over_shapes<AddPositions>([](const RowsShape& s, auto& list) {
    list.push_back(add_positions_case(s, WeightLayout::kRowMajor));
    list.push_back(add_positions_case(s, WeightLayout::kPanel16));
    list.push_back(plane_case(s, 1, WeightLayout::kRowMajor));
    list.push_back(plane_case(s, 4, WeightLayout::kRowMajor));
    list.push_back(plane_case(s, 5, WeightLayout::kPanel16));
  });
}

template <>
const std::vector<Case<AddFeatures>>& cases<AddFeatures>() {
  return over_shapes<AddFeatures>([](const RowsShape& s, auto& list) {
    const auto width = static_cast<int32_t>(s.width);
    for (const int32_t column : {width, 2 * width, 2 * width + 1})  // the last one is not there
      list.push_back(add_features_case(s, column));
  });
}

template <>
const std::vector<Case<ScaleByPosition>>& cases<ScaleByPosition>() {
  return over_shapes<ScaleByPosition>([](const RowsShape& s, auto& list) {
    list.push_back(scale_by_position_case(s, 0.1f, 0));
    list.push_back(scale_by_position_case(s, 0.4f, 1));
  });
}

template <>
const std::vector<Case<ShiftRows>>& cases<ShiftRows>() {
  return over_shapes<ShiftRows>(
      [](const RowsShape& s, auto& list) { list.push_back(shift_case(s)); });
}

template <>
const std::vector<Case<BlendRows>>& cases<BlendRows>() {
  return over_shapes<BlendRows>([](const RowsShape& s, auto& list) {
    list.push_back(blend_case(s, true));
    list.push_back(blend_case(s, false));
  });
}

template <>
const std::vector<Case<GatherRows>>& cases<GatherRows>() {
  return over_shapes<GatherRows>([](const RowsShape& s, auto& list) {
    list.push_back(gather_case(s));
    list.push_back(gather_case(s, 4));
    list.push_back(gather_case(s, 4, DType::kBF16));
  });
}

}  // namespace nereid::kernels::testing
