// libFuzzer entry: any bytes as a sound file, and its samples as features.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "speech/audio/sound.h"
#include "speech/features/log_mel.h"
#include "speech/pauses.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace speech = nereid::speech;
  constexpr size_t kMostBytes = size_t{64} << 20;
  size_t held = 0;
  speech::DecodeOptions options;
  options.limits.max_seconds = 60;
  options.hold = [&](size_t bytes) {
    held = std::max(held, bytes);
    return nereid::ok();
  };
  const auto sound = speech::decode_sound({reinterpret_cast<const char*>(data), size}, options);
  if (held > kMostBytes) std::abort();  // 60 s at 16 kHz are 4 MB
  if (!sound.ok()) return -1;
  if (sound->samples.capacity() * sizeof(float) > held || sound->seconds() > 61) std::abort();
  for (const float sample : sound->samples)
    if (!(std::abs(sample) <= 1)) std::abort();
  const speech::Features features(*speech::LogMel::create(8), sound->samples);
  for (const float value : features.window(0, std::min<int64_t>(features.num_frames(), 100),
                                           speech::Features::Behind::kZeros))
    if (!std::isfinite(value)) std::abort();
  (void)speech::parts_at_pauses(sound->samples, 3000);
  return 0;
}
