// Row copies: embedding lookup, gather of hidden rows.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// The first kernel of a step. Lets later kernels start after everything enqueued before has ended:
// they may read positions, block tables and cache lines of earlier steps before they wait.
__global__ void embed_kernel(const int32_t* tokens, const int32_t* slot_tokens,
                             const __nv_bfloat16* embeddings, int64_t num_embeddings,
                             const __nv_bfloat16* features, int64_t num_features,
                             int64_t feature_width, const __nv_bfloat16* row_end,
                             const __nv_bfloat16* table, int64_t vocab, int64_t hidden, float* out,
                             int64_t out_stride, float scale) {
  wait_for_previous();
  let_next_begin();
  int64_t id = tokens[blockIdx.x], width = hidden;
  if (id < kFirstEmbedding / 2) {
    id -= kFirstEmbedding;
    table = embeddings;
    vocab = num_embeddings;
  } else if (id == kRowEnd) {
    id = 0;
    table = row_end;
    vocab = row_end ? 1 : 0;
  } else if (id < kFirstFeature / 2) {
    id -= kFirstFeature;
    table = features;
    vocab = num_features;
    width = feature_width;
  } else if (id < 0) {
    id = slot_tokens ? slot_tokens[-1 - id] : -1;
  }
  // An invalid id (a failed sample of the previous step) must not read outside the table.
  const bool known = id >= 0 && id < vocab;
  const __nv_bfloat16* from = table + (known ? id : 0) * width;
  float* to = out + blockIdx.x * out_stride;
  for (int64_t c = threadIdx.x; c < hidden; c += kThreads)
    to[c] = known ? load(from + c) * scale : 0.0f;
}

__global__ void add_positions_kernel(const int32_t* positions, const __nv_bfloat16* table,
                                     int64_t num_positions, int64_t hidden, float* x,
                                     int64_t stride) {
  let_next_begin();
  wait_for_previous();
  const int64_t position = positions[blockIdx.x];
  if (position >= num_positions) return;
  for (int64_t c = threadIdx.x; c < hidden; c += kThreads)
    x[blockIdx.x * stride + c] += load(table + position * hidden + c);
}

// Positions in the plane; see AddPositions.
__global__ void add_plane_positions_kernel(const int32_t* components, const int32_t* row_of_token,
                                           const int32_t* row_begin, const __nv_bfloat16* table,
                                           int side, int64_t hidden, float* x, int64_t stride) {
  let_next_begin();
  wait_for_previous();
  const int64_t i = blockIdx.x, last = row_begin[row_of_token[i] + 1] - 1;
  const int32_t *own = components + i * kPositionComponents,
                *end = components + last * kPositionComponents;
  const StretchedPlace down = stretched_place(own[1], end[1] + 1, side);
  const StretchedPlace right = stretched_place(own[2], end[2] + 1, side);
  const __nv_bfloat16* upper = table + int64_t{down.first} * side * hidden;
  const __nv_bfloat16* lower = table + int64_t{down.next} * side * hidden;
  const int64_t first = right.first * hidden, next = right.next * hidden;
  const float y = down.fraction, z = right.fraction;
  for (int64_t c = threadIdx.x; c < hidden; c += kThreads) {
    float sum = x[i * stride + c];
    sum += (1 - y) * (1 - z) * load(upper + first + c);
    sum += (1 - y) * z * load(upper + next + c);
    sum += y * (1 - z) * load(lower + first + c);
    x[i * stride + c] = sum + y * z * load(lower + next + c);
  }
}

__global__ void add_features_kernel(const int32_t* tokens, const __nv_bfloat16* features,
                                    int64_t num_features, int64_t feature_width, int64_t column,
                                    int64_t width, float* x, int64_t stride) {
  let_next_begin();
  wait_for_previous();
  const int64_t token = tokens[blockIdx.x], row = token - kFirstFeature;
  if (row < 0 || token >= kFirstFeature / 2 || row >= num_features ||
      column + width > feature_width)
    return;
  for (int64_t c = threadIdx.x; c < width; c += kThreads)
    x[blockIdx.x * stride + c] += load(features + row * feature_width + column + c);
}

// See AddTilePositions.
__global__ void add_tile_positions_kernel(const int32_t* components, const float* gate,
                                          bool is_rest, int component, int rows,
                                          const __nv_bfloat16* table, int64_t table_rows,
                                          int64_t hidden, float* x, int64_t stride) {
  let_next_begin();
  wait_for_previous();
  const int64_t row = tile_row(components, blockIdx.x, component, rows, table_rows);
  if (row < 0) return;
  float factor = gate ? tanhf(*gate) : 1.0f;
  if (is_rest) factor = 1.0f - factor;
  for (int64_t c = threadIdx.x; c < hidden; c += kThreads)
    x[blockIdx.x * stride + c] += factor * load(table + row * hidden + c);
}

