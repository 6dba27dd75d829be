// Launchers of row-wise ops.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/api/pack.h"
#include "kernels/api/validate.h"
#include "kernels/cpu/launch.h"
#include "kernels/cpu/scratch.h"

namespace nereid::kernels::cpu {
namespace {

// Runs fn(begin, end) over rows of `width` elements, in pieces large enough for a thread.
template <class F>
void for_rows(ThreadPool& pool, int64_t rows, int64_t width, F fn) {
  constexpr int64_t kElements = 1 << 14;
  const int64_t grain = std::max<int64_t>(1, kElements / width);
  if (rows <= grain)
    fn(0, rows);
  else
    pool.parallel_for(rows, grain, [&](int64_t begin, int64_t end, int) { fn(begin, end); });
}

// Calls f(column, value) for a table row of any format and layout.
template <class F>
void for_row(const WeightView& table, int64_t row, F f) {
  if (!table.format.is_float()) {
    for (int64_t c = 0; c < table.k; ++c) f(c, weight_at(table, row, c));
  } else if (table.layout == WeightLayout::kRowMajor) {
    const BF16* base = table.as_bf16() + row * table.k;
    for (int64_t c = 0; c < table.k; ++c) f(c, to_float(base[c]));
  } else {
    const BF16* pairs = table.as_bf16() + panel_index(row, 0, table.k);
    for (int64_t c = 0; c < table.k; ++c) f(c, to_float(pairs[c / 2 * (2 * kPanelRows) + c % 2]));
  }
}

// Given row in place of the table's; missing: zeros.
void embed_given(const Embed& a, int64_t token, float* out) {
  const BF16* const row =
      token == kRowEnd ? a.row_end.as_bf16() : given_row(a.step, token, a.out.cols);
  for (int64_t c = 0; c < a.out.cols; ++c) out[c] = row ? to_float(row[c]) * a.scale : 0.0f;
}

Status launch_embed(const Embed& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const BatchView& step = a.step;
  // A panel's row touches a cache line per two elements.
  for_rows(pool, a.out.rows, a.out.cols * 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t id = step.tokens[i];
      float* const out = a.out.row<float>(i);
      if (id < kFirstFeature / 2) {
        embed_given(a, id, out);
        continue;
      }
      if (id < 0) id = step.slot_tokens ? step.slot_tokens[-1 - id] : -1;
      if (id >= 0 && id < a.table.n)
        for_row(a.table, id, [&](int64_t c, float value) { out[c] = value * a.scale; });
      else
        std::fill(out, out + a.out.cols, 0.0f);
    }
  });
  return ok();
}

Status launch_quantize_bytes(const Raw& raw, const Quantize& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  for_rows(pool, a.out.rows, a.out.cols, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      *a.scales.row<float>(i) = raw.quantize_bytes(
          reinterpret_cast<const uint16_t*>(a.x.row<BF16>(i)), a.x.cols, a.out.row<int8_t>(i));
  });
  return ok();
}

bool makes_bytes(const Quantize& a) { return a.out.dtype == DType::kI8; }

Status launch_add_features(const AddFeatures& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  for_rows(pool, a.out.rows, a.out.cols, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const BF16* const row = feature_of(a.step, a.step.tokens[i], a.column, a.out.cols);
      if (row == nullptr) continue;
      float* const out = a.out.row<float>(i);
      for (int64_t c = 0; c < a.out.cols; ++c) out[c] += to_float(row[c]);
    }
  });
  return ok();
}

// Adds the bilinear mean of four rows of the table to `out`, the row of token i.
void add_plane_position(const AddPositions& a, int64_t i, float* out) {
  const auto place = [&](int component) {
    const int64_t last = a.step.row_begin[a.step.row_of_token[i] + 1] - 1;
    const int32_t* const all = a.step.components + component;
    return stretched_place(all[i * kPositionComponents], all[last * kPositionComponents] + 1,
                           a.side);
  };
  const StretchedPlace y = place(1), x = place(2);
  const auto add = [&](int32_t row, int32_t column, float weight) {
    if (weight != 0)
      for_row(a.table, int64_t{row} * a.side + column,
              [&](int64_t c, float value) { out[c] += weight * value; });
  };
  add(y.first, x.first, (1 - y.fraction) * (1 - x.fraction));
  add(y.first, x.next, (1 - y.fraction) * x.fraction);
  add(y.next, x.first, y.fraction * (1 - x.fraction));
  add(y.next, x.next, y.fraction * x.fraction);
}

