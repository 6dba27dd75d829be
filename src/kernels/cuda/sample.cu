// Token selection, one block per row. No sort: the drawn token's logit is found by descending
// through the bits of an order-preserving integer form of the logits, comparing exact fixed-point
// sums of the weights above each candidate; equal logits are then told apart by id. Integer sums
// make the draw independent of the order of addition.
#include "base/rng.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / kWarp;
constexpr int kPivots = 3;       // two bits of the key are decided in a pass
constexpr int kWeightBits = 40;  // fixed-point; 2^23 weights of 1 fit in 63 bits
constexpr float kWeightOne = 0x1p40f;
constexpr int kCountedIds = 8192;     // ids whose tokens are counted in one pass of the history
constexpr uint32_t kSeen = 1u << 31;  // beside the count in the lower bits

// Larger floats have larger keys; -0 equals +0.
__device__ uint32_t key_of(float x) {
  if (x == 0) x = 0;
  const uint32_t bits = __float_as_uint(x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ float float_of(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

struct Row {
  const float* logits;
  int vocab;
  float largest;
  float temperature;
  __device__ uint64_t weight(float logit) const {
    return __float2ull_rn(expf((logit - largest) / temperature) * kWeightOne);
  }
};

struct Scratch {
  uint64_t partial[kPivots][kWarps];
  uint64_t top[kMaxTopTokens];  // key, ~id
  uint32_t counts[kCountedIds];
  int warp_count[kWarps];
  int found, num_top;
};

__device__ uint64_t warp_sum(uint64_t x) {
  for (int step = kWarp / 2; step > 0; step /= 2)
    x += __shfl_xor_sync(kAllLanes, static_cast<unsigned long long>(x), step);
  return x;
}

__device__ uint64_t warp_max(uint64_t x) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const uint64_t other = __shfl_xor_sync(kAllLanes, static_cast<unsigned long long>(x), step);
    x = other > x ? other : x;
  }
  return x;
}

// The largest `x` of the block, in every thread.
__device__ uint64_t block_max(uint64_t x, Scratch& s) {
  x = warp_max(x);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) s.partial[0][threadIdx.x / kWarp] = x;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) x = s.partial[0][w] > x ? s.partial[0][w] : x;
  return x;
}

__device__ uint64_t packed(uint32_t key, int id) {
  return uint64_t{key} << 32 | ~static_cast<uint32_t>(id);
}
__device__ int id_of(uint64_t pack) { return static_cast<int>(~static_cast<uint32_t>(pack)); }
__device__ float logit_of(uint64_t pack) { return float_of(static_cast<uint32_t>(pack >> 32)); }

// The largest logit and the lowest id that has it. The same value in every thread.
__device__ uint64_t best_of(const float* logits, int vocab, Scratch& s) {
  uint64_t best = 0;
  for (int i = threadIdx.x; i < vocab; i += kThreads) {
    const uint64_t candidate = packed(key_of(logits[i]), i);
    best = candidate > best ? candidate : best;
  }
  return block_max(best, s);
}

// For each pivot, the number (or the summed weight) of logits whose key reaches it. The same
// values in every thread.
template <bool kByWeight>
__device__ void sums_from(const Row& row, const uint32_t (&pivots)[kPivots], Scratch& s,
                          uint64_t (&sums)[kPivots]) {
#pragma unroll
  for (int p = 0; p < kPivots; ++p) sums[p] = 0;
  for (int i = threadIdx.x; i < row.vocab; i += kThreads) {
    const float logit = row.logits[i];
    const uint32_t key = key_of(logit);
    if (key < pivots[0]) continue;
    const uint64_t value = kByWeight ? row.weight(logit) : 1;
#pragma unroll
    for (int p = 0; p < kPivots; ++p)
      if (key >= pivots[p]) sums[p] += value;
  }
  __syncthreads();
#pragma unroll
  for (int p = 0; p < kPivots; ++p) {
    const uint64_t sum = warp_sum(sums[p]);
    if (threadIdx.x % kWarp == 0) s.partial[p][threadIdx.x / kWarp] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int p = 0; p < kPivots; ++p) {
    sums[p] = 0;
    for (int w = 0; w < kWarps; ++w) sums[p] += s.partial[p][w];
  }
}

