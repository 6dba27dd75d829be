// CostTable: medians by range, and a growing curve through them.
#include "runtime/cost_table.h"

#include <algorithm>
#include <bit>
#include <span>

#include "base/check.h"

namespace nereid::runtime {
namespace {

// The first of a size may pay for what is made once, such as a recorded step.
constexpr int64_t kFewMeasured = 2;
constexpr int64_t kForgottenAfter = 4096;  // measurements of other ranges
constexpr int32_t kUsesOfKnown = 128, kUsesOfUnknown = 16;
constexpr int32_t kNumSingle = 16;  // smaller sizes have a range each, then eight to an octave

}  // namespace

size_t CostTable::range_of(int32_t size) {
  NEREID_CHECK(size > 0);
  if (size < kNumSingle) return static_cast<size_t>(size);
  const auto bits = static_cast<uint32_t>(std::min(size, (1 << 20) - 1));
  const int octave = std::bit_width(bits) - 5;  // 0: 16 to 31
  return static_cast<size_t>(kNumSingle + 8 * octave + static_cast<int>(bits >> (octave + 1)) - 8);
}

void CostTable::add(int32_t size, double seconds) {
  Range& range = ranges_[range_of(size)];
  if (!is_kept(range)) range.count = 0;
  const size_t at = static_cast<size_t>(range.count) % kNumKept;
  range.seconds[at] = seconds;
  range.sizes[at] = size;
  ++range.count;
  range.last_at = ++num_added_;
  range.num_uses = 0;
  summarise(range);
  find_points();
}

// Of an even number the lesser middle one.
void CostTable::summarise(Range& range) const {
  const size_t n = std::min(static_cast<size_t>(range.count), kNumKept);
  std::array<double, kNumKept> sorted = range.seconds;
  std::sort(sorted.begin(), sorted.begin() + n);
  range.median = sorted[(n - 1) / 2];
  int64_t sum = 0;
  for (const int32_t size : std::span(range.sizes).first(n)) sum += size;
  range.mean_size = static_cast<double>(sum) / static_cast<double>(n);
}

bool CostTable::is_kept(const Range& range) const {
  return range.count > 0 && num_added_ - range.last_at <= kForgottenAfter;
}

// Ranges with a single measurement count only while there are no others.
void CostTable::find_points() {
  points_.clear();
  for (int64_t least = kFewMeasured; least > 0 && points_.empty(); --least)
    for (const Range& range : ranges_)
      if (range.count >= least && is_kept(range))
        points_.push_back({range.mean_size, range.median,
                           static_cast<double>(std::min<int64_t>(range.count, kNumKept))});
  // Pools of neighbours, each with the mean of its members; their `size` counts these.
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

// The slope is that from a size well below the largest, which errors change little.
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

void CostTable::use(int32_t size) { ++ranges_[range_of(size)].num_uses; }

bool CostTable::is_due(int32_t size) const {
  const Range& range = ranges_[range_of(size)];
  return range.num_uses >= (range.count >= kFewMeasured ? kUsesOfKnown : kUsesOfUnknown);
}

}  // namespace nereid::runtime
