// Size of a plane of features that is blended into fewer (LLaVA-OneVision).
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <system_error>

namespace nereid {

struct PlaneSize {
  int64_t rows = 0, columns = 0;
  bool operator==(const PlaneSize&) const = default;
};

// Size that a plane of tiles' features becomes: its own up to 1.1^2 times `tiles` tiles, of
// side * side features each; above this about as many as they have, in the same ratio of sides.
// `tiles` 0: its own. Source: pack_image_features() of transformers' LLaVA-OneVision, the quotient
// as Python's `//`.
inline PlaneSize blended_size(PlaneSize plane, int64_t side, int64_t tiles) {
  if (tiles < 1 || side < 1) return plane;
  const double ratio = std::sqrt(static_cast<double>(plane.rows * plane.columns) /
                                 static_cast<double>(tiles * side * side));
  if (!(ratio > 1.1)) return plane;
  const auto divided = [ratio](int64_t length) {
    const auto exact = static_cast<double>(length);
    return static_cast<int64_t>(std::nearbyint((exact - std::fmod(exact, ratio)) / ratio));
  };
  return {divided(plane.rows), divided(plane.columns)};
}

// N of the vision_aspect_ratio "anyres_max_N": `tiles` of blended_size(). 0: another text.
inline int32_t blended_tiles_of(std::string_view ratio) {
  constexpr std::string_view kAnyMost = "anyres_max_";
  if (!ratio.starts_with(kAnyMost)) return 0;
  ratio.remove_prefix(kAnyMost.size());
  if (ratio.starts_with('0')) return 0;
  int32_t tiles = 0;
  const auto [end, error] = std::from_chars(ratio.data(), ratio.data() + ratio.size(), tiles);
  return error == std::errc() && end == ratio.data() + ratio.size() ? tiles : 0;
}

}  // namespace nereid
