// Grouped products with selected experts by wgmma, with gated units or not. Piece: a (row, selected
// expert) pair. Blocks list the pieces per expert (expert_lists.cuh), or each block does if there
// are few; then each SM takes tiles: outputs of an expert for up to kRows of its pieces. Producer
// warps load weight boxes by TMA and gather rows of x; the others multiply. Tiles with the same
// outputs of an expert are adjacent, so that the weight is read from memory once. The order of sums
// over k is fixed; f8e4m3 results still depend on kRows.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/activate.cuh"
#include "kernels/cuda/boxes.cuh"
#include "kernels/cuda/expert_tiles.cuh"
#include "kernels/cuda/integer_products.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mxfp4_products.cuh"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kProducers = 128;

using Params = ExpertParams;

template <int kRows, class In>
constexpr int kConsumers = kGroups<kRows, In>* kGroupThreads;
template <int kRows, class In>
constexpr int kThreads = kConsumers<kRows, In> + kProducers;
// Registers of a thread: where four groups multiply, they take those of the producers.
template <int kRows, class In>
constexpr bool kMovesRegisters = kGroups<kRows, In> > 3;
constexpr int kProducerRegisters = 64, kConsumerRegisters = 104;

// Outputs of a group's 64 rows of the weight. Gated: eight rows of gates alternate with those of
// the same outputs' ups, so that a thread has both.
template <bool kGated>
constexpr int kOutputs = kGated ? kPart / 2 : kPart;

#if defined(NEREID_HOPPER)

using Tile = ExpertTile;

constexpr int kRowPieces = kDepthBytes / 16;        // of a row of x in a box
constexpr int kTurnRows = kProducers / kRowPieces;  // gathered at once
// Exponents of a row in a block of the layout kFragments.
constexpr int kBlockExponents = kFragmentColumns / kFragmentPiece;

// Fills boxes and signals each kLag boxes later, when the copies of its rows have arrived.
template <int kRows, class In, bool kGated>
struct Gather {
  static constexpr int kTurns = kRows / kTurnRows;
  static constexpr int kLag = kStages<kRows, In> > 6 ? 4 : kStages<kRows, In> > 3 ? 2 : 1;
  // Rows of the weight whose exponents a thread copies.
  static constexpr int kOwnExponents =
      kIsMxfp4<In> ? (kTileParts<kRows, In> * kPart + kProducers - 1) / kProducers : 0;
  // Consumers free a stage after the next box's products, integers at once.
  static_assert(kStages<kRows, In> >= kLag + (kIsInteger<In> ? 1 : 2));
  static constexpr int kXSize = kIsF8<In> ? 1 : 2;
  Ring<kRows, In> ring, arrived;
  int pending = 0;