Status launch_add_positions(const AddPositions& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  if (a.side > 0 && !a.step.components) return ok();
  for_rows(pool, a.out.rows, a.out.cols * 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* const out = a.out.row<float>(i);
      if (a.side > 0)
        add_plane_position(a, i, out);
      else if (a.step.positions[i] < a.table.n)
        for_row(a.table, a.step.positions[i], [&](int64_t c, float value) { out[c] += value; });
    }
  });
  return ok();
}

Status launch_add_tile_positions(const AddTilePositions& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  if (!a.step.components) return ok();
  float factor = is_given(a.gate) ? std::tanh(a.gate.as_f32()[0]) : 1;
  if (a.is_rest) factor = 1 - factor;
  for_rows(pool, a.out.rows, a.out.cols * 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* const out = a.out.row<float>(i);
      const int64_t row = tile_row(a.step.components, i, a.component, a.rows, a.table.n);
      if (row >= 0)
        for_row(a.table, row, [&](int64_t c, float value) { out[c] += factor * value; });
    }
  });
  return ok();
}

Status launch_gate_rows(const GateRows& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const float factor = is_given(a.gate) ? std::tanh(a.gate.as_f32()[0]) : 1;
  for_rows(pool, a.out.rows, a.out.cols, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* const out = a.out.row<float>(i);
      const bool has_place = a.places == 0 || !a.step.components ||
                             a.step.components[i * kPositionComponents + 1] < a.places;
      if (!has_place || (a.needs_keys && !sees_any_key(a.step, i)))
        std::fill(out, out + a.out.cols, 0.0f);
      else if (is_given(a.gate))
        for (int64_t c = 0; c < a.out.cols; ++c) out[c] *= factor;
    }
  });
  return ok();
}

Status launch_scale_by_position(const ScaleByPosition& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  for_rows(pool, a.out.rows, a.out.cols, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t periods = (int64_t{a.step.positions[i]} + a.offset) / a.period;
      const float scale = 1 + a.growth * std::log1p(static_cast<float>(periods));
      float* const out = a.out.row<float>(i);
      for (int64_t c = 0; c < a.out.cols; ++c) out[c] *= scale;
    }
  });
  return ok();
}

Status launch_blend_rows(const BlendRows& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  for_rows(pool, a.out.rows, a.out.cols * 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const BlendedRow blend = a.step.blends ? a.step.blends[i] : BlendedRow{};
      const float* rows[4];
      for (int j = 0; j < 4; ++j) rows[j] = a.x.row<float>(blend.tokens[j]);
      float* const out = a.out.row<float>(i);
      for (int64_t c = 0; c < a.out.cols; ++c) {
        float sum = 0;
        for (int j = 0; j < 4; ++j) sum += blend.weights[j] * rows[j][c];
        out[c] = sum;
      }
    }
  });
  return ok();
}

Status launch_gather_rows(const GatherRows& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const auto size = static_cast<int64_t>(size_of(a.x.dtype)), bytes = a.x.cols * size;
  const auto* const from = static_cast<const std::byte*>(a.x.data);
  auto* const to = static_cast<std::byte*>(a.out.data);
  for_rows(pool, a.out.rows, a.out.cols, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < a.count; ++j) {
        const int64_t row = int64_t{a.step.logit_tokens[i]} - a.count + 1 + j;
        std::memcpy(to + i * a.out.stride * size + j * bytes, from + row * a.x.stride * size,
                    static_cast<size_t>(bytes));
      }
  });
  return ok();
}

