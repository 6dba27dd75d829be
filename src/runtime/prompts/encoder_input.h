// An encoder's input as the engine takes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/api/op.h"
#include "nereid/request.h"
#include "sched/sequence.h"

namespace nereid::runtime {

struct EncoderRows {
  std::string key;          // digest of the input, the cache salt and the adapter
  int32_t length = 0;       // positions
  int32_t num_parts = 1;    // frames of a picture
  int32_t num_results = 0;  // rows of the result
  int32_t row_tokens = 0;   // tokens of a picture's row, behind which a text token stands; 0: none
  // Tokens that read the result, see sched::EncoderSpec.
  int32_t begin = 0, end = sched::EncoderSpec::kAllTokens;
  // Pictures that the decoder reads by cross attention, with end kAllTokens: the token at `begin`
  // stands for it; tokens [begin, seen_end) read it. The last num_padding positions attend to the
  // others alone and have no results.
  bool has_mark = false;
  int32_t seen_end = 0;
  int32_t num_padding = 0;
  std::vector<TokenId> token_ids;
  std::vector<uint16_t> rows;       // of features, bits of bf16 numbers: a row for each position
  std::vector<int32_t> components;  // of the positions, kPositionComponents each; or none
  std::vector<int32_t> windows;     // positions of each window, in order; or none
  std::vector<kernels::BlendedRow> blends;  // rows of the result, of the positions; or none
  // By token that reads the result, -1: kernels::Embed::row_end; empty: in order.
  std::vector<int32_t> result_rows;
};

// SHA-256, since equal digests are taken for equal bytes; 32 bytes.
std::string digest_of(std::span<const std::byte> bytes);

// Precondition: check_request(). Features: frames become rows of models::kFramesPerRow frames.
// `adapter`: key of the adapter; 0: none.
EncoderRows encoder_rows(EncoderInput input, int32_t feature_width, const std::string& cache_salt,
                         uint64_t adapter);

}  // namespace nereid::runtime