  __device__ void say_arrived() {
    writes_are_ready();
    __syncwarp();
    if (threadIdx.x % kWarp == 0) barrier_arrive(arrived.full + arrived.stage);
    arrived.step();
    --pending;
  }
  // MXFP4: where the gates' and the ups' rows (or all rows) of a part are in the first box, pieces
  // of blocks of the layout kFragments; boxes of the same rows are adjacent.
  __device__ void find_blocks(const Params& p, const Tile& t, int part,
                              const uint8_t* (&from)[2]) const {
    constexpr int kBlockBytes = 2 * kHalfBytes;
    const int64_t blocks = (p.n + kPart - 1) / kPart, blocks_k = fragment_blocks(1, p.integers.k);
#pragma unroll
    for (int i = 0; i < (kGated ? 2 : 1); ++i) {
      const int row = part * kOutputs<kGated> + i * (p.n / 2);
      from[i] = p.weight + (t.expert * blocks + row / kPart) * blocks_k * kBlockBytes +
                row % kPart / 8 * kRunBytes;
    }
  }
  __device__ void copy_blocks(const uint8_t* const (&from)[2], int box, uint8_t* to) const {
    uint64_t* const full = ring.full + ring.stage;
    const int64_t begin = int64_t{box} * kBoxBytes<In>;
    if constexpr (kGated) {
#pragma unroll
      for (int half = 0; half < kDepth<In> / kHalfColumns; ++half)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          copy_bytes(to + half * kHalfBytes + i * kHalfBytes / 2,
                     from[i] + begin + half * kHalfBytes, kHalfBytes / 2, full);
    } else {
      copy_bytes(to, from[0] + begin, kBoxBytes<In>, full);
    }
  }
  // Copies the box of 64 rows of the weight that make a part of the outputs.
  __device__ void copy_part(const Params& p, const CUtensorMap* weights, const Tile& t, int part,
                            int box, uint8_t* to) const {
    constexpr int kColumns = kIsUnpacked<In> ? kDepthBytes : kDepth<In>;  // unpacked: bytes
    uint64_t* const full = ring.full + ring.stage;
    if constexpr (kGated) {
      copy_box(to, weights, box * kColumns, 0, 0, t.expert * (p.n / 8) + part * (kPart / 16), full);
    } else {
      copy_box(to, weights, box * kColumns, t.expert * p.n + part * kPart, full);
    }
  }
  // The exponents of the tile's rows of the weight in the first box, as boxes have them.
  __device__ const uint8_t* exponents(const Params& p, const Tile& t, int own) const {
    const int at = own * kProducers + static_cast<int>(threadIdx.x) % kProducers;
    if (at >= kTileParts<kRows, In> * kPart) return nullptr;
    const int in_part = at % kPart, width = kGated ? p.n / 2 : p.n;
    const int output = (t.tile * kTileParts<kRows, In> + at / kPart) * kOutputs<kGated> +
                       in_part % kOutputs<kGated>;
    const int row = min(output, width - 1) + (kGated && in_part >= kPart / 2 ? width : 0);
    const int64_t blocks = (p.n + kPart - 1) / kPart, blocks_k = fragment_blocks(1, p.integers.k);
    const int64_t block = (t.expert * blocks + row / kPart) * blocks_k;
    return p.integers.exponents + (block * kPart + row % kPart) * kBlockExponents;
  }
  template <int kOwn>
  __device__ void copy_exponents(const uint8_t* const (&from)[kOwn], int box) const {
    const int thread = static_cast<int>(threadIdx.x) % kProducers;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (!from[i]) continue;
      const uint32_t to = shared_address(ring.exponents(ring.stage)) +
                          (i * kProducers + thread) * kRowExponents<In>;
      if constexpr (kRowExponents<In> == kBlockExponents)
        copy_8(to, from[i] + box * (kPart * kBlockExponents), true);
      else
        copy_4(to, from[i] + box / 2 * (kPart * kBlockExponents) + box % 2 * kRowExponents<In>);
    }
  }
  template <int kOwn>
  __device__ void fill(const Params& p, const CUtensorMap* weights, const Tile& t, int box,
                       const uint8_t* const (&rows)[kTurns], int parts,
                       const uint8_t* const (&blocks)[2], const uint8_t* const (&exponents)[kOwn]) {
    const int thread = static_cast<int>(threadIdx.x) % kProducers;
    barrier_wait(ring.empty + ring.stage, ring.parity ^ 1);
    if constexpr (kIsMxfp4<In>) {
      // A warp for each part that has outputs.
      if (thread == 0) barrier_expect(ring.full + ring.stage, parts * kBoxBytes<In>);
      if (const int part = thread / kWarp; thread % kWarp == 0 && part < parts)
        copy_blocks(blocks, box, ring.weight(ring.stage) + part * kBoxBytes<In>);
      copy_exponents(exponents, box);
    } else if (thread == 0) {
      barrier_expect(ring.full + ring.stage, kTileParts<kRows, In> * kBoxBytes<In>);
#pragma unroll
      for (int g = 0; g < kTileParts<kRows, In>; ++g)
        copy_part(p, weights, t, t.tile * kTileParts<kRows, In> + g, box,
                  ring.weight(ring.stage) + g * kBoxBytes<In>);
    }
    // The swizzle of a row is that of the row that a thread has in the first turn.
    const int piece = thread % kRowPieces, row = thread / kRowPieces;
    const uint32_t to =
        shared_address(ring.x(ring.stage)) + row * kDepthBytes + (piece ^ row % 8) * 16;
    const int64_t begin = int64_t{box} * (kDepth<In> * kXSize);
    bool exists[kXBoxes<In>];  // columns of a box of x
#pragma unroll
    for (int i = 0; i < kXBoxes<In>; ++i)
      exists[i] = box * kDepth<In> + i * kXDepth<In> + piece * (16 / kXSize) < p.x_columns;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      if (turn * kTurnRows >= t.rows) break;
      const bool is_row = turn * kTurnRows + row < t.rows;
      const uint8_t* const from = rows[turn] + begin;
#pragma unroll
      for (int i = 0; i < kXBoxes<In>; ++i)
        copy_16(to + (i * kRows + turn * kTurnRows) * kDepthBytes, from + i * kDepthBytes,
                exists[i] && is_row);
    }
    end_copies();
    ring.step();
    if (++pending > kLag) {
      wait_for_copies<kLag>();
      say_arrived();
    }
  }
};

