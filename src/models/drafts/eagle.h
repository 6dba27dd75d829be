// EAGLE-1 head (Li et al. 2024): a decoder layer that predicts hidden state t + 1 from hidden state
// t and token t + 1; the target model's head turns it into a draft of token t + 2:
//
//   x = fc([embedding of token t + 1; state t]); state t + 1 = layer(x), without an input norm
//
// Hugging Face layout: config.json of a one-layer Llama (and `bias`: fc has one), fc.weight and
// .bias, layers.0.*; embedding and head are the target model's. The engine's embeddings are the two
// halves side by side, all external.
#pragma once

#include <filesystem>

#include "base/status.h"
#include "io/safetensors.h"
#include "models/family.h"

namespace nereid::models {

// Whether `dir` has the weights of an EAGLE-1 head.
bool has_eagle_head(const std::filesystem::path& dir);

// The head for `target`: graph, no weights. InvalidArgument: file, field, value, allowed values.
StatusOr<Model> read_eagle_head(const std::filesystem::path& dir, const Model& target);

// The head's weights, and `target`'s head from `target_dir`. Errors as open_checkpoint().
StatusOr<io::Checkpoint> open_eagle_head(const std::filesystem::path& dir, const Model& target,
                                         const std::filesystem::path& target_dir);

}  // namespace nereid::models
