// Pictures of a prompt as the engine takes them.
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/plan.h"
#include "nereid/executor.h"
#include "nereid/request.h"
#include "runtime/prompts/encoder_input.h"
#include "sched/prefix_tree.h"

namespace nereid::runtime {

inline constexpr size_t kMaxPictureBytes = size_t{1} << 29;  // of a request
inline constexpr int32_t kMaxAcross = 4;  // pictures that a prompt reads by cross attention

// The pictures that a model takes.
struct PictureRules {
  io::PictureFacts facts;
  int32_t max_patches = 0;      // of a picture
  bool has_components = false;  // the decoder's positions have components (M-RoPE)
  int32_t max_positions = 0;    // of the decoder

  PictureFacts shown() const {
    return {facts.patch_width,    facts.merge,         max_patches,
            facts.grid,           facts.max_frames,    facts.row_breaks,
            facts.tiles_in_plane, facts.blended_tiles, facts.in_cross ? kMaxAcross : 0};
  }
};

// InvalidArgument with field, value and what is allowed.
Status check_pictures(const Request& request, const PictureRules& rules);

// Encoder inputs of checked pictures, whose patches they take.
std::vector<EncoderRows> picture_inputs(std::vector<Picture> pictures, const PictureRules& rules,
                                        const std::string& cache_salt);

// Positions of cross attention that begin a picture are multiples of this number: tiles of keys,
// and whole blocks, so that the place does not change the order of additions.
constexpr int32_t across_unit(int32_t block_tokens) { return std::lcm(block_tokens, 64); }
// Positions of the longest row of cross attention to pictures.
constexpr int32_t max_across_length(const io::PictureFacts& facts, int32_t block_tokens) {
  const int32_t picture = facts.max_frames * (facts.grid * facts.grid + facts.class_tokens);
  const int32_t unit = across_unit(block_tokens);
  return kMaxAcross * ((picture + unit - 1) / unit * unit);
}

// Adds the keys of the tokens that stand for pictures to `keys`, one for each of `num_tokens`
// tokens or none.
void add_picture_keys(std::span<const EncoderRows> inputs, size_t num_tokens,
                      std::vector<sched::InputKey>& keys);

// Makes the key of each token one of all tokens and keys of the prompt, whose keys and values
// follow from all of it.
void add_prompt_keys(std::span<const TokenId> tokens, std::vector<sched::InputKey>& keys);

// Positions of a checked request that attend to one another; see io::PictureFacts.
std::vector<sched::WholeSpan> whole_spans(const Request& request, const io::PictureFacts& facts);

// Components of a prompt's positions (Wang et al. 2024, "Qwen2-VL"): text advances all of them, a
// picture's tokens are placed by frame, row and column from the position behind the text; then text
// goes on behind the largest component.
struct PromptPositions {
  std::vector<int32_t> components;  // [num_tokens, kernels::kPositionComponents]
  int32_t offset = 0;               // behind the prompt: position + offset
};
PromptPositions prompt_positions(std::span<const Picture> pictures, size_t num_tokens,
                                 const io::PictureFacts& facts);

}  // namespace nereid::runtime
