// Sampling. On Hopper, one cluster of blocks per row if there are few rows.
#include "base/rng.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/sample_drafts.cuh"
#include "kernels/cuda/sample_search.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr uint32_t kSeen = 1u << 31;  // flag of an id in the history, above its count

// Assignment of blocks to rows.
struct Division {
  int team;    // blocks per row
  int part;    // ids per block
  bool holds;  // a block's part of the logits is in shared memory
};

__device__ int draw(const Row& row, const SampleParams& p, int position, int since, Team& team) {
  const double share =
      double{uniform(p.seed, static_cast<uint64_t>(position))} * double{top_p_after(p, since)};
  const uint64_t last = last_kept(row, p, team);
  if (p.top_k <= 0 || p.top_k > kFew) return id_of(search<true>(row, last, share, 0, team).element);
  const int count = gather(row, last, kUnsound, team);
  const uint64_t total = weigh_few<true>(row, count, team);
  return id_of(place_of_few(count, 0, share_of(total, share), team).element);
}

// team.s->weights[0 .. returned) = the `count` <= vocab largest elements, in order; excludes -inf.
__device__ int find_top(const Row& row, int count, Team& team) {
  Scratch& s = *team.s;
  const uint64_t low = max(nth_element(row, count, team), (uint64_t{key_of(-INFINITY)} + 1) << 32);
  const int found = gather(row, low, kUnsound, team);
  if (static_cast<int>(threadIdx.x) < found) {
    const uint64_t mine = s.few[threadIdx.x];
    int rank = 0;
    for (int i = 0; i < found; ++i) rank += s.few[i] > mine;
    s.weights[rank] = mine;
  }
  __syncthreads();
  return found;
}

// Log-probabilities from `row`, `token` is the sampled id. Returns the team's state. Not inlined:
// keeps the common path in the instruction cache.
__device__ __noinline__ Team report(Row row, const SampleParams& p, int token, int64_t top_stride,
                                    SampleResult* result, TopToken* top, Team team) {
  if (p.log_probs == LogProbs::kRaw) {
    row.largest = logit_of(best_of(row, nullptr, team));
    row.set_temperature(1);
  }
  constexpr double kLog2 = 0.693147180559945309;
  const double log_total = log(static_cast<double>(weight_from(row, 0, team)));
  const double log_sum = log_total - kWeightBits * kLog2;
  const auto log_prob = [&](float logit) {
    return static_cast<float>((double{logit} - row.largest) / row.temperature - log_sum);
  };
  double log_kept = 0;
  if (p.log_probs == LogProbs::kProcessed && p.top_k > 0)
    log_kept =
        log(static_cast<double>(weight_from(row, last_kept(row, p, team), team))) - log_total;
  // The block with the token's logit.
  if (const int i = token - row.first; i >= 0 && i < row.count && threadIdx.x == 0) {
    result->log_prob = log_prob(row.logits[i]);
    result->log_kept = static_cast<float>(log_kept);
  }
  int64_t count = p.num_top < top_stride ? p.num_top : top_stride;
  count = count < row.vocab ? count : row.vocab;
  if (count <= 0) return team;
  const int found = find_top(row, static_cast<int>(count), team);
  if (team.rank() == 0 && static_cast<int>(threadIdx.x) < found) {
    const uint64_t element = team.s->weights[threadIdx.x];
    top[threadIdx.x] = {id_of(element), log_prob(logit_of(element))};
  }
  return team;
}

__device__ float edited(float old, float value) {
  constexpr float kMost = 3.402823466e38f;
  return old == -INFINITY ? old : value <= kMost ? value : kMost;
}

// A block's part of a row during edits of its logits. Each block reads all lists and applies
// entries in its part.
struct Edit {
  const SampleParams& p;
  SampleLists lists;
  const uint32_t* mask;    // or null
  const int32_t* history;  // [position] or null
  int position;
  Row row;

  __device__ bool owns(int id) const { return id >= row.first && id - row.first < row.count; }
  __device__ float& logit(int id) const { return row.logits[id - row.first]; }
  __device__ void ban(int id) const {
    if (owns(id)) logit(id) = -INFINITY;
  }
};

