#include "models/formats/gguf_architectures.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr GgufKeyRow kGpt2Keys[] = {{"context_length", "n_positions"},
                                    {"embedding_length", "n_embd"},
                                    {"block_count", "n_layer"},
                                    {"feed_forward_length", "n_inner"},
                                    {"attention.head_count", "n_head"},
                                    {"attention.head_count_kv", "n_head_kv"},
                                    {"attention.layer_norm_epsilon", "layer_norm_epsilon"}};
constexpr GgufKeyRow kLayerNormEps[] = {{"attention.layer_norm_epsilon", "layer_norm_eps"}};
constexpr GgufKeyRow kNeoxKeys[] = {{"attention.layer_norm_epsilon", "layer_norm_eps"},
                                    {"use_parallel_residual", "use_parallel_residual"},
                                    {"rope.freq_base", "rotary_emb_base"}};
constexpr GgufKeyRow kNemotronKeys[] = {{"attention.layer_norm_epsilon", "norm_eps"}};
constexpr GgufKeyRow kStarcoder2Keys[] = {{"attention.layer_norm_epsilon", "norm_epsilon"}};
constexpr GgufKeyRow kFalconKeys[] = {{"feed_forward_length", "ffn_hidden_size"},
                                      {"attention.head_count_kv", "num_kv_heads"},
                                      {"attention.layer_norm_epsilon", "layer_norm_epsilon"}};
constexpr GgufKeyRow kBloomKeys[] = {{"block_count", "n_layer"},
                                     {"context_length", "seq_length"},
                                     {"attention.layer_norm_epsilon", "layer_norm_epsilon"}};
constexpr GgufKeyRow kMptKeys[] = {{"context_length", "max_seq_len"},
                                   {"embedding_length", "d_model"},
                                   {"block_count", "n_layers"},
                                   {"attention.head_count", "n_heads"},
                                   {"attention.layer_norm_epsilon", "layer_norm_epsilon"},
                                   {"attention.clamp_kqv", ""},
                                   {"attention.max_alibi_bias", ""}};
constexpr GgufKeyRow kGraniteKeys[] = {{"logit_scale", "logits_scaling"}};
constexpr GgufKeyRow kMistral3Keys[] = {{"attention.temperature_scale", ""}};
constexpr GgufKeyRow kGemma3Keys[] = {{"rope.freq_base_swa", "rope_local_base_freq"}};
constexpr GgufKeyRow kGptOssKeys[] = {{"expert_feed_forward_length", "intermediate_size"}};
constexpr GgufKeyRow kLlama4Keys[] = {{"attention.sliding_window", ""},
                                      {"feed_forward_length", "intermediate_size_mlp"},
                                      {"expert_feed_forward_length", "intermediate_size"},
                                      {"interleave_moe_layer_step", "interleave_moe_layer_step"}};
constexpr GgufKeyRow kGraniteMoeKeys[] = {
    {"logit_scale", "logits_scaling"},
    {"expert_feed_forward_length", "intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_intermediate_size"}};
constexpr GgufKeyRow kHunyuanMoeKeys[] = {
    {"expert_used_count", "moe_topk"},
    {"expert_shared_count", "num_shared_expert"},
    {"expert_shared_feed_forward_length", "intermediate_size"}};
constexpr GgufKeyRow kErnieMoeKeys[] = {{"expert_count", "moe_num_experts"},
                                        {"expert_used_count", "moe_k"},
                                        {"expert_shared_count", "moe_num_shared_experts"},
                                        {"expert_shared_feed_forward_length", ""},
                                        {"interleave_moe_layer_step", "moe_layer_interval"},
                                        {"leading_dense_block_count", "moe_layer_start_index"}};
constexpr GgufKeyRow kMinimaxM2Keys[] = {{"expert_feed_forward_length", "intermediate_size"},
                                         {"expert_gating_func", ""}};
