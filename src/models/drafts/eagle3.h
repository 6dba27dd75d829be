// EAGLE-3 head (Li et al. 2025): a decoder layer on the inputs of three layers of the target model;
// it predicts tokens, not hidden states:
//
//   x = fc([low; middle; high]) of position t, or the head's own x' of position t - 1
//   x' = layer(x), whose attention reads [norm(embedding of token t + 1); norm(x)]
//   logits = head(norm(x')); x' replaces fc's product at the next position
//
// Layout of published checkpoints: config.json of a one-layer Llama with architecture
// LlamaForCausalLMEagle3 or Eagle3LlamaForCausalLM; fc.weight, midlayer.* or layers.0.* (with
// hidden_norm), norm.weight; lm_head.weight for draft_vocab_size tokens and d2t (target id - draft
// id). The embedding is the target model's; without draft_vocab_size so is the head.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/status.h"
#include "io/checkpoint.h"
#include "models/family.h"

namespace nereid::models {

// Whether `dir` has a config.json of an EAGLE-3 head.
bool has_eagle3_head(const std::filesystem::path& dir);

// Layers of the target model whose inputs the head reads: from config.json
// (eagle_aux_hidden_state_layer_ids; inside eagle_config the ids name outputs), else 2, num_layers
// / 2, num_layers - 3. InvalidArgument with field and value.
StatusOr<std::vector<int32_t>> eagle3_layers(const std::filesystem::path& dir, int32_t num_layers);

// The head for `target`: graph without weights. Its embeddings have five parts: token embedding,
// low, middle, high (0 with own state), own state (0 with the three). InvalidArgument with file,
// field, value and what is allowed.
StatusOr<Model> read_eagle3_head(const std::filesystem::path& dir, const Model& target);

// The head's weights, and `target`'s head from `target_dir` if needed. Errors as open_checkpoint().
StatusOr<io::Checkpoint> open_eagle3_head(const std::filesystem::path& dir, const Model& head,
                                          const Model& target,
                                          const std::filesystem::path& target_dir);

// Target id of each of the `num` draft ids, in [0, vocab); empty: equal vocabularies.
// InvalidArgument: missing in the head's files, or duplicate ids.
StatusOr<std::vector<int32_t>> eagle3_tokens(const std::filesystem::path& dir, int32_t num,
                                             int32_t vocab);

}  // namespace nereid::models
