// WebP by libwebp.
#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>

#include "vision/decode/codec.h"

namespace nereid::vision {
namespace {

struct DeleteDecoder {
  void operator()(WebPAnimDecoder* decoder) const { WebPAnimDecoderDelete(decoder); }
};

// A chunk's data; empty: there is none.
std::string_view chunk_of(const WebPDemuxer* demuxer, const char* name) {
  WebPChunkIterator found;
  if (WebPDemuxGetChunk(demuxer, name, 1, &found) == 0) return {};
  const std::string_view out(reinterpret_cast<const char*>(found.chunk.bytes), found.chunk.size);
  WebPDemuxReleaseChunkIterator(&found);
  return out;
}

int orientation_of(const WebPAnimDecoder* decoder) {
  const WebPDemuxer* const demuxer = WebPAnimDecoderGetDemuxer(decoder);
  if (const int value = exif_orientation(chunk_of(demuxer, "EXIF"))) return value;
  const int by_xmp = xmp_orientation(chunk_of(demuxer, "XMP "));
  return by_xmp == 0 ? 1 : by_xmp;
}

}  // namespace

StatusOr<Decoded> decode_webp(std::string_view file, const DecodeOptions& options) {
  constexpr size_t kScratchPerPixel = 2 * 4 + 4;  // two canvases of RGBA, planes of a frame
  const WebPData data = {reinterpret_cast<const uint8_t*>(file.data()), file.size()};
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data.bytes, data.size, &features) != VP8_STATUS_OK)
    return invalid_argument("the WebP is damaged: its header cannot be read");
  Decoded out;
  const size_t num_pixels =
      static_cast<size_t>(features.width) * static_cast<size_t>(features.height);
  ASSIGN_OR_RETURN(out.image, new_image(features.width, features.height,
                                        num_pixels * kScratchPerPixel, options));
  WebPAnimDecoderOptions how;
  if (WebPAnimDecoderOptionsInit(&how) == 0) return internal_error("libwebp is another version");
  how.color_mode = MODE_RGBA;
  const std::unique_ptr<WebPAnimDecoder, DeleteDecoder> decoder(WebPAnimDecoderNew(&data, &how));
  WebPAnimInfo info;
  uint8_t* rgba = nullptr;
  int time = 0;
  if (decoder == nullptr || WebPAnimDecoderGetInfo(decoder.get(), &info) == 0)
    return invalid_argument("the WebP is damaged or truncated");
  if (static_cast<int>(info.canvas_width) != features.width ||
      static_cast<int>(info.canvas_height) != features.height)
    return invalid_argument("the WebP is damaged: its headers have different sizes");
  if (WebPAnimDecoderGetNext(decoder.get(), &rgba, &time) == 0)
    return invalid_argument("the WebP is damaged or truncated");
  for (size_t i = 0; i < num_pixels; ++i)
    for (size_t c = 0; c < 3; ++c) out.image.rgb[3 * i + c] = rgba[4 * i + c];
  out.orientation = orientation_of(decoder.get());
  return out;
}

}  // namespace nereid::vision
