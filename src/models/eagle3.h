// The head of EAGLE-3 (Li et al. 2025): a decoder layer that reads what three layers of the model
// read, and predicts tokens without predicting the model's states:
//
//   x = fc([low; middle; high]) of position t, or what the head itself has made of position t - 1
//   x' = layer(x), whose attention reads [norm(embedding of token t + 1); norm(x)]
//   logits = head(norm(x')); x' takes the place of fc's product in the position behind
//
// Layout of published checkpoints: config.json of a Llama with one layer, whose architecture is
// LlamaForCausalLMEagle3 or Eagle3LlamaForCausalLM; fc.weight, midlayer.* or layers.0.* (with
// hidden_norm), norm.weight; lm_head.weight for draft_vocab_size tokens and d2t, the distance of
// each to the model's token. Embeddings are the model's; without draft_vocab_size so is the head.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/status.h"
#include "io/checkpoint.h"
#include "models/family.h"

namespace nereid::models {

// Whether `dir` has a config.json of such a head.
bool has_eagle3_head(const std::filesystem::path& dir);

// The layers of a model with `num_layers` whose input the head reads: those that config.json names
// (eagle_aux_hidden_state_layer_ids; within eagle_config they are those whose output it is), else
// 2, half of all, and the third from the last. InvalidArgument naming field and value.
StatusOr<std::vector<int32_t>> eagle3_layers(const std::filesystem::path& dir, int32_t num_layers);

// The head for `target`, with a graph and no weights. Its embeddings are five parts side by side:
// the token's, low, middle, high (0 where the head's own takes their place), the head's own (0
// where there are the three). InvalidArgument naming file, field, value and what is allowed.
StatusOr<Model> read_eagle3_head(const std::filesystem::path& dir, const Model& target);

// Its weights, and where it needs them those of `target`'s head in `target_dir`. Errors as
// open_checkpoint().
StatusOr<io::Checkpoint> open_eagle3_head(const std::filesystem::path& dir, const Model& head,
                                          const Model& target,
                                          const std::filesystem::path& target_dir);

// The model's token for each of the `num` of the head, of `vocab`; empty: they are the same.
// InvalidArgument: the head's files do not say so, or two have one.
StatusOr<std::vector<int32_t>> eagle3_tokens(const std::filesystem::path& dir, int32_t num,
                                             int32_t vocab);

}  // namespace nereid::models