__device__ void add_biases(const Edit& e) {
  const int end = e.row.first + e.row.count;
  if (e.p.has_dense_bias)
    for (int id = e.row.first + static_cast<int>(threadIdx.x); id < end; id += kThreads)
      e.logit(id) = edited(e.logit(id), __fadd_rn(e.logit(id), e.lists.dense_bias[id]));
  __syncthreads();
  for (int i = threadIdx.x; i < e.p.num_biases; i += kThreads)
    if (const int id = e.lists.bias_ids[i]; e.owns(id))
      e.logit(id) = edited(e.logit(id), __fadd_rn(e.logit(id), e.lists.biases[i]));
  __syncthreads();
}

__device__ float penalised(const SampleParams& p, float l, uint32_t count) {
  l = edited(l, l < 0 ? __fmul_rn(l, p.repetition) : __fdiv_rn(l, p.repetition));
  if (count == 0) return l;
  l = edited(l, __fsub_rn(l, p.presence));
  return edited(l, __fsub_rn(l, __fmul_rn(p.frequency, static_cast<float>(count))));
}

// Counts the history's tokens for one range of ids at a time; integer sums do not depend on order.
__device__ void penalise(const Edit& e, Scratch& s) {
  const int end = e.row.first + e.row.count;
  for (int first = e.row.first; first < end; first += kCountedIds) {
    const int num_ids = end - first < kCountedIds ? end - first : kCountedIds;
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
        e.logit(first + i) = penalised(e.p, e.logit(first + i), count & ~kSeen);
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
    for (int i = threadIdx.x; i < e.row.count; i += kThreads)
      if (const int id = e.row.first + i; (e.mask[id / 32] >> (id % 32) & 1) == 0) e.ban(id);
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
    const int before = e.lists.bad_ends[w] - begin - 1;  // tokens to match
    const int32_t* const word = e.lists.bad_tokens + begin;
    if (before < 0 || before > length) continue;
    if (before == 0 || equal(word, e.history + length - before, before)) e.ban(word[before]);
  }
  __syncthreads();
}

// Not inlined: few rows have time stamps.
__device__ __noinline__ void apply_timestamp_rules(const Edit& e, Team& team) {
  const SampleParams& p = e.p;
  const int first = p.first_timestamp, vocab = e.row.vocab;
  if (first >= vocab) return;
  const int num_prompt = max(p.num_prompt, 0);
  const int32_t* const generated = e.history + num_prompt;
  const int size = e.history ? max(e.position - num_prompt, 0) : 0;
  uint64_t found = 0;
  for (int i = threadIdx.x; i < size; i += kThreads)
    if (generated[i] >= first) found = static_cast<uint64_t>(i) + 1;
  const int num_upto_latest = static_cast<int>(team.largest(found));
  const bool is_last = size > 0 && num_upto_latest == size;
  const bool ends_segment = is_last && size > 1 && generated[size - 2] < first;
  const int64_t low =
      num_upto_latest > 0 ? int64_t{generated[num_upto_latest - 1]} + (ends_segment ? 0 : 1) : 0;
  for (int i = threadIdx.x; i < e.row.count; i += kThreads) {
    const int id = e.row.first + i;
    const bool is_time = id >= first;
    bool bans = id == p.no_timestamps || (is_time && id < low);
    if (size == 0)
      bans |= !is_time || (p.max_initial_timestamp >= 0 && id - first > p.max_initial_timestamp);
    if (is_last) bans |= ends_segment ? id < p.end_of_text : is_time;
    if (bans) e.ban(id);
  }
  __syncthreads();
  if (size == 0) return;
  uint64_t time = 0, other = 0;
  e.row.for_each([&](float /*logit*/, uint64_t element) {
    uint64_t& best = id_of(element) >= first ? time : other;
    best = max(best, element);
  });
  time = team.largest(time);
  other = team.largest(other);
  if (logit_of(time) == -INFINITY) return;
  Row times = e.row;
  times.largest = logit_of(time);
  times.set_temperature(1);
  uint64_t sum = 0;
  times.for_each([&](float logit, uint64_t element) {
    if (id_of(element) >= first) sum += times.weight(logit);
  });
  const double log_sum = log(static_cast<double>(team.sum(sum)) / double{kWeightOne});
  if (other == 0 || double{times.largest} + log_sum > double{logit_of(other)})
    for (int i = threadIdx.x; i < e.row.count; i += kThreads)
      if (e.row.first + i < first) e.ban(e.row.first + i);
  __syncthreads();
}

