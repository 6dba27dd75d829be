// Token selection, one block per row.
#include "base/rng.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/sample_drafts.cuh"
#include "kernels/cuda/sample_search.cuh"

namespace nereid::kernels::cuda {
namespace {

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

// The draft of those that come after row i that is its token, or what is drawn in its place; -1:
// step 5 says.
__device__ int weigh(const Sample& a, int64_t i, const Row& row, int32_t* history, Scratch& s) {
  const SampleRow wish = a.rows[i];
  const SampleParams& params = a.params[wish.slot];
  const bool typical = params.draft_test == DraftTest::kTypical;
  SampleRow draft;
  if (!find_draft(a, i, [&](const SampleRow& after) {
        draft = after;
        return typical || after.draft_logits >= 0;
      }))
    return -1;
  const int since = since_reset(params, history, wish.position, s);
  const Probabilities p(row, params, since, s);
  if (typical) return typical_draft(a, i, p, params.draft_threshold, s);
  float* const logits =
      static_cast<float*>(a.draft_logits.data) + draft.draft_logits * a.draft_logits.stride;
  Probabilities q;
  if (is_sound(logits, row.vocab)) {
    if (edits_logits(params, wish)) edit(a, params, wish, history, logits, s);
    const float largest = logit_of(best_of(logits, row.vocab, s));
    if (largest > -INFINITY)
      q = Probabilities({logits, row.vocab, largest, row.temperature}, params, since, s);
  }
  return by_ratio(p, q, draft.draft, row.vocab, params, wish.position, s);
}

// What is drawn for row i, the same in every thread.
template <bool kWeighs>
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
    if constexpr (kWeighs)
      if (weighs_drafts(p) && row.largest > -INFINITY) token = weigh(a, i, row, history, s);
    if (token < 0) token = choose(row, best, p, history, wish.position, s);
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
template <bool kWeighs>
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
      draw_row<kWeighs>(a, i, s);
    else if (row.peeks)
      peek(a, i, s);
    __syncthreads();  // the next row reads what was drawn
  } while (++i < a.problem.rows && a.rows[i].after > 0);
}

cudaError_t launch(const Sample& a, const cuda::Scratch&, cudaStream_t stream) {
  const auto kernel = a.problem.weighs_drafts ? sample_kernel<true> : sample_kernel<false>;
  kernel<<<static_cast<unsigned>(a.problem.rows), kThreads, 0, stream>>>(a);
  return cudaGetLastError();
}

bool takes(const Sample& a) {
  constexpr int64_t kMaxVocab = int64_t{1} << 22;  // sums of 2^40 fixed-point weights in 63 bits
  return a.problem.vocab <= kMaxVocab;
}

}  // namespace

template <>
cuda::Row<Sample> row<Sample>() {
  return {launch, takes};
}

}  // namespace nereid::kernels::cuda