template <int kRows, class In>
using WorkOf = Work<kRows, kThreads<kRows, In>>;

template <int kRows, class In, bool kGated>
__device__ void produce(const Params& p, const CUtensorMap* weights, const Ring<kRows, In>& ring,
                        const WorkOf<kRows, In>& work) {
  using Rows = Gather<kRows, In, kGated>;
  Rows gather = {ring, ring};
  work.for_each(p, [&](const Tile& t) {
    if (t.expert == p.picks.num_experts) return;
    // A thread's 16 bytes of the first box of its rows; rows that the tile lacks: of the first one.
    const int thread = static_cast<int>(threadIdx.x) % kProducers;
    const uint8_t* rows[Rows::kTurns];
#pragma unroll
    for (int turn = 0; turn < Rows::kTurns; ++turn) {
      const int row = turn * kTurnRows + thread / kRowPieces;
      const int piece = work.pieces[t.first + (row < t.rows ? row : 0)];
      rows[turn] = p.x + piece / p.picks.picked * p.x_stride + piece % p.picks.picked * p.x_piece +
                   thread % kRowPieces * 16;
    }
    const uint8_t* exponents[Rows::kOwnExponents > 0 ? Rows::kOwnExponents : 1] = {};
    if constexpr (kIsMxfp4<In>)
#pragma unroll
      for (int i = 0; i < Rows::kOwnExponents; ++i) exponents[i] = gather.exponents(p, t, i);
    const int first_part = t.tile * kTileParts<kRows, In>;
    const int outputs = (kGated ? p.n / 2 : p.n) - first_part * kOutputs<kGated>;
    const int parts =
        min(kTileParts<kRows, In>, (outputs + kOutputs<kGated> - 1) / kOutputs<kGated>);
    const uint8_t* blocks[2] = {};
    if constexpr (kIsMxfp4<In>) gather.find_blocks(p, t, first_part + thread / kWarp, blocks);
    for (int box = 0; box < p.boxes_k; ++box)
      gather.fill(p, weights, t, box, rows, parts, blocks, exponents);
  });
  wait_for_copies<0>();
  while (gather.pending > 0) gather.say_arrived();
}

// A thread's output of a part of a tile: its first of two, or the only one of gated units.
template <int kRows, class In, bool kGated>
__device__ int own_output(const Tile& t, int part) {
  const int first = (t.tile * kTileParts<kRows, In> + part) * kOutputs<kGated>;
  const int in_part = part_output(0);
  return first + (kGated ? in_part / 16 * 8 + in_part % 8 : in_part);
}

// Transposes a matrix of 8 x 8 bf16 numbers, a row in four lanes.
__device__ uint32_t transposed(uint32_t pair) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}

// Stores 8 outputs from `n` on of rows 8 i .. 8 i + 7; `pair`: two rows of this lane's output.
template <int kRows>
__device__ void store_pairs(const Params& p, const RowTable<kRows>& rows, int num_rows, int i,
                            int n, int width, uint32_t pair) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, row = 8 * i + lane / 4;
  const int own = n + lane % 4 * 2;
  const uint32_t two = transposed(pair);  // two outputs of a row
  if (row >= num_rows || own >= width) return;
  auto* const out = static_cast<uint16_t*>(p.out) + rows.out[row] + own;
  if (p.stores_pairs) {
    *reinterpret_cast<uint32_t*>(out) = two;
  } else {
    out[0] = static_cast<uint16_t>(two);
    if (own + 1 < width) out[1] = static_cast<uint16_t>(two >> 16);
  }
}

template <int kRows, class In, class Out, bool kGated>
__device__ void store_tile(const Params& p, const RowTable<kRows>& rows, const Tile& t, int n,
                           const float (&sums)[kRows / 2]) {
  const bool zero = t.expert == p.picks.num_experts;
  const int width = kGated ? p.n / 2 : p.n, next = kGated ? width : 8;  // rows of the weight
  const int first = n - static_cast<int>(threadIdx.x) % kWarp / 4;      // output of lane 0
  float bias[2] = {}, scale[2] = {1, 1};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (zero || n + (kGated ? 0 : 8 * r) >= width) continue;
    const int64_t row = int64_t{t.expert} * p.n + n + r * next;
    if (p.bias) bias[r] = load(p.bias + row);
    if (kIsF8<In>) scale[r] = p.scales[row];
  }
  const auto act = [&](float gate) { return activate(p.activation, gate); };