__device__ __noinline__ void edit(const Sample& a, const SampleParams& p, const SampleRow& wish,
                                  const int32_t* history, const Row row, Team& team) {
  const uint64_t lists = reinterpret_cast<uint64_t>(a.lists_base) + p.lists;
  const Edit e = {p,
                  SampleLists(p, reinterpret_cast<const int32_t*>(lists),
                              reinterpret_cast<const float*>(lists)),
                  wish.mask >= 0 ? a.masks + wish.mask * a.mask_stride : nullptr,
                  history,
                  wish.position,
                  row};
  add_biases(e);
  if (history && has_penalties(p)) penalise(e, *team.s);
  ban_ids(e);
  if (p.first_timestamp >= 0) apply_timestamp_rules(e, team);
}

// The token of a row with edits; -1: none.
__device__ int choose(const Row& row, uint64_t best, const SampleParams& p, const int32_t* history,
                      int position, Team& team) {
  if (row.largest == -INFINITY) return -1;
  if (!p.draws || is_greedy(p)) return id_of(best);
  return draw(row, p, position, since_reset(p, history, position, team), team);
}

// The block's part of a row of logits.
__device__ Row part_of(const View& logits, int64_t index, const Division& division,
                       const Team& team) {
  Row row;
  row.vocab = static_cast<int>(logits.cols);
  row.first = min(team.rank() * division.part, row.vocab);
  row.count = min(division.part, row.vocab - row.first);
  row.logits = static_cast<float*>(logits.data) + index * logits.stride + row.first;
  return row;
}

// The accepted draft of those after row i, or the token sampled instead; -1: step 5 applies.
__device__ int weigh(const Sample& a, int64_t i, const Row& row, const Division& division,
                     const int32_t* history, Team& team) {
  const SampleRow& wish = a.rows[i];
  const SampleParams& params = a.params[wish.slot];
  const bool typical = params.draft_test == DraftTest::kTypical;
  SampleRow draft;
  if (!find_draft(a, i, [&](const SampleRow& after) {
        draft = after;
        return typical || after.draft_logits >= 0;
      }))
    return -1;
  const int since = since_reset(params, history, wish.position, team);
  const Probabilities p(row, params, since, team);
  if (typical) return typical_draft(a, i, p, params.draft_threshold, *team.s);
  Probabilities q;
  Row own = part_of(a.draft_logits, draft.draft_logits, division, team);
  uint64_t best = best_of(own, nullptr, team);
  if (best != kUnsound) {
    if (edits_logits(params, wish)) {
      edit(a, params, wish, history, own, team);
      best = best_of(own, nullptr, team);
    }
    own.largest = logit_of(best);
    own.set_temperature(row.temperature);
    if (own.largest > -INFINITY) q = Probabilities(own, params, since, team);
  }
  return by_ratio(p, q, draft.draft, row.vocab, params, wish.position, *team.s);
}

// Stores the token of row i; one thread. report() writes the rest.
__device__ void keep_token(const Sample& a, int64_t i, int token) {
  const SampleRow& wish = a.rows[i];
  const SampleParams& p = a.params[wish.slot];
  SampleResult& result = a.results[i];
  result.token = token, result.likeliest = -1;
  if (token < 0 || p.log_probs == LogProbs::kNone) result.log_prob = result.log_kept = 0;
  if (!p.draws) return;
  if (p.keeps_history && wish.position < a.history_stride)
    a.history[wish.slot * a.history_stride + wish.position] = token;
  if (a.slot_tokens) a.slot_tokens[wish.slot] = token;
}

// Features used by a launch's rows.
enum class Mode { kLargest, kDrawn, kWeighed };

// The token of row i, returned to all threads.
template <Mode kMode>
__device__ int draw_row(const Sample& a, int64_t i, const Division& division, Team& team) {
  extern __shared__ float held[];
  const SampleRow& wish = a.rows[i];
  Row row = part_of(a.logits, wish.logits_row, division, team);
  if constexpr (kMode == Mode::kLargest) {
    const uint64_t best = best_of(row, nullptr, team);
    return best == kUnsound || logit_of(best) == -INFINITY ? -1 : id_of(best);
  }
  const SampleParams& p = a.params[wish.slot];
  const int32_t* const history =
      p.keeps_history ? a.history + wish.slot * a.history_stride : nullptr;
  bool edits = edits_logits(p, wish);
  uint64_t best = 0;
  float* to = division.holds ? held : nullptr;
  while (true) {
    best = best_of(row, to, team);
    if (best == kUnsound) return -1;
    if (to) row.logits = to;
    if (!edits) break;
    edits = false;
    to = nullptr;
    edit(a, p, wish, history, row, team);
  }
  row.largest = logit_of(best);
  row.set_temperature(temperature_of(p));
  int token = -1;
  if constexpr (kMode == Mode::kWeighed)
    if (weighs_drafts(p) && row.largest > -INFINITY)
      token = weigh(a, i, row, division, history, team);
  if (token < 0) token = choose(row, best, p, history, wish.position, team);
  if (token < 0 || p.log_probs == LogProbs::kNone) return token;
  if (p.log_probs == LogProbs::kRaw && edits_logits(p, wish))
    row = part_of(a.raw_logits, wish.logits_row, division, team);
  team = report(row, p, token, a.top_stride, a.results + i, a.top + i * a.top_stride, team);
  return token;
}

