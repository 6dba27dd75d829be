// Divides Linear into blocks of rows (whose x stays in the L2 cache) by runs of weight panels. For
// experts, rows are gathered first, so that an expert's rows share a pass over its weights.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/round_up.h"
#include "kernels/api/pack.h"
#include "kernels/api/validate.h"
#include "kernels/cpu/expert_pieces.h"
#include "kernels/cpu/launch.h"
#include "kernels/cpu/scratch.h"

namespace nereid::kernels::cpu {
const int64_t kFewRowsAhead = __builtin_cpu_is("amd") ? 0 : 2048;

namespace {

constexpr int64_t kChunkRows = 512;         // rows converted and multiplied at a time
constexpr int64_t kLineBytes = 64;          // row of a tile
constexpr int64_t kLongRowBytes = 8 << 10;  // rows of x above this have more, smaller tasks
constexpr int64_t kSmallWork = 1 << 16;     // below this many multiply-adds one thread is faster

// Form of x that a kernel reads.
enum class RowForm {
  kPairs,      // bf16 rows, zero-padded to even k; x itself for even k
  kF32,        // f32 rows, zero-padded to even k
  kTiles,      // bf16 tiles, see LinearRaw
  kByteTiles,  // i8 tiles
  kBytes,      // i8 rows of byte_row
  kWords,      // i16 rows: byte_row of i8, fixed_row of bf16
};
constexpr int64_t element_bytes(RowForm form) {
  return form == RowForm::kF32 ? 4 : form == RowForm::kBytes || form == RowForm::kByteTiles ? 1 : 2;
}
constexpr bool is_tiled(RowForm form) {
  return form == RowForm::kTiles || form == RowForm::kByteTiles;
}
struct LinearKernel {
  void (*block)(const LinearRaw&, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end) = nullptr;
  RowForm form = RowForm::kPairs;
  int64_t row_unit = 12;  // rows of the register tile; row blocks start at multiples of it
  int64_t row_block_bytes = 768 << 10;  // of x; leaves room for weights in the L2 cache
  int64_t row_block = 0;                // rows of a task; 0: by row_block_bytes
  int64_t most_panels = 8;              // per task
  void (*widen_row)(const uint16_t*, int64_t, float*) = nullptr;  // for kF32
  void (*byte_row)(const int8_t*, int64_t, void*) = nullptr;      // for kBytes, and kWords of i8
  // for kWords of bf16
  void (*fixed_row)(const uint16_t*, int64_t k, int64_t group, void*) = nullptr;
  // For weights other than bf16; with group_sums it takes sums of x for integers.
  void (*narrow)(const LinearRaw&, const IntegerPanelsRaw&, int64_t row_begin, int64_t row_end,
                 int64_t panel_begin, int64_t panel_end, uint16_t* memory) = nullptr;
  void (*group_sums)(const uint16_t* x, int64_t count, int64_t group, float* out) = nullptr;
};

struct Rows {
  const void* data = nullptr;
  int64_t stride = 0;
};

// Copies row `row` of x into a block of tiles.
template <class T>
void tile_row(const T* x, int64_t k, int64_t row, T* block) {
  constexpr int64_t kColumns = kLineBytes / sizeof(T);
  T* out = block + row * kColumns;
  int64_t i = 0;
  for (; i + kColumns <= k; i += kColumns, out += kPanelRows * kColumns)
    std::memcpy(out, x + i, kLineBytes);
  if (i == k) return;
  std::copy(x + i, x + k, out);
  std::fill(out + (k - i), out + kColumns, T{});
}

// Elements between blocks of 16 rows: tiles of `columns` columns, an odd multiple of kSlabSteps if
// there are more.
int64_t tiles_stride(int64_t k, int64_t columns) {
  int64_t steps = round_up(k, columns) / columns;
  if (steps > kSlabSteps)
    steps = round_up(steps, kSlabSteps) / kSlabSteps / 2 * 2 * kSlabSteps + kSlabSteps;
  return kPanelRows * columns * steps;
}

// Whether the kernel reads x's rows in place.
bool takes_rows(const LinearKernel& kernel, int64_t k) {
  return kernel.form == RowForm::kPairs && k % 2 == 0;
}

// FixedPiece data behind a row of fixed_row.
constexpr int64_t kPieceWords = sizeof(FixedPiece) / sizeof(int16_t);
int64_t num_pieces(int64_t k, int64_t group) {
  const int64_t full = (group + kPieceColumns - 1) / kPieceColumns;
  return (k + group - 1) / group * full;
}

// Copies rows of x to the kernel's form; row_at(line) null: padding.
template <class RowAt>
StatusOr<Rows> prepare_rows(const LinearKernel& kernel, const WeightView& w, int64_t count,
                            RowAt row_at, ThreadPool& pool) {
  const int64_t k = w.k, even_k = (k + 1) / 2 * 2, size = element_bytes(kernel.form);
  const int64_t group = w.format.group_size(k);
  thread_local Scratch scratch;
  const bool tiles = is_tiled(kernel.form), widen = kernel.form == RowForm::kF32;
  // Rows a power of two apart would map to few L1 cache sets.
  const int64_t behind = kernel.fixed_row ? num_pieces(k, group) * kPieceWords : 0;
  const int64_t stride =
      tiles ? tiles_stride(k, kLineBytes / size) : round_up(k, int64_t{4}) + behind + 64 / size;
  const int64_t lines = tiles ? (count + kPanelRows - 1) / kPanelRows : count;
  ASSIGN_OR_RETURN(void* const memory, scratch.get(static_cast<size_t>(lines * stride * size)));
  const auto convert = [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r) {
      const void* const row = row_at(r);
      if (!row) continue;
      if (kernel.byte_row) {
        kernel.byte_row(static_cast<const int8_t*>(row), k,
                        static_cast<std::byte*>(memory) + r * stride * size);
        continue;
      }
      std::byte* const block = static_cast<std::byte*>(memory) + r / kPanelRows * stride * size;
      if (kernel.form == RowForm::kByteTiles) {
        tile_row(static_cast<const int8_t*>(row), k, r % kPanelRows,
                 reinterpret_cast<int8_t*>(block));
        continue;
      }
      const auto* const x = static_cast<const BF16*>(row);
      if (kernel.fixed_row) {
        kernel.fixed_row(reinterpret_cast<const uint16_t*>(x), k, group,
                         static_cast<std::byte*>(memory) + r * stride * size);
      } else if (tiles) {
        tile_row(x, k, r % kPanelRows, reinterpret_cast<BF16*>(block));
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
  constexpr int64_t kSmallBytes = 64 << 10, kGrainBytes = 16 << 10;
  if (count * k * size <= kSmallBytes)
    convert(0, count, 0);
  else
    pool.parallel_for(count, kGrainBytes / (k * size), convert);
  return Rows{memory, stride};
}

bool is_fp8_by_rows(const WeightFormat& format) {
  return format.scheme == Scheme::kFloat8 && scales_sums(format);
}

// Sums of bf16 rows over the weight's groups; null for padding.
template <class RowAt>
StatusOr<const float*> prepare_sums(const LinearKernel& kernel, const WeightView& w, int64_t count,
                                    RowAt row_at, ThreadPool& pool) {
  if (!kernel.group_sums || w.format.is_float() || is_fp8_by_rows(w.format)) return nullptr;
  const int64_t groups = w.format.num_groups(w.k), group = w.format.group_size(w.k);
  thread_local Scratch scratch;
  ASSIGN_OR_RETURN(void* const memory,
                   scratch.get(static_cast<size_t>(count * groups) * sizeof(float)));
  float* const sums = static_cast<float*>(memory);
  const auto work = [&](int64_t first, int64_t last, int) {
    for (int64_t r = first; r < last; ++r)
      if (const void* const row = row_at(r))
        kernel.group_sums(static_cast<const uint16_t*>(row), w.k, group, sums + r * groups);
  };
  constexpr int64_t kGrain = 16;
  if (count <= kGrain)
    work(0, count, 0);
  else
    pool.parallel_for(count, kGrain, work);
  return sums;
}

// The weight's panels, with memory per thread for unpacked ones.
class Panels {
 public:
  static StatusOr<Panels> of(const LinearKernel& kernel, const WeightView& w, ThreadPool& pool) {
    Panels out(kernel);
    if (kernel.block && w.format.is_float()) return out;
    const WeightFormat& f = w.format;
    if (!f.is_float())
      out.integers_ = {.data = w.as_bytes(),
                       .scales = w.scales,
                       .zeros = w.zeros,
                       .minima = w.minima,
                       .panel_bytes = integer_panel_bytes(w.k, f.bits),
                       .columns = padded_k(w.k),
                       .group = f.group_size(w.k),
                       .groups = f.num_groups(w.k),
                       .bits = f.bits,
                       .float8 = f.scheme == Scheme::kFloat8,
                       .by_rows = is_fp8_by_rows(f)};
    thread_local Scratch scratch;
    out.per_thread_ = std::max({2 * panel_elements(w.k), words_memory(kChunkRows),
                                tiles_memory(kernel.row_block, kernel.most_panels, w.k)});
    ASSIGN_OR_RETURN(void* const memory,
                     scratch.get(static_cast<size_t>(pool.num_threads() * out.per_thread_) * 2));
    out.memory_ = static_cast<uint16_t*>(memory);
    return out;
  }

  int64_t num_groups() const { return integers_.groups; }

  // Multiplies panels of the expert's matrix.
  void multiply(const LinearRaw& a, int64_t expert, int64_t row_begin, int64_t row_end,
                int64_t panel_begin, int64_t panel_end, int thread) const {
    if (!memory_) return kernel_.block(a, row_begin, row_end, panel_begin, panel_end);
    kernel_.narrow(a, integers_of(expert * num_panels(a.n)), row_begin, row_end, panel_begin,
                   panel_end, memory_ + thread * per_thread_);
  }

 private:
  explicit Panels(const LinearKernel& kernel) : kernel_(kernel) {}

  // The weight from `panel` on.
  IntegerPanelsRaw integers_of(int64_t panel) const {
    IntegerPanelsRaw w = integers_;
    if (!w.data) return w;  // bf16 weights: LinearRaw's
    const int64_t numbers = panel * w.groups * kPanelRows;
    w.data += panel * w.panel_bytes;
    w.scales += numbers;
    if (w.zeros) w.zeros += numbers;
    if (w.minima) w.minima += numbers;
    return w;
  }

  const LinearKernel& kernel_;
  IntegerPanelsRaw integers_ = {};
  uint16_t* memory_ = nullptr;
  int64_t per_thread_ = 0;  // elements per thread
};

// Product of one group: `all` has the first line's x and out, and expert 0's weight.
LinearRaw product_of(const LinearKernel& kernel, const LinearRaw& all, int64_t num_groups,
                     const Group& group) {
  LinearRaw raw = all;
  const int64_t elements =
      (is_tiled(kernel.form) ? group.line / kPanelRows : group.line) * all.x_stride;
  raw.x = static_cast<const std::byte*>(all.x) + elements * element_bytes(kernel.form);
  raw.weight += group.expert * num_panels(all.n) * all.panel_stride;
  if (all.bias) raw.bias += group.expert * all.n;
  if (all.scales) raw.scales += group.expert * num_panels(all.n) * kPanelRows;
  if (all.x_scales) raw.x_scales += group.line * all.x_scales_stride;
  if (all.x_sums) raw.x_sums += group.line * num_groups;
  if (all.out_at) raw.out_at += group.line;
  return raw;
}

void multiply(const LinearKernel& kernel, const LinearRaw& raw, const Panels& weight,
              const std::vector<Group>& groups, ThreadPool& pool) {
  const int64_t panels = num_panels(raw.n), unit = kernel.row_unit;
  const int64_t row_bytes = raw.k * element_bytes(kernel.form);
  const int64_t block = kernel.row_block > 0
                            ? kernel.row_block
                            : std::max(2 * unit, kernel.row_block_bytes / row_bytes / unit * unit);
  int64_t rows = 0, row_blocks = 0;
  thread_local std::vector<int64_t> ends;  // of the groups, in row blocks
  ends.clear();
  for (const Group& group : groups) {
    rows += group.count;
    ends.push_back(row_blocks += (group.count + block - 1) / block);
  }
  const int64_t least_panels = rows > kPanelRows && row_bytes > kLongRowBytes ? 2 : 4;
  int64_t run = kernel.most_panels;
  while (run > least_panels && row_blocks * (panels / run) < 8 * pool.num_threads()) run /= 2;
  const int64_t runs = (panels + run - 1) / run;
  const auto work = [&, ends = std::span<const int64_t>(ends)](int64_t begin, int64_t end,
                                                               int thread) {
    for (int64_t item = begin; item < end; ++item) {
      const auto at = std::upper_bound(ends.begin(), ends.end(), item / runs) - ends.begin();
      const Group& group = groups[static_cast<size_t>(at)];
      const int64_t first_block = at > 0 ? ends[static_cast<size_t>(at - 1)] : 0;
      const int64_t row = (item / runs - first_block) * block, panel = item % runs * run;
      weight.multiply(product_of(kernel, raw, weight.num_groups(), group), group.expert, row,
                      std::min(row + block, group.count), panel, std::min(panel + run, panels),
                      thread);
    }
  };
  if (rows * raw.n * raw.k <= kSmallWork)
    work(0, row_blocks * runs, 0);
  else
    pool.parallel_for(row_blocks * runs, 1, work);
}

// Arguments independent of rows.
template <class Op>
LinearRaw constants_of(const Op& a) {
  return {
      .weight = static_cast<const uint16_t*>(a.weight.data),
      .panel_stride = panel_elements(a.weight.k),
      .k = a.weight.k,
      .bias = static_cast<const uint16_t*>(a.bias.data),
      .scales = is_given(a.scales) || is_fp8_by_rows(a.weight.format) ? a.weight.scales : nullptr,
      .out = a.out.data,
      .out_stride = a.out.stride,
      .n = a.weight.n,
      .out_bf16 = a.out.dtype == DType::kBF16,
  };
}

Status multiply_round(const LinearKernel& kernel, const ExpertLinear& a, const Pieces& pieces,
                      ThreadPool& pool) {
  if (pieces.groups.empty()) return ok();
  const auto row_at = [&](int64_t line) { return pieces.lines[static_cast<size_t>(line)]; };
  const auto num_lines = static_cast<int64_t>(pieces.lines.size());
  ASSIGN_OR_RETURN(const Rows x, prepare_rows(kernel, a.weight, num_lines, row_at, pool));
  LinearRaw raw = constants_of(a);
  raw.x = x.data, raw.x_stride = x.stride, raw.out_at = pieces.out_at.data();
  ASSIGN_OR_RETURN(raw.x_sums, prepare_sums(kernel, a.weight, num_lines, row_at, pool));
  if (is_given(a.scales)) raw.x_scales = pieces.scales.data(), raw.x_scales_stride = 1;
  ASSIGN_OR_RETURN(const Panels weight, Panels::of(kernel, a.weight, pool));
  multiply(kernel, raw, weight, pieces.groups, pool);
  return ok();
}

Status launch_product(const LinearKernel& kernel, const Linear& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const int64_t tokens = a.x.rows, k = a.weight.k;
  ASSIGN_OR_RETURN(const Panels weight, Panels::of(kernel, a.weight, pool));
  thread_local std::vector<Group> groups;
  for (int64_t begin = 0; begin < tokens; begin += kChunkRows) {
    groups = {{.count = std::min(kChunkRows, tokens - begin)}};
    Rows x = {element_of(a.x, begin, 0), a.x.stride};
    const auto row_at = [&](int64_t line) { return element_of(a.x, begin + line, 0); };
    if (!takes_rows(kernel, k)) {
      ASSIGN_OR_RETURN(x, prepare_rows(kernel, a.weight, groups[0].count, row_at, pool));
    }
    LinearRaw raw = constants_of(a);
    raw.x = x.data, raw.x_stride = x.stride;
    ASSIGN_OR_RETURN(raw.x_sums, prepare_sums(kernel, a.weight, groups[0].count, row_at, pool));
    if (is_given(a.scales)) {
      raw.x_scales = a.scales.row<float>(begin);
      raw.x_scales_stride = a.scales.stride;
    }
    raw.out = static_cast<std::byte*>(a.out.data) +
              begin * a.out.stride * static_cast<int64_t>(size_of(a.out.dtype));
    multiply(kernel, raw, weight, groups, pool);
  }
  return ok();
}

Status launch_product(const LinearKernel& kernel, const ExpertLinear& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  thread_local Pieces kept;
  Pieces& pieces = kept;
  pieces.sort(a);
  int64_t num_rows = 0;
  for (int64_t expert = 0; expert < a.weight.experts; ++expert) {
    auto [begin, end] = pieces.range(expert);
    while (begin < end) {
      const int64_t count = std::min(end - begin, kChunkRows - num_rows);
      pieces.add(a, expert, begin, count);
      begin += count, num_rows += count;
      if (num_rows < kChunkRows) continue;
      RETURN_IF_ERROR(multiply_round(kernel, a, pieces, pool));
      pieces.clear();
      num_rows = 0;
    }
  }
  RETURN_IF_ERROR(multiply_round(kernel, a, pieces, pool));
  const auto [begin, end] = pieces.range(a.weight.experts);
  const auto size = static_cast<int64_t>(size_of(a.out.dtype));
  for (int64_t i = begin; i < end; ++i)
    std::memset(static_cast<std::byte*>(a.out.data) + pieces.out(a, i) * size, 0,
                static_cast<size_t>(a.weight.n * size));
  return ok();
}

template <class Op>
Status linear_bytes(const Op& args, ThreadPool& pool) {
  return launch_product({.form = RowForm::kBytes,
                         .byte_row = byte_row_avx512_vnni,
                         .narrow = linear_bytes_avx512_vnni},
                        args, pool);
}
// Integer weights with 16-bit products, others with f32 products.
template <class Op>
Status linear_vectors(const Raw& raw, const Op& args, ThreadPool& pool) {
  LinearKernel kernel = {.block = raw.linear,
                         .form = RowForm::kF32,
                         .widen_row = raw.widen_row,
                         .narrow = raw.linear_float8,
                         .group_sums = raw.group_sums};
  if (args.x.dtype == DType::kI8)
    kernel = {.form = RowForm::kWords, .byte_row = raw.byte_row, .narrow = raw.linear_bytes};
  else if (args.weight.format.scheme == Scheme::kInteger)
    kernel = {.form = RowForm::kWords, .fixed_row = raw.fixed_row, .narrow = raw.linear_fixed};
  return launch_product(kernel, args, pool);
}
template <class Op>
Status linear_pairs(const Op& args, ThreadPool& pool) {
  return launch_product({.block = linear_avx512_bf16,
                         .narrow = linear_narrow_avx512_bf16,
                         .group_sums = kAvx512.group_sums},
                        args, pool);
}
// Panels of a task that share x's blocks of columns.
int64_t panels_of_tiles(int64_t k) { return k * 2 > kLongRowBytes ? 32 : 16; }
template <class Op>
Status linear_tiles(const Op& args, ThreadPool& pool) {
  return launch_product({.form = RowForm::kTiles,
                         .row_block = 256,
                         .most_panels = panels_of_tiles(args.weight.k),
                         .narrow = args.weight.format.is_float() ? linear_amx : linear_narrow_amx},
                        args, pool);
}
template <class Op>
Status linear_byte_tiles(const Op& args, ThreadPool& pool) {
  return launch_product({.form = RowForm::kByteTiles,
                         .row_block = 256,
                         .most_panels = panels_of_tiles(args.weight.k),
                         .narrow = linear_bytes_amx},
                        args, pool);
}

double best_rate(double (*peak)(int64_t)) {
  constexpr int64_t kIterations = 2000;
  double best = 0;
  for (int i = 0; i < 7; ++i) {
    const Time start = now();
    const double flops = peak(kIterations);
    best = std::max(best, flops / seconds(now() - start));
  }
  return best;
}

}  // namespace

// vdpbf16ps has twice the rate of f32 FMA on some processors and half on others, by design: a short
// measurement is unambiguous.
bool pairs_are_fast() {
  static const bool fast = best_rate(peak_flops_avx512_bf16) > best_rate(kAvx512.peak_flops);
  return fast;
}

namespace {

template <class Op>
double pairs_rank(const Op&, const DeviceInfo&) {
  return pairs_are_fast() ? 5 : 20;
}

template <class Op>
bool has_bytes(const Op& op) {
  return op.x.dtype == DType::kI8;
}
// No processor multiplies f8e4m3 rows: not supported.
template <class Op>
bool has_floats(const Op& op) {
  return op.x.dtype == DType::kBF16;
}

// Ranks must not depend on the number of rows: kernels sum in different orders, and a row's result
// must not depend on other rows.
template <class Op>
Table<Op> products() {
  constexpr DeviceKind kCpu = DeviceKind::kCpu;
  return {
      {"amx_bf16", kCpu,
       [](const Op& p, const DeviceInfo& d) { return d.has_amx && has_panels(p) && has_floats(p); },
       rank<Op, 1>, run<Op, linear_tiles<Op>>},
      {"amx_int8", kCpu,
       [](const Op& p, const DeviceInfo& d) { return d.has_amx && has_panels(p) && has_bytes(p); },
       rank<Op, 1>, run<Op, linear_byte_tiles<Op>>},
      {"avx512_vnni", kCpu,
       [](const Op& p, const DeviceInfo& d) {
         return d.has_avx512_vnni && has_panels(p) && has_bytes(p);
       },
       rank<Op, 2>, run<Op, linear_bytes<Op>>},
      {"avx512_bf16", kCpu,
       [](const Op& p, const DeviceInfo& d) {
         return d.has_avx512_bf16 && has_panels(p) && has_floats(p);
       },
       pairs_rank<Op>, run<Op, linear_pairs<Op>>},
      {"avx512", kCpu,
       [](const Op& p, const DeviceInfo& d) {
         return d.has_avx512 && has_panels(p) && (has_floats(p) || has_bytes(p));
       },
       rank<Op, 10>, run<Op, linear_vectors<Op>, kAvx512>},
      {"avx2", kCpu,
       [](const Op& p, const DeviceInfo& d) {
         return d.has_avx2 && has_panels(p) && (has_floats(p) || has_bytes(p));
       },
       rank<Op, 30>, run<Op, linear_vectors<Op>, kAvx2>},
  };
}

}  // namespace

template <>
Table<Linear> table<Linear>() {
  return products<Linear>();
}
template <>
Table<ExpertLinear> table<ExpertLinear>() {
  return products<ExpertLinear>();
}
template <>
Table<FusedLinear> table<FusedLinear>() {
  return {};  // kernel launches are cheap on a CPU: nothing to fuse
}

}  // namespace nereid::kernels::cpu
