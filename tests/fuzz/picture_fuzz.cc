// libFuzzer entry: any bytes as a picture, and its pixels as patches.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/scratch_dir.h"
#include "vision/decode/image.h"
#include "vision/processor.h"

namespace {

namespace vision = nereid::vision;

struct Case {
  vision::EncoderFacts encoder;
  vision::ProcessorConfig config;
};

std::vector<Case> make_cases() {
  std::vector<Case> out;
  const auto add = [&](std::string_view config, const vision::EncoderFacts& encoder) {
    const auto dir = *nereid::ScratchDir::create();
    if (!nereid::write_file_atomic(dir.path() / "preprocessor_config.json", config).ok())
      std::abort();
    out.push_back({encoder, *vision::read_processor(dir.path(), encoder)});
  };
  add(R"({"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 28},
          "crop_size": {"height": 28, "width": 28}})",
      {3 * 7 * 7, 1, 64});
  add(R"({"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 8, "min_pixels": 256})",
      {2 * 3 * 8 * 8, 2, 256});
  add(R"({"image_processor_type": "GotOcr2ImageProcessor", "size": {"height": 32, "width": 32}})",
      {3 * 8 * 8, 1, 256});
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<Case> cases = make_cases();
  constexpr size_t kMostBytes = size_t{64} << 20;
  size_t held = 0;
  const auto hold = [&](size_t bytes) {
    held = std::max(held, bytes);
    return nereid::ok();
  };
  const vision::DecodeOptions options = {.limits = {.max_pixels = 1 << 18}, .hold = hold};
  const auto image = vision::decode_image({reinterpret_cast<const char*>(data), size}, options);
  if (held > kMostBytes) std::abort();  // 2^18 pixels take less than 16 MB in every format
  if (!image.ok()) return -1;
  if (image->rgb.size() !=
      3 * static_cast<size_t>(image->width) * static_cast<size_t>(image->height))
    std::abort();
  for (const Case& one : cases) {
    const auto patches = vision::preprocess(*image, one.config, one.encoder, hold);
    if (!patches.ok()) continue;
    if (patches->rows > one.encoder.max_patches || held > kMostBytes) std::abort();
    for (const float value : patches->values)
      if (!(std::abs(value) < 10)) std::abort();
  }
  return 0;
}
