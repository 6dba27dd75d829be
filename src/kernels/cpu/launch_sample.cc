// Sampling without sorting the vocabulary: one pass finds the largest logit of every piece; only
// pieces that can hold a candidate are looked at again.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "kernels/api/validate.h"
#include "kernels/cpu/launch.h"

namespace nereid::kernels::cpu {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr float kTop = std::numeric_limits<float>::infinity();

// Descending logits, ties by id.
struct Order {
  const float* x;
  bool operator()(int32_t a, int32_t b) const { return x[a] != x[b] ? x[a] > x[b] : a < b; }
};

class Drawer {
 public:
  // Draws from one row; `logits` gets the bans.
  int32_t draw(const Raw& raw, const SampleRow& row, const int32_t* banned, float* logits,
               int64_t vocab);

 private:
  bool ban(const SampleRow& row, const int32_t* banned);
  int32_t argmax() const;
  void collect(float from, float below);
  void take_top(int64_t count);
  void sort_ids() { std::sort(ids_.begin(), ids_.end(), Order{logits_}); }
  int32_t draw_top_k();
  int32_t draw_from_all();
  int32_t draw_from_tail(double target, float below);

  double weight(int32_t id) const {
    return std::exp((double{logits_[id]} - largest_) / row_.temperature);
  }
  double fraction() const {
    const double top_p = row_.top_p > 0 ? std::min(row_.top_p, 1.0f) : 1.0f;
    return uniform(row_.seed, static_cast<uint64_t>(row_.position)) * top_p;
  }