Status launch_shift_rows(const ShiftRows& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const auto bytes = static_cast<size_t>(a.out.cols) * sizeof(float);
  for_rows(pool, a.out.rows, a.out.cols, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (a.step.positions[i] == 0)
        std::memset(a.out.row<float>(i), 0, bytes);
      else
        std::memcpy(a.out.row<float>(i), a.x.row<float>(i - 1), bytes);
    }
  });
  return ok();
}

Status launch_norm(const Raw& raw, const Norm& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const NormRaw n = {
      .x = a.x.data,
      .add = static_cast<const float*>(a.add.data),
      .sum = static_cast<float*>(a.sum.data),
      .weight = static_cast<const uint16_t*>(a.weight.data),
      .bias = static_cast<const uint16_t*>(a.bias.data),
      .out = a.out.data,
      .x_bf16 = a.x.dtype == DType::kBF16,
      .out_bf16 = a.out.dtype == DType::kBF16,
      .centered = a.centered,
      .width = Norm::piece_of(a),
      .pieces = a.x.cols / Norm::piece_of(a),
      .weight_pieces = a.weight.k / Norm::piece_of(a),
      .x_stride = a.x.stride,
      .add_stride = a.add.stride,
      .sum_stride = a.sum.stride,
      .out_stride = a.out.stride,
      .eps = a.eps,
      .weight_offset = a.weight_offset,
  };
  for_rows(pool, a.out.rows, a.out.cols,
           [&](int64_t begin, int64_t end) { raw.norm(n, begin, end); });
  return ok();
}

bool adds_floats(const Norm& a) {
  return makes_floats(a) && !is_given(a.factors) && !is_given(a.rounded) &&
         (!is_given(a.add) || a.add.dtype == DType::kF32);
}

// Writes the angles of tokens whose positions have components, a row for each.
void gather_angles(const Rope& a, int64_t begin, int64_t end, float* out) {
  const int64_t half = a.angles.cols / 2;
  for (int64_t i = begin; i < end; ++i) {
    const int32_t* const position = a.step.components + i * kPositionComponents;
    float* const row = out + i * a.angles.cols;
    for (int64_t c = 0; c < half; ++c) {
      const float* const from = a.angles.data + position[a.angles.components[c]] * a.angles.cols;
      row[c] = from[c], row[half + c] = from[half + c];
    }
  }
}

Status launch_rope(const Raw& raw, const Rope& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  RopeRaw r = {
      .x = a.qkv.as<float>(),
      .stride = a.qkv.stride,
      .heads = a.heads.num + a.heads.num_kv,
      .head_dim = a.heads.dim,
      .positions = a.step.positions,
      .rotation = {a.angles.data, a.angles.cols, a.interleaved},
  };
  float* gathered = nullptr;
  if (a.angles.has_components && a.step.components) {
    thread_local Scratch scratch;
    const auto floats = static_cast<size_t>(a.qkv.rows * a.angles.cols);
    ASSIGN_OR_RETURN(void* const memory, scratch.get(floats * sizeof(float)));
    r.rotation.angles = gathered = static_cast<float*>(memory);
    r.positions = nullptr;
  }
  for_rows(pool, a.qkv.rows, a.qkv.cols, [&](int64_t begin, int64_t end) {
    if (gathered) gather_angles(a, begin, end, gathered);
    raw.rope(r, begin, end);
  });
  return ok();
}

Status launch_glu(const Raw& raw, const Glu& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const GluRaw g = {
      .x = a.x.as<float>(),
      .out = a.out.as<uint16_t>(),
      .width = a.out.cols,
      .x_stride = a.x.stride,
      .out_stride = a.out.stride,
      .activation = static_cast<int>(a.activation),
      .limit = a.limit,
      .up_offset = a.up_offset,
  };
  // An activation costs about eight copies.
  for_rows(pool, a.out.rows, a.out.cols * 8,
           [&](int64_t begin, int64_t end) { raw.glu(g, begin, end); });
  return ok();
}

bool reads_floats(const Glu& a) { return makes_floats(a) && a.x.dtype == DType::kF32; }

