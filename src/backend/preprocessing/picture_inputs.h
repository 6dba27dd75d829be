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

inline constexpr int32_t kMostPictures = 64;  // of a request

// How a model's requests have pictures. Immutable behind load() and use_table().
class PictureInputs {
 public:
  // Reads config.json and preprocessor_config.json of the tokenizer's folder. Unimplemented,
  // NotFound: the model takes no pictures; InvalidArgument: its files are faulty.
  static StatusOr<PictureInputs> load(const std::filesystem::path& dir,
                                      const text::Tokenizer& tokenizer);

  // From now on prompts have rows of a prompt table in place of the pictures' tokens: ids from
  // `vocab_size` on, in order. `max_pictures`: of a prompt. Unimplemented: the model's pictures
  // have several sizes.
  Status use_table(int32_t vocab_size, int32_t max_pictures);
  bool uses_table() const { return table_.vocab_size > 0; }

  // The pictures of a request of one item: those of IMAGE_URL (data URLs), then of IMAGE_BYTES
  // (UINT8 [1, pictures, height, width, 3]). InvalidArgument: a fault, with the input's name.
  StatusOr<std::vector<vision::Patches>> read(const Request& request) const;

  // `query` with a mark for each picture: as it is if it has one, else with all in front, between
  // the texts of the TensorRT-LLM backend for the model.
  std::string with_marks(std::string_view query, size_t num_pictures) const;

  // Repeats the pictures' tokens in a prompt's ids; InvalidArgument: more or fewer marks.
  StatusOr<std::vector<vision::TokenSpan>> place(const std::vector<vision::Patches>& pictures,
                                                 std::vector<int32_t>& ids) const;

  // Puts ids of rows in place of marks; uses_table(). `num_pictures`: of the request; 0: pictures
  // go past this model, one for each mark. InvalidArgument: more or fewer marks, or too many.
  Status place_rows(size_t num_pictures, std::vector<int32_t>& ids) const;

  // The output PIXEL_VALUES [1, pictures, 3, side, side], FP16, BF16 or FP32; uses_table().
  StatusOr<Output> pixel_values(const std::vector<vision::Patches>& pictures,
                                TRITONSERVER_DataType type) const;

 private:
  PictureInputs() = default;
  class Reading;
  struct Table {
    int32_t vocab_size = 0;  // 0: none
    int32_t max_pictures = 0;
    int32_t num_rows = 0;  // of a picture
  };

  vision::EncoderFacts encoder_;
  vision::ProcessorConfig processor_;
  vision::PictureMarks marks_;
  Table table_;
  std::string before_, after_;  // a query without marks, its pictures in front
};

// The outputs IMAGE_PATCHES [1, rows, width], IMAGE_GRIDS [1, pictures, 3] and IMAGE_TOKEN_SPANS
// [1, pictures, 2]; of pictures with tiles in the plane also IMAGE_TILES [1, pictures, 4].
std::vector<Output> picture_outputs(const std::vector<vision::Patches>& pictures,
                                    const std::vector<vision::TokenSpan>& spans);

}  // namespace nereid::backend