constexpr GgufKeyRow kMinicpmKeys[] = {
    {"embedding_scale", "scale_emb"}, {"residual_scale", ""}, {"logit_scale", ""}};
constexpr GgufKeyRow kMinicpm3Keys[] = {{"attention.key_length", ""}};
constexpr GgufKeyRow kExaoneMoeKeys[] = {{"expert_gating_func", ""},
                                         {"expert_weights_scale", "routed_scaling_factor"},
                                         {"expert_group_count", "n_group"},
                                         {"expert_group_used_count", "topk_group"},
                                         {"expert_shared_count", "num_shared_experts"},
                                         {"expert_shared_feed_forward_length", ""},
                                         {"leading_dense_block_count", "first_k_dense_replace"}};
// Router of DeepSeek-V3 with plain attention.
constexpr GgufKeyRow kCorrectedMoeKeys[] = {{"expert_gating_func", ""},
                                            {"expert_weights_scale", "routed_scaling_factor"},
                                            {"expert_group_count", "n_group"},
                                            {"expert_group_used_count", "topk_group"},
                                            {"expert_shared_count", "n_shared_experts"},
                                            {"leading_dense_block_count", "first_k_dense_replace"}};
constexpr GgufKeyRow kDeepseekKeys[] = {{"attention.key_length", ""},
                                        {"expert_gating_func", ""},
                                        {"expert_weights_scale", "routed_scaling_factor"},
                                        {"expert_group_count", "n_group"},
                                        {"expert_group_used_count", "topk_group"},
                                        {"expert_shared_count", "n_shared_experts"},
                                        {"leading_dense_block_count", "first_k_dense_replace"}};

constexpr std::string_view kQueryBias = "blk.0.attn_q.bias", kOutBias = "blk.0.attn_output.bias",
                           kUpBias = "blk.0.ffn_up.bias", kQueryNorm = "blk.0.attn_q_norm.weight";
constexpr GgufPair kBiases[] = {{"attention_bias", kQueryBias}, {"mlp_bias", kUpBias}};
constexpr GgufPair kAttentionBias[] = {{"attention_bias", kQueryBias}};
constexpr GgufPair kSeedBiases[] = {
    {"attention_bias", kQueryBias}, {"attention_out_bias", kOutBias}, {"mlp_bias", kUpBias}};
constexpr GgufPair kQkvBias[] = {{"qkv_bias", kQueryBias}};
constexpr GgufPair kBias[] = {{"bias", kQueryBias}};
constexpr GgufPair kUseBias[] = {{"use_bias", kQueryBias}};
constexpr GgufPair kStablelmFlags[] = {{"use_qkv_bias", kQueryBias}, {"qk_layernorm", kQueryNorm}};
constexpr GgufPair kBiasAndNorms[] = {{"attention_bias", kQueryBias}, {"use_qk_norm", kQueryNorm}};

constexpr GgufLayerNumber kXielu[] = {{"xielu.alpha_p", "mlp.act.positive", "act_positive"},
                                      {"xielu.alpha_n", "mlp.act.negative", "act_negative"},
                                      {.key = "xielu.beta", .only = 0.5},
                                      {.key = "xielu.eps", .only = -1e-6}};

constexpr GgufPair kPostNormWords[] = {{"mlp.norm", "post_attention_norm"}};
constexpr GgufPair kFalconWords[] = {{"attn.norm", "attn_norm_2"}, {"mlp.norm", "attn_norm"}};

