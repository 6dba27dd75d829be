// The head of EAGLE-1 (Li et al. 2024): a decoder layer that predicts, from the hidden state of a
// position and the token behind it, the hidden state of the next position, which the model's own
// head turns into a guess of the token after that:
//
//   x = fc([embedding of token t + 1; state t]); state t + 1 = layer(x), without a norm in front
//
// Hugging Face layout: config.json of a Llama with one layer (and `bias`: whether fc has one),
// fc.weight and .bias, layers.0.*; embeddings are the model's, and so is the head. The engine's
// embeddings are the two halves side by side: all of its tokens are given ones.
#pragma once

#include <filesystem>

#include "base/status.h"
#include "io/safetensors.h"
#include "models/family.h"

namespace nereid::models {

// Whether `dir` has weights of such a head.
bool has_eagle_head(const std::filesystem::path& dir);

// The head for `target`, with a graph and no weights. InvalidArgument naming file, field, value and
// what is allowed.
StatusOr<Model> read_eagle_head(const std::filesystem::path& dir, const Model& target);

// Its weights, and those of `target`'s head in `target_dir`. Errors as open_checkpoint().
StatusOr<io::Checkpoint> open_eagle_head(const std::filesystem::path& dir, const Model& target,
                                         const std::filesystem::path& target_dir);

}  // namespace nereid::models
