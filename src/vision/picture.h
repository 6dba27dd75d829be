// A picture as a vision encoder reads it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace nereid::vision {

struct Patches {
  int32_t rows = 0, width = 0;    // width = channels * temporal * patch * patch
  std::vector<float> values;      // [rows, width], normalised as the model's processor does
  std::array<int32_t, 3> grid{};  // t, h, w in patches, before merging; rows == t * h * w
  int32_t num_tokens = 0;         // rows of the encoder's output
  int32_t token_columns = 0;      // of these in a row of the picture
};

}  // namespace nereid::vision
