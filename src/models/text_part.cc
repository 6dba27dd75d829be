#include "models/text_part.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/log.h"

namespace nereid::models {
namespace {

// `kind`: `model_type` of the text part, if it decides.
struct TextPart {
  std::string_view whole, kind, text;
};
constexpr TextPart kTextParts[] = {
    {"Gemma3ForConditionalGeneration", "", "Gemma3ForCausalLM"},
    {"PaliGemmaForConditionalGeneration", "gemma2", "Gemma2ForCausalLM"},
    {"PaliGemmaForConditionalGeneration", "", "GemmaForCausalLM"},
    {"Mistral3ForConditionalGeneration", "ministral3", "Ministral3ForCausalLM"},
    {"Mistral3ForConditionalGeneration", "", "MistralForCausalLM"},
    {"Llama4ForConditionalGeneration", "", "Llama4ForCausalLM"},
    {"LlavaForConditionalGeneration", "mistral", "MistralForCausalLM"},
    {"LlavaForConditionalGeneration", "qwen2", "Qwen2ForCausalLM"},
    {"LlavaForConditionalGeneration", "", "LlamaForCausalLM"},
    {"LlavaNextForConditionalGeneration", "mistral", "MistralForCausalLM"},
    {"LlavaNextForConditionalGeneration", "qwen2", "Qwen2ForCausalLM"},
    {"LlavaNextForConditionalGeneration", "", "LlamaForCausalLM"},
    {"LlavaOnevisionForConditionalGeneration", "qwen2", "Qwen2ForCausalLM"},
    {"MllamaForConditionalGeneration", "", "MllamaForCausalLM"},
    {"Qwen2VLForConditionalGeneration", "", "Qwen2VLForConditionalGeneration"},
    {"Qwen2_5_VLForConditionalGeneration", "", "Qwen2_5_VLForConditionalGeneration"},
    {"Qwen3VLForConditionalGeneration", "", "Qwen3VLForConditionalGeneration"},
    {"Qwen3VLMoeForConditionalGeneration", "", "Qwen3VLMoeForConditionalGeneration"},
    {"Idefics3ForConditionalGeneration", "", "LlamaForCausalLM"},
    {"SmolVLMForConditionalGeneration", "", "LlamaForCausalLM"},
    {"InternVLForConditionalGeneration", "llama", "LlamaForCausalLM"},
    {"InternVLForConditionalGeneration", "qwen3", "Qwen3ForCausalLM"},
    {"InternVLForConditionalGeneration", "", "Qwen2ForCausalLM"},
};

// Fields that a `text_config` of Llama omits where they are those of Llama 7B.
constexpr std::pair<std::string_view, double> kLlamaDefaults[] = {
    {"vocab_size", 32000},     {"hidden_size", 4096},       {"intermediate_size", 11008},
    {"num_hidden_layers", 32}, {"num_attention_heads", 32}, {"max_position_embeddings", 2048},
    {"rms_norm_eps", 1e-6},
};

// Top-level fields that the text part may need.
constexpr std::string_view kOfBoth[] = {"bos_token_id",      "pad_token_id", "tie_word_embeddings",
                                        "torch_dtype",       "dtype",        "quantization_config",
                                        "compression_config"};

std::string_view text_architecture(const json::object& config) {
  const json::value* list = config.if_contains("architectures");
  if (!list || !list->is_array() || list->get_array().empty()) return "";
  const json::value* part = config.if_contains("text_config");
  const json::value* kind =
      part && part->is_object() ? part->get_object().if_contains("model_type") : nullptr;
  for (const TextPart& one : kTextParts)
    if (list->get_array()[0] == json::value(one.whole) &&
        (one.kind.empty() || (kind && *kind == json::value(one.kind))))
      return one.text;
  return "";
}

// Whether the decoder's fields may stand beside `vision_config`.
bool text_is_whole(std::string_view architecture) {
  return std::ranges::any_of(kTextParts, [&](const TextPart& part) {
    return part.whole == architecture && part.text == architecture;
  });
}

// End ids of both objects.
json::array all_ends(const json::object& whole, const json::object& text) {
  json::array ends;
  for (const json::object* fields : {&whole, &text}) {
    const json::value* ids = fields->if_contains("eos_token_id");
    if (!ids || ids->is_null()) continue;
    if (ids->is_array())
      ends.insert(ends.end(), ids->get_array().begin(), ids->get_array().end());
    else
      ends.push_back(*ids);
  }
  return ends;
}

}  // namespace

StatusOr<bool> take_text_part(json::object& config, const std::string& where) {
  const std::string_view architecture = text_architecture(config);
  if (architecture.empty()) return false;
  Config reader(config, where);
  const json::object* found = reader.object("text_config");
  const bool is_flat = !found && text_is_whole(architecture);  // older files
  if (is_flat) return true;
  if (!found) reader.fail("text_config", "is missing");
  RETURN_IF_ERROR(reader.status());
  json::object text = *found;
  for (const std::string_view key : kOfBoth)
    if (const json::value* value = config.if_contains(key); value && !text.contains(key))
      text[key] = *value;
  if (architecture == "LlamaForCausalLM")
    for (const auto& [key, value] : kLlamaDefaults)
      if (!text.contains(key)) text[key] = value;
  text["eos_token_id"] = all_ends(config, text);
  text["architectures"] = json::array{json::value(architecture)};
  config = std::move(text);
  return true;
}

std::string name_in_text_part(const std::string& tensor) {
  if (is_cross_key(tensor)) return "";
  for (const std::string_view image :
       {"vision_tower.", "vision_model.", "multi_modal_projector.", "visual.", "connector."})
    if (tensor.starts_with(image) || tensor.starts_with("model." + std::string(image))) return "";
  if (tensor == "model.image_newline") return "image_newline";
  return decoder_name(tensor);
}

std::string decoder_name(const std::string& tensor) {
  constexpr std::string_view kOld = "language_model.", kNew = "model.language_model.",
                             kIdefics = "model.text_model.";
  if (tensor.starts_with(kOld)) return tensor.substr(kOld.size());
  if (tensor.starts_with(kNew)) return "model." + tensor.substr(kNew.size());
  if (tensor.starts_with(kIdefics)) return "model." + tensor.substr(kIdefics.size());
  return tensor;
}

bool is_cross_key(std::string_view tensor) {
  for (const std::string_view part :
       {".cross_attn.k_proj.", ".cross_attn.v_proj.", ".cross_attn.k_norm."})
    if (tensor.find(part) != std::string_view::npos) return true;
  return false;
}

}  // namespace nereid::models