#pragma unroll
  for (int i = 0; i < kRows / 8; ++i) {
    if (8 * i >= t.rows) break;
    float y[2][2];  // by output and row
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float x_scale = kIsF8<In> ? rows.scale[x_row(i, c)] : 1.0f;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        y[r][c] = sums[4 * i + 2 * r + c];
        if (kIsF8<In>) y[r][c] *= scale[r] * x_scale;
        y[r][c] = zero ? 0.0f : y[r][c] + bias[r];
      }
      if (kGated) y[0][c] = zero ? 0.0f : gated_unit(act, y[0][c], y[1][c], p.limit, p.up_offset);
    }
#pragma unroll
    for (int r = 0; r < (kGated ? 1 : 2); ++r) {
      if constexpr (sizeof(Out) == 2) {
        store_pairs(p, rows, t.rows, i, first + 8 * r, width, pack(y[r][0], y[r][1]));
      } else {
#pragma unroll
        for (int c = 0; c < 2; ++c)
          if (const int row = x_row(i, c); row < t.rows && n + 8 * r < width)
            store(static_cast<Out*>(p.out) + rows.out[row] + n + 8 * r, y[r][c]);
      }
    }
  }
}

template <int kThreadCount>
__device__ void consumers_meet() {
  asm volatile("bar.sync 1, %0;" ::"n"(kThreadCount) : "memory");
}

// Adds a group's products of a tile with the first kN rows of x; `n`: see own_output().
template <int kN, int kRows, class In, bool kGated>
__device__ void add_tile(const Params& p, Ring<kRows, In>& ring, const Tile& t, int group, int n,
                         float (&sums)[kParts<kRows, In>][kRows / 2]) {
  const int width = kGated ? p.n / 2 : p.n;
  if constexpr (!kIsMxfp4<In>) {
    const int64_t first = int64_t{t.expert} * p.n, last = first + p.n - 1;
    const int64_t own[2] = {min(first + n, last), min(first + n + (kGated ? width : 8), last)};
    add_boxes<kN>(p.integers, ring, group, own, 0, p.boxes_k, sums);
  } else if ((t.tile * kTileParts<kRows, In> + group) * kOutputs<kGated> >= width) {
    pass_boxes(ring, p.boxes_k);
  } else if constexpr (kRows <= 32) {
    add_mxfp4_few<kN, kGated>(p.integers, ring, group, p.boxes_k, sums[0]);
  } else {
    add_mxfp4_many<kN, kGated>(ring, group, p.boxes_k, sums[0]);
  }
}

template <int kRows, class In, class Out, bool kGated>
__device__ void consume(const Params& p, Ring<kRows, In> ring, WorkOf<kRows, In>& work) {
  const int thread = static_cast<int>(threadIdx.x), group = thread / kGroupThreads;
  const int width = kGated ? p.n / 2 : p.n;
  int turn = 0;
  work.for_each(p, [&](const Tile& t) {
    // Read behind the barrier; the other table may still be read for the tile before.
    RowTable<kRows>& rows = work.rows[turn ^= 1];
    if (thread < t.rows) {
      const int piece = work.pieces[t.first + thread], x = piece / p.picks.picked;
      rows.out[thread] = x * p.out_stride + int64_t{piece - x * p.picks.picked} * width;
      if (kIsF8<In>) rows.scale[thread] = p.x_scales[x * p.x_scales_stride];
    }
    float sums[kParts<kRows, In>][kRows / 2] = {};
    const int n = own_output<kRows, In, kGated>(t, group * kParts<kRows, In>);
    if (t.expert < p.picks.num_experts) {
      // No wider products than the tile has rows.
      const auto add = [&]<int kN>() {
        add_tile<kN, kRows, In, kGated>(p, ring, t, group, n, sums);
      };
      if constexpr (kRows <= 16) {
        add.template operator()<kRows>();
      } else if constexpr (kIsMxfp4<In> && kRows >= 96) {
        if (t.rows <= 48)
          add.template operator()<48>();
        else if (t.rows <= 64)
          add.template operator()<64>();
        else if (t.rows <= 80)
          add.template operator()<80>();
        else if (kRows == 96 || t.rows <= 96)
          add.template operator()<96>();
        else
          add.template operator()<kRows>();
      } else {
        if (t.rows <= kRows / 2)
          add.template operator()<kRows / 2>();
        else
          add.template operator()<kRows>();
      }
    }
    consumers_meet<kConsumers<kRows, In>>();
#pragma unroll
    for (int part = 0; part < kParts<kRows, In>; ++part)
      store_tile<kRows, In, Out, kGated>(p, rows, t, n + part * kOutputs<kGated>, sums[part]);
  });
}

