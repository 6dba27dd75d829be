// Pictures to the patches that a vision encoder reads, by preprocessor_config.json.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "vision/decode/image.h"
#include "vision/picture.h"
#include "vision/resize.h"

namespace nereid::vision {

// Sizes that the encoder of a served model takes.
struct EncoderFacts {
  int64_t patch_width = 0;  // columns of a row of patches
  int64_t merge = 1;        // patches on a side that make one token
  int64_t max_patches = 0;  // of a picture
};

// Kinds of processors of transformers.
enum class ProcessorKind : uint8_t {
  kPlain,     // CLIP, SigLIP, ViT, Gemma 3: one size, patches in raster order
  kQwen2Vl,   // sides that fit the picture, patches in the order of merged blocks, pairs of frames
  kPixtral,   // sides that fit the picture, patches in raster order
  kTiles,     // GotOcr2 (InternVL): squares of one size, then the whole picture in one
  kIdefics3,  // Idefics 3, SmolVLM: resized to whole squares, these, then the whole picture in one
  kAnyResolution,  // LLaVA-NeXT: the whole picture in a square, then squares of a listed size
  kOneVision,      // LLaVA-OneVision: the same; of several pictures each in a square alone
  kCanvas,  // Mllama (Llama 3.2): squares of the canvas that fits the picture, zeros behind it
};

struct ProcessorConfig {
  ProcessorKind kind = ProcessorKind::kPlain;
  std::string name;  // image_processor_type
  bool resizes = true, crops = false;
  Filter filter = Filter::kBicubic;
  // kPlain, kTiles, kIdefics3, kCanvas (of a tile); 0: by shortest_edge
  int32_t width = 0, height = 0;
  int32_t shortest_edge = 0;                // kPlain
  int32_t crop_width = 0, crop_height = 0;  // kPlain
  int32_t longest_edge = 0;                 // kPixtral, kIdefics3
  int64_t min_pixels = 0, max_pixels = 0;   // kQwen2Vl
  int32_t min_tiles = 1, max_tiles = 1;     // kTiles; kCanvas the latter
  // kAnyResolution, kOneVision: height and width, whole squares
  std::vector<std::array<int32_t, 2>> sizes;
  int32_t blended_tiles = 0;            // kOneVision: see blended_size()
  std::array<uint8_t, 3> background{};  // kOneVision: beside a picture in its square
  bool splits = true;                   // kIdefics3: false: the whole picture alone
  int32_t patch = 0, temporal = 1, merge = 1;
  std::array<std::array<float, 256>, 3> values = {};  // of a channel's byte
};

// Reads preprocessor_config.json, else processor_config.json, of a model's folder. NotFound: there
// is none. InvalidArgument names file and field: another processor, a value out of range, sizes
// that do not fit the encoder's patches.
StatusOr<ProcessorConfig> read_processor(const std::filesystem::path& dir,
                                         const EncoderFacts& encoder);

// The encoder's sizes in config.json of a model's folder, for programs beside the engine;
// `max_patches`, which it does not limit, is taken over. Unimplemented: config.json has no encoder.
StatusOr<EncoderFacts> read_encoder_facts(const std::filesystem::path& dir, int64_t max_patches);

// `num_pictures`: of the prompt. InvalidArgument: the picture's sides are too different, or it
// takes more than the encoder's `max_patches`. `hold` as of resize().
StatusOr<Patches> preprocess(const Image& image, const ProcessorConfig& config,
                             const EncoderFacts& encoder,
                             const std::function<Status(size_t)>& hold = {},
                             size_t num_pictures = 1);

}  // namespace nereid::vision
