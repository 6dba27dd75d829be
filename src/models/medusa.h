// Medusa heads (Cai et al. 2024): guesses of further tokens from the hidden state of the model that
// tests them. Head i predicts the token i + 2 places behind the position of the state:
//
//   x = state; of each block: x = x + SiLU(linear(x)); logits = head(x)
//
// Hugging Face layout: config.json with medusa_num_heads and medusa_num_layers, and
// medusa_lm_head.safetensors (or .pt) with {i}.{j}.linear.weight and .bias of block j, and
// {i}.{blocks}.weight of the head. Each head becomes an engine of its own, whose embeddings are
// hidden states: all of its tokens are given ones.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/status.h"
#include "io/safetensors.h"
#include "models/family.h"

namespace nereid::models {

inline constexpr int32_t kMaxMedusaHeads = 32;

// Whether `dir` has a config.json with medusa_num_heads.
bool has_medusa_heads(const std::filesystem::path& dir);

// What config.json says, read for heads of `target`. InvalidArgument naming file, field, value and
// what is allowed.
struct MedusaConfig {
  int32_t num_heads = 0;
  int32_t num_blocks = 0;  // of a head
};
StatusOr<MedusaConfig> read_medusa_config(const std::filesystem::path& dir,
                                          const io::ModelFacts& target);

// Head number `head`, with a graph and no weights.
StatusOr<Model> medusa_head(const std::filesystem::path& dir, const MedusaConfig& config,
                            const io::ModelFacts& target, int32_t head);

// Its weights. Errors as Checkpoint::open_files().
StatusOr<io::Checkpoint> open_medusa_head(const std::filesystem::path& dir,
                                          const MedusaConfig& config, int32_t head);

}  // namespace nereid::models