Status launch_activate(const Raw& raw, const Activate& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const ActivateRaw r = {
      .x = a.x.as<float>(),
      .out = a.out.data,
      .out_bf16 = a.out.dtype == DType::kBF16,
      .width = a.out.cols,
      .x_stride = a.x.stride,
      .out_stride = a.out.stride,
      .activation = static_cast<int>(a.activation),
  };
  for_rows(pool, a.out.rows, a.out.cols * 8,
           [&](int64_t begin, int64_t end) { raw.activate(r, begin, end); });
  return ok();
}

Status launch_xielu(const Raw& raw, const Xielu& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const auto softplus = [](float x) { return static_cast<float>(std::log1p(std::exp(double{x}))); };
  const XieluRaw r = {
      .x = a.x.as<float>(),
      .out = a.out.as<uint16_t>(),
      .width = a.out.cols,
      .x_stride = a.x.stride,
      .out_stride = a.out.stride,
      .positive = softplus(a.positive.as_f32()[0]),
      .negative = a.beta + softplus(a.negative.as_f32()[0]),
      .beta = a.beta,
  };
  for_rows(pool, a.out.rows, a.out.cols * 8,
           [&](int64_t begin, int64_t end) { raw.xielu(r, begin, end); });
  return ok();
}

Status launch_soft_cap(const Raw& raw, const SoftCap& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const SoftCapRaw r = {
      .x = a.x.as<float>(),
      .out = a.out.as<float>(),
      .width = a.out.cols,
      .x_stride = a.x.stride,
      .out_stride = a.out.stride,
      .scale = a.scale,
      .cap = a.cap,
      .limit = a.limit,
  };
  for_rows(pool, a.out.rows, a.out.cols * 8,
           [&](int64_t begin, int64_t end) { raw.soft_cap(r, begin, end); });
  return ok();
}

Status launch_add(const Raw& raw, const Add& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const AddRaw r = {
      .x = a.x.as<float>(),
      .y = a.y.as<float>(),
      .width = a.out.cols,
      .x_stride = a.x.stride,
      .y_stride = a.y.stride,
  };
  for_rows(pool, a.out.rows, a.out.cols,
           [&](int64_t begin, int64_t end) { raw.add(r, begin, end); });
  return ok();
}

}  // namespace

template <>
Table<Embed> table<Embed>() {
  return generic<Embed, launch_embed>();
}
template <>
Table<AddPositions> table<AddPositions>() {
  return generic<AddPositions, launch_add_positions>();
}
template <>
Table<AddFeatures> table<AddFeatures>() {
  return generic<AddFeatures, launch_add_features>();
}

template <>
Table<AddTilePositions> table<AddTilePositions>() {
  return generic<AddTilePositions, launch_add_tile_positions>();
}

template <>
Table<GateRows> table<GateRows>() {
  return generic<GateRows, launch_gate_rows>();
}
template <>
Table<ScaleByPosition> table<ScaleByPosition>() {
  return generic<ScaleByPosition, launch_scale_by_position>();
}
template <>
Table<GatherRows> table<GatherRows>() {
  return generic<GatherRows, launch_gather_rows>();
}
template <>
Table<BlendRows> table<BlendRows>() {
  return generic<BlendRows, launch_blend_rows>();
}
template <>
Table<ShiftRows> table<ShiftRows>() {
  return generic<ShiftRows, launch_shift_rows>();
}
template <>
Table<Quantize> table<Quantize>() {
  return vectors<Quantize, launch_quantize_bytes, makes_bytes>();
}
template <>
Table<Norm> table<Norm>() {
  return vectors<Norm, launch_norm, adds_floats>();
}
template <>
Table<Rope> table<Rope>() {
  return vectors<Rope, launch_rope>();
}
template <>
Table<Glu> table<Glu>() {
  return vectors<Glu, launch_glu, reads_floats>();
}
template <>
Table<Activate> table<Activate>() {
  return vectors<Activate, launch_activate>();
}
template <>
Table<Xielu> table<Xielu>() {
  return vectors<Xielu, launch_xielu>();
}
template <>
Table<SoftCap> table<SoftCap>() {
  return vectors<SoftCap, launch_soft_cap>();
}
template <>
Table<Add> table<Add>() {
  return vectors<Add, launch_add>();
}

}  // namespace nereid::kernels::cpu