// See GateRows. `step`: with arrays of the device.
__global__ void gate_rows_kernel(BatchView step, const float* gate, bool needs_keys, int places,
                                 int64_t width, float* x, int64_t stride) {
  let_next_begin();
  wait_for_previous();
  const int64_t i = blockIdx.x;
  const bool has_place =
      places == 0 || !step.components || step.components[i * kPositionComponents + 1] < places;
  const bool is_kept = has_place && (!needs_keys || sees_any_key(step, i));
  if (is_kept && !gate) return;
  const float factor = is_kept ? tanhf(*gate) : 0.0f;
  for (int64_t c = threadIdx.x; c < width; c += kThreads)
    x[i * stride + c] = is_kept ? factor * x[i * stride + c] : 0.0f;
}

__global__ void scale_by_position_kernel(const int32_t* positions, float growth, int period,
                                         int offset, int64_t width, float* x, int64_t stride) {
  let_next_begin();
  wait_for_previous();
  const int64_t periods = (int64_t{positions[blockIdx.x]} + offset) / period;
  const float scale = 1 + growth * log1pf(static_cast<float>(periods));
  for (int64_t c = threadIdx.x; c < width; c += kThreads) x[blockIdx.x * stride + c] *= scale;
}

// See BlendRows.
__global__ void blend_kernel(const float* x, int64_t x_stride, const BlendedRow* blends,
                             int64_t width, float* out, int64_t out_stride) {
  let_next_begin();
  wait_for_previous();
  const BlendedRow blend = blends ? blends[blockIdx.x] : BlendedRow{};
  for (int64_t c = threadIdx.x; c < width; c += kThreads) {
    float sum = 0;
    for (int j = 0; j < 4; ++j) sum += blend.weights[j] * x[blend.tokens[j] * x_stride + c];
    out[blockIdx.x * out_stride + c] = sum;
  }
}

// Grid [row, row of its `count`].
template <class T>
__global__ void gather_kernel(const T* x, int64_t x_stride, const int32_t* rows, int count,
                              int64_t width, T* out, int64_t out_stride) {
  let_next_begin();
  wait_for_previous();
  const int64_t row = int64_t{rows[blockIdx.x]} - count + 1 + blockIdx.y;
  const T* from = x + row * x_stride;
  T* to = out + blockIdx.x * out_stride + blockIdx.y * width;
  for (int64_t c = threadIdx.x; c < width; c += kThreads) to[c] = from[c];
}

__global__ void shift_rows_kernel(const float* x, int64_t x_stride, const int32_t* positions,
                                  int64_t width, float* out, int64_t out_stride) {
  let_next_begin();
  wait_for_previous();
  const bool is_first = positions[blockIdx.x] == 0;
  const float* from = x + (static_cast<int64_t>(blockIdx.x) - 1) * x_stride;
  float* to = out + blockIdx.x * out_stride;
  for (int64_t c = threadIdx.x; c < width; c += kThreads) to[c] = is_first ? 0.0f : from[c];
}

cudaError_t launch(const Embed& a, const Scratch&, cudaStream_t stream) {
  return launch_overlapped(
      embed_kernel, a.out.rows, static_cast<unsigned>(a.out.rows), kThreads, 0, stream,
      a.step.tokens, a.step.slot_tokens, reinterpret_cast<const __nv_bfloat16*>(a.step.embeddings),
      int64_t{a.step.num_embeddings}, reinterpret_cast<const __nv_bfloat16*>(a.step.features),
      int64_t{a.step.num_features}, int64_t{a.step.feature_width},
      static_cast<const __nv_bfloat16*>(a.row_end.data),
      static_cast<const __nv_bfloat16*>(a.table.data), a.table.n, a.table.k,
      static_cast<float*>(a.out.data), a.out.stride, a.scale);
}

cudaError_t launch(const AddFeatures& a, const Scratch&, cudaStream_t stream) {
  return launch_overlapped(
      add_features_kernel, a.out.rows, static_cast<unsigned>(a.out.rows), kThreads, 0, stream,
      a.step.tokens, reinterpret_cast<const __nv_bfloat16*>(a.step.features),
      int64_t{a.step.num_features}, int64_t{a.step.feature_width}, int64_t{a.column}, a.out.cols,
      static_cast<float*>(a.out.data), a.out.stride);
}

