// The TensorRT-LLM checkpoint layout: config.json with `architecture` and `dtype`, one
// rankN.safetensors for each rank. Source: docs/source/legacy/architecture/checkpoint.md of
// NVIDIA/TensorRT-LLM. Read and written here; after that only traits and our tensor names exist.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "models/family.h"

namespace nereid::models {

inline constexpr const char* kRank0Tensors = "rank0.safetensors";

bool is_trtllm_config(const json::object& config);

// Pairs of (Hugging Face's name, this layout's name) of fields that mean the same.
Config::Names trtllm_field_names();

// Refuses what this layout can say and we cannot run (several ranks, quantisation, ...), naming
// file, field, value and what is allowed; then adds the fields that readers need and this layout
// gives defaults of its own: `architectures`, norm epsilon, activation, sizes, whether the head is
// tied (no lm_head.weight in `dir`/rank0.safetensors).
Status complete_trtllm_config(json::object& config, const std::filesystem::path& dir);

// config.json of a checkpoint of one rank whose tensors are stored as `dtype` (bfloat16, float16,
// float32). Special token ids are there as extra fields.
json::object trtllm_config(const Model& model, std::string_view dtype);

// One tensor of the layout and the graph's tensors that it holds, one after the other along
// dimension 0.
struct TrtLlmTensor {
  std::string name;
  std::vector<std::string> parts;
};

// All tensors that the model's graph has, in file order. Internal: the graph has a tensor that the
// layout has no name for.
StatusOr<std::vector<TrtLlmTensor>> trtllm_tensors(const Model& model);

}  // namespace nereid::models