// Score scale: the largest Gemmas use hidden size / heads, the others the head dim.
void set_score_scale(GgufFields& f, int64_t largest) {
  const bool is_largest = f.layers() == largest;
  const double heads = f.number("attention.head_count", 1);
  f.config["query_pre_attn_scalar"] =
      is_largest ? std::floor(f.number("embedding_length", 0) / heads) : f.head_dim();
}
void complete_gemma2(GgufFields& f) {
  set_score_scale(f, 46);
  if (!f.config.contains("sliding_window")) f.config["sliding_window"] = 4096;
  f.set_windows(2);
}
void complete_gemma3(GgufFields& f) {
  set_score_scale(f, 62);
  f.set_windows(6);
}
void complete_olmo2(GgufFields& f) {
  if (!f.config.contains("sliding_window")) return;
  f.config["architectures"] = json::array{"Olmo3ForCausalLM"};
  f.set_windows(4);
}
void complete_windows(GgufFields& f) {
  if (f.config.contains("sliding_window")) f.set_windows(4);
}
// The files lack `truncate`, which is false.
void complete_gpt_oss(GgufFields& f) {
  if (f.config.contains("sliding_window")) f.set_windows(2);
  if (json::value* scaling = f.config.if_contains("rope_scaling"))
    scaling->as_object()["truncate"] = false;
}
// The converter writes Mixtral as architecture llama.
void complete_llama(GgufFields& f) {
  if (f.config.contains("num_local_experts"))
    f.config["architectures"] = json::array{"MixtralForCausalLM"};
}
// An absent window means none, unlike in config.json. Position-scaled scores: Ministral 3.
void complete_mistral3(GgufFields& f) {
  if (!f.config.contains("sliding_window")) f.config["sliding_window"] = nullptr;
  const double growth = f.number("attention.temperature_scale", 0);
  if (growth == 0) return;
  f.config["architectures"] = json::array{"Ministral3ForCausalLM"};
  json::value& scaling = f.config["rope_scaling"];
  if (scaling.is_null()) scaling = json::object{{"rope_type", "default"}};
  scaling.as_object()["llama_4_scaling_beta"] = growth;
}
// The files lack the field, which is true.
void complete_qwen3moe(GgufFields& f) {
  if (!f.config.contains("norm_topk_prob")) f.config["norm_topk_prob"] = true;
}
void complete_neox(GgufFields& f) {
  const json::value fraction = f.config["partial_rotary_factor"];
  f.config["rotary_pct"] = fraction;
  f.config.erase("partial_rotary_factor");
}
void complete_stablelm(GgufFields& f) {
  f.config["use_parallel_residual"] = !f.has("blk.0.ffn_norm.weight");
}
void complete_starcoder(GgufFields& f) {
  f.config["multi_query"] = f.number("attention.head_count_kv", 1) == 1;
}
void complete_falcon(GgufFields& f) {
  const bool has_two_norms = f.has("blk.0.attn_norm_2.weight");
  const double heads = f.number("attention.head_count_kv", 1);
  const bool newer = has_two_norms || (heads != 1 && heads != f.number("attention.head_count", 1));
  f.config["new_decoder_architecture"] = newer;
  f.config["num_ln_in_parallel_attn"] = has_two_norms ? 2 : 1;
  f.config["multi_query"] = heads == 1;
}
void complete_mpt(GgufFields& f) {
  const double bias = f.number("attention.max_alibi_bias", 0);
  json::object attention = {{"attn_type", "multihead_attention"}, {"alibi", bias != 0}};
  if (bias != 0) attention["alibi_bias_max"] = bias;
  if (const json::value* limit = f.find("attention.clamp_kqv")) attention["clip_qkv"] = *limit;
  f.config["attn_config"] = std::move(attention);
}
// Models with ALiBi are recognised by their number of layers.
void complete_baichuan(GgufFields& f) {
  if (f.layers() != 40) return;
  const json::value length = f.config["max_position_embeddings"];
  f.config["model_max_length"] = length;
  f.config.erase("max_position_embeddings");
}
constexpr int kSoftmax = 1, kSigmoid = 2;  // expert_gating_func

