// A served model with pictures: its processor and its marks. Internal to front/openai.
#pragma once

#include <filesystem>
#include <memory>

#include "base/json.h"
#include "base/status.h"
#include "front/bridge/model_info.h"
#include "text/tokenizer/tokenizer.h"
#include "vision/processor.h"
#include "vision/prompt/picture_marks.h"

namespace nereid::front {

inline constexpr char kPatchesInput[] = "image_patches", kGridsInput[] = "image_grids",
                      kSpansInput[] = "image_token_spans", kTilesInput[] = "image_tiles";

struct ServedPictures {
  vision::EncoderFacts encoder;
  vision::ProcessorConfig processor;
  vision::PictureMarks marks;
};

// `engine_config` is the engine's configuration, `dir` the folder with the tokenizer and
// preprocessor_config.json. Unimplemented: the model takes no pictures (parameter
// picture_patch_width is not above 0), or its tokenizer has no token for them. Errors are otherwise
// those of vision::read_processor().
StatusOr<std::shared_ptr<const ServedPictures>> load_pictures(const json::value& engine_config,
                                                              const ModelInfo& engine,
                                                              const std::filesystem::path& dir,
                                                              const text::Tokenizer& tokenizer);

}  // namespace nereid::front
