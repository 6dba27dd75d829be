// Readers and weight tables of the families in all.cc, grouped by file.
#pragma once

#include "models/family.h"

namespace nereid::models {

// llama.cc
extern const DecoderWeights kLlamaWeights;
Traits read_llama_traits(Config& config);
Traits read_mistral_traits(Config& config);
Traits read_ministral3_traits(Config& config);

// llama4.cc
extern const DecoderWeights kLlama4Weights;
Traits read_llama4_traits(Config& config);

// llava.cc
extern const DecoderWeights kLlavaEncoder;
Traits read_llava_encoder_traits(Config& config, const Traits& decoder);
Traits read_llava_next_encoder_traits(Config& config, const Traits& decoder);
Traits read_llava_onevision_encoder_traits(Config& config, const Traits& decoder);

// mllama.cc
extern const DecoderWeights kMllamaWeights;
extern const TileEncoderWeights kMllamaEncoder;
Traits read_mllama_traits(Config& config);
Traits read_mllama_encoder_traits(Config& config, const Traits& decoder);

// pixtral.cc
extern const DecoderWeights kPixtralEncoder;
Traits read_pixtral_encoder_traits(Config& config, const Traits& decoder);
Traits read_mistral3_encoder_traits(Config& config, const Traits& decoder);

// gemma_pictures.cc
extern const DecoderWeights kGemma3Encoder, kPaliGemmaEncoder;
Traits read_gemma3_encoder_traits(Config& config, const Traits& decoder);
Traits read_paligemma_encoder_traits(Config& config, const Traits& decoder);
// idefics3.cc
extern const DecoderWeights kIdefics3Encoder;
Traits read_idefics3_encoder_traits(Config& config, const Traits& decoder);

// internvl.cc
extern const DecoderWeights kInternVlEncoder;
Traits read_internvl_encoder_traits(Config& config, const Traits& decoder);

// qwen2_vl.cc
extern const DecoderWeights kQwen2VlEncoder, kQwen25VlEncoder;
Traits read_qwen2_vl_traits(Config& config);
Traits read_qwen2_vl_encoder_traits(Config& config, const Traits& decoder);
Traits read_qwen25_vl_encoder_traits(Config& config, const Traits& decoder);

// qwen3_vl.cc
extern const DecoderWeights kQwen3VlEncoder;
Traits read_qwen3_vl_traits(Config& config);
Traits read_qwen3_vl_moe_traits(Config& config);
Traits read_qwen3_vl_encoder_traits(Config& config, const Traits& decoder);

// qwen.cc
Traits read_qwen2_traits(Config& config);
Traits read_qwen3_traits(Config& config);

// internlm2.cc
extern const DecoderWeights kInternlm2Weights;
Traits read_internlm2_traits(Config& config);

// baichuan.cc
extern const DecoderWeights kBaichuanWeights;
Traits read_baichuan_traits(Config& config);

// gpt2.cc
extern const DecoderWeights kGpt2Weights;
Traits read_gpt2_traits(Config& config);

// mixtral.cc
extern const DecoderWeights kMixtralWeights;
Traits read_mixtral_traits(Config& config);
Traits read_phimoe_traits(Config& config);

// qwen_moe.cc
extern const DecoderWeights kQwenMoeWeights;
Traits read_qwen2_moe_traits(Config& config);
Traits read_qwen3_moe_traits(Config& config);

// glm4_moe.cc
extern const DecoderWeights kCorrectedMoeWeights;
Traits read_glm4_moe_traits(Config& config);
Traits read_dots1_traits(Config& config);

// ernie4_5_moe.cc
extern const DecoderWeights kErnie45MoeWeights;
Traits read_ernie45_moe_traits(Config& config);
bool ernie45_moe_ignores(const Traits& traits, std::string_view tensor);

// minimax_m2.cc
extern const DecoderWeights kMinimaxM2Weights;
Traits read_minimax_m2_traits(Config& config);

// granite_moe.cc
extern const DecoderWeights kGraniteMoeWeights;
Traits read_granite_moe_traits(Config& config);
Traits read_granite_moe_shared_traits(Config& config);
Traits read_granite_hybrid_traits(Config& config);

// apertus.cc
extern const DecoderWeights kApertusWeights;
Traits read_apertus_traits(Config& config);
bool apertus_ignores(const Traits& traits, std::string_view tensor);

// hunyuan.cc
extern const DecoderWeights kHunyuanWeights, kHunyuanMoeWeights;
Traits read_hunyuan_traits(Config& config);
Traits read_hunyuan_moe_traits(Config& config);

// minicpm.cc
extern const DecoderWeights kMinicpm3Weights;
Traits read_minicpm_traits(Config& config);
Traits read_minicpm3_traits(Config& config);

// olmoe.cc
extern const DecoderWeights kOlmoeWeights;
Traits read_olmoe_traits(Config& config);

// gpt_oss.cc
extern const DecoderWeights kGptOssWeights;
Traits read_gpt_oss_traits(Config& config);

// deepseek.cc
extern const DecoderWeights kDeepseek2Weights, kDeepseek3Weights;
Traits read_deepseek2_traits(Config& config);
Traits read_deepseek3_traits(Config& config);
Traits read_glm4_moe_lite_traits(Config& config);

// gemma.cc
extern const DecoderWeights kGemmaSandwichWeights;
Traits read_gemma_traits(Config& config);
Traits read_gemma2_traits(Config& config);
Traits read_gemma3_traits(Config& config);

// llama_variants.cc
Traits read_granite_traits(Config& config);
Traits read_nemotron_traits(Config& config);
Traits read_arcee_traits(Config& config);
Traits read_ernie45_traits(Config& config);
Traits read_internlm3_traits(Config& config);
Traits read_helium_traits(Config& config);
Traits read_seed_oss_traits(Config& config);
Traits read_smollm3_traits(Config& config);

// gpt_bigcode.cc
extern const DecoderWeights kBigcodeWeights;
Traits read_gpt_bigcode_traits(Config& config);

// phi3.cc
extern const DecoderWeights kPhi3Weights;
Traits read_phi3_traits(Config& config);

// cohere.cc
extern const DecoderWeights kCohereWeights;
Traits read_cohere_traits(Config& config);
Traits read_cohere2_traits(Config& config);

// olmo2.cc
extern const DecoderWeights kOlmo2Weights;
Traits read_olmo_traits(Config& config);
Traits read_olmo2_traits(Config& config);
Traits read_olmo3_traits(Config& config);

// glm4.cc
extern const DecoderWeights kGlmWeights, kGlm4Weights;
Traits read_glm_traits(Config& config);

// stablelm.cc
extern const DecoderWeights kStablelmWeights;
Traits read_stablelm_traits(Config& config);

// phi.cc
extern const DecoderWeights kPhiWeights;
Traits read_phi_traits(Config& config);

// gpt_neox.cc
extern const DecoderWeights kNeoxWeights;
Traits read_gpt_neox_traits(Config& config);

// gptj.cc
extern const DecoderWeights kGptjWeights;
Traits read_gptj_traits(Config& config);

// opt.cc
extern const DecoderWeights kOptWeights;
Traits read_opt_traits(Config& config);

// bloom.cc
extern const DecoderWeights kBloomWeights;
Traits read_bloom_traits(Config& config);

// mpt.cc
extern const DecoderWeights kMptWeights;
Traits read_mpt_traits(Config& config);

// exaone4.cc
extern const DecoderWeights kExaone4Weights, kExaoneMoeWeights;
Traits read_exaone4_traits(Config& config);
Traits read_exaone_moe_traits(Config& config);
bool exaone_moe_ignores(const Traits& traits, std::string_view tensor);

// falcon.cc
extern const DecoderWeights kFalconWeights;
Traits read_falcon_traits(Config& config);

// t5.cc
extern const DecoderWeights kT5Weights;
extern const EncoderWeights kT5Encoder;
Traits read_t5_traits(Config& config);
Traits read_t5_encoder_traits(Config& config);

// bart.cc
extern const DecoderWeights kBartWeights;
extern const EncoderWeights kBartEncoder;
Traits read_bart_traits(Config& config);
Traits read_bart_encoder_traits(Config& config);
Traits read_mbart_traits(Config& config);
Traits read_mbart_encoder_traits(Config& config);
extern const DecoderWeights kMarianWeights, kM2mWeights;
extern const EncoderWeights kMarianEncoder, kM2mEncoder;
Traits read_marian_traits(Config& config);
Traits read_marian_encoder_traits(Config& config);
Traits read_pegasus_traits(Config& config);
Traits read_pegasus_encoder_traits(Config& config);
Traits read_m2m100_traits(Config& config);
Traits read_m2m100_encoder_traits(Config& config);

// whisper.cc
extern const DecoderWeights kWhisperWeights;
extern const EncoderWeights kWhisperEncoder;
Traits read_whisper_traits(Config& config);
Traits read_whisper_encoder_traits(Config& config);

// starcoder2.cc
extern const DecoderWeights kStarcoder2Weights;
Traits read_starcoder2_traits(Config& config);

}  // namespace nereid::models