// Argmax of row i, without sampling.
__device__ void peek(const Sample& a, int64_t i, const Division& division, Team& team) {
  const Row row = part_of(a.logits, a.rows[i].logits_row, division, team);
  const uint64_t best = best_of(row, nullptr, team);
  if (best != kUnsound && team.is_first_thread()) a.results[i].likeliest = id_of(best);
}

// One team has a row and all rows that come after it, in order.
template <Mode kMode>
__global__ void __launch_bounds__(kThreads, 2)
    sample_kernel(const __grid_constant__ Sample a, const __grid_constant__ Division division) {
  __shared__ Scratch scratch;
  wait_for_previous();
  int64_t i = blockIdx.x / static_cast<unsigned>(division.team);
  if (a.rows[i].after > 0) return;
  Team team(division.team, scratch);
  while (true) {
    const SampleRow& row = a.rows[i];
    const bool draws = row.after == 0 || a.results[i - row.after].token == row.draft;
    if (team.rank() == 0)
      for (int64_t t = threadIdx.x; t < a.top_stride; t += kThreads)
        a.top[i * a.top_stride + t] = {-1, 0};
    if (draws) {
      const int token = draw_row<kMode>(a, i, division, team);
      if (team.is_first_thread()) keep_token(a, i, token);
    } else {
      if (team.is_first_thread()) a.results[i] = {kNotDrawn, 0, 0, -1};
      if (row.wants_argmax) peek(a, i, division, team);
    }
    if (++i == a.problem.rows || a.rows[i].after == 0) return;
    team.meet();  // the next row reads the token
  }
}

// Teams of as many blocks as are resident at once. Largest team: for twice as many rows, so that
// the blocks have their part of the logits in shared memory, two per SM. The number of blocks does
// not change any bit, except for f64 sums of drafts.
cudaError_t launch(const Sample& a, const cuda::Scratch& device, cudaStream_t stream) {
  constexpr int64_t kMostHeld = 80 * 1024 / sizeof(float);
  const bool has_teams = device.sm == 90 && !a.problem.weighs_drafts;
  const int64_t rows = a.problem.rows, blocks = 2 * device.num_units;
  Division division = {1, 0, false};
  while (has_teams && division.team < kMaxTeam &&
         2 * division.team * rows <= (2 * division.team == kMaxTeam ? 2 * blocks : blocks))
    division.team *= 2;
  division.part = static_cast<int>((a.problem.vocab + division.team - 1) / division.team);
  division.holds = has_teams && !a.problem.all_greedy && division.part <= kMostHeld;
  const auto team = static_cast<unsigned>(division.team);
  const size_t held = division.holds ? static_cast<size_t>(division.part) * sizeof(float) : 0;
  const auto kernel = a.problem.weighs_drafts ? sample_kernel<Mode::kWeighed>
                      : a.problem.all_greedy  ? sample_kernel<Mode::kLargest>
                                              : sample_kernel<Mode::kDrawn>;
  return launch_overlapped_clusters(kernel, rows, dim3(static_cast<unsigned>(rows) * team), team,
                                    kThreads, held, stream, a, division);
}

bool takes(const Sample& a) {
  constexpr int64_t kMaxVocab = int64_t{1} << 22;  // sums of 2^40 fixed-point weights in 63 bits
  constexpr int64_t kMaxRows = (int64_t{1} << 31) / kMaxTeam - 1;  // max grid.x / blocks per team
  return a.problem.vocab <= kMaxVocab && a.problem.rows <= kMaxRows;
}

}  // namespace

template <>
cuda::Row<Sample> row<Sample>() {
  return {launch, takes};
}

}  // namespace nereid::kernels::cuda
