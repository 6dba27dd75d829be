// Size of a plane of features that is blended into fewer (LLaVA-OneVision).
#pragma once

#include <cmath>
#include <cstdint>

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

}  // namespace nereid