json::value whole_number(double value) {
  return std::abs(value) < 1e9 ? json::value(static_cast<int64_t>(value)) : json::value(0);
}
// MLA; `rotary_dims`: rotary dims of a head.
void set_latent(GgufFields& f, double key_length, double rotary_dims) {
  f.config["qk_rope_head_dim"] = whole_number(rotary_dims);
  f.config["qk_nope_head_dim"] = whole_number(key_length - rotary_dims);
  for (const char* rank : {"kv_lora_rank", "q_lora_rank"})
    if (const json::value* value = f.find(std::string("attention.") + rank))
      f.config[rank] = *value;
  if (!f.has("blk.0.attn_q_a.weight")) f.config.erase("q_lora_rank");
  const json::value heads = f.config["num_attention_heads"];
  f.config["num_key_value_heads"] = heads;
  f.config.erase("partial_rotary_factor");
}
void complete_deepseek2(GgufFields& f) {
  const bool absorbed = f.find("attention.key_length_mla") != nullptr;
  const auto length = [&](std::string_view key) {
    return f.number(std::string(key) + (absorbed ? "_mla" : ""), 0);
  };
  set_latent(f, length("attention.key_length"), f.number("rope.dimension_count", 0));
  f.config["v_head_dim"] = whole_number(length("attention.value_length"));
  for (const char* absent : {"n_shared_experts", "first_k_dense_replace"})
    if (!f.config.contains(absent)) f.config[absent] = 0;
  if (!f.config.contains("routed_scaling_factor")) f.config["routed_scaling_factor"] = 1.0;
  for (const char* groups : {"n_group", "topk_group"})
    if (!f.config.contains(groups)) f.config[groups] = 1;
  // Files of GLM 4.7 Flash lack the function; corrections imply sigmoid.
  const double dense = f.number("leading_dense_block_count", 0);
  const bool corrected =
      dense >= 0 && dense < kMaxLayers && f.has(fmt::format("blk.{:.0f}.exp_probs_b.bias", dense));
  if (f.number("expert_gating_func", corrected ? kSigmoid : kSoftmax) == kSigmoid) {
    f.config["architectures"] = json::array{"DeepseekV3ForCausalLM"};
    f.config["topk_method"] = "noaux_tc";
    if (!f.config.contains("norm_topk_prob")) f.config["norm_topk_prob"] = false;
  } else if (f.config["n_group"] != json::value(1)) {
    f.config["topk_method"] = "group_limited_greedy";
  }
}

