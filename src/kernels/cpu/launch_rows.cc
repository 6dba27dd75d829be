// Launchers of the ops that work row by row.
#include <algorithm>
#include <cstring>

#include "kernels/api/pack.h"
#include "kernels/api/validate.h"
#include "kernels/cpu/launch.h"

namespace nereid::kernels::cpu {
namespace {

// Runs fn(begin, end) over rows of `width` elements, in pieces large enough to pay for a hand-over
// to another thread.
template <class F>
void for_rows(ThreadPool& pool, int64_t rows, int64_t width, F fn) {
  constexpr int64_t kElements = 1 << 14;
  const int64_t grain = std::max<int64_t>(1, kElements / width);
  if (rows <= grain)
    fn(0, rows);
  else
    pool.parallel_for(rows, grain, [&](int64_t begin, int64_t end, int) { fn(begin, end); });
}

void embed_row(const WeightView& table, int64_t id, float* out) {
  const auto* base = static_cast<const BF16*>(table.data);
  if (id < 0 || id >= table.n) {
    std::fill(out, out + table.k, 0.0f);
  } else if (table.layout == WeightLayout::kRowMajor) {
    for (int64_t c = 0; c < table.k; ++c) out[c] = to_float(base[id * table.k + c]);
  } else {
    const BF16* pairs = base + panel_index(id, 0, table.k);
    for (int64_t c = 0; c < table.k; ++c)
      out[c] = to_float(pairs[c / 2 * (2 * kPanelRows) + c % 2]);
  }
}

}  // namespace

Status launch_embed(const Embed::Args& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  // A row of a panel touches one cache line per two elements.
  for_rows(pool, a.problem.tokens, a.problem.hidden * 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t id = a.tokens[i];
      if (id < 0) id = a.slot_tokens ? a.slot_tokens[-1 - id] : -1;
      embed_row(a.table, id, a.out.row<float>(i));
    }
  });
  return ok();
}

Status launch_gather_rows(const GatherRows::Args& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const auto bytes = static_cast<size_t>(a.problem.width) * sizeof(float);
  for_rows(pool, a.problem.rows, a.problem.width, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(a.out.row<float>(i), a.x.row<float>(a.rows[i]), bytes);
  });
  return ok();
}

Status launch_norm(const Raw& raw, const Norm::Args& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const NormRaw n = {
      .residual = a.residual.as<float>(),
      .add = a.problem.has_add ? a.add.as<float>() : nullptr,
      .weight = static_cast<const uint16_t*>(a.weight),
      .out = a.out.data,
      .out_bf16 = a.problem.out == DType::kBF16,
      .hidden = a.problem.hidden,
      .residual_stride = a.residual.stride,
      .add_stride = a.add.stride,
      .out_stride = a.out.stride,
      .eps = a.eps,
  };
  for_rows(pool, a.problem.tokens, a.problem.hidden,
           [&](int64_t begin, int64_t end) { raw.norm(n, begin, end); });
  return ok();
}

Status launch_rope(const Raw& raw, const Rope::Args& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const RopeRaw r = {
      .x = a.qkv.as<float>(),
      .stride = a.qkv.stride,
      .heads = a.problem.num_heads + a.problem.num_kv_heads,
      .head_dim = a.problem.head_dim,
      .positions = a.positions,
      .table = a.table,
  };
  for_rows(pool, a.problem.tokens, a.qkv.cols,
           [&](int64_t begin, int64_t end) { raw.rope(r, begin, end); });
  return ok();
}

Status launch_glu(const Raw& raw, const Glu::Args& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const GluRaw g = {
      .x = a.x.as<float>(),
      .out = a.out.as<uint16_t>(),
      .width = a.problem.width,
      .x_stride = a.x.stride,
      .out_stride = a.out.stride,
      .activation = static_cast<int>(a.problem.activation),
  };
  // An activation costs about as much as eight copies.
  for_rows(pool, a.problem.tokens, a.problem.width * 8,
           [&](int64_t begin, int64_t end) { raw.glu(g, begin, end); });
  return ok();
}

Status launch_add(const Raw& raw, const Add::Args& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const AddRaw r = {
      .x = a.x.as<float>(),
      .y = a.y.as<float>(),
      .width = a.problem.width,
      .x_stride = a.x.stride,
      .y_stride = a.y.stride,
  };
  for_rows(pool, a.problem.tokens, a.problem.width,
           [&](int64_t begin, int64_t end) { raw.add(r, begin, end); });
  return ok();
}

}  // namespace nereid::kernels::cpu
