// Time of a step by its size, measured while serving.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace nereid::runtime {

// Seconds by size (tokens or rows of a step): means of measurements in ranges of sizes, made
// monotone by isotonic regression (pool adjacent violators) and interpolated. Means instead of
// medians, because throughput follows means: if every tenth step takes ten times as long, a median
// does not show it. Newer measurements weigh more; the influence of one is bounded; the first of a
// range, which may include one-time work, is replaced by the second. Old ranges are forgotten.
class CostTable {
 public:
  CostTable() {
    points_.reserve(kNumRanges);
    pools_.reserve(kNumRanges);
  }

  void add(int32_t size, double seconds);

  // 0 before the first measurement. Below the smallest measured size: its cost. Above the largest,
  // s: a line with the slope up to there, at least in proportion to the size from 2 s on, so that
  // larger steps are tried one by one.
  double at(int32_t size) const;

  // Whether a size in [size / 2, 2 * size] was measured.
  bool knows(int32_t size) const;

  // The largest measured size, 0 before the first.
  int32_t largest() const {
    return points_.empty() ? 0 : static_cast<int32_t>(points_.back().size);
  }

  // use(): counts a decision based on the cost of `size`. is_due(): `size` should be measured
  // again, after many uses (few, if it was never measured), until it was measured kDueAtOnce times.
  // At most 4 of 260 decisions (one unmeasured step without overlap, three measured) serve it.
  void use(int32_t size);
  bool is_due(int32_t size) const;

 private:
  static constexpr size_t kNumRanges = 16 + 8 * 16 + 1;  // sizes up to 2^20

  struct Range {
    double seconds = 0, size = 0;  // means
    int64_t count = 0;             // measurements
    double weight = 0;             // decayed count
    int64_t last_at = 0;           // num_added_ at the last measurement
    int32_t num_uses = 0;          // since the last measurement
    int32_t num_due = 0;           // measurements still due
  };
  struct Point {
    double size = 0, seconds = 0, weight = 0;
  };

  static size_t range_of(int32_t size);
  bool is_kept(const Range& range) const;
  void find_points();
  double beyond(double size) const;

  std::array<Range, kNumRanges> ranges_;
  int64_t num_added_ = 0;
  std::vector<Point> points_;  // ascending in size and seconds
  std::vector<Point> pools_;   // of the regression
};

}  // namespace nereid::runtime