template <bool kByWeight>
__device__ uint64_t sum_from(const Row& row, uint32_t pivot, Scratch& s) {
  const uint32_t pivots[kPivots] = {pivot, pivot, pivot};
  uint64_t sums[kPivots];
  sums_from<kByWeight>(row, pivots, s, sums);
  return sums[0];
}

// The largest key whose sum reaches `target` >= 1: the key of the element at which the prefix sums
// in descending order get there.
template <bool kByWeight>
__device__ uint32_t search(const Row& row, uint64_t target, Scratch& s) {
  uint32_t key = 0;
  for (int shift = 30; shift >= 0; shift -= 2) {
    const uint32_t pivots[kPivots] = {key | 1u << shift, key | 2u << shift, key | 3u << shift};
    uint64_t sums[kPivots];
    sums_from<kByWeight>(row, pivots, s, sums);
#pragma unroll
    for (int p = 0; p < kPivots; ++p)
      if (sums[p] >= target) key = pivots[p];
  }
  return key;
}

// Id of the n-th (from 1) element with this key, in order of ids; it exists.
__device__ int nth_with_key(const Row& row, uint32_t key, uint64_t n, Scratch& s) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int base = 0; base < row.vocab; base += kThreads) {
    const int id = base + static_cast<int>(threadIdx.x);
    const bool equal = id < row.vocab && key_of(row.logits[id]) == key;
    const unsigned in_warp = __ballot_sync(kAllLanes, equal);
    if (lane == 0) s.warp_count[warp] = __popc(in_warp);
    const uint64_t count = static_cast<uint64_t>(__syncthreads_count(equal));
    if (count < n) {
      n -= count;
      continue;
    }
    uint64_t rank = __popc(in_warp & ((1u << lane) - 1)) + 1;
    for (int w = 0; w < warp; ++w) rank += s.warp_count[w];
    if (equal && rank == n) s.found = id;
    __syncthreads();
    return s.found;
  }
  return -1;
}

// What min_p and top_k leave: elements above `floor` in full, of those equal to it all, or only the
// first ones when limited.
struct Kept {
  uint32_t floor = 0;
  bool limited = false;
  uint64_t above = 0;  // weight above floor, when limited
  uint64_t total = 0;
};

__device__ Kept keep(const Row& row, const SampleParams& p, Scratch& s) {
  Kept kept;
  kept.floor = key_of(__fadd_rn(row.largest, p.min_p_gap));
  if (p.top_k > 0 && p.top_k < row.vocab) {
    const uint64_t count = static_cast<uint64_t>(p.top_k);
    const uint32_t key = search<false>(row, count, s);
    if (key >= kept.floor) {
      const uint64_t ties = count - sum_from<false>(row, key + 1, s);
      kept.floor = key, kept.limited = true;
      kept.above = sum_from<true>(row, key + 1, s);
      kept.total = kept.above + ties * row.weight(float_of(key));
      return kept;
    }
  }
  kept.total = sum_from<true>(row, kept.floor, s);
  return kept;
}

// Tokens generated since the last one that resets top_p.
__device__ int since_reset(const SampleParams& p, const int32_t* history, int position,
                           Scratch& s) {
  const int generated = position - p.num_prompt;
  if (p.top_p_decay == 1 || p.top_p_reset_id < 0 || !history || generated <= 0) return generated;
  uint64_t last = 0;  // index of the last reset in the generated tokens, from 1
  for (int i = threadIdx.x; i < generated; i += kThreads)
    if (history[p.num_prompt + i] == p.top_p_reset_id) last = static_cast<uint64_t>(i) + 1;
  return generated - static_cast<int>(block_max(last, s));
}

__device__ int draw(const Row& row, const SampleParams& p, int position, int since, Scratch& s) {
  const Kept kept = keep(row, p, s);
  const double u = double{uniform(p.seed, static_cast<uint64_t>(position))};
  const double share = double{top_p_after(p, since)};
  uint64_t target = static_cast<uint64_t>(ceil(u * share * static_cast<double>(kept.total)));
  target = target < 1 ? 1 : target > kept.total ? kept.total : target;

  uint32_t key = kept.floor;
  uint64_t above = kept.above;
  if (!kept.limited || above >= target) {
    key = search<true>(row, target, s);
    above = sum_from<true>(row, key + 1, s);
  }
  const uint64_t weight = row.weight(float_of(key));
  const uint64_t rank = (target - above + weight - 1) / weight;
  return nth_with_key(row, key, rank, s);
}

