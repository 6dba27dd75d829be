// The list of model families.
#include "models/all.h"

#include "models/family.h"

namespace nereid::models {
namespace {

const Family kFamilies[] = {
    {"LlamaForCausalLM", read_llama_traits, &kLlamaWeights},
    {"MistralForCausalLM", read_mistral_traits, &kLlamaWeights},
    {"Ministral3ForCausalLM", read_ministral3_traits, &kLlamaWeights},
    {"Llama4ForCausalLM", read_llama4_traits, &kLlama4Weights},
    {"MllamaForCausalLM", read_mllama_traits, &kMllamaWeights},
    {"Qwen2ForCausalLM", read_qwen2_traits, &kLlamaWeights},
    {"Qwen3ForCausalLM", read_qwen3_traits, &kLlamaWeights},
    {"Qwen2VLForConditionalGeneration", read_qwen2_vl_traits, &kLlamaWeights},
    {"Qwen2_5_VLForConditionalGeneration", read_qwen2_vl_traits, &kLlamaWeights},
    {"Qwen3VLForConditionalGeneration", read_qwen3_vl_traits, &kLlamaWeights},
    {"Qwen3VLMoeForConditionalGeneration", read_qwen3_vl_moe_traits, &kQwenMoeWeights},
    {"GPT2LMHeadModel", read_gpt2_traits, &kGpt2Weights, "transformer."},
    {"MixtralForCausalLM", read_mixtral_traits, &kMixtralWeights},
    {"PhiMoEForCausalLM", read_phimoe_traits, &kMixtralWeights},
    {"PhimoeForCausalLM", read_phimoe_traits, &kMixtralWeights},
    {"Qwen2MoeForCausalLM", read_qwen2_moe_traits, &kQwenMoeWeights},
    {"GptOssForCausalLM", read_gpt_oss_traits, &kGptOssWeights},
    {"Qwen3MoeForCausalLM", read_qwen3_moe_traits, &kQwenMoeWeights},
    {"DeepseekV2ForCausalLM", read_deepseek2_traits, &kDeepseek2Weights},
    {"DeepseekV3ForCausalLM", read_deepseek3_traits, &kDeepseek3Weights},
    {"Glm4MoeForCausalLM", read_glm4_moe_traits, &kCorrectedMoeWeights},
    {"Glm4MoeLiteForCausalLM", read_glm4_moe_lite_traits, &kDeepseek3Weights},
    {"Dots1ForCausalLM", read_dots1_traits, &kCorrectedMoeWeights},
    {"Ernie4_5_MoeForCausalLM", read_ernie45_moe_traits, &kErnie45MoeWeights, "",
     ernie45_moe_ignores},
    {"MiniMaxM2ForCausalLM", read_minimax_m2_traits, &kMinimaxM2Weights},
    {"GraniteMoeForCausalLM", read_granite_moe_traits, &kGraniteMoeWeights},
    {"GraniteMoeSharedForCausalLM", read_granite_moe_shared_traits, &kGraniteMoeWeights},
    {"GraniteMoeHybridForCausalLM", read_granite_hybrid_traits, &kGraniteMoeWeights},
    {"ExaoneMoeForCausalLM", read_exaone_moe_traits, &kExaoneMoeWeights, "", exaone_moe_ignores},
    {"ApertusForCausalLM", read_apertus_traits, &kApertusWeights, "", apertus_ignores},
    {"HunYuanDenseV1ForCausalLM", read_hunyuan_traits, &kHunyuanWeights},
    {"HunYuanMoEV1ForCausalLM", read_hunyuan_moe_traits, &kHunyuanMoeWeights},
    {"MiniCPMForCausalLM", read_minicpm_traits, &kLlamaWeights},
    {"MiniCPM3ForCausalLM", read_minicpm3_traits, &kMinicpm3Weights},
    {"GemmaForCausalLM", read_gemma_traits, &kLlamaWeights},
    {"Gemma2ForCausalLM", read_gemma2_traits, &kGemmaSandwichWeights},
    {"Gemma3ForCausalLM", read_gemma3_traits, &kGemmaSandwichWeights},
    {"InternLM2ForCausalLM", read_internlm2_traits, &kInternlm2Weights},
    {"BaichuanForCausalLM", read_baichuan_traits, &kBaichuanWeights},
    {"BaiChuanForCausalLM", read_baichuan_traits, &kBaichuanWeights},
    {"GraniteForCausalLM", read_granite_traits, &kLlamaWeights},
    {"NemotronForCausalLM", read_nemotron_traits, &kLlamaWeights},
    {"ArceeForCausalLM", read_arcee_traits, &kLlamaWeights},
    {"Ernie4_5ForCausalLM", read_ernie45_traits, &kLlamaWeights},
    {"InternLM3ForCausalLM", read_internlm3_traits, &kLlamaWeights},
    {"HeliumForCausalLM", read_helium_traits, &kLlamaWeights},
    {"SeedOssForCausalLM", read_seed_oss_traits, &kLlamaWeights},
    {"SmolLM3ForCausalLM", read_smollm3_traits, &kLlamaWeights},
    {"GPTBigCodeForCausalLM", read_gpt_bigcode_traits, &kBigcodeWeights},
    {"Cohere2ForCausalLM", read_cohere2_traits, &kLlamaWeights},
    {"Exaone4ForCausalLM", read_exaone4_traits, &kExaone4Weights},
    {"OlmoeForCausalLM", read_olmoe_traits, &kOlmoeWeights},
    {"Olmo3ForCausalLM", read_olmo3_traits, &kOlmo2Weights},
    {"Phi3ForCausalLM", read_phi3_traits, &kPhi3Weights},
    {"CohereForCausalLM", read_cohere_traits, &kCohereWeights},
    {"OlmoForCausalLM", read_olmo_traits, &kLlamaWeights},
    {"Olmo2ForCausalLM", read_olmo2_traits, &kOlmo2Weights},
    {"GlmForCausalLM", read_glm_traits, &kGlmWeights},
    {"Glm4ForCausalLM", read_glm_traits, &kGlm4Weights},
    {"StableLmForCausalLM", read_stablelm_traits, &kStablelmWeights},
    {"PhiForCausalLM", read_phi_traits, &kPhiWeights},
    {"GPTNeoXForCausalLM", read_gpt_neox_traits, &kNeoxWeights},
    {"GPTJForCausalLM", read_gptj_traits, &kGptjWeights},
    {"OPTForCausalLM", read_opt_traits, &kOptWeights, "model."},
    {"BloomForCausalLM", read_bloom_traits, &kBloomWeights, "transformer."},
    {"MPTForCausalLM", read_mpt_traits, &kMptWeights},
    {"MptForCausalLM", read_mpt_traits, &kMptWeights},
    {"FalconForCausalLM", read_falcon_traits, &kFalconWeights},
    {"Starcoder2ForCausalLM", read_starcoder2_traits, &kStarcoder2Weights},
    {"T5ForConditionalGeneration", read_t5_traits, &kT5Weights, "", encoder_decoder_ignores,
     read_t5_encoder_traits, &kT5Encoder},
    {"MT5ForConditionalGeneration", read_t5_traits, &kT5Weights, "", encoder_decoder_ignores,
     read_t5_encoder_traits, &kT5Encoder},
    {"BartForConditionalGeneration", read_bart_traits, &kBartWeights, "", encoder_decoder_ignores,
     read_bart_encoder_traits, &kBartEncoder},
    {"MBartForConditionalGeneration", read_mbart_traits, &kBartWeights, "", encoder_decoder_ignores,
     read_mbart_encoder_traits, &kBartEncoder},
    {"MarianMTModel", read_marian_traits, &kMarianWeights, "", encoder_decoder_ignores,
     read_marian_encoder_traits, &kMarianEncoder},
    {"PegasusForConditionalGeneration", read_pegasus_traits, &kMarianWeights, "",
     encoder_decoder_ignores, read_pegasus_encoder_traits, &kMarianEncoder},
    {"M2M100ForConditionalGeneration", read_m2m100_traits, &kM2mWeights, "",
     encoder_decoder_ignores, read_m2m100_encoder_traits, &kM2mEncoder},
    {"WhisperForConditionalGeneration", read_whisper_traits, &kWhisperWeights, "",
     encoder_decoder_ignores, read_whisper_encoder_traits, &kWhisperEncoder},
};

const PictureFamily kPictureFamilies[] = {
    {"LlavaForConditionalGeneration", "pixtral", read_pixtral_encoder_traits, &kPixtralEncoder},
    {"LlavaForConditionalGeneration", "", read_llava_encoder_traits, &kLlavaEncoder},
    {"LlavaNextForConditionalGeneration", "", read_llava_next_encoder_traits, &kLlavaEncoder},
    {"LlavaOnevisionForConditionalGeneration", "", read_llava_onevision_encoder_traits,
     &kLlavaEncoder},
    {"MllamaForConditionalGeneration", "", read_mllama_encoder_traits, nullptr, &kMllamaEncoder},
    {"Qwen2VLForConditionalGeneration", "", read_qwen2_vl_encoder_traits, &kQwen2VlEncoder},
    {"Qwen2_5_VLForConditionalGeneration", "", read_qwen25_vl_encoder_traits, &kQwen25VlEncoder},
    {"Qwen3VLForConditionalGeneration", "", read_qwen3_vl_encoder_traits, &kQwen3VlEncoder},
    {"Qwen3VLMoeForConditionalGeneration", "", read_qwen3_vl_encoder_traits, &kQwen3VlEncoder},
    {"Mistral3ForConditionalGeneration", "", read_mistral3_encoder_traits, &kPixtralEncoder},
    {"Gemma3ForConditionalGeneration", "", read_gemma3_encoder_traits, &kGemma3Encoder},
    {"PaliGemmaForConditionalGeneration", "", read_paligemma_encoder_traits, &kPaliGemmaEncoder},
    {"Idefics3ForConditionalGeneration", "", read_idefics3_encoder_traits, &kIdefics3Encoder},
    {"SmolVLMForConditionalGeneration", "", read_idefics3_encoder_traits, &kIdefics3Encoder},
    {"InternVLForConditionalGeneration", "", read_internvl_encoder_traits, &kInternVlEncoder},
};

}  // namespace

std::span<const PictureFamily> picture_families() { return kPictureFamilies; }

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
