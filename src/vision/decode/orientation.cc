// Orientation tags of EXIF and XMP. Source: TIFF 6.0, section 2; EXIF 2.32, tag 0x0112.
#include <algorithm>

#include "base/find_text.h"
#include "vision/decode/codec.h"

namespace nereid::vision {
namespace {

// Unsigned numbers of a TIFF file; 0 behind its end.
struct TiffReader {
  std::string_view bytes;
  bool is_little = true;

  uint32_t number(size_t at, size_t size) const {
    if (at > bytes.size() || bytes.size() - at < size) return 0;
    uint32_t out = 0;
    for (size_t i = 0; i < size; ++i) {
      const auto byte = static_cast<uint8_t>(bytes[at + (is_little ? size - 1 - i : i)]);
      out = (out << 8) | byte;
    }
    return out;
  }
};

int in_range(uint32_t value) { return value >= 1 && value <= 8 ? static_cast<int>(value) : 0; }

}  // namespace

int exif_orientation(std::string_view exif) {
  constexpr std::string_view kPrefix("Exif\0\0", 6);
  constexpr uint32_t kOrientation = 0x0112, kByte = 1, kShort = 3, kLong = 4;
  constexpr size_t kEntryBytes = 12;
  while (exif.starts_with(kPrefix)) exif.remove_prefix(kPrefix.size());
  if (!exif.starts_with("II") && !exif.starts_with("MM")) return 0;
  const TiffReader tiff{exif, exif.starts_with("II")};
  if (tiff.number(2, 2) != 42) return 0;
  const size_t directory = tiff.number(4, 4);
  const size_t num_entries = tiff.number(directory, 2);
  for (size_t i = 0; i < num_entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (entry + kEntryBytes > exif.size()) return 0;
    if (tiff.number(entry, 2) != kOrientation) continue;
    const uint32_t type = tiff.number(entry + 2, 2);
    const size_t size = type == kByte ? 1 : type == kShort ? 2 : type == kLong ? 4 : 0;
    return size == 0 ? 0 : in_range(tiff.number(entry + 8, size));
  }
  return 0;
}

int xmp_orientation(std::string_view xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = 0; (at = find_text(xmp, kName, at)) != std::string_view::npos;) {
    at += kName.size();
    std::string_view rest = xmp.substr(at);
    if (rest.starts_with("=\""))
      rest.remove_prefix(2);
    else if (rest.starts_with(">"))
      rest.remove_prefix(1);
    else
      continue;
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9')
      return in_range(static_cast<uint32_t>(rest[0] - '0'));
  }
  return 0;
}

}  // namespace nereid::vision