// s.top[0 .. s.num_top) = the `count` <= vocab likeliest ids, in order; none at -inf.
__device__ void find_top(const Row& row, int count, Scratch& s) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const uint32_t floor = search<false>(row, static_cast<uint64_t>(count), s);
  if (threadIdx.x == 0) s.num_top = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < row.vocab; i += kThreads)
    if (const uint32_t key = key_of(row.logits[i]); key > floor)
      s.top[atomicAdd(&s.num_top, 1)] = packed(key, i);
  __syncthreads();
  int filled = s.num_top;  // in any order, fewer than count
  const bool has_ties = floor > key_of(-INFINITY);
  for (int base = 0; has_ties && filled < count && base < row.vocab; base += kThreads) {
    const int id = base + static_cast<int>(threadIdx.x);
    const bool equal = id < row.vocab && key_of(row.logits[id]) == floor;
    const unsigned in_warp = __ballot_sync(kAllLanes, equal);
    if (lane == 0) s.warp_count[warp] = __popc(in_warp);
    const int found = __syncthreads_count(equal);
    int place = filled + __popc(in_warp & ((1u << lane) - 1));
    for (int w = 0; w < warp; ++w) place += s.warp_count[w];
    if (equal && place < count) s.top[place] = packed(floor, id);
    filled += found;
    __syncthreads();
  }
  filled = filled < count ? filled : count;
  uint64_t mine = 0;
  int rank = 0;
  if (static_cast<int>(threadIdx.x) < filled) {
    mine = s.top[threadIdx.x];
    for (int t = 0; t < filled; ++t) rank += s.top[t] > mine;
  }
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < filled) s.top[rank] = mine;
  if (threadIdx.x == 0) s.num_top = filled;
  __syncthreads();
}

// Log-probabilities from `row`, of whose ids `token` was drawn.
__device__ void report(const Row& row, const SampleParams& p, int token, int64_t top_stride,
                       SampleResult* result, TopToken* top, Scratch& s) {
  constexpr double kLog2 = 0.693147180559945309;
  const double log_total = log(static_cast<double>(sum_from<true>(row, 0, s)));
  const double log_sum = log_total - kWeightBits * kLog2;
  const auto log_prob = [&](float logit) {
    return static_cast<float>((double{logit} - row.largest) / row.temperature - log_sum);
  };
  double log_kept = 0;
  if (p.log_probs == LogProbs::kProcessed && p.top_k > 0)
    log_kept = log(static_cast<double>(keep(row, p, s).total)) - log_total;
  if (threadIdx.x == 0) {
    result->log_prob = log_prob(row.logits[token]);
    result->log_kept = static_cast<float>(log_kept);
  }
  int64_t count = p.num_top < top_stride ? p.num_top : top_stride;
  count = count < row.vocab ? count : row.vocab;
  if (count <= 0) return;
  find_top(row, static_cast<int>(count), s);
  if (static_cast<int>(threadIdx.x) < s.num_top) {
    const uint64_t entry = s.top[threadIdx.x];
    top[threadIdx.x] = {id_of(entry), log_prob(logit_of(entry))};
  }
}

__device__ float edited(float old, float value) {
  constexpr float kMost = 3.402823466e38f;
  return old == -INFINITY ? old : value <= kMost ? value : kMost;
}

// One row whose logits are being edited.
struct Edit {
  const SampleParams& p;
  SampleLists lists;
  const uint32_t* mask;    // or null
  const int32_t* history;  // [position] or null
  int position;
  float* logits;
  int vocab;

  __device__ bool knows(int id) const { return id >= 0 && id < vocab; }
  __device__ void ban(int id) const {
    if (knows(id)) logits[id] = -INFINITY;
  }
};

