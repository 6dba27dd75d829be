// What a step costs by its size, as measured while it serves.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace nereid::runtime {

// Seconds by a size (tokens or rows of a step): means of the measurements of each of a few ranges
// of sizes, made to grow with the size by isotonic regression (pool adjacent violators) and
// interpolated. Means, since throughput follows them: where every tenth step takes ten times as
// long, medians would not tell. Newer measurements count more, one alone changes a mean by a
// bounded share, and the first of a range, which may pay for what is made once, counts only until
// the second. What has not been measured for long is forgotten.
class CostTable {
 public:
  CostTable() {
    points_.reserve(kNumRanges);
    pools_.reserve(kNumRanges);
  }

  void add(int32_t size, double seconds);

  // 0 before the first measurement. Below the least size measured the cost is that one's. Above
  // the largest it goes on as it grew up to there, from twice that size on at least in proportion,
  // so that larger steps are tried one by one.
  double at(int32_t size) const;

  // Something of between half and twice that size was measured.
  bool knows(int32_t size) const;

  // The largest size measured, 0 before the first.
  int32_t largest() const {
    return points_.empty() ? 0 : static_cast<int32_t>(points_.back().size);
  }

  // Counts the decisions that rest on the cost of a size. Due: it has served for many, or for a few
  // if it never was measured itself; until it has been measured a few times in a row. So at most
  // four (one to begin with, which overlaps with nothing, and three that are measured) of 260
  // decisions are made to measure, 1.6 % of them.
  void use(int32_t size);
  bool is_due(int32_t size) const;

 private:
  static constexpr size_t kNumRanges = 16 + 8 * 16 + 1;  // sizes up to 2^20

  struct Range {
    double seconds = 0, size = 0;  // means
    int64_t count = 0;             // of measurements
    double weight = 0;             // of those, older ones counting less
    int64_t last_at = 0;           // num_added_ at the last of them
    int32_t num_uses = 0;          // since then
    int32_t num_due = 0;           // measurements that are still to come
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
  std::vector<Point> points_;  // in order of size, seconds growing
  std::vector<Point> pools_;   // of the regression
};

}  // namespace nereid::runtime