// Absent: sigmoid.
void set_scoring(GgufFields& f) {
  const double function = f.number("expert_gating_func", kSigmoid);
  f.config["scoring_func"] = function == 0 || function == kSigmoid ? "sigmoid"
                             : function == kSoftmax
                                 ? "softmax"
                                 : fmt::format("expert_gating_func {}", function);
}
// Sets a field whose absence in GGUF has a meaning other than the family's default.
void set_absent(GgufFields& f, std::string_view field, const json::value& value) {
  if (!f.config.contains(field)) f.config[field] = value;
}
void set_corrected_moe(GgufFields& f, std::string_view shared_experts) {
  set_scoring(f);
  set_absent(f, shared_experts, 0);
  set_absent(f, "first_k_dense_replace", 0);
  set_absent(f, "routed_scaling_factor", 1.0);
  set_absent(f, "norm_topk_prob", false);
  for (const char* groups : {"n_group", "topk_group"})
    if (f.config.contains(groups) && f.config[groups] == json::value(0)) f.config.erase(groups);
}
void complete_corrected_moe(GgufFields& f) { set_corrected_moe(f, "n_shared_experts"); }
// An absent window means none, unlike in config.json.
void complete_dots1(GgufFields& f) {
  complete_corrected_moe(f);
  set_absent(f, "sliding_window", nullptr);
}
void complete_exaone_moe(GgufFields& f) {
  set_corrected_moe(f, "num_shared_experts");
  complete_windows(f);
}
void complete_ernie_moe(GgufFields& f) {
  set_absent(f, "moe_num_shared_experts", 0);
  set_absent(f, "moe_layer_start_index", 0);
}
void complete_granite_moe(GgufFields& f) {
  const double shared = f.number("expert_shared_feed_forward_length", 0);
  if (shared > 0) f.config["architectures"] = json::array{"GraniteMoeSharedForCausalLM"};
  if (f.number("expert_count", 0) > 0) return;
  // Without experts the shared one is a plain MLP.
  f.config["architectures"] = json::array{"GraniteForCausalLM"};
  for (const char* field : {"num_local_experts", "num_experts_per_tok", "shared_intermediate_size"})
    f.config.erase(field);
  f.config["intermediate_size"] =
      static_cast<int64_t>(shared > 0 ? shared : f.number("feed_forward_length", 0));
}
// Chunk size, layers without RoPE and temperature tuning are missing in the files: values of the
// published models. A window of 0: none of them. QK norms: all but the model with 128 experts.
void complete_llama4(GgufFields& f) {
  constexpr int kMaverickExperts = 128;
  f.config["use_qk_norm"] = f.number("expert_count", 0) != kMaverickExperts;
  const bool has_chunks = f.number("attention.sliding_window", 1) != 0;
  f.config["attention_chunk_size"] = has_chunks ? json::value(8192) : json::value(nullptr);
  f.config["attn_temperature_tuning"] = has_chunks;
  if (!has_chunks)
    f.config["no_rope_layers"] = json::array(static_cast<size_t>(f.layers()), json::value(1));
}
// Scales missing in files of MiniCPM 1, and always in MiniCPM 3: constants of llama.cpp.
void set_minicpm_scales(GgufFields& f, double embedding, double depth, double base) {
  f.config["scale_emb"] = embedding;
  f.config["scale_depth"] = depth;
  f.config["dim_model_base"] = base;
}
void complete_minicpm(GgufFields& f) {
  set_minicpm_scales(f, f.number("embedding_scale", 12), 1.4, 256);
  const double residual = f.number("residual_scale", 0), logits = f.number("logit_scale", 0);
  if (residual > 0) f.config["scale_depth"] = residual * std::sqrt(static_cast<double>(f.layers()));
  if (logits > 0) f.config["dim_model_base"] = f.number("embedding_length", 0) / logits;
}
void complete_minicpm3(GgufFields& f) {
  set_minicpm_scales(f, 12, 1.4, 256);
  set_latent(f, f.number("attention.key_length", 0), f.number("rope.dimension_count", 0));
}

