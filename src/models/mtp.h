// A layer of a checkpoint behind its last one that predicts one more token (multi-token prediction,
// DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 2.2):
//
//   x = eh_proj([enorm(embedding of token t + 1); hnorm(state t)]); state t + 1 = norm(layer(x))
//
// whose head is the model's. State t is what the model's last norm hands to its head; guesses of
// later tokens come from the layer's own states. Tensors: model.layers.N.* of a layer with experts,
// with enorm, hnorm, eh_proj and shared_head.norm; copies of embeddings and head are not read.
#pragma once

#include <filesystem>

#include "base/status.h"
#include "models/family.h"

namespace nereid::models {

// Whether the checkpoint in `dir` says that it has one such layer.
bool has_mtp_layer(const std::filesystem::path& dir);

// The layer of `target`, which was read from `dir`, with a graph and no weights: those of
// open_checkpoint(target, dir). Its embeddings are the token's and the state side by side.
// InvalidArgument: not one such layer, or another layout than Hugging Face's.
StatusOr<Model> mtp_layer(const std::filesystem::path& dir, const Model& target);

}  // namespace nereid::models
