// Resampling of pictures with the numbers that Pillow's resize() gives (11.3; from 13 on it filters
// rows first where that is cheaper, which changes some bytes by 1).
#pragma once

#include <cstdint>

#include "base/status.h"
#include "vision/decode/image.h"

namespace nereid::vision {

// Pillow's numbers of its filters.
enum class Filter : uint8_t { kLanczos = 1, kBilinear = 2, kBicubic = 3, kBox = 4, kHamming = 5 };

// A part of a resized picture, in its pixels.
struct Window {
  int64_t x = 0, y = 0;
  int32_t width = 0, height = 0;
};

// The part `window`, which must lie inside, of `image` resized to `width` x `height`; only that
// part is computed. First columns, then rows are filtered, each rounded to 8 bits, with weights of
// 22 fractional bits; filters widen when they shrink. `hold` is called with the bytes that are
// about to be held beside `image`; its errors are returned.
StatusOr<Image> resize(const Image& image, int64_t width, int64_t height, Filter filter,
                       const Window& window, const std::function<Status(size_t)>& hold = {});
inline StatusOr<Image> resize(const Image& image, int32_t width, int32_t height, Filter filter) {
  return resize(image, width, height, filter, {0, 0, width, height});
}

}  // namespace nereid::vision
