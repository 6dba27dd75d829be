// Facts about a model from its files, for display. Internal to front/openai.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace nereid::front {

// 0 and "": not in the files.
struct ModelFacts {
  std::string format = {};        // safetensors | gguf
  std::string architecture = {};  // in the files' own words: llama, qwen3, ...
  std::string quantization = {};  // BF16, Q4_K_M, AWQ, ...
  int64_t num_layers = 0, num_heads = 0, num_kv_heads = 0, hidden_size = 0;
  int64_t num_parameters = 0, num_bytes = 0;
};

// Reads a checkpoint's folder or a GGUF file; unreadable facts are left out.
ModelFacts read_model_facts(const std::filesystem::path& path);

}  // namespace nereid::front