__device__ void add_biases(const Edit& e) {
  if (e.p.has_dense_bias)
    for (int id = threadIdx.x; id < e.vocab; id += kThreads)
      e.logits[id] = edited(e.logits[id], __fadd_rn(e.logits[id], e.lists.dense_bias[id]));
  __syncthreads();
  for (int i = threadIdx.x; i < e.p.num_biases; i += kThreads)
    if (const int id = e.lists.bias_ids[i]; e.knows(id))
      e.logits[id] = edited(e.logits[id], __fadd_rn(e.logits[id], e.lists.biases[i]));
  __syncthreads();
}

__device__ float penalised(const SampleParams& p, float l, uint32_t count) {
  l = edited(l, l < 0 ? __fmul_rn(l, p.repetition) : __fdiv_rn(l, p.repetition));
  if (count == 0) return l;
  l = edited(l, __fsub_rn(l, p.presence));
  return edited(l, __fsub_rn(l, __fmul_rn(p.frequency, static_cast<float>(count))));
}

// Counts the tokens of the history for a range of ids at a time; integer sums know no order.
__device__ void penalise(const Edit& e, Scratch& s) {
  for (int first = 0; first < e.vocab; first += kCountedIds) {
    const int num_ids = e.vocab - first < kCountedIds ? e.vocab - first : kCountedIds;
    for (int i = threadIdx.x; i < num_ids; i += kThreads) s.counts[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < e.position; i += kThreads) {
      const int id = e.history[i];
      if (id < first || id - first >= num_ids) continue;
      atomicOr(&s.counts[id - first], kSeen);
      if (i >= e.p.penalty_begin) atomicAdd(&s.counts[id - first], 1u);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < num_ids; i += kThreads)
      if (const uint32_t count = s.counts[i])
        e.logits[first + i] = penalised(e.p, e.logits[first + i], count & ~kSeen);
    __syncthreads();
  }
}

__device__ bool equal(const int32_t* a, const int32_t* b, int count) {
  for (int i = 0; i < count; ++i)
    if (a[i] != b[i]) return false;
  return true;
}

__device__ void ban_ids(const Edit& e) {
  if (e.mask)
    for (int id = threadIdx.x; id < e.vocab; id += kThreads)
      if ((e.mask[id / 32] >> (id % 32) & 1) == 0) e.ban(id);
  if (e.position < e.p.min_length)
    for (int i = threadIdx.x; i < e.p.num_end_ids; i += kThreads) e.ban(e.lists.end_ids[i]);
  const int length = e.history ? e.position : 0;
  if (const int n = e.p.ngram; n > 0 && n <= length) {
    const int32_t* const suffix = e.history + length - (n - 1);
    for (int i = threadIdx.x; i + n <= length; i += kThreads)
      if (equal(e.history + i, suffix, n - 1)) e.ban(e.history[i + n - 1]);
  }
  for (int w = threadIdx.x; w < e.p.num_bad_words; w += kThreads) {
    const int begin = w > 0 ? e.lists.bad_ends[w - 1] : 0;
    const int before = e.lists.bad_ends[w] - begin - 1;  // tokens that must match
    const int32_t* const word = e.lists.bad_tokens + begin;
    if (before < 0 || before > length) continue;
    if (before == 0 || equal(word, e.history + length - before, before)) e.ban(word[before]);
  }
  __syncthreads();
}

__device__ void edit(const Sample& a, const SampleParams& p, const SampleRow& row,
                     const int32_t* history, float* logits, Scratch& s) {
  const uint64_t lists = reinterpret_cast<uint64_t>(a.lists_base) + p.lists;
  const Edit e = {p,
                  SampleLists(p, reinterpret_cast<const int32_t*>(lists),
                              reinterpret_cast<const float*>(lists)),
                  row.mask >= 0 ? a.masks + row.mask * a.mask_stride : nullptr,
                  history,
                  row.position,
                  logits,
                  static_cast<int>(a.problem.vocab)};
  add_biases(e);
  if (history && has_penalties(p)) penalise(e, s);
  ban_ids(e);
}

// The token of a row that is edited, -1 when there is none.
__device__ int choose(const Row& row, uint64_t best, const SampleParams& p, const int32_t* history,
                      int position, Scratch& s) {
  if (row.largest == -INFINITY) return -1;
  if (!p.draws || is_greedy(p)) return id_of(best);
  return draw(row, p, position, since_reset(p, history, position, s), s);
}