constexpr GgufArchitecture kArchitectures[] = {
    {.name = "llama",
     .family = "LlamaForCausalLM",
     .flags = kBiases,
     .is_paired = true,
     .complete = complete_llama},
    {.name = "mistral3",
     .family = "MistralForCausalLM",
     .keys = kMistral3Keys,
     .is_paired = true,
     .complete = complete_mistral3},
    {.name = "qwen2", .family = "Qwen2ForCausalLM"},
    {.name = "qwen3", .family = "Qwen3ForCausalLM", .flags = kAttentionBias},
    {.name = "qwen2moe", .family = "Qwen2MoeForCausalLM", .flags = kQkvBias},
    {.name = "qwen3moe",
     .family = "Qwen3MoeForCausalLM",
     .flags = kAttentionBias,
     .complete = complete_qwen3moe},
    {.name = "deepseek2",
     .family = "DeepseekV2ForCausalLM",
     .keys = kDeepseekKeys,
     .complete = complete_deepseek2},
    {.name = "gpt-oss",
     .family = "GptOssForCausalLM",
     .keys = kGptOssKeys,
     .flags = kAttentionBias,
     .words = kPostNormWords,
     .complete = complete_gpt_oss},
    {.name = "gemma", .family = "GemmaForCausalLM", .flags = kAttentionBias},
    {.name = "gemma2", .family = "Gemma2ForCausalLM", .complete = complete_gemma2},
    {.name = "gemma3",
     .family = "Gemma3ForCausalLM",
     .keys = kGemma3Keys,
     .complete = complete_gemma3},
    {.name = "phi2", .family = "PhiForCausalLM", .keys = kLayerNormEps},
    {.name = "phi3", .family = "Phi3ForCausalLM"},
    {.name = "chatglm", .family = "GlmForCausalLM", .flags = kAttentionBias},
    {.name = "glm4", .family = "Glm4ForCausalLM", .flags = kAttentionBias},
    {.name = "granite",
     .family = "GraniteForCausalLM",
     .keys = kGraniteKeys,
     .flags = kBiases,
     .is_paired = true},
    {.name = "arcee", .family = "ArceeForCausalLM", .flags = kBiases, .is_paired = true},
    {.name = "smollm3", .family = "SmolLM3ForCausalLM", .flags = kBiases, .is_paired = true},
    {.name = "nemotron", .family = "NemotronForCausalLM", .keys = kNemotronKeys, .flags = kBiases},
    {.name = "ernie4_5", .family = "Ernie4_5ForCausalLM", .flags = kUseBias},
    {.name = "seed_oss",
     .family = "SeedOssForCausalLM",
     .flags = kSeedBiases,
     .words = kPostNormWords},
    {.name = "command-r",
     .family = "CohereForCausalLM",
     .keys = kLayerNormEps,
     .flags = kBiasAndNorms},
    {.name = "cohere2",
     .family = "Cohere2ForCausalLM",
     .keys = kLayerNormEps,
     .flags = kAttentionBias,
     .complete = complete_windows},
    {.name = "olmo", .family = "OlmoForCausalLM", .flags = kAttentionBias, .is_paired = true},
    {.name = "olmo2",
     .family = "Olmo2ForCausalLM",
     .flags = kAttentionBias,
     .complete = complete_olmo2},
    {.name = "olmoe", .family = "OlmoeForCausalLM", .flags = kAttentionBias},
    {.name = "exaone4", .family = "Exaone4ForCausalLM", .complete = complete_windows},
    {.name = "starcoder2",
     .family = "Starcoder2ForCausalLM",
     .keys = kStarcoder2Keys,
     .flags = kUseBias},
    {.name = "stablelm",
     .family = "StableLmForCausalLM",
     .keys = kLayerNormEps,
     .flags = kStablelmFlags,
     .complete = complete_stablelm},
    {.name = "internlm2", .family = "InternLM2ForCausalLM", .flags = kBias, .is_paired = true},
    {.name = "baichuan",
     .family = "BaichuanForCausalLM",
     .is_paired = true,
     .complete = complete_baichuan},
    {.name = "falcon",
     .family = "FalconForCausalLM",
     .keys = kFalconKeys,
     .words = kFalconWords,
     .complete = complete_falcon},
    {.name = "mpt", .family = "MptForCausalLM", .keys = kMptKeys, .complete = complete_mpt},
    {.name = "bloom", .family = "BloomForCausalLM", .keys = kBloomKeys},
    {.name = "gptneox",
     .family = "GPTNeoXForCausalLM",
     .keys = kNeoxKeys,
     .flags = kAttentionBias,
     .complete = complete_neox},
    {.name = "llama4",
     .family = "Llama4ForCausalLM",
     .keys = kLlama4Keys,
     .flags = kAttentionBias,
     .complete = complete_llama4},
    {.name = "glm4moe",
     .family = "Glm4MoeForCausalLM",
     .keys = kCorrectedMoeKeys,
     .flags = kBiasAndNorms,
     .words = kPostNormWords,
     .complete = complete_corrected_moe},
    {.name = "dots1",
     .family = "Dots1ForCausalLM",
     .keys = kCorrectedMoeKeys,
     .flags = kAttentionBias,
     .complete = complete_dots1},
    {.name = "exaone-moe",
     .family = "ExaoneMoeForCausalLM",
     .keys = kExaoneMoeKeys,
     .complete = complete_exaone_moe},
    {.name = "hunyuan-dense", .family = "HunYuanDenseV1ForCausalLM", .flags = kBiasAndNorms},
    {.name = "hunyuan-moe",
     .family = "HunYuanMoEV1ForCausalLM",
     .keys = kHunyuanMoeKeys,
     .flags = kBiasAndNorms},
    {.name = "minimax-m2",
     .family = "MiniMaxM2ForCausalLM",
     .keys = kMinimaxM2Keys,
     .complete = set_scoring},
    {.name = "granitemoe",
     .family = "GraniteMoeForCausalLM",
     .keys = kGraniteMoeKeys,
     .flags = kAttentionBias,
     .is_paired = true,
     .complete = complete_granite_moe},
    {.name = "ernie4_5-moe",
     .family = "Ernie4_5_MoeForCausalLM",
     .keys = kErnieMoeKeys,
     .flags = kUseBias,
     .complete = complete_ernie_moe},
    {.name = "apertus", .family = "ApertusForCausalLM", .flags = kAttentionBias, .numbers = kXielu},
    {.name = "minicpm",
     .family = "MiniCPMForCausalLM",
     .keys = kMinicpmKeys,
     .is_paired = true,
     .complete = complete_minicpm},
    {.name = "minicpm3",
     .family = "MiniCPM3ForCausalLM",
     .keys = kMinicpm3Keys,
     .complete = complete_minicpm3},
    {.name = "gpt2", .family = "GPT2LMHeadModel", .keys = kGpt2Keys},
    {.name = "starcoder",
     .family = "GPTBigCodeForCausalLM",
     .keys = kGpt2Keys,
     .complete = complete_starcoder},
};

}  // namespace

