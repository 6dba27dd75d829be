// The first frame of GIF by giflib.
#include <gif_lib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "vision/decode/codec.h"

namespace nereid::vision {
namespace {

struct CloseGif {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};
using Gif = std::unique_ptr<GifFileType, CloseGif>;

int read_bytes(GifFileType* gif, GifByteType* out, int count) {
  auto& rest = *static_cast<std::string_view*>(gif->UserData);
  const size_t got = std::min(rest.size(), static_cast<size_t>(std::max(count, 0)));
  std::memcpy(out, rest.data(), got);
  rest.remove_prefix(got);
  return static_cast<int>(got);
}

Status fault(int error) {
  const char* const text = GifErrorString(error);
  return invalid_argument("the GIF is damaged or truncated: {}", text ? text : "unknown fault");
}

// Reads up to the first frame's description. Sets the index of transparent pixels, if there is one.
Status find_frame(GifFileType* gif, int& transparent) {
  constexpr int kMostBlocks = 100000;
  for (int num_blocks = 0; num_blocks < kMostBlocks;) {
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(gif, &type) == GIF_ERROR) return fault(gif->Error);
    if (type == TERMINATE_RECORD_TYPE) return invalid_argument("the GIF has no frame");
    if (type == IMAGE_DESC_RECORD_TYPE)
      return DGifGetImageDesc(gif) == GIF_ERROR ? fault(gif->Error) : ok();
    if (type != EXTENSION_RECORD_TYPE) return fault(D_GIF_ERR_WRONG_RECORD);
    int code = 0;
    GifByteType* data = nullptr;  // its first byte is the number of the others
    for (bool is_first = true; is_first || data != nullptr; is_first = false, ++num_blocks) {
      const int result =
          is_first ? DGifGetExtension(gif, &code, &data) : DGifGetExtensionNext(gif, &data);
      if (result == GIF_ERROR) return fault(gif->Error);
      if (data != nullptr && code == GRAPHICS_EXT_FUNC_CODE && data[0] >= 4)
        transparent = (data[1] & 1) != 0 ? data[4] : -1;
    }
  }
  return invalid_argument("the GIF has more than {} blocks in front of its frame", kMostBlocks);
}

// [256, 3]; entries that the file lacks are black, without any palette all are grey.
std::vector<uint8_t> palette_of(const GifFileType* gif) {
  std::vector<uint8_t> out(256 * 3);
  const ColorMapObject* const map = gif->Image.ColorMap ? gif->Image.ColorMap : gif->SColorMap;
  if (map == nullptr)
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint8_t>(i / 3);
  if (map == nullptr) return out;
  for (int i = 0; i < std::min(map->ColorCount, 256); ++i) {
    const GifColorType& color = map->Colors[i];
    const uint8_t rgb[] = {color.Red, color.Green, color.Blue};
    std::memcpy(out.data() + 3 * i, rgb, 3);
  }
  return out;
}

// The rows of a frame in the order of the file.
std::vector<int> row_order(int height, bool is_interlaced) {
  std::vector<int> out;
  const auto add = [&](int first, int step) {
    for (int y = first; y < height; y += step) out.push_back(y);
  };
  if (is_interlaced)
    add(0, 8), add(4, 8), add(2, 4), add(1, 2);
  else
    add(0, 1);
  return out;
}

}  // namespace

StatusOr<Decoded> decode_gif(std::string_view file, const DecodeOptions& options) {
  std::string_view rest = file;
  int error = 0;
  const Gif gif(DGifOpen(&rest, read_bytes, &error));
  if (gif == nullptr) return fault(error);
  int transparent = -1;
  RETURN_IF_ERROR(find_frame(gif.get(), transparent));
  const GifImageDesc& frame = gif->Image;
  if (frame.Width <= 0 || frame.Height <= 0 || frame.Left < 0 || frame.Top < 0)
    return invalid_argument("the GIF's frame has {} x {} pixels", frame.Width, frame.Height);
  Decoded out;
  ASSIGN_OR_RETURN(out.image, new_image(std::max(gif->SWidth, frame.Left + frame.Width),
                                        std::max(gif->SHeight, frame.Top + frame.Height),
                                        size_t{4} << 16, options));
  const std::vector<uint8_t> palette = palette_of(gif.get());
  uint8_t* const pixels = out.image.rgb.data();
  const size_t behind = 3 * static_cast<size_t>(std::max(transparent, 0));
  for (size_t i = 0; i < out.image.rgb.size(); i += 3)
    std::memcpy(pixels + i, palette.data() + behind, 3);
  std::vector<GifPixelType> line(static_cast<size_t>(frame.Width));
  for (const int y : row_order(frame.Height, frame.Interlace)) {
    if (DGifGetLine(gif.get(), line.data(), frame.Width) == GIF_ERROR) return fault(gif->Error);
    const auto first = static_cast<size_t>(frame.Top + y) * static_cast<size_t>(out.image.width) +
                       static_cast<size_t>(frame.Left);
    for (size_t x = 0; x < line.size(); ++x)
      std::memcpy(pixels + 3 * (first + x), palette.data() + 3 * size_t{line[x]}, 3);
  }
  return out;
}

}  // namespace nereid::vision
