// Readers of picture formats, and their shared parts. Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "vision/decode/image.h"

namespace nereid::vision {

struct Decoded {
  Image image;
  int orientation = 1;  // of EXIF, 1 to 8
};

StatusOr<Decoded> decode_jpeg(std::string_view file, const DecodeOptions& options);
StatusOr<Decoded> decode_png(std::string_view file, const DecodeOptions& options);
StatusOr<Decoded> decode_webp(std::string_view file, const DecodeOptions& options);
StatusOr<Decoded> decode_gif(std::string_view file, const DecodeOptions& options);

// The orientation in EXIF data, with or without "Exif\0\0" in front, and in XMP text.
// 0: none, or out of 1 to 8.
int exif_orientation(std::string_view exif);
int xmp_orientation(std::string_view xmp);

}  // namespace nereid::vision
