// Slopes by medians, memory from /proc.
#include "trend.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace nereid::soak {

double robust_slope(std::span<const Sample> samples) {
  std::vector<double> slopes;
  for (size_t i = 0; i < samples.size(); ++i)
    for (size_t j = i + 1; j < samples.size(); ++j)
      if (samples[j].seconds > samples[i].seconds)
        slopes.push_back((samples[j].value - samples[i].value) /
                         (samples[j].seconds - samples[i].seconds));
  if (slopes.empty()) return 0;
  const auto middle = slopes.begin() + static_cast<ptrdiff_t>(slopes.size() / 2);
  std::nth_element(slopes.begin(), middle, slopes.end());
  return *middle;
}

std::vector<Sample> between(std::span<const Sample> samples, double low, double high) {
  std::vector<Sample> out;
  for (const Sample& s : samples)
    if (s.seconds >= low && s.seconds < high) out.push_back(s);
  return out;
}

std::vector<Sample> floors(std::span<const Sample> samples, int count) {
  std::vector<Sample> out;
  if (samples.empty()) return out;
  const double start = samples.front().seconds;
  const double part = (samples.back().seconds - start) / count;
  for (int i = 0; i < count; ++i) {
    const double end = i + 1 < count ? start + part * (i + 1) : samples.back().seconds + 1;
    const auto inside = between(samples, start + part * i, end);
    if (!inside.empty()) out.push_back(*std::ranges::min_element(inside, {}, &Sample::value));
  }
  return out;
}

void steady_malloc() {
  mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  mallopt(M_ARENA_MAX, 2);
}

int64_t resident_bytes() {
  malloc_trim(0);
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

}  // namespace nereid::soak