#endif  // NEREID_HOPPER

template <int kRows, class In, class Out, bool kGated>
__global__ void __launch_bounds__(kThreads<kRows, In>, 1)
    product_kernel(const __grid_constant__ CUtensorMap weights, Params p) {
#if defined(NEREID_HOPPER)
  extern __shared__ __align__(1024) uint8_t boxes[];
  __shared__ uint64_t full[kStages<kRows, In>], empty[kStages<kRows, In>];
  __shared__ WorkOf<kRows, In> work;
  const Ring<kRows, In> ring = {boxes, full, empty};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages<kRows, In>; ++i) {
      barrier_init(full + i, 1 + kProducers / kWarp);
      barrier_init(empty + i, kConsumers<kRows, In> / kWarp);
    }
    barriers_are_ready();
  }
  wait_for_previous();
  let_next_begin();
  work.list(p);
  if (threadIdx.x < kConsumers<kRows, In>) {
    if constexpr (kMovesRegisters<kRows, In>) take_registers<kConsumerRegisters>();
    consume<kRows, In, Out, kGated>(p, ring, work);
  } else {
    if constexpr (kMovesRegisters<kRows, In>) give_registers<kProducerRegisters>();
    produce<kRows, In, kGated>(p, &weights, ring, work);
  }
#endif
}

// Boxes of an expert's weight: 64 rows, or eight of gates and eight of ups in turn.
template <class In, bool kGated>
cudaError_t describe_weights(const WeightView& w, CUtensorMap& map) {
  const int64_t row_bytes = w.k * kBits<In> / 8, rows = w.experts * w.n;
  if (!kGated)
    return describe_rows(kBits<In> == 16, w.data, rows, row_bytes, row_bytes, kPart, map);
  constexpr int kBytes = kBits<In> == 16 ? 2 : 1;
  const auto bytes = static_cast<cuuint64_t>(row_bytes), half = static_cast<cuuint64_t>(w.n / 2);
  return describe<4>(kBytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8,
                     w.data, {bytes / kBytes, 8, 2, (static_cast<cuuint64_t>(rows) - half) / 8},
                     {bytes, half * bytes, 8 * bytes}, {kDepthBytes / kBytes, 8, 2, kPart / 16},
                     map);
}