  const Raw* raw_ = nullptr;
  SampleRow row_;
  float* logits_ = nullptr;
  int64_t vocab_ = 0;
  float largest_ = 0;
  std::vector<float> piece_largest_, sorted_pieces_;
  std::vector<int32_t> ids_;
};

// False when a banned logit was not a sound number.
bool Drawer::ban(const SampleRow& row, const int32_t* banned) {
  bool sound = true;
  for (int32_t b = row.banned_begin; b < row.banned_end; ++b) {
    const int32_t id = banned[b];
    if (id < 0 || id >= vocab_) continue;
    sound &= logits_[id] < kTop;
    logits_[id] = kNone;
  }
  return sound;
}

int32_t Drawer::argmax() const {
  const auto piece = std::find(piece_largest_.begin(), piece_largest_.end(), largest_);
  const float* x = logits_ + (piece - piece_largest_.begin()) * kLogitsPiece;
  while (*x != largest_) ++x;
  return static_cast<int32_t>(x - logits_);
}

// ids_ = all ids with from <= logit < below, in no particular order.
void Drawer::collect(float from, float below) {
  ids_.clear();
  for (size_t piece = 0; piece < piece_largest_.size(); ++piece) {
    if (piece_largest_[piece] < from) continue;
    const int64_t begin = static_cast<int64_t>(piece) * kLogitsPiece;
    const int64_t end = std::min(vocab_, begin + kLogitsPiece);
    for (int64_t i = begin; i < end; ++i)
      if (logits_[i] >= from && logits_[i] < below) ids_.push_back(static_cast<int32_t>(i));
  }
}

// ids_ = the `count` largest, in order. The count-th largest of the pieces' largest is a lower
// bound of the count-th largest of all.
void Drawer::take_top(int64_t count) {
  float from = kNone;
  if (count <= static_cast<int64_t>(piece_largest_.size())) {
    sorted_pieces_ = piece_largest_;
    const auto nth = sorted_pieces_.begin() + (count - 1);
    std::nth_element(sorted_pieces_.begin(), nth, sorted_pieces_.end(), std::greater<>());
    from = *nth;
  }
  collect(from, kTop);
  if (count < static_cast<int64_t>(ids_.size())) {
    std::nth_element(ids_.begin(), ids_.begin() + count, ids_.end(), Order{logits_});
    ids_.resize(static_cast<size_t>(count));
  }
  sort_ids();
}

int32_t Drawer::draw_top_k() {
  take_top(row_.top_k);
  double sum = 0;
  for (int32_t id : ids_) sum += weight(id);
  const double target = fraction() * sum;
  double upto = 0;
  for (int32_t id : ids_)
    if ((upto += weight(id)) >= target) return id;
  return ids_.back();
}

int32_t Drawer::draw_from_all() {
  int64_t unused = 0;
  const double total =
      raw_->sum_weights(logits_, vocab_, largest_, row_.temperature, kNone, &unused);
  const double target = fraction() * total;
  constexpr int64_t kFirstTry = 256;
  take_top(std::min(kFirstTry, vocab_));
  double upto = 0;
  for (int32_t id : ids_)
    if ((upto += weight(id)) >= target) return id;
  if (vocab_ <= kFirstTry) return ids_.back();
  return draw_from_tail(target, logits_[ids_.back()]);
}

// The token at `target` when the logits above `below` do not reach it: bisects for a short range
// [from, below) of logits that holds it, then sorts only that.
int32_t Drawer::draw_from_tail(double target, float below) {
  constexpr int64_t kShort = 512;
  constexpr int kSteps = 40;
  constexpr double kNegligible = 87;  // exp of minus this is below what sum_weights counts
  const auto mass = [&](float from, int64_t* num) {
    return raw_->sum_weights(logits_, vocab_, largest_, row_.temperature, from, num);
  };
  int64_t above = 0, upto_from = 0;
  double mass_above = mass(below, &above);
  float from = static_cast<float>(std::max(largest_ - kNegligible * row_.temperature,
                                           -double{std::numeric_limits<float>::max()}));
  if (mass_above >= target) {  // ties at `below` reach it
    collect(below, std::nextafter(below, kTop));
    int64_t num = 0;
    mass_above = mass(std::nextafter(below, kTop), &num);
  } else if (from >= below || mass(from, &upto_from) < target) {
    collect(kNone, below);
  } else {
    for (int step = 0; step < kSteps && upto_from - above > kShort; ++step) {
      const auto middle = static_cast<float>((double{from} + below) / 2);
      if (middle <= from || middle >= below) break;
      int64_t num = 0;
      const double sum = mass(middle, &num);
      if (sum >= target)
        from = middle, upto_from = num;
      else
        below = middle, above = num, mass_above = sum;
    }
    collect(from, below);
  }
  sort_ids();
  for (int32_t id : ids_)
    if ((mass_above += weight(id)) >= target) return id;
  return ids_.empty() ? argmax() : ids_.back();
}

int32_t Drawer::draw(const Raw& raw, const SampleRow& row, const int32_t* banned, float* logits,
                     int64_t vocab) {
  raw_ = &raw, row_ = row, logits_ = logits, vocab_ = vocab;
  const bool bans_sound = ban(row, banned);
  piece_largest_.resize(static_cast<size_t>((vocab + kLogitsPiece - 1) / kLogitsPiece));
  const LogitsScan scan = raw.scan_logits(logits, vocab, piece_largest_.data());
  largest_ = scan.largest;
  if (!bans_sound || !scan.sound || largest_ == kNone) return -1;
  const bool greedy = row.temperature == 0 || row.top_k == 1 || (row.top_k == 0 && row.top_p <= 0);
  if (greedy) return argmax();
  return row.top_k > 0 && row.top_k < vocab ? draw_top_k() : draw_from_all();
}

}  // namespace

Status launch_sample(const Raw& raw, const Sample::Args& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const auto draw_rows = [&](int64_t begin, int64_t end, int) {
    thread_local Drawer drawer;
    for (int64_t i = begin; i < end; ++i) {
      const SampleRow& row = a.rows[i];
      const int32_t token =
          drawer.draw(raw, row, a.banned, a.logits.row<float>(i), a.problem.vocab);
      a.tokens[i] = token;
      if (a.slot_tokens && row.slot >= 0) a.slot_tokens[row.slot] = token;
    }
  };
  if (a.problem.rows == 1)
    draw_rows(0, 1, 0);
  else
    pool.parallel_for(a.problem.rows, 1, draw_rows);
  return ok();
}

}  // namespace nereid::kernels::cpu
