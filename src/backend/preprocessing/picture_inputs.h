// Pictures of requests to the preprocessing model.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/common/triton.h"
#include "base/status.h"
#include "text/tokenizer/tokenizer.h"
#include "vision/picture.h"
#include "vision/processor.h"
#include "vision/prompt/picture_marks.h"

namespace nereid::backend {

// How a model's requests have pictures. Immutable.
class PictureInputs {
 public:
  // Reads config.json and preprocessor_config.json of the tokenizer's folder. Unimplemented,
  // NotFound: the model takes no pictures; InvalidArgument: its files are faulty.
  static StatusOr<PictureInputs> load(const std::filesystem::path& dir,
                                      const text::Tokenizer& tokenizer);

  // The pictures of a request of one item: those of IMAGE_URL (data URLs), then of IMAGE_BYTES
  // (UINT8 [1, pictures, height, width, 3]). InvalidArgument: a fault, with the input's name.
  StatusOr<std::vector<vision::Patches>> read(const Request& request) const;

  // `query` with a mark for each picture: as it is if it has one, else with all in front, between
  // the texts of the TensorRT-LLM backend for the model.
  std::string with_marks(std::string_view query, size_t num_pictures) const;

  // Repeats the pictures' tokens in a prompt's ids; InvalidArgument: more or fewer marks.
  StatusOr<std::vector<vision::TokenSpan>> place(const std::vector<vision::Patches>& pictures,
                                                 std::vector<int32_t>& ids) const;

 private:
  PictureInputs() = default;
  class Reading;

  vision::EncoderFacts encoder_;
  vision::ProcessorConfig processor_;
  vision::PictureMarks marks_;
  std::string before_, after_;  // a query without marks, its pictures in front
};

// The outputs IMAGE_PATCHES [1, rows, width], IMAGE_GRIDS [1, pictures, 3] and IMAGE_TOKEN_SPANS
// [1, pictures, 2].
std::vector<Output> picture_outputs(const std::vector<vision::Patches>& pictures,
                                    const std::vector<vision::TokenSpan>& spans);

}  // namespace nereid::backend