// The same in every thread.
__device__ bool is_sound(const float* logits, int vocab) {
  bool unsound = false;
  for (int id = threadIdx.x; id < vocab; id += kThreads)
    unsound |= !(logits[id] < INFINITY);  // true for NaN too
  return !__syncthreads_or(unsound);
}

// What is drawn for row i, the same in every thread.
__device__ void draw_row(const Sample& a, int64_t i, Scratch& s) {
  const SampleRow wish = a.rows[i];
  const SampleParams& p = a.params[wish.slot];
  const int vocab = static_cast<int>(a.problem.vocab);
  float* const logits = static_cast<float*>(a.logits.data) + wish.logits_row * a.logits.stride;
  int32_t* const history = p.keeps_history ? a.history + wish.slot * a.history_stride : nullptr;
  SampleResult* const result = a.results + i;

  int token = -1;
  if (is_sound(logits, vocab)) {
    const bool edits = edits_logits(p, wish);
    if (edits) edit(a, p, wish, history, logits, s);
    const uint64_t best = best_of(logits, vocab, s);
    Row row = {logits, vocab, logit_of(best), temperature_of(p)};
    token = choose(row, best, p, history, wish.position, s);
    if (token >= 0 && p.log_probs != LogProbs::kNone) {
      if (p.log_probs == LogProbs::kRaw) {
        if (edits)
          row.logits =
              static_cast<const float*>(a.raw_logits.data) + wish.logits_row * a.raw_logits.stride;
        row.largest = logit_of(best_of(row.logits, vocab, s));
        row.temperature = 1;
      }
      report(row, p, token, a.top_stride, result, a.top + i * a.top_stride, s);
    }
  }
  if (threadIdx.x == 0) {
    result->token = token;
    if (p.draws && history && wish.position < a.history_stride) history[wish.position] = token;
    if (p.draws && a.slot_tokens) a.slot_tokens[wish.slot] = token;
  }
}

// The likeliest token of row i, which is not drawn.
__device__ void peek(const Sample& a, int64_t i, Scratch& s) {
  const int vocab = static_cast<int>(a.problem.vocab);
  const float* const logits =
      static_cast<const float*>(a.logits.data) + a.rows[i].logits_row * a.logits.stride;
  if (!is_sound(logits, vocab)) return;
  const uint64_t best = best_of(logits, vocab, s);
  if (threadIdx.x == 0) a.results[i].likeliest = id_of(best);
}

// Rows that come after others are the block's of the first of them, one after the other.
__global__ void __launch_bounds__(kThreads) sample_kernel(const Sample a) {
  __shared__ Scratch s;
  int64_t i = blockIdx.x;
  if (a.rows[i].after > 0) return;
  do {
    const SampleRow row = a.rows[i];
    const bool draws = row.after == 0 || a.results[i - row.after].token == row.draft;
    for (int64_t t = threadIdx.x; t < a.top_stride; t += kThreads)
      a.top[i * a.top_stride + t] = {-1, 0};
    if (threadIdx.x == 0) a.results[i] = {draws ? -1 : kNotDrawn, 0, 0, -1};
    if (draws)
      draw_row(a, i, s);
    else if (row.peeks)
      peek(a, i, s);
    __syncthreads();  // the next row reads what was drawn
  } while (++i < a.problem.rows && a.rows[i].after > 0);
}

cudaError_t launch(const Sample& a, const cuda::Scratch&, cudaStream_t stream) {
  sample_kernel<<<static_cast<unsigned>(a.problem.rows), kThreads, 0, stream>>>(a);
  return cudaGetLastError();
}

bool takes(const Sample& a) {
  constexpr int64_t kMaxVocab = int64_t{1} << 22;  // sums of 2^40 fixed-point weights in 63 bits
  return a.problem.vocab <= kMaxVocab && !a.problem.weighs_drafts;
}

}  // namespace

template <>
cuda::Row<Sample> row<Sample>() {
  return {launch, takes};
}

}  // namespace nereid::kernels::cuda
