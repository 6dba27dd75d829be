// MTP (multi-token prediction) layer behind a checkpoint's last layer (DeepSeek-AI 2024,
// "DeepSeek-V3 Technical Report", section 2.2):
//
//   x = eh_proj([enorm(embedding of token t + 1); hnorm(state t)]); state t + 1 = norm(layer(x))
//
// The head is the model's. State t is the output of the model's last norm; later drafts use the
// layer's own states. Tensors: model.layers.N.* of a layer with experts, plus enorm, hnorm,
// eh_proj, shared_head.norm; copies of embedding and head are not read.
#pragma once

#include <filesystem>

#include "base/status.h"
#include "models/family.h"

namespace nereid::models {

// Whether the checkpoint in `dir` declares one MTP layer.
bool has_mtp_layer(const std::filesystem::path& dir);

// The MTP layer of `target` (read from `dir`): graph without weights, which are those of
// open_checkpoint(target, dir). Its embeddings are token embedding and state side by side.
// InvalidArgument: not exactly one MTP layer, or another layout than Hugging Face's.
StatusOr<Model> mtp_layer(const std::filesystem::path& dir, const Model& target);

}  // namespace nereid::models
