// Formats, limits and orientation; see image.h.
#include "vision/decode/image.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/find_text.h"
#include "vision/decode/codec.h"

namespace nereid::vision {
namespace {

using Decode = StatusOr<Decoded> (*)(std::string_view, const DecodeOptions&);

bool is_webp(std::string_view file) {
  return file.starts_with("RIFF") &&
         file.substr(std::min<size_t>(8, file.size())).starts_with("WEBP");
}

// Null: none of the formats.
Decode decoder_of(std::string_view file) {
  if (file.starts_with("\xFF\xD8\xFF")) return decode_jpeg;
  if (file.starts_with("\x89PNG\r\n\x1A\n")) return decode_png;
  if (file.starts_with("GIF87a") || file.starts_with("GIF89a")) return decode_gif;
  return is_webp(file) ? decode_webp : nullptr;
}

// A format that is known but not decoded; empty: an unknown one.
std::string_view other_format(std::string_view file) {
  using namespace std::literals;
  constexpr std::pair<std::string_view, std::string_view> kStarts[] = {
      {"BM"sv, "BMP"},
      {"II*\0"sv, "TIFF"},
      {"MM\0*"sv, "TIFF"},
      {"\xFF\x0A"sv, "JPEG XL"},
      {"\0\0\0\x0CJXL "sv, "JPEG XL"},
      {"\0\0\0\x0CjP  "sv, "JPEG 2000"},
      {"\0\0\1\0"sv, "ICO"},
      {"%PDF-"sv, "PDF"},
      {"8BPS"sv, "PSD"},
      {"<"sv, "SVG or another text"},
      {"\xEF\xBB\xBF<"sv, "SVG or another text"}};
  for (const auto& [start, name] : kStarts)
    if (file.starts_with(start)) return name;
  const std::string_view brand = file.substr(std::min<size_t>(4, file.size()));
  if (brand.starts_with("ftypavif") || brand.starts_with("ftypavis")) return "AVIF";
  if (brand.starts_with("ftyphe") || brand.starts_with("ftypmif1")) return "HEIC";
  return brand.starts_with("ftyp") ? "a video (MP4)" : "";
}

// Whether the file is an archive too: its end is the end of a ZIP file.
bool ends_as_zip(std::string_view file) {
  constexpr size_t kRecordBytes = 22, kMostComment = 65535;
  const size_t last = std::min(file.size(), kRecordBytes + kMostComment);
  std::string_view tail = file.substr(file.size() - last);
  for (size_t at;
       (at = find_text(tail, std::string_view("PK\5\6", 4))) != std::string_view::npos;) {
    tail.remove_prefix(at);
    if (tail.size() < kRecordBytes) return false;
    const size_t comment = static_cast<uint8_t>(tail[20]) + 256u * static_cast<uint8_t>(tail[21]);
    if (kRecordBytes + comment == tail.size()) return true;
    tail.remove_prefix(1);
  }
  return false;
}

Status check_one_format(std::string_view file) {
  constexpr size_t kPdfStart = 1024;  // where readers look for it
  if (find_text(file.substr(0, kPdfStart), "%PDF-") != std::string_view::npos)
    return invalid_argument("the file is a picture and a PDF at once: send the picture alone");
  if (ends_as_zip(file))
    return invalid_argument(
        "the file is a picture and a ZIP archive at once: send the picture alone");
  return ok();
}

// Orientations from 5 on exchange the sides. Source: EXIF 2.32, tag 0x0112.
Image turned(const Image& in, int orientation) {
  Image out{in.width, in.height, std::vector<uint8_t>(in.rgb.size())};
  if (orientation >= 5) std::swap(out.width, out.height);
  const bool flips_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool flips_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  uint8_t* to = out.rgb.data();
  for (int32_t y = 0; y < out.height; ++y)
    for (int32_t x = 0; x < out.width; ++x, to += 3) {
      int32_t from_x = orientation >= 5 ? y : x, from_y = orientation >= 5 ? x : y;
      if (flips_x) from_x = in.width - 1 - from_x;
      if (flips_y) from_y = in.height - 1 - from_y;
      const size_t from =
          static_cast<size_t>(from_y) * static_cast<size_t>(in.width) + static_cast<size_t>(from_x);
      std::memcpy(to, in.rgb.data() + 3 * from, 3);
    }
  return out;
}

}  // namespace

StatusOr<Image> new_image(int64_t width, int64_t height, size_t scratch_bytes,
                          const DecodeOptions& options) {
  const ImageLimits& limits = options.limits;
  if (width < 1 || height < 1)
    return invalid_argument("the picture has {} x {} pixels", width, height);
  if (width > limits.max_side || height > limits.max_side || width * height > limits.max_pixels)
    return invalid_argument(
        "the picture has {} x {} pixels; allowed are {} in all and {} on a side", width, height,
        limits.max_pixels, limits.max_side);
  const size_t bytes = 3 * static_cast<size_t>(width * height);
  if (options.hold) RETURN_IF_ERROR(options.hold(bytes + scratch_bytes));
  return Image{static_cast<int32_t>(width), static_cast<int32_t>(height),
               std::vector<uint8_t>(bytes)};
}

StatusOr<Image> decode_image(std::string_view file, const DecodeOptions& options) {
  const Decode decode = decoder_of(file);
  if (decode == nullptr) {
    const std::string_view other = other_format(file);
    if (other.empty())
      return invalid_argument("the file is no picture: allowed are JPEG, PNG, WebP and GIF");
    return invalid_argument(
        "the file is {}: allowed are JPEG, PNG, WebP and GIF; convert it to one of these", other);
  }
  RETURN_IF_ERROR(check_one_format(file));
  ASSIGN_OR_RETURN(Decoded decoded, decode(file, options));
  const size_t bytes = decoded.image.rgb.size();
  if (decoded.orientation > 1) {
    if (options.hold) RETURN_IF_ERROR(options.hold(2 * bytes));
    decoded.image = turned(decoded.image, decoded.orientation);
  }
  if (options.hold) RETURN_IF_ERROR(options.hold(bytes));
  return std::move(decoded.image);
}

}  // namespace nereid::vision
