// Dimensions from the models' published config.json files.
#include "convert/random_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
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

// Encoder-decoder models: config.json.
constexpr std::pair<std::string_view, std::string_view> kEncoderDecoders[] = {
    {"t5-base", R"({"architectures": ["T5ForConditionalGeneration"], "model_type": "t5",
      "d_model": 768, "d_ff": 3072, "d_kv": 64, "num_layers": 12, "num_decoder_layers": 12,
      "num_heads": 12, "n_positions": 512, "vocab_size": 32128, "feed_forward_proj": "relu",
      "tie_word_embeddings": true, "decoder_start_token_id": 0, "pad_token_id": 0,
      "torch_dtype": "bfloat16"})"},
    {"nllb-200-600m", R"({"architectures": ["M2M100ForConditionalGeneration"],
      "model_type": "m2m_100", "d_model": 1024, "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096,
      "encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 16,
      "decoder_attention_heads": 16, "max_position_embeddings": 1024, "vocab_size": 256206,
      "activation_function": "relu", "scale_embedding": true, "tie_word_embeddings": true,
      "decoder_start_token_id": 2, "pad_token_id": 1, "torch_dtype": "bfloat16"})"},
    {"whisper-small", R"({"architectures": ["WhisperForConditionalGeneration"],
      "model_type": "whisper", "d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072,
      "encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 12,
      "decoder_attention_heads": 12, "max_source_positions": 1500, "max_target_positions": 448,
      "num_mel_bins": 80, "vocab_size": 51865, "activation_function": "gelu",
      "decoder_start_token_id": 50258, "torch_dtype": "bfloat16"})"},
    {"whisper-large-v3", R"({"architectures": ["WhisperForConditionalGeneration"],
      "model_type": "whisper", "d_model": 1280, "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120,
      "encoder_layers": 32, "decoder_layers": 32, "encoder_attention_heads": 20,
      "decoder_attention_heads": 20, "max_source_positions": 1500, "max_target_positions": 448,
      "num_mel_bins": 128, "vocab_size": 51866, "activation_function": "gelu",
      "decoder_start_token_id": 50258, "torch_dtype": "bfloat16"})"},
    {"whisper-large-v3-turbo", R"({"architectures": ["WhisperForConditionalGeneration"],
      "model_type": "whisper", "d_model": 1280, "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120,
      "encoder_layers": 32, "decoder_layers": 4, "encoder_attention_heads": 20,
      "decoder_attention_heads": 20, "max_source_positions": 1500, "max_target_positions": 448,
      "num_mel_bins": 128, "vocab_size": 51866, "activation_function": "gelu",
      "decoder_start_token_id": 50258, "torch_dtype": "bfloat16"})"},
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
    for (const auto& [name, config] : kEncoderDecoders) list.emplace_back(name);
    return list;
  }();
  return names;
}

StatusOr<std::filesystem::path> random_model_dir(std::string_view name,
                                                 const std::filesystem::path& cache) {
  std::string config;
  for (const Dimensions& d : kModels)
    if (d.name == name) config = config_of(d);
  for (const auto& [known, text] : kEncoderDecoders)
    if (known == name) config = fmt::format("{}\n", text);
  if (config.empty())
    return not_found("no dimensions are known for '{}', only for: {}", name,
                     fmt::join(random_model_names(), ", "));
  const auto directory = (cache.empty() ? cache_dir() : cache) / "random_models" / name;
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return unavailable("{}: {}", directory.string(), error.message());
  RETURN_IF_ERROR(write_file_atomic(directory / "config.json", config));
  return directory;
}

}  // namespace nereid::convert
