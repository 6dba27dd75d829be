// Cuts linear into blocks of rows whose x stays in the level-2 cache, by runs of weight panels.
#include <algorithm>
#include <cstring>

#include "kernels/api/pack.h"
#include "kernels/api/validate.h"
#include "kernels/cpu/launch.h"
#include "kernels/cpu/scratch.h"

namespace nereid::kernels::cpu {
namespace {

constexpr int64_t kChunkRows = 512;      // rows converted and multiplied at a time
constexpr int64_t kSmallWork = 1 << 16;  // multiply-adds below which one thread is faster

struct Rows {
  const void* data = nullptr;
  int64_t stride = 0;
};

// Row `row` of a block in kTiles form.
void tile_row(const BF16* x, int64_t k, int64_t row, BF16* block) {
  constexpr int64_t kTile = kPanelRows * kPanelStepK;
  BF16* out = block + row * kPanelStepK;
  int64_t i = 0;
  for (; i + kPanelStepK <= k; i += kPanelStepK, out += kTile)
    std::memcpy(out, x + i, kPanelStepK * sizeof(BF16));
  if (i == k) return;
  std::copy(x + i, x + k, out);
  std::fill(out + (k - i), out + kPanelStepK, BF16{});
}

// x in the form that the kernel reads: itself or a converted copy.
StatusOr<Rows> prepare_rows(const LinearKernel& kernel, const Linear& a, int64_t begin,
                            int64_t count, ThreadPool& pool) {
  const int64_t k = a.weight.k, even_k = (k + 1) / 2 * 2;
  if (kernel.form == RowForm::kPairs && even_k == k) return Rows{a.x.row<BF16>(begin), a.x.stride};
  thread_local Scratch scratch;
  const bool tiles = kernel.form == RowForm::kTiles, widen = kernel.form == RowForm::kF32;
  // Rows a power of two apart would share few sets of the level-1 cache.
  const int64_t stride = tiles ? kPanelRows * padded_k(k) : even_k + 32;
  const int64_t lines = tiles ? (count + kPanelRows - 1) / kPanelRows : count;
  ASSIGN_OR_RETURN(void* const memory,
                   scratch.get(static_cast<size_t>(lines * stride) * (widen ? 4 : 2)));
  const auto convert = [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r) {
      const BF16* x = a.x.row<BF16>(begin + r);
      if (tiles) {
        tile_row(x, k, r % kPanelRows, static_cast<BF16*>(memory) + r / kPanelRows * stride);
      } else if (widen) {
        float* out = static_cast<float*>(memory) + r * stride;
        kernel.widen_row(reinterpret_cast<const uint16_t*>(x), k, out);
        std::fill(out + k, out + even_k, 0.0f);
      } else {
        BF16* out = static_cast<BF16*>(memory) + r * stride;
        std::copy(x, x + k, out);
        std::fill(out + k, out + even_k, BF16{});
      }
    }
  };
  constexpr int64_t kGrain = 16;
  if (count <= kGrain)
    convert(0, count, 0);
  else
    pool.parallel_for(count, kGrain, convert);
  return Rows{memory, stride};
}

// The weight's panels as the kernel reads them: where they are, or unpacked a few at a time into
// memory of the thread.
class Panels {
 public:
  static StatusOr<Panels> of(const LinearKernel& kernel, const WeightView& w, ThreadPool& pool) {
    Panels out(kernel);
    if (w.format.is_float()) return out;
    const WeightFormat& f = w.format;
    out.integers_ = {.data = w.as_bytes(),
                     .scales = w.scales,
                     .zeros = w.zeros,
                     .panel_bytes = integer_panel_bytes(w.k, f.bits),
                     .columns = padded_k(w.k),
                     .group = f.group_size(w.k),
                     .groups = f.num_groups(w.k),
                     .bits = f.bits};
    thread_local Scratch scratch;
    out.per_thread_ = kUnpacked * panel_elements(w.k);
    ASSIGN_OR_RETURN(void* const memory,
                     scratch.get(static_cast<size_t>(pool.num_threads() * out.per_thread_) * 2));
    out.unpacked_ = static_cast<uint16_t*>(memory);
    return out;
  }

