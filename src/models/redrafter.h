// The head of ReDrafter (Cheng et al. 2024, "Recurrent Drafter"): a recurrent network that guesses
// further tokens from the hidden state of the model that tests them and the tokens behind it:
//
//   s = SiLU(W embedding of the token + U s before it + b), s = 0 at first
//   x = project([state; s]); of each block: x = x + SiLU(linear(x)); logits = head(x)
//
// Its authors' layout: config.json with hidden_size, exit_dim (of x), num_draft_layers (blocks) and
// rnn, and model.safetensors (or .pt) with rnn_w.weight, rnn_u.weight and .bias, input_proj.weight
// and .bias where exit_dim is not twice the hidden size, lm_head.{i}.linear.weight and .bias of
// block i, and lm_head.{blocks}.weight; two older names of lm_head and one of input_proj are known.
// redrafter_num_beams and redrafter_draft_len_per_beam, TensorRT-LLM's, may stand beside them. The
// engine's embeddings are embedding, s and state side by side: all of its tokens are given ones.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/status.h"
#include "io/checkpoint.h"
#include "models/family.h"

namespace nereid::models {

// Whether `dir` has a config.json with exit_dim and num_draft_layers.
bool has_redrafter(const std::filesystem::path& dir);

// What config.json says, read for a head of `target`. InvalidArgument naming file, field, value and
// what is allowed.
struct RedrafterConfig {
  int32_t exit_dim = 0, num_blocks = 0;
  int32_t num_beams = 0, beam_length = 0;  // of guesses
};
StatusOr<RedrafterConfig> read_redrafter_config(const std::filesystem::path& dir,
                                                const io::ModelFacts& target);

// The head, with a graph and no weights.
StatusOr<Model> redrafter_head(const std::filesystem::path& dir, const RedrafterConfig& config,
                               const io::ModelFacts& target);

// Its weights. Errors as Checkpoint::open_files().
StatusOr<io::Checkpoint> open_redrafter(const std::filesystem::path& dir);

}  // namespace nereid::models
