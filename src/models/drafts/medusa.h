// Medusa heads (Cai et al. 2024): drafts from the target model's hidden state. From the state of
// position t, head i predicts token t + i + 2:
//
//   x = state; for each block: x = x + SiLU(linear(x)); logits = head(x)
//
// Hugging Face layout: config.json with medusa_num_heads and medusa_num_layers;
// medusa_lm_head.safetensors (or .pt) with {i}.{j}.linear.weight and .bias of block j, and
// {i}.{blocks}.weight of the head. Each head is an engine with external embeddings: hidden states.
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

// config.json, checked against `target`. InvalidArgument: file, field, value, allowed values.
struct MedusaConfig {
  int32_t num_heads = 0;
  int32_t num_blocks = 0;  // per head
};
StatusOr<MedusaConfig> read_medusa_config(const std::filesystem::path& dir,
                                          const io::ModelFacts& target);

// Head number `head`: graph without weights.
StatusOr<Model> medusa_head(const std::filesystem::path& dir, const MedusaConfig& config,
                            const io::ModelFacts& target, int32_t head);

// The head's weights. Errors as Checkpoint::open_files().
StatusOr<io::Checkpoint> open_medusa_head(const std::filesystem::path& dir,
                                          const MedusaConfig& config, int32_t head);

}  // namespace nereid::models
