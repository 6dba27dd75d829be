// Dimensions from the models' published config.json files.
#include "convert/random_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace nereid::convert {
namespace {

struct Dimensions {
  std::string_view name, architecture, type;
  int hidden, intermediate, layers, heads, kv_heads, vocab, positions;
  double rope_theta, eps;
  bool tied;
  int experts, experts_per_token;  // 0: dense
};

constexpr Dimensions kModels[] = {
    {"llama-3.1-8b", "LlamaForCausalLM", "llama", 4096, 14336, 32, 32, 8, 128256, 131072, 5e5, 1e-5,
     false, 0, 0},
    {"llama-3.1-70b", "LlamaForCausalLM", "llama", 8192, 28672, 80, 64, 8, 128256, 131072, 5e5,
     1e-5, false, 0, 0},
    {"llama-3.2-1b", "LlamaForCausalLM", "llama", 2048, 8192, 16, 32, 8, 128256, 131072, 5e5, 1e-5,
     true, 0, 0},
    {"qwen2.5-0.5b", "Qwen2ForCausalLM", "qwen2", 896, 4864, 24, 14, 2, 151936, 32768, 1e6, 1e-6,
     true, 0, 0},
    {"qwen2.5-7b", "Qwen2ForCausalLM", "qwen2", 3584, 18944, 28, 28, 4, 152064, 32768, 1e6, 1e-6,
     false, 0, 0},
    {"mixtral-8x7b", "MixtralForCausalLM", "mixtral", 4096, 14336, 32, 32, 8, 32000, 32768, 1e6,
     1e-5, false, 8, 2},
};

std::string config_of(const Dimensions& d) {
  json::object config = {{"architectures", {d.architecture}},
                         {"model_type", d.type},
                         {"hidden_size", d.hidden},
                         {"intermediate_size", d.intermediate},
                         {"num_hidden_layers", d.layers},
                         {"num_attention_heads", d.heads},
                         {"num_key_value_heads", d.kv_heads},
                         {"head_dim", d.hidden / d.heads},
                         {"vocab_size", d.vocab},
                         {"max_position_embeddings", d.positions},
                         {"rope_theta", d.rope_theta},
                         {"rms_norm_eps", d.eps},
                         {"hidden_act", "silu"},
                         {"tie_word_embeddings", d.tied},
                         {"torch_dtype", "bfloat16"}};
  if (d.experts > 0) {
    config["num_local_experts"] = d.experts;
    config["num_experts_per_tok"] = d.experts_per_token;
  }
  return json::serialize(config) + "\n";
}

}  // namespace

std::span<const std::string> random_model_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Dimensions& d : kModels) list.emplace_back(d.name);
    return list;
  }();
  return names;
}

StatusOr<std::filesystem::path> random_model_dir(std::string_view name,
                                                 const std::filesystem::path& cache) {
  for (const Dimensions& d : kModels) {
    if (d.name != name) continue;
    const auto directory = (cache.empty() ? cache_dir() : cache) / "random_models" / d.name;
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (error) return unavailable("{}: {}", directory.string(), error.message());
    RETURN_IF_ERROR(write_file_atomic(directory / "config.json", config_of(d)));
    return directory;
  }
  return not_found("no dimensions are known for '{}', only for: {}", name,
                   fmt::join(random_model_names(), ", "));
}

}  // namespace nereid::convert
