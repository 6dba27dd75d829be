// The list of model families.
#include "models/all.h"

#include "models/family.h"

namespace nereid::models {
namespace {

constexpr Family kFamilies[] = {
    {"LlamaForCausalLM", read_llama_traits, build_llama, llama_ignores, "", true},
    {"MistralForCausalLM", read_mistral_traits, build_llama, llama_ignores, "", true},
    {"GPT2LMHeadModel", read_gpt2_traits, build_gpt2, gpt2_ignores, "transformer."},
    {"MixtralForCausalLM", read_mixtral_traits, build_mixtral, moe_ignores},
    {"Qwen3MoeForCausalLM", read_qwen3_moe_traits, build_qwen3_moe, moe_ignores},
    {"Gemma3ForCausalLM", read_gemma3_traits, build_gemma3, gemma3_ignores},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

StatusOr<const Family*> find_family(std::string_view architecture) {
  std::string names;
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) return &family;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", family.architecture);
  }
  return invalid_argument("architecture '{}' is not supported; these are: {}",
                          architecture.substr(0, 80), names);
}

}  // namespace nereid::models