cudaError_t launch(const AddPositions& a, const Scratch&, cudaStream_t stream) {
  if (a.side > 0 && !a.step.components) return cudaSuccess;
  if (a.side > 0)
    return launch_overlapped(add_plane_positions_kernel, a.out.rows,
                             static_cast<unsigned>(a.out.rows), kThreads, 0, stream,
                             a.step.components, a.step.row_of_token, a.step.row_begin,
                             static_cast<const __nv_bfloat16*>(a.table.data), int{a.side},
                             a.table.k, static_cast<float*>(a.out.data), a.out.stride);
  return launch_overlapped(add_positions_kernel, a.out.rows, static_cast<unsigned>(a.out.rows),
                           kThreads, 0, stream, a.step.positions,
                           static_cast<const __nv_bfloat16*>(a.table.data), a.table.n, a.table.k,
                           static_cast<float*>(a.out.data), a.out.stride);
}

const float* number_of(const WeightView& gate) { return is_given(gate) ? gate.as_f32() : nullptr; }

cudaError_t launch(const AddTilePositions& a, const Scratch&, cudaStream_t stream) {
  if (!a.step.components) return cudaSuccess;
  return launch_overlapped(add_tile_positions_kernel, a.out.rows, static_cast<unsigned>(a.out.rows),
                           kThreads, 0, stream, a.step.components, number_of(a.gate), a.is_rest,
                           int{a.component}, int{a.rows},
                           static_cast<const __nv_bfloat16*>(a.table.data), a.table.n, a.table.k,
                           static_cast<float*>(a.out.data), a.out.stride);
}

cudaError_t launch(const GateRows& a, const Scratch&, cudaStream_t stream) {
  return launch_overlapped(gate_rows_kernel, a.out.rows, static_cast<unsigned>(a.out.rows),
                           kThreads, 0, stream, a.step, number_of(a.gate), a.needs_keys,
                           int{a.places}, a.out.cols, static_cast<float*>(a.out.data),
                           a.out.stride);
}

cudaError_t launch(const ScaleByPosition& a, const Scratch&, cudaStream_t stream) {
  return launch_overlapped(scale_by_position_kernel, a.out.rows, static_cast<unsigned>(a.out.rows),
                           kThreads, 0, stream, a.step.positions, a.growth, int{a.period},
                           int{a.offset}, a.out.cols, static_cast<float*>(a.out.data),
                           a.out.stride);
}

template <class T>
cudaError_t gather(const GatherRows& a, cudaStream_t stream) {
  const dim3 grid = {static_cast<unsigned>(a.out.rows), static_cast<unsigned>(a.count)};
  return launch_overlapped(gather_kernel<T>, a.out.rows, grid, kThreads, 0, stream,
                           static_cast<const T*>(a.x.data), a.x.stride, a.step.logit_tokens,
                           int{a.count}, a.x.cols, static_cast<T*>(a.out.data), a.out.stride);
}
cudaError_t launch(const GatherRows& a, const Scratch&, cudaStream_t stream) {
  return a.x.dtype == DType::kBF16 ? gather<__nv_bfloat16>(a, stream) : gather<float>(a, stream);
}

cudaError_t launch(const BlendRows& a, const Scratch&, cudaStream_t stream) {
  return launch_overlapped(blend_kernel, a.out.rows, static_cast<unsigned>(a.out.rows), kThreads, 0,
                           stream, static_cast<const float*>(a.x.data), a.x.stride, a.step.blends,
                           a.out.cols, static_cast<float*>(a.out.data), a.out.stride);
}

cudaError_t launch(const ShiftRows& a, const Scratch&, cudaStream_t stream) {
  return launch_overlapped(shift_rows_kernel, a.out.rows, static_cast<unsigned>(a.out.rows),
                           kThreads, 0, stream, static_cast<const float*>(a.x.data), a.x.stride,
                           a.step.positions, a.out.cols, static_cast<float*>(a.out.data),
                           a.out.stride);
}

template <class Op>
bool has_float_rows(const Op& a) {
  return a.table.layout == WeightLayout::kRowMajor && a.table.format.is_float();
}

}  // namespace

template <>
Row<Embed> row<Embed>() {
  return {launch, has_float_rows<Embed>};
}
template <>
Row<AddPositions> row<AddPositions>() {
  return {launch, has_float_rows<AddPositions>};
}
template <>
Row<AddFeatures> row<AddFeatures>() {
  return {launch};
}
template <>
Row<AddTilePositions> row<AddTilePositions>() {
  return {launch, has_float_rows<AddTilePositions>};
}
template <>
Row<GateRows> row<GateRows>() {
  return {launch};
}
template <>
Row<ScaleByPosition> row<ScaleByPosition>() {
  return {launch};
}
template <>
Row<GatherRows> row<GatherRows>() {
  return {launch};
}
template <>
Row<BlendRows> row<BlendRows>() {
  return {launch};
}
template <>
Row<ShiftRows> row<ShiftRows>() {
  return {launch};
}

}  // namespace nereid::kernels::cuda
