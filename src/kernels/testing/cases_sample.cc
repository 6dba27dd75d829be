// Cases of sample: every mode, ties, bans, broken rows, vocabularies from 1 to 128k. Near the
// boundary between two tokens either is right, so draws are checked by their cumulative weight.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"
#include "kernels/ref/ref.h"
#include "kernels/testing/cases.h"

namespace nereid::kernels::testing {
namespace {

struct Layout {
  int64_t rows = 0, vocab = 0;
  bool all_greedy = false;
  Offset logits = 0, params = 0, banned = 0, tokens = 0, slots = 0;
};

enum class Kind { kNoise, kFlat, kTied, kPeaked };

std::vector<float> make_logits(Kind kind, uint64_t seed, int64_t count) {
  std::vector<float> x = noise(seed, count, kind == Kind::kFlat ? 0.01f : 4);
  for (float& v : x) {
    if (kind == Kind::kTied) v = std::round(v / 4);
    if (kind == Kind::kPeaked) v = v > 13.5f ? 60 : v;
  }
  return x;
}

// Parameters that walk through the modes; row i draws at position i.
SampleRow make_row(int64_t i, bool greedy) {
  constexpr int32_t kTopK[] = {0, 1, 5, 50, 0, 1024, 3, 0, 1 << 30, 40};
  constexpr float kTopP[] = {0.9f, 0, 0, 0.8f, 0.3f, 0.95f, 1, 1, 0, 0.0001f};
  constexpr float kTemperature[] = {1, 1, 0.7f, 1.5f, 1, 0.2f, 0, 1, 2, 1e-30f};
  SampleRow row;
  row.seed = 77;
  row.position = static_cast<int32_t>(i);
  row.slot = static_cast<int32_t>(i);
  row.top_k = greedy ? 0 : kTopK[i % 10];
  row.top_p = greedy ? 0 : kTopP[i % 10];
  row.temperature = greedy ? 1 : kTemperature[i % 10];
  row.banned_begin = static_cast<int32_t>(i % 4);
  row.banned_end = static_cast<int32_t>(i % 4 + i % 3);
  return row;
}

// The cumulative weight of the ids before and up to `token`, in the order of drawing, against the
// target of the draw.
Status check_draw(const SampleRow& row, const float* logits, int64_t vocab, int32_t token,
                  double tolerance) {
  std::vector<int32_t> order(static_cast<size_t>(vocab));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  if (row.top_k > 0 && row.top_k < vocab) order.resize(static_cast<size_t>(row.top_k));
  double sum = 0, before = -1, upto = -1;
  for (int32_t id : order) {
    const double weight = std::exp((double{logits[id]} - logits[order[0]]) / row.temperature);
    if (id == token) before = sum, upto = sum + weight;
    sum += weight;
  }
  const double top_p = row.top_p > 0 ? std::min(row.top_p, 1.0f) : 1;
  const double target =
      double{uniform(row.seed, static_cast<uint64_t>(row.position))} * top_p * sum;
  if (upto >= 0 && before <= target + tolerance * sum && upto >= target - tolerance * sum)
    return ok();
  return internal_error("drew token {}, which covers [{}, {}] of {}; the target is {}", token,
                        before, upto, sum, target);
}

bool is_draw(const SampleRow& row) {
  return row.temperature != 0 && row.top_k != 1 && (row.top_k > 0 || row.top_p > 0);
}

Status check_case(const Case<Sample>& want, const Layout& l, const Image& got, double epsilon) {
  for (int64_t i = 0; i < l.rows; ++i) {
    const SampleRow& row = got.at<SampleRow>(l.params)[i];
    const int32_t token = got.at<int32_t>(l.tokens)[i];
    const int32_t expected = want.after.at<int32_t>(l.tokens)[i];
    if (got.at<int32_t>(l.slots)[i] != token)
      return internal_error("row {}: slot_tokens holds {}, tokens {}", i,
                            got.at<int32_t>(l.slots)[i], token);
    if (token == expected) continue;
    if (!is_draw(row) || expected < 0 || token < 0 || token >= l.vocab)
      return internal_error("row {}: token {}, want {}", i, token, expected);
    const float* logits = want.after.at<float>(l.logits) + i * l.vocab;  // bans applied by ref
    RETURN_IF_ERROR(annotate(check_draw(row, logits, l.vocab, token, 1e-5 + epsilon * 1e-2),
                             fmt::format("row {} (want {})", i, expected)));
  }
  return ok();
}

Case<Sample> make_case(Kind kind, int64_t rows, int64_t vocab, bool greedy, bool broken) {
  Case<Sample> c;
  c.name = fmt::format("kind={} rows={} vocab={} greedy={} broken={}", static_cast<int>(kind), rows,
                       vocab, greedy, broken);
  Layout l;
  l.rows = rows, l.vocab = vocab, l.all_greedy = greedy;
  std::vector<float> logits = make_logits(kind, static_cast<uint64_t>(rows + vocab), rows * vocab);
  for (int64_t i = 0; broken && i < rows; ++i) {
    float* row = &logits[static_cast<size_t>(i * vocab)];
    if (i % 4 == 0) row[vocab - 1] = NAN;
    if (i % 4 == 1) row[vocab / 2] = INFINITY;
    if (i % 4 == 2) row[vocab / 3] = -INFINITY;
    if (i % 4 == 3) std::fill_n(row, vocab, -INFINITY);
  }
  std::vector<SampleRow> params;
  for (int64_t i = 0; i < rows; ++i) params.push_back(make_row(i, greedy));
  std::vector<int32_t> banned = {0, -5, static_cast<int32_t>(vocab), 0, 2};
  banned[3] = static_cast<int32_t>(std::max_element(logits.begin(), logits.begin() + vocab) -
                                   logits.begin());
  l.logits = c.before.add(logits);
  l.params = c.before.add(params);
  l.banned = c.before.add(banned);
  l.tokens = c.before.add(static_cast<size_t>(rows) * 4);
  l.slots = c.before.add(static_cast<size_t>(rows) * 4);
  c.tokens = rows;
  c.args = [l](std::byte* base, int64_t begin, int64_t count) {
    Sample::Args a;
    a.problem = {count, l.vocab, l.all_greedy};
    a.logits = {base + l.logits + begin * l.vocab * 4, DType::kF32, count, l.vocab, l.vocab};
    a.rows = reinterpret_cast<const SampleRow*>(base + l.params) + begin;
    a.banned = reinterpret_cast<const int32_t*>(base + l.banned);
    a.tokens = reinterpret_cast<int32_t*>(base + l.tokens) + begin;
    a.slot_tokens = reinterpret_cast<int32_t*>(base + l.slots);
    return a;
  };
  c.after = c.before;
  ref::run(c.args(c.after.bytes.data(), 0, rows));
  c.outputs = {{"tokens", l.tokens, DType::kI32, rows, 1, 1, {}, {}},
               {"slot_tokens", l.slots, DType::kI32, rows, 1, 1, {}, {}}};
  c.scratch = {{"logits", l.logits, DType::kF32, rows, vocab, vocab, {}, {}}};
  c.check = [l](const Case<Sample>& self, const Image& got, double epsilon) {
    return check_case(self, l, got, epsilon);
  };
  if (rows > 1)
    for (const int64_t size : {1, 7})
      if (size < rows) c.splits.push_back(pieces(rows, size));
  return c;
}

}  // namespace

template <>
const std::vector<Case<Sample>>& cases<Sample>() {
  static const std::vector<Case<Sample>> all = [] {
    std::vector<Case<Sample>> list;
    for (const bool greedy : {true, false}) {
      for (const int64_t vocab : {int64_t{1}, int64_t{3}, int64_t{100}, int64_t{1027}})
        list.push_back(make_case(Kind::kNoise, 40, vocab, greedy, false));
      list.push_back(make_case(Kind::kTied, 20, 4096, greedy, false));
      list.push_back(make_case(Kind::kNoise, 20, 777, greedy, true));
      list.push_back(make_case(Kind::kNoise, 2, 128256, greedy, false));
    }
    list.push_back(make_case(Kind::kFlat, 10, 32000, false, false));
    list.push_back(make_case(Kind::kPeaked, 10, 32000, false, false));
    return list;
  }();
  return all;
}

}  // namespace nereid::kernels::testing
