// CostTable: means by range, and isotonic regression through them.
#include "runtime/speculation/cost_table.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace nereid::runtime {
namespace {

// The first measurement of a size may include one-time work such as recording a step.
constexpr int64_t kFewMeasured = 2;
constexpr int64_t kForgottenAfter = 4096;  // measurements of other ranges
constexpr double kHalvedAfter = 1024;      // all ranges: half-life in measurements
constexpr double kMostWeight = 64;
constexpr double kMostOfMean = 8;  // a measurement is clipped at this multiple of the mean
constexpr int32_t kUsesOfKnown = 256, kUsesOfUnknown = 16;
constexpr int32_t kDueAtOnce = 3;   // measurements
constexpr int32_t kNumSingle = 16;  // sizes below have one range each, larger ones eight per octave

}  // namespace

size_t CostTable::range_of(int32_t size) {
  NEREID_CHECK(size > 0);
  if (size < kNumSingle) return static_cast<size_t>(size);
  const auto bits = static_cast<uint32_t>(std::min(size, (1 << 20) - 1));
  const int octave = std::bit_width(bits) - 5;  // 0: sizes 16 to 31
  return static_cast<size_t>(kNumSingle + 8 * octave + static_cast<int>(bits >> (octave + 1)) - 8);
}

void CostTable::add(int32_t size, double seconds) {
  Range& range = ranges_[range_of(size)];
  if (!is_kept(range)) range.count = 0;
  ++num_added_;
  if (++range.count <= kFewMeasured) {  // the second measurement replaces the first
    range.seconds = range.count == 1 ? seconds : std::min(seconds, kMostOfMean * range.seconds);
    range.size = size;
    range.weight = 1;
  } else {
    const double kept = std::exp2(static_cast<double>(range.last_at - num_added_) / kHalvedAfter);
    range.weight = std::min(range.weight * kept, kMostWeight - 1) + 1;
    const double counted = std::min(seconds, kMostOfMean * range.seconds);
    range.seconds += (counted - range.seconds) / range.weight;
    range.size += (size - range.size) / range.weight;
  }
  range.last_at = num_added_;
  range.num_uses = 0;
  range.num_due = std::max(0, range.num_due - 1);
  find_points();
}

bool CostTable::is_kept(const Range& range) const {
  return range.count > 0 && num_added_ - range.last_at <= kForgottenAfter;
}

// Ranges with one measurement are used only if no range has two.
void CostTable::find_points() {
  points_.clear();
  for (int64_t least = kFewMeasured; least > 0 && points_.empty(); --least)
    for (const Range& range : ranges_)
      if (range.count >= least && is_kept(range))
        points_.push_back({range.size, range.seconds, range.weight});
  // Pool adjacent violators; Point::size counts the members of a pool.
  pools_.clear();
  for (const Point& point : points_) {
    Point pool{1, point.seconds, point.weight};
    while (!pools_.empty() && pools_.back().seconds >= pool.seconds) {
      const Point& last = pools_.back();
      const double weight = last.weight + pool.weight;
      const double sum = last.seconds * last.weight + pool.seconds * pool.weight;
      pool = {last.size + pool.size, sum / weight, weight};
      pools_.pop_back();
    }
    pools_.push_back(pool);
  }
  size_t i = 0;
  for (const Point& pool : pools_)
    for (int member = 0; member < static_cast<int>(pool.size); ++member)
      points_[i++].seconds = pool.seconds;
}

double CostTable::at(int32_t size) const {
  if (points_.empty()) return 0;
  const auto wanted = static_cast<double>(size);
  const auto next = std::ranges::lower_bound(points_, wanted, {}, &Point::size);
  if (next == points_.begin()) return next->seconds;
  if (next == points_.end()) return beyond(wanted);
  const Point& last = *std::prev(next);
  const double share = (wanted - last.size) / (next->size - last.size);
  return last.seconds + share * (next->seconds - last.seconds);
}

// Slope from a point at <= 0.75 of the largest size: less affected by errors than the last segment.
double CostTable::beyond(double size) const {
  const Point& last = points_.back();
  double slope = 0;
  if (points_.size() > 1) {
    const auto far = [&](const Point& p) { return p.size <= 0.75 * last.size; };
    auto from = std::find_if(points_.rbegin(), points_.rend(), far);
    if (from == points_.rend()) from = std::prev(points_.rend());
    slope = (last.seconds - from->seconds) / (last.size - from->size);
  }
  const double line = last.seconds + slope * (size - last.size);
  return std::max(line, (last.seconds + slope * last.size) * size / (2 * last.size));
}

bool CostTable::knows(int32_t size) const {
  return std::ranges::any_of(points_, [&](const Point& point) {
    return 2 * point.size >= size && point.size <= 2.0 * size;
  });
}

void CostTable::use(int32_t size) {
  Range& range = ranges_[range_of(size)];
  if (++range.num_uses == (range.count >= kFewMeasured ? kUsesOfKnown : kUsesOfUnknown))
    range.num_due = kDueAtOnce;
}

bool CostTable::is_due(int32_t size) const { return ranges_[range_of(size)].num_due > 0; }

}  // namespace nereid::runtime