  void multiply(const LinearRaw& a, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end, int thread) const {
    if (!unpacked_) return kernel_.block(a, row_begin, row_end, panel_begin, panel_end);
    uint16_t* const memory = unpacked_ + thread * per_thread_;
    for (int64_t panel = panel_begin; panel < panel_end; panel += kUnpacked) {
      const int64_t count = std::min(kUnpacked, panel_end - panel), col = panel * kPanelRows;
      for (int64_t i = 0; i < count; ++i)
        kernel_.unpack_panel(integers_, panel + i, memory + i * a.panel_stride);
      LinearRaw part = a;  // the product's columns from `col` on
      part.weight = memory;
      part.n -= col;
      part.out = static_cast<std::byte*>(a.out) + col * (a.out_bf16 ? 2 : 4);
      if (a.bias) part.bias = a.bias + col;
      kernel_.block(part, row_begin, row_end, 0, count);
    }
  }

 private:
  static constexpr int64_t kUnpacked = 4;  // panels that a kernel reads side by side

  explicit Panels(const LinearKernel& kernel) : kernel_(kernel) {}

  const LinearKernel& kernel_;
  IntegerPanelsRaw integers_ = {};
  uint16_t* unpacked_ = nullptr;
  int64_t per_thread_ = 0;  // elements
};

void multiply(const LinearKernel& kernel, const LinearRaw& raw, const Panels& weight, int64_t rows,
              ThreadPool& pool) {
  const int64_t panels = num_panels(raw.n);
  if (rows * raw.n * raw.k <= kSmallWork) return weight.multiply(raw, 0, rows, 0, panels, 0);
  const int64_t unit = kernel.row_unit;
  const int64_t row_bytes = raw.k * (kernel.form == RowForm::kF32 ? 4 : 2);
  const int64_t block = std::max(2 * unit, kernel.row_block_bytes / row_bytes / unit * unit);
  const int64_t row_blocks = (rows + block - 1) / block;
  int64_t run = 8;  // panels per piece of work
  while (run > 4 && row_blocks * (panels / run) < 8 * pool.num_threads()) run /= 2;
  const int64_t runs = (panels + run - 1) / run;
  pool.parallel_for(row_blocks * runs, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first_row = item / runs * block, first_panel = item % runs * run;
      weight.multiply(raw, first_row, std::min(first_row + block, rows), first_panel,
                      std::min(first_panel + run, panels), thread);
    }
  });
}

}  // namespace

Status launch_linear(const LinearKernel& kernel, const Linear& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const int64_t tokens = a.x.rows, k = a.weight.k;
  ASSIGN_OR_RETURN(const Panels weight, Panels::of(kernel, a.weight, pool));
  for (int64_t begin = 0; begin < tokens; begin += kChunkRows) {
    const int64_t rows = std::min(kChunkRows, tokens - begin);
    ASSIGN_OR_RETURN(const Rows x, prepare_rows(kernel, a, begin, rows, pool));
    const LinearRaw raw = {
        .x = x.data,
        .x_stride = x.stride,
        .weight = static_cast<const uint16_t*>(a.weight.data),
        .panel_stride = panel_elements(k),
        .k = k,
        .bias = static_cast<const uint16_t*>(a.bias.data),
        .out = static_cast<std::byte*>(a.out.data) +
               begin * a.out.stride * static_cast<int64_t>(size_of(a.out.dtype)),
        .out_stride = a.out.stride,
        .n = a.weight.n,
        .out_bf16 = a.out.dtype == DType::kBF16,
    };
    multiply(kernel, raw, weight, rows, pool);
  }
  return ok();
}

}  // namespace nereid::kernels::cpu
