// ReDrafter head (Cheng et al. 2024, "Recurrent Drafter"): a recurrent network that drafts from the
// target model's hidden state and the tokens behind it:
//
//   s = SiLU(W embedding of the token + U previous s + b), s = 0 at first
//   x = project([state; s]); for each block: x = x + SiLU(linear(x)); logits = head(x)
//
// The authors' layout: config.json with hidden_size, exit_dim (width of x), num_draft_layers
// (blocks) and rnn; model.safetensors (or .pt) with rnn_w.weight, rnn_u.weight and .bias,
// input_proj.weight and .bias if exit_dim is not twice the hidden size, lm_head.{i}.linear.weight
// and .bias of block i, lm_head.{blocks}.weight; older names: two of lm_head, one of input_proj.
// Optional fields of TensorRT-LLM: redrafter_num_beams, redrafter_draft_len_per_beam. The engine's
// embeddings are token embedding, s and state side by side, all external.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/status.h"
#include "io/checkpoint.h"
#include "models/family.h"

namespace nereid::models {

// Whether `dir` has a config.json with exit_dim and num_draft_layers.
bool has_redrafter(const std::filesystem::path& dir);

// config.json, checked against `target`. InvalidArgument: file, field, value, allowed values.
struct RedrafterConfig {
  int32_t exit_dim = 0, num_blocks = 0;
  int32_t num_beams = 0, beam_length = 0;  // of drafts
};
StatusOr<RedrafterConfig> read_redrafter_config(const std::filesystem::path& dir,
                                                const io::ModelFacts& target);

// The head: graph without weights.
StatusOr<Model> redrafter_head(const std::filesystem::path& dir, const RedrafterConfig& config,
                               const io::ModelFacts& target);

// The head's weights. Errors as Checkpoint::open_files().
StatusOr<io::Checkpoint> open_redrafter(const std::filesystem::path& dir);

}  // namespace nereid::models