template <int kRows, class In, class Out, bool kGated>
cudaError_t enqueue(const ExpertLinear& a, const Scratch& scratch, cudaStream_t stream) {
  CUtensorMap weights = {};
  if constexpr (!kIsMxfp4<In>)
    if (const cudaError_t error = describe_weights<In, kGated>(a.weight, weights);
        error != cudaSuccess)
      return error;
  const auto picked = static_cast<int>(a.experts.cols);
  const bool one_x = a.x.cols == a.weight.k;
  constexpr int64_t kXSize = kIsF8<In> ? 1 : 2;
  Params p = {};
  p.x = static_cast<const uint8_t*>(a.x.data);
  p.x_columns = static_cast<int>(a.weight.k);
  p.x_stride = a.x.stride * kXSize, p.x_piece = one_x ? 0 : a.weight.k * kXSize;
  if constexpr (kIsInteger<In>) {
    Linear ordered;
    ordered.x = a.x, ordered.weight = a.weight;
    if (!one_x) ordered.x.rows *= picked, ordered.x.cols = ordered.x.stride = a.weight.k;
    if (const cudaError_t error = launch_order(ordered, scratch.unpacked, stream);
        error != cudaSuccess)
      return error;
    p.x = static_cast<const uint8_t*>(scratch.unpacked);
    p.x_columns = static_cast<int>(order_columns(a.weight.k, kBits<In>));
    p.x_piece = one_x ? 0 : p.x_columns * kXSize;
    p.x_stride = (one_x ? 1 : picked) * p.x_columns * kXSize;
    p.integers = box_integers(a.weight);
  }
  if constexpr (kIsMxfp4<In>) p.integers = box_exponents(a.weight), p.weight = a.weight.as_bytes();
  p.out = a.out.data, p.out_stride = a.out.stride;
  p.bias = static_cast<const __nv_bfloat16*>(a.bias.data);
  p.scales = a.weight.scales;
  p.x_scales = static_cast<const float*>(a.scales.data), p.x_scales_stride = a.scales.stride;
  auto* const lists = static_cast<int32_t*>(scratch.workspace);
  int32_t* const counts = lists + 2 * kLines + 2;
  p.lists = {lists, lists + kLines + 1, counts, counts + kMostListBlocks * kLines};
  p.n = static_cast<int>(a.weight.n);
  p.boxes_k = static_cast<int>((a.weight.k + kDepth<In> - 1) / kDepth<In>);
  constexpr int kTile = kTileParts<kRows, In> * kOutputs<kGated>;
  p.tiles = ((kGated ? p.n / 2 : p.n) + kTile - 1) / kTile;
  p.activation = a.activation, p.limit = a.limit, p.up_offset = a.up_offset;

  p.picks = {static_cast<const int32_t*>(a.experts.data), a.experts.stride,
             static_cast<int>(a.weight.experts), picked, static_cast<int>(a.out.rows) * picked};
  p.stores_pairs = p.n % 4 == 0 && a.out.stride % 2 == 0 &&
                   reinterpret_cast<uintptr_t>(a.out.data) % sizeof(uint32_t) == 0;
  p.lists_pieces = p.picks.num_pieces <= kThreads<kRows, In>;
  if (!p.lists_pieces) {
    const int blocks = std::clamp(p.picks.num_pieces / kPiecesPerListBlock, 1, kMostListBlocks);
    const auto grid = static_cast<unsigned>(blocks);
    if (blocks > 1)
      if (const cudaError_t error = launch_overlapped(count_kernel, a.out.rows, grid, kListThreads,
                                                      0, stream, p.picks, p.lists);
          error != cudaSuccess)
        return error;
    if (const cudaError_t error = launch_overlapped(list_kernel, a.out.rows, grid, kListThreads, 0,
                                                    stream, p.picks, kRows, p.lists);
        error != cudaSuccess)
      return error;
  }
  constexpr int kBytes = kStages<kRows, In> * kStageBytes<kRows, In>;
  return launch_overlapped(product_kernel<kRows, In, Out, kGated>, a.out.rows,
                           static_cast<unsigned>(scratch.num_units), kThreads<kRows, In>, kBytes,
                           stream, weights, p);
}

// `rows`: expected pieces per expert.
template <class In, class Out, bool kGated>
cudaError_t enqueue_rows(const ExpertLinear& a, int64_t rows, const Scratch& scratch,
                         cudaStream_t stream) {
  // Experts with more rows than the form has read their weights again.
  if constexpr (kIsMxfp4<In>) {
    using Half = Mxfp4<kHalfColumns>;
    if (rows <= 4) return enqueue<16, In, Out, kGated>(a, scratch, stream);
    if (rows <= 28) return enqueue<32, In, Out, kGated>(a, scratch, stream);
    if (rows <= 80) return enqueue<96, Half, Out, kGated>(a, scratch, stream);
    return enqueue<128, Half, Out, kGated>(a, scratch, stream);
  } else {
    if (rows <= 12) return enqueue<16, In, Out, kGated>(a, scratch, stream);
    if constexpr (!kIsUnpacked<In>)
      if (rows > 80) return enqueue<128, In, Out, kGated>(a, scratch, stream);
    return enqueue<64, In, Out, kGated>(a, scratch, stream);
  }
}

template <class In>
cudaError_t enqueue_out(const ExpertLinear& a, int64_t rows, const Scratch& scratch,
                        cudaStream_t stream) {
  if (a.gated) return enqueue_rows<In, __nv_bfloat16, true>(a, rows, scratch, stream);
  if (a.out.dtype == DType::kBF16)
    return enqueue_rows<In, __nv_bfloat16, false>(a, rows, scratch, stream);
  return enqueue_rows<In, float, false>(a, rows, scratch, stream);
}

