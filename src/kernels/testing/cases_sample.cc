// Cases of sample: every mode, parameter and list, alone and mixed in one batch, ties, broken rows
// and hostile values, vocabularies from 1 to 128k, batches of 2 to 300 rows.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/ref/ref.h"
#include "kernels/testing/cases.h"
#include "kernels/testing/sample_check.h"

namespace nereid::kernels::testing {
namespace {

enum class Kind { kNoise, kFlat, kTied, kPeaked, kEqual, kTiny, kWide };

// Features of a case's rows beside top_k, top_p and temperature.
enum Feature : uint32_t {
  kGreedy = 1 << 0,  // argmax only
  kPenalties = 1 << 1,
  kBiases = 1 << 2,
  kBans = 1 << 3,  // end ids, n-grams, bad words
  kLogProbs = 1 << 4,
  kMinP = 1 << 5,
  kDecay = 1 << 6,
  kBeams = 1 << 7,
  kBroken = 1 << 8,   // NaN, +inf, all -inf
  kHostile = 1 << 9,  // extreme parameters, ids outside the vocabulary
  kDrafts = 1 << 10,  // rows of a slot that come after each other, some drafts wrong
  kMasks = 1 << 11,
  kTrees = 1 << 12,    // with kDrafts: some rows come after the same row
  kTypical = 1 << 13,  // with kDrafts: typical acceptance
  kRatio = 1 << 14,    // with kDrafts: most have draft logits
  kHot = 1 << 15,      // maximal temperature
  kTimes = 1 << 16,    // rules of time stamps
  kAllFeatures = kPenalties | kBiases | kBans | kLogProbs | kMinP | kDecay | kBeams | kMasks,
};

constexpr int32_t kMaxHistory = 300;
constexpr int64_t kJoined = 4;  // rows per slot, with kDrafts
constexpr float kHuge = std::numeric_limits<float>::max();

std::vector<float> make_logits(Kind kind, uint64_t seed, int64_t count) {
  std::vector<float> x = noise(seed, count, kind == Kind::kFlat ? 0.01f : 4);
  for (float& v : x) {
    if (kind == Kind::kTied) v = std::round(v / 4);
    if (kind == Kind::kPeaked) v = v > 13.5f ? 60 : v;
    if (kind == Kind::kEqual) v = v > 12 ? v : 1.5f;
    if (kind == Kind::kTiny) v *= 1e-41f;
    if (kind == Kind::kWide) v = std::clamp(v * 1e37f, -1.6e38f, 1.6e38f);
  }
  return x;
}

// The i-th of a few values, cyclic.
template <class T, size_t kSize>
T cycle(const T (&values)[kSize], int64_t i) {
  return values[static_cast<size_t>(i) % kSize];
}

// One slot: parameters, cells of its lists, its tokens.
struct Slot {
  SampleParams params;
  std::vector<int32_t> cells, history;
};

std::vector<int32_t> make_history(int64_t i, int64_t vocab, bool hostile) {
  const int64_t length = cycle<int64_t>({40, 1, 2, kMaxHistory - 1, 7, 5}, i);
  std::vector<int32_t> history;
  for (int64_t t = 0; t < length; ++t) {  // few distinct ids, so that n-grams and counts repeat
    const int64_t ids[] = {t * t + i, (t * 2654435761 >> 5) % 2, t % 9 < 5};
    history.push_back(static_cast<int32_t>(cycle(ids, i / 7) % std::min<int64_t>(vocab, 11)));
  }
  if (hostile && length > 3) history[1] = -1, history[2] = static_cast<int32_t>(vocab);
  return history;
}

void set_mode(SampleParams& p, int64_t i) {
  p.top_k = cycle({0, 1, 5, 50, 0, 1024, 3, 0, 1 << 30, 40}, i);
  p.top_p = cycle({0.9f, 0.0f, 0.0f, 0.8f, 0.3f, 0.95f, 1.0f, 1.0f, 0.0f, 0.0001f}, i);
  p.temperature = cycle({1.0f, 1.0f, 0.7f, 1.5f, 1.0f, 0.2f, 0.0f, 1.0f, 2.0f, 1e-30f}, i);
}

void set_penalties(SampleParams& p, int64_t i, bool hostile) {
  p.repetition = cycle({1.3f, 1.0f, 0.5f, 1.0f}, i);
  p.presence = cycle({0.0f, 1.5f, 0.0f, -0.7f, 0.3f}, i);
  p.frequency = cycle({0.0f, 0.4f, -0.1f}, i);
  p.penalty_begin = cycle({0, 3, 1, 1000}, i);
  if (!hostile) return;
  p.repetition = cycle({1e-40f, kHuge, 1.0f}, i);
  p.presence = cycle({kHuge, -kHuge, 0.0f, -INFINITY, INFINITY}, i);
  p.frequency = cycle({-kHuge, 0.0f, kHuge, 1e30f}, i);
}

void add_floats(Slot& s, const std::vector<float>& values) {
  for (float value : values) s.cells.push_back(std::bit_cast<int32_t>(value));
}

void add_biases(Slot& s, int64_t i, int64_t vocab, bool hostile) {
  s.params.num_biases = static_cast<int32_t>(std::min<int64_t>(vocab, i % 4));
  std::vector<float> values;
  for (int32_t b = 0; b < s.params.num_biases; ++b) {
    s.cells.push_back(hostile && b == 1 ? -7 : static_cast<int32_t>((i + b) % vocab));
    values.push_back(cycle({2.5f, -100.0f, -INFINITY, 1e-3f}, i + b));
  }
  add_floats(s, values);
}

void add_bad_words(Slot& s, int64_t i, int64_t vocab, bool hostile) {
  const std::vector<int32_t>& h = s.history;
  std::vector<std::vector<int32_t>> words = {{static_cast<int32_t>(i % vocab)}};
  if (h.size() > 1) words.push_back({h[h.size() - 2], h.back(), static_cast<int32_t>(1 % vocab)});
  words.push_back({h.back(), static_cast<int32_t>(2 % vocab)});
  words.push_back({h.back() + 1, 0});                   // no match
  words.push_back(std::vector<int32_t>(h.size() + 2));  // longer than the history
  if (hostile) words.insert(words.begin() + 1, {{}, {-1}, {static_cast<int32_t>(vocab)}});
  words.resize(static_cast<size_t>(i) % (words.size() + 1));
  int32_t end = 0;
  for (const auto& word : words) s.cells.push_back(end += static_cast<int32_t>(word.size()));
  for (const auto& word : words) s.cells.insert(s.cells.end(), word.begin(), word.end());
  s.params.num_bad_words = static_cast<int32_t>(words.size());
  s.params.num_bad_tokens = end;
}

void add_dense_bias(Slot& s, int64_t i, int64_t vocab) {
  if (i % 3 != 1) return;
  s.params.has_dense_bias = 1;
  add_floats(s, noise(static_cast<uint64_t>(i) + 5, vocab, 2));
}

// Row i of a case; each feature is on in some rows only, with coprime periods.
Slot make_slot(int64_t i, int64_t vocab, uint32_t features) {
  const auto on = [&](Feature f, int64_t period) { return (features & f) && i % period != 0; };
  const bool hostile = features & kHostile;
  Slot s;
  s.history = make_history(i, vocab, hostile);
  SampleParams& p = s.params;
  p.seed = 77;
  if (features & kGreedy) return s;
  p.keeps_history = 1;
  p.num_prompt = static_cast<int32_t>(s.history.size() * static_cast<size_t>(i % 3) / 2);
  set_mode(p, i);
  if (features & kHot) p.temperature = 3e38f;
  if (on(kPenalties, 2)) set_penalties(p, i / 2, hostile);
  if (on(kBans, 3)) {
    const auto length = static_cast<int32_t>(s.history.size());
    p.min_length = cycle({length, length + 1, 0, length + 1000}, i);
    s.cells = {static_cast<int32_t>(i % vocab), hostile ? -3 : 0, 5};
    p.num_end_ids = 3;
    p.ngram = cycle({0, 2, 6, 3, 500, 1, 1 << 30}, i / 2);
  }
  if (on(kTimes, 5)) {
    p.first_timestamp = cycle({6, 3, 1, 9, hostile ? 1 << 30 : 0, 2}, i);
    p.no_timestamps = cycle({-1, 5, 1, 1 << 30}, i);
    p.end_of_text = cycle({4, 0, 2, hostile ? 1 << 30 : 1}, i);
    p.max_initial_timestamp = cycle({-1, 2, 0, hostile ? INT32_MAX : 50}, i / 2);
    if (i % 4 == 3) p.num_prompt = static_cast<int32_t>(s.history.size());
  }
  if (on(kBiases, 5)) add_biases(s, i, vocab, hostile);
  if (on(kBans, 2)) add_bad_words(s, i, vocab, hostile);
  if (on(kBiases, 4)) add_dense_bias(s, i, vocab);
  if (on(kMinP, 3))
    p.min_p_gap = temperature_of(p) * std::log(cycle({0.05f, 1.0f, 0.5f, 0.3f}, i / 3));
  if (on(kDecay, 4)) {
    p.top_p_decay = cycle({0.99f, 0.5f, 1e-3f}, i);
    p.top_p_min = cycle({0.1f, 1e-6f, 0.0f, 0.8f}, i);
    p.top_p_reset_id = cycle({-1, 0, 4, 3}, i);
  }
  if (on(kLogProbs, 7)) {
    p.log_probs = cycle({LogProbs::kProcessed, LogProbs::kRaw}, i);
    p.num_top = cycle({0, 1, 5, kMaxTopTokens}, i / 2);
  }
  if ((features & kBeams) && i % 6 == 5) {
    p.draws = 0, p.log_probs = LogProbs::kProcessed, p.num_top = kMaxTopTokens;
  }
  if (features & kTypical) {
    p.draft_test = DraftTest::kTypical;
    p.draft_threshold = cycle({0.3f, 0.01f, 1.0f, 1e-20f}, i);
  }
  if (features & kRatio) {
    p.draft_test = DraftTest::kRatio;
    p.draft_threshold = cycle({0.0f, 0.3f, 0.0f, 1.0f}, i);
  }
  return s;
}

void break_rows(std::vector<float>& logits, int64_t rows, int64_t vocab) {
  for (int64_t i = 0; i < rows; ++i) {
    float* row = &logits[static_cast<size_t>(i * vocab)];
    if (i % 4 == 0) row[vocab - 1] = NAN;
    if (i % 4 == 1) row[vocab / 2] = INFINITY;
    if (i % 4 == 2) row[vocab / 3] = -INFINITY;
    if (i % 4 == 3) std::fill_n(row, vocab, -INFINITY);
  }
}

// Fills the slots' arrays. Rows, slots and rows of logits have different numbers. The drafts of
// kDrafts are set later.
void add_slots(Case<Sample>& c, SampleLayout& l, uint32_t features) {
  std::vector<SampleRow> rows;
  std::vector<SampleParams> params(static_cast<size_t>(l.slots));
  std::vector<int32_t> cells = {-1}, history(static_cast<size_t>(l.slots * l.history_stride), -1);
  const int64_t joined = features & kDrafts ? kJoined : 1;
  for (int64_t i = 0; i < l.rows; ++i) {
    const int64_t slot = l.rows - i;
    if (const auto before = static_cast<int32_t>(i % joined); before > 0) {
      const int32_t after = features & kTrees && before > 1 ? 2 - before % 2 : 1;
      SampleRow row = rows[static_cast<size_t>(i - after)];
      row.after = after;
      row.draft = 0;
      row.position += 1;
      row.logits_row = static_cast<int32_t>((i + 1) % l.rows);
      row.wants_argmax = i % 3 != 0;
      row.draft_logits =
          features & kRatio && i % 7 != 0 ? static_cast<int32_t>(l.num_draft_logits++) : -1;
      rows.push_back(row);
      continue;
    }
    Slot s = make_slot(i / joined, l.vocab, features);
    s.params.lists = cells.size() * sizeof(int32_t);
    NEREID_CHECK(static_cast<int64_t>(s.cells.size()) == SampleLists::num_cells(s.params, l.vocab));
    cells.insert(cells.end(), s.cells.begin(), s.cells.end());
    params[static_cast<size_t>(slot)] = s.params;
    std::ranges::copy(s.history, history.begin() + slot * l.history_stride);
    rows.push_back({static_cast<int32_t>(slot), static_cast<int32_t>(s.history.size()),
                    static_cast<int32_t>((i + 1) % l.rows)});
  }
  l.params = c.before.add(params);
  l.lists = c.before.add(cells);
  l.sample_rows = c.before.add(rows);
  l.history = c.before.add(history);
}

// Every third row has its own mask: many ids, few ids or none.
void add_masks(Case<Sample>& c, SampleLayout& l) {
  std::vector<uint32_t> masks;
  for (int64_t i = 0; i < l.rows; i += 3) {
    c.before.at<SampleRow>(l.sample_rows)[i].mask = static_cast<int32_t>(l.num_masks++);
    for (int64_t w = 0; w < mask_words(l.vocab); ++w) {
      const auto bits = static_cast<uint32_t>((i + 1) * 2654435761 * (w + 7) >> 7);
      masks.push_back(
          cycle({~0u, bits, bits & bits * 7 & bits * 31, i % 5 == 4 ? 0u : 1u}, i / 3 + w / 2));
    }
  }
  l.masks = c.before.add(masks);
}

// Similar to those of the rows before the drafts, some with a NaN, some banned.
void add_draft_logits(Case<Sample>& c, SampleLayout& l) {
  std::vector<float> logits;
  const SampleRow* const rows = c.before.at<SampleRow>(l.sample_rows);
  for (int64_t i = 0; i < l.rows; ++i) {
    if (rows[i].draft_logits < 0) continue;
    const float* const own =
        c.before.at<float>(l.logits) + rows[i - rows[i].after].logits_row * l.vocab;
    const std::vector<float> other = noise(static_cast<uint64_t>(i) + 99, l.vocab, 1);
    for (int64_t id = 0; id < l.vocab; ++id) {
      logits.push_back(own[id] + cycle({0.0f, 1.0f, 3.0f}, i) * other[static_cast<size_t>(id)]);
      if (i % 11 == 5) logits.back() = i % 2 ? -INFINITY : NAN;
    }
  }
  l.draft_logits = c.before.add(logits);
}

// Sets most drafts right, given those before. One of two behind the same row is wrong.
void make_drafts(Case<Sample>& c, const SampleLayout& l) {
  for (int64_t round = 0; round + 1 < kJoined; ++round) {
    Image image = c.before;
    reference(c.args(image.bytes.data(), 0, l.rows));
    SampleRow* const rows = c.before.at<SampleRow>(l.sample_rows);
    for (int64_t i = 0; i < l.rows; ++i) {
      const int32_t after = rows[i].after;
      if (after == 0) continue;
      const int32_t token = std::max(image.at<SampleResult>(l.results)[i - after].token, 0);
      rows[i].draft = i % 5 == 3 ? token + 1 : token;
      if (after == 2 && rows[i - 1].after == 1 && rows[i - 1].draft == rows[i].draft)
        rows[i - i / kJoined % 2].draft += 2;
    }
  }
}

void add_regions(Case<Sample>& c, const SampleLayout& l) {
  const auto cells = [&](const char* name, Offset offset, int64_t rows, int64_t cols) {
    return Region{name, offset, DType::kI32, rows, cols, cols, {}, {}};
  };
  c.outputs = {cells("results", l.results, l.rows, sizeof(SampleResult) / 4),
               cells("slot_tokens", l.slot_tokens, l.slots, 1),
               cells("history", l.history, l.slots, l.history_stride)};
  if (l.top_stride > 0) c.outputs.push_back(cells("top", l.top, l.rows, 2 * l.top_stride));
  c.scratch = {{"logits", l.logits, DType::kF32, l.rows, l.vocab, l.vocab, {}, {}}};
  if (l.num_draft_logits > 0)
    c.scratch.push_back({"draft_logits",
                         l.draft_logits,
                         DType::kF32,
                         l.num_draft_logits,
                         l.vocab,
                         l.vocab,
                         {},
                         {}});
}

Case<Sample> make_case(Kind kind, int64_t rows, int64_t vocab, uint32_t features) {
  Case<Sample> c;
  c.name = fmt::format("kind={} rows={} vocab={} features={:#x}", static_cast<int>(kind), rows,
                       vocab, features);
  SampleLayout l;
  l.rows = rows, l.slots = rows + 1, l.vocab = vocab, l.all_greedy = features & kGreedy;
  l.weighs_drafts = features & (kTypical | kRatio);
  l.history_stride = kMaxHistory;
  l.top_stride = features & kLogProbs ? kMaxTopTokens : 0;
  std::vector<float> logits = make_logits(kind, static_cast<uint64_t>(rows + vocab), rows * vocab);
  if (features & kBroken) break_rows(logits, rows, vocab);
  l.logits = c.before.add(logits);
  l.raw_logits = c.before.add(logits);
  add_slots(c, l, features);
  if (features & kMasks) add_masks(c, l);
  if (features & kRatio) add_draft_logits(c, l);
  l.results = c.before.add(static_cast<size_t>(rows) * sizeof(SampleResult));
  l.top = c.before.add(static_cast<size_t>(rows * l.top_stride) * sizeof(TopToken));
  l.slot_tokens = c.before.add(static_cast<size_t>(l.slots) * 4);
  c.tokens = rows;
  c.args = [l](std::byte* base, int64_t begin, int64_t count) {
    Sample a;
    a.problem = {count, l.vocab, l.all_greedy, l.weighs_drafts};
    if (l.num_draft_logits > 0)
      a.draft_logits =
          View::matrix(base + l.draft_logits, DType::kF32, l.num_draft_logits, l.vocab);
    a.logits = View::matrix(base + l.logits, DType::kF32, l.rows, l.vocab);
    a.raw_logits = View::matrix(base + l.raw_logits, DType::kF32, l.rows, l.vocab);
    a.rows = reinterpret_cast<const SampleRow*>(base + l.sample_rows) + begin;
    a.params = reinterpret_cast<const SampleParams*>(base + l.params);
    a.lists_base = base + l.lists;
    a.masks = reinterpret_cast<const uint32_t*>(base + l.masks);
    a.mask_stride = mask_words(l.vocab);
    a.history = reinterpret_cast<int32_t*>(base + l.history);
    a.history_stride = l.history_stride;
    a.results = reinterpret_cast<SampleResult*>(base + l.results) + begin;
    a.top = reinterpret_cast<TopToken*>(base + l.top) + begin * l.top_stride;
    a.top_stride = l.top_stride;
    a.slot_tokens = reinterpret_cast<int32_t*>(base + l.slot_tokens);
    return a;
  };
  if (features & kDrafts) make_drafts(c, l);
  c.after = c.before;
  reference(c.args(c.after.bytes.data(), 0, rows));
  add_regions(c, l);
  c.check = [l](const Case<Sample>& self, const Image& got, double epsilon) {
    return check_sample(self.after, l, got, epsilon);
  };
  if (rows > 1)
    for (const int64_t size : {1, 7})
      if (const int64_t whole = features & kDrafts ? kJoined * size : size; whole < rows)
        c.splits.push_back(pieces(rows, whole));
  return c;
}

}  // namespace

template <>
const std::vector<Case<Sample>>& cases<Sample>() {
  static const std::vector<Case<Sample>> all = [] {
    std::vector<Case<Sample>> list;
    for (const uint32_t features : {uint32_t{kGreedy}, uint32_t{0}, uint32_t{kAllFeatures}}) {
      for (const int64_t vocab : {1, 3, 100, 1027})
        list.push_back(make_case(Kind::kNoise, 40, vocab, features));
      list.push_back(make_case(Kind::kTied, 20, 4096, features));
      list.push_back(make_case(Kind::kNoise, 20, 777, features | kBroken));
      list.push_back(make_case(Kind::kNoise, 2, 128256, features));
    }
    for (const uint32_t features : {kPenalties, kBiases, kBans, kMinP, kDecay, kMasks})
      list.push_back(make_case(Kind::kNoise, 60, 500, features));
    for (const uint32_t features : {kPenalties, kBiases, kBans, kMinP, kDecay})
      list.push_back(make_case(Kind::kNoise, 60, 30, features | kLogProbs));
    list.push_back(make_case(Kind::kNoise, 60, 64, kBeams | kLogProbs | kBans));
    for (const uint32_t features : {kPenalties, kBiases, kBans})
      list.push_back(make_case(Kind::kNoise, 60, 12, features | kHostile | kLogProbs));
    for (const Kind kind : {Kind::kNoise, Kind::kTied, Kind::kEqual, Kind::kWide})
      list.push_back(make_case(kind, 60, 40, kTimes | kLogProbs | kBans));
    list.push_back(make_case(Kind::kNoise, 60, 5000, kTimes | kHostile | kAllFeatures));
    list.push_back(make_case(Kind::kNoise, 80, 500, kTimes | kDrafts | kTrees));
    list.push_back(make_case(Kind::kTied, 120, 300, kAllFeatures | kHostile));
    list.push_back(make_case(Kind::kNoise, 300, 500, kAllFeatures));
    list.push_back(make_case(Kind::kNoise, 12, 40000, kAllFeatures));
    list.push_back(make_case(Kind::kFlat, 10, 32000, 0));
    list.push_back(make_case(Kind::kFlat, 20, 5000, kMinP | kDecay | kLogProbs));
    for (const Kind kind : {Kind::kPeaked, Kind::kEqual, Kind::kTiny})
      list.push_back(make_case(kind, 10, 32000, 0));
    list.push_back(make_case(Kind::kEqual, 12, 3000, kAllFeatures));
    list.push_back(make_case(Kind::kWide, 20, 5000, kHot));
    for (const uint32_t features :
         {uint32_t{kGreedy}, uint32_t{kAllFeatures}, kAllFeatures | kHostile, uint32_t{kBroken}})
      for (const uint32_t trees : {0u, uint32_t{kTrees}})
        list.push_back(make_case(Kind::kNoise, 80, 500, features | kDrafts | trees));
    list.push_back(make_case(Kind::kTied, 36, 3000, kDrafts | kPenalties | kBans | kLogProbs));
    for (const uint32_t features : {uint32_t{kTypical}, kTypical | kTrees, uint32_t{kRatio}}) {
      list.push_back(make_case(Kind::kNoise, 160, 60, kDrafts | features));
      list.push_back(make_case(Kind::kNoise, 80, 500, kDrafts | features | kAllFeatures));
      list.push_back(make_case(Kind::kFlat, 12, 40000, kDrafts | features | kDecay));
      list.push_back(make_case(Kind::kNoise, 20, 100, kDrafts | features | kBroken));
    }
    return list;
  }();
  return all;
}

}  // namespace nereid::kernels::testing
