// What a step costs by its size, as measured while it serves.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace nereid::runtime {

// Seconds by a size (tokens or rows of a step): medians of the last measurements of each of a few
// ranges of sizes, made to grow with the size by isotonic regression (pool adjacent violators) and
// interpolated. What has not been measured for long is forgotten.
class CostTable {
 public:
  void add(int32_t size, double seconds);

  // 0 before the first measurement. Below the least size measured the cost is that one's. Above
  // the largest it goes on as it grew up to there, from twice that size on at least in proportion,
  // so that larger steps are tried one by one.
  double at(int32_t size) const;

  // Something of between half and twice that size was measured.
  bool knows(int32_t size) const;

  // Counts the decisions that rest on the cost of a size. Due: it has served for many, or for a few
  // if it never was measured itself, since its last measurement.
  void use(int32_t size);
  bool is_due(int32_t size) const;

 private:
  static constexpr size_t kNumKept = 7;
  static constexpr size_t kNumRanges = 16 + 8 * 16 + 1;  // sizes up to 2^20

  struct Range {
    std::array<double, kNumKept> seconds{};
    std::array<int32_t, kNumKept> sizes{};
    int64_t count = 0;    // of measurements
    int64_t last_at = 0;  // num_added_ at the last of them
    int32_t num_uses = 0;
    double median = 0, mean_size = 0;  // of those kept
  };
  struct Point {
    double size = 0, seconds = 0, weight = 0;
  };

  static size_t range_of(int32_t size);
  void summarise(Range& range) const;
  bool is_kept(const Range& range) const;
  void find_points();
  double beyond(double size) const;

  std::array<Range, kNumRanges> ranges_;
  int64_t num_added_ = 0;
  std::vector<Point> points_;  // in order of size, seconds growing
  std::vector<Point> pools_;   // of the regression
};

}  // namespace nereid::runtime