const json::value* GgufFields::find(std::string_view key) const {
  return metadata.if_contains(fmt::format("{}.{}", layout.architecture, key));
}

double GgufFields::number(std::string_view key, double fallback) const {
  const json::value* value = find(key);
  if (value && value->is_bool()) return value->get_bool() ? 1 : 0;
  return value && value->is_number() ? value->to_number<double>() : fallback;
}

int64_t GgufFields::layers() const {
  const double count = number("block_count", 0) - number("nextn_predict_layers", 0);
  return count >= 1 && count <= kMaxLayers ? static_cast<int64_t>(count) : 0;
}

double GgufFields::head_dim() const {
  const double heads = number("attention.head_count", 1);
  return number("attention.key_length", std::floor(number("embedding_length", 0) / heads));
}

void GgufFields::set_windows(int64_t period) {
  const json::value* pattern = find("attention.sliding_window_pattern");
  const json::array* listed = pattern ? pattern->if_array() : nullptr;
  if (pattern && pattern->is_int64() && pattern->get_int64() > 0) period = pattern->get_int64();
  const bool has_window = config.contains("sliding_window");
  json::array kinds;
  const int64_t count = listed ? std::min(std::ssize(*listed), layers()) : layers();
  for (int64_t i = 0; i < count; ++i) {
    const json::value* one = listed ? &(*listed)[static_cast<size_t>(i)] : nullptr;
    const bool is_windowed =
        one ? *one != json::value(false) && *one != json::value(0) : (i + 1) % period != 0;
    kinds.push_back(
        json::value(has_window && is_windowed ? "sliding_attention" : "full_attention"));
  }
  config["layer_types"] = std::move(kinds);
}

const GgufArchitecture* find_gguf_architecture(std::string_view name) {
  const auto* row = std::ranges::find(kArchitectures, name, &GgufArchitecture::name);
  return row == std::end(kArchitectures) ? nullptr : row;
}

std::string gguf_architecture_names() {
  std::string names;
  for (const GgufArchitecture& row : kArchitectures)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
  return names;
}

}  // namespace nereid::models