// Bytes of a row of x in the integers' order, which must fit into Scratch::unpacked.
int64_t ordered_bytes(const ExpertLinear& a) {
  constexpr int64_t kXSize = 2;
  return kXSize * (a.x.cols / a.weight.k) * order_columns(a.weight.k, a.weight.format.bits);
}

cudaError_t enqueue_integers(const ExpertLinear& a, int64_t rows, const Scratch& scratch,
                             cudaStream_t stream) {
  constexpr int64_t kMaxGridY = 65535;
  const int64_t pieces = a.x.cols / a.weight.k;
  const int64_t most = std::min(kUnpackedBytes / ordered_bytes(a), kMaxGridY / pieces);
  for (int64_t row = 0; row < a.out.rows; row += most) {
    ExpertLinear part = a;
    const auto skip = [&](View& v) {
      v.data =
          static_cast<std::byte*>(v.data) + row * v.stride * static_cast<int64_t>(size_of(v.dtype));
      v.rows = std::min(most, a.out.rows - row);
    };
    skip(part.x), skip(part.experts), skip(part.out);
    const cudaError_t error = a.weight.format.bits == 4
                                  ? enqueue_out<Integers<4>>(part, rows, scratch, stream)
                                  : enqueue_out<Integers<8>>(part, rows, scratch, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t enqueue_in(const ExpertLinear& a, int64_t rows, const Scratch& scratch,
                       cudaStream_t stream) {
  if (a.weight.format.scheme == Scheme::kFloat4)
    return enqueue_out<Mxfp4<kFragmentColumns>>(a, rows, scratch, stream);
  if (a.weight.format.scheme == Scheme::kInteger) return enqueue_integers(a, rows, scratch, stream);
  if (a.x.dtype == DType::kF8E4M3) return enqueue_out<__nv_fp8_e4m3>(a, rows, scratch, stream);
  return enqueue_out<__nv_bfloat16>(a, rows, scratch, stream);
}

}  // namespace

bool takes_hopper_experts(const ExpertLinear& a, const Scratch& scratch) {
  const bool one_x = a.x.cols == a.weight.k, fp8 = a.x.dtype == DType::kF8E4M3;
  const bool integers = a.weight.format.scheme == Scheme::kInteger;
  const int64_t pieces = a.out.rows * a.experts.cols, outputs = a.weight.experts * a.weight.n;
  constexpr int64_t kMost = 1 << 30;  // tiles are counted in 32 bits
  return scratch.sm == 90 && encode_tiled() != nullptr && is_aligned(a.x.data) &&
         is_aligned(a.weight.data) && a.weight.experts < kLines && outputs < kMost &&
         pieces * (a.weight.n / kPart + 1) < kMost &&
         kListBytes + static_cast<size_t>(pieces) * sizeof(int32_t) <= scratch.workspace_bytes &&
         a.x.stride % (fp8 ? 16 : 8) == 0 &&
         (!integers || ((one_x || a.x.stride == a.x.cols) && ordered_bytes(a) <= kUnpackedBytes));
}

cudaError_t launch_hopper_experts(const ExpertLinear& a, const Scratch& scratch,
                                  cudaStream_t stream) {
  // Assumes uniform routing.
  const int64_t rows = a.out.rows * a.experts.cols / std::max<int64_t>(a.weight.experts, 1);
  return enqueue_in(a, rows, scratch, stream);
}
cudaError_t launch_invariant_experts(const ExpertLinear& a, const Scratch& scratch,
                                     cudaStream_t stream) {
  constexpr int64_t kRows = 64;
  return enqueue_in(a, kRows, scratch, stream);
}

bool can_be_hopper_experts(const ExpertLinear& a) {
  const int64_t k = a.weight.k;
  const bool one_x = a.x.cols == k;
  if (a.gated && (a.weight.n % 16 != 0 || !one_x)) return false;
  // Gates are whole blocks.
  if (a.weight.format.scheme == Scheme::kFloat4)
    return (!a.gated || a.weight.n % (2 * kFragmentRows) == 0) &&
           a.weight.layout == WeightLayout::kFragments && a.x.dtype == DType::kBF16;
  if (a.weight.format.ordered || a.weight.layout != WeightLayout::kRowMajor) return false;
  if (a.x.dtype == DType::kF8E4M3) return k % 16 == 0;
  return a.weight.format.is_float() ? k % 8 == 0 : fits_boxes(a.weight);
}

}  // namespace nereid::kernels::cuda
