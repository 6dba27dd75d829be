#include "speech/pauses.h"

#include <algorithm>

#include "speech/features/log_mel.h"

namespace nereid::speech {
namespace {

constexpr int64_t kPauseFrames = 25;

double energy_of(std::span<const float> samples, int64_t frame) {
  double sum = 0;
  for (const float x : samples.subspan(static_cast<size_t>(frame * kFrameHop), kFrameHop))
    sum += static_cast<double>(x) * x;
  return sum;
}

// The middle of the quietest stretch in [begin, end).
int64_t quietest(std::span<const float> samples, int64_t begin, int64_t end) {
  double sum = 0, least = -1;
  int64_t best = end;
  for (int64_t t = begin; t < end; ++t) {
    sum += energy_of(samples, t);
    if (t - begin >= kPauseFrames) sum -= energy_of(samples, t - kPauseFrames);
    // The last of equal ones: silence makes no short parts.
    if (t - begin + 1 >= kPauseFrames && (least < 0 || sum <= least)) {
      least = sum;
      best = t + 1 - kPauseFrames / 2;
    }
  }
  return best;
}

}  // namespace

std::vector<std::pair<int64_t, int64_t>> parts_at_pauses(std::span<const float> samples,
                                                         int64_t most_frames) {
  const int64_t end = static_cast<int64_t>(samples.size()) / kFrameHop;
  std::vector<std::pair<int64_t, int64_t>> parts;
  for (int64_t begin = 0; begin < end;) {
    int64_t next = end;
    if (end - begin > most_frames)
      next = std::clamp(quietest(samples, begin + most_frames / 2, begin + most_frames), begin + 1,
                        begin + most_frames);
    parts.emplace_back(begin, next);
    begin = next;
  }
  return parts;
}

}  // namespace nereid::speech
