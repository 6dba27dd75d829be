// Picture files of clients: JPEG, PNG, WebP and GIF to RGB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace nereid::vision {

struct ImageLimits {
  int64_t max_pixels = int64_t{64} << 20;
  int32_t max_side = 65535;  // pixels
};

struct DecodeOptions {
  ImageLimits limits = {};
  // Called with the bytes that the decoding is about to hold; an error ends it.
  std::function<Status(size_t bytes)> hold = {};
};

struct Image {
  int32_t width = 0, height = 0;  // pixels
  std::vector<uint8_t> rgb;       // [height, width, 3]
};

// Decodes a whole file, of several frames the first, to the pixels that Pillow's convert("RGB")
// gives: alpha is dropped, grey of 16 bits is clipped to 255, other 16 bits keep their upper byte,
// CMYK is read as Adobe writes it; then the picture is turned by its EXIF or XMP orientation.
// InvalidArgument names the fault and what is allowed: another format, a file of two formats, a
// damaged or truncated one, sides or pixels beyond the limits, which are checked before pixels get
// memory. Errors of `hold` are returned as they are.
StatusOr<Image> decode_image(std::string_view file, const DecodeOptions& options = {});

// Checks the sides against the limits, holds the pixels and `scratch_bytes`, and allocates the
// pixels as zeros.
StatusOr<Image> new_image(int64_t width, int64_t height, size_t scratch_bytes,
                          const DecodeOptions& options);

}  // namespace nereid::vision
