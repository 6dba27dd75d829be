// An encoder's input as the engine takes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nereid/request.h"

namespace nereid::runtime {

struct EncoderRows {
  std::string key;     // digest of the input and the cache salt
  int32_t length = 0;  // positions; 0: no input
  std::vector<TokenId> token_ids;
  std::vector<uint16_t> rows;  // of features, bits of bf16 numbers: a row for each position
};

// Precondition: check_request(). Features: frames become rows of models::kFramesPerRow frames.
EncoderRows encoder_rows(EncoderInput input, int32_t feature_width, const std::string& cache_salt);

}  // namespace nereid::runtime
