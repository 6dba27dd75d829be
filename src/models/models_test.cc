#include <gmock/gmock.h>

#include <array>

#include "base/python_json.h"
#include "graph/verify.h"
#include "models/models_fixture.h"
#include "models/weights.h"

namespace nereid::models {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(ModelsTest, QuickStartModel) {
  const auto model = read_model(kSource + "/models/quickstart/");
  ASSERT_TRUE(model.ok()) << model.status();
  const io::ModelFacts& m = model->graph.model;
  EXPECT_EQ(m.name, "quickstart");
  EXPECT_EQ(m.architecture, "LlamaForCausalLM");
  EXPECT_EQ(m.num_layers, 6);
  EXPECT_EQ(m.head_dim, 64);
  EXPECT_EQ(m.bos_id, io::kNone);
  EXPECT_EQ(m.pad_id, 1);
  EXPECT_THAT(m.end_ids, ElementsAre(3, 0));
  EXPECT_TRUE(model->traits.tied_embedding);
  EXPECT_TRUE(graph::verify(model->graph).ok());
  const auto checkpoint = io::Checkpoint::open(kSource + "/models/quickstart");
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_TRUE(check_tensors(model->graph, *checkpoint, model->traits, model->family->ignores).ok());
}

TEST_F(ModelsTest, HostileConfigsAreRefusedByName) {
  EXPECT_EQ(error_with("vocab_size", 512), "");
  EXPECT_THAT(error_with("vocab_size", 0),
              HasSubstr("config.json: field 'vocab_size': 0 is not an integer in [1, 16777216]"));
  EXPECT_THAT(error_with("vocab_size", 5.5), HasSubstr("5.5E0 is not an integer"));
  EXPECT_THAT(error_with("hidden_size", int64_t{1} << 40), HasSubstr("'hidden_size'"));
  EXPECT_THAT(error_with("hidden_size", "64"), HasSubstr("\"64\" is not an integer"));
  EXPECT_THAT(error_with("num_hidden_layers", 1e9), HasSubstr("'num_hidden_layers'"));
  EXPECT_THAT(error_with("num_key_value_heads", 3), HasSubstr("3 does not divide"));
  EXPECT_THAT(error_with("num_key_value_heads", 8), HasSubstr("not an integer in [1, 4]"));
  EXPECT_THAT(error_with("head_dim", 15), HasSubstr("15 is not an even number"));
  EXPECT_THAT(error_with("rms_norm_eps", -1), HasSubstr("'rms_norm_eps'"));
  EXPECT_THAT(error_with("rope_theta", 0), HasSubstr("'rope_theta'"));
  EXPECT_THAT(error_with("hidden_act", "relu6"), HasSubstr("'relu6' is not one of silu"));
  EXPECT_THAT(error_with("tie_word_embeddings", 1), HasSubstr("1 is not true or false"));
  EXPECT_THAT(error_with("eos_token_id", 512), HasSubstr("'eos_token_id': 512"));
  EXPECT_THAT(error_with("quantization_config", json::object()),
              HasSubstr("'quant_method': '' is not one of gptq, awq, compressed-tensors"));
  EXPECT_THAT(error_with("partial_rotary_factor", 0.5), HasSubstr("only 1E0 is"));
  EXPECT_THAT(error_with("architectures", {"BertModel"}),
              HasSubstr("'BertModel' is not supported; these are: LlamaForCausalLM"));
  EXPECT_THAT(error_without("architectures"), HasSubstr("'architectures'"));
  for (const std::string_view key : {"vocab_size", "hidden_size", "intermediate_size",
                                     "num_hidden_layers", "max_position_embeddings"})
    EXPECT_THAT(error_without(key), HasSubstr(fmt::format("'{}': is missing", key)));
  ASSERT_TRUE(write_file_atomic(dir_ / "config.json", "{\n  \"a\": }").ok());
  EXPECT_THAT(std::string(message(read_model(dir_).status())), HasSubstr("line 2, column"));
}

TEST_F(ModelsTest, RopeScalingsAreNamedAndChecked) {
  const auto error = [&](json::object scaling) { return error_with("rope_scaling", scaling); };
  EXPECT_EQ(error({{"type", "linear"}, {"factor", 2}}), "");
  EXPECT_EQ(error({{"type", "dynamic"}, {"factor", 2}}), "");
  EXPECT_THAT(error({{"rope_type", "mrope"}, {"factor", 2}}),
              HasSubstr("rope_scaling: field 'rope_type': 'mrope' is not one of default"));
  EXPECT_THAT(error({{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}),
              HasSubstr("'partial_rotary_factor': 5E-1 is not supported"));
  EXPECT_THAT(error({{"rope_type", "linear"}}), HasSubstr("'factor': is missing"));
  EXPECT_THAT(error({{"rope_type", "linear"}, {"factor", 0}}), HasSubstr("'factor'"));
  EXPECT_THAT(error({{"rope_type", "llama3"},
                     {"factor", 8},
                     {"low_freq_factor", 4},
                     {"high_freq_factor", 3},
                     {"original_max_position_embeddings", 64}}),
              HasSubstr("'high_freq_factor': 3 is below low_freq_factor 4"));
  EXPECT_EQ(error({{"rope_type", "llama3"},
                   {"factor", 8},
                   {"low_freq_factor", 1},
                   {"high_freq_factor", 1},
                   {"original_max_position_embeddings", 64}}),
            "");
  EXPECT_EQ(error({{"rope_type", "yarn"}, {"factor", 4}, {"mscale", 1}}), "");
  EXPECT_THAT(error({{"rope_type", "yarn"}, {"factor", 4}, {"mscale", -1}}),
              HasSubstr("'mscale': -1"));
}

// Fields that change the computation of other families.
TEST_F(ModelsTest, FieldsOfOtherFamiliesAreRefusedByName) {
  EXPECT_EQ(error_with("logit_scale", 1), "");
  EXPECT_THAT(error_with("logit_scale", 0.125),
              HasSubstr("field 'logit_scale': 1.25E-1 is not supported, only 1E0 is"));
  EXPECT_THAT(error_with("residual_multiplier", 0.5), HasSubstr("'residual_multiplier'"));
  EXPECT_THAT(error_with("use_qk_norm", true), HasSubstr("'use_qk_norm': true"));
  EXPECT_THAT(error_with("layer_types", {"full_attention", "sliding_attention"}),
              HasSubstr("'layer_types': 'sliding_attention' is not supported"));
}

// Neutral fields that transformers adds when it saves a model.
TEST_F(ModelsTest, ConfigurationsAsTransformersSavesThem) {
  const auto traits = [&](const std::string& name, const json::object& fields) {
    json::object config =
        read_json_file(kSource + "/tests/models/" + name + "/config.json")->as_object();
    for (const auto& [key, value] : fields) config[key] = value;
    const auto model = read(config);
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? print(model->traits) : "";
  };
  const json::object plain_rope = {{"rope_theta", 1e4}, {"rope_type", "default"}};
  EXPECT_EQ(traits("falcon-alibi", {{"rope_parameters", plain_rope}}), traits("falcon-alibi", {}));
  EXPECT_EQ(traits("gpt_neox-in-turn", {{"partial_rotary_factor", 0.25}}),
            traits("gpt_neox-in-turn", {}));
  EXPECT_EQ(traits("gpt_neox-in-turn", {{"rotary_pct", nullptr}, {"partial_rotary_factor", 0.25}}),
            traits("gpt_neox-in-turn", {}));
}

TEST_F(ModelsTest, QuantisationsThatAreNotReadAreRefusedByName) {
  const auto error = [&](const json::object& quantization) {
    return error_with("quantization_config", quantization);
  };
  EXPECT_EQ(error({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", -1}}), "");
  EXPECT_THAT(error({{"quant_method", "hqq"}}), HasSubstr("'hqq' is not one of gptq, awq"));
  EXPECT_THAT(error({{"quant_method", "gptq"}, {"bits", 3}}), HasSubstr("'bits': 3 is not one of"));
  EXPECT_THAT(error({{"quant_method", "gptq"}}), HasSubstr("'bits'"));
  EXPECT_THAT(error({{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 0}}),
              HasSubstr("'group_size': 0 is not -1 or above 0"));
  EXPECT_THAT(error({{"quant_method", "gptq"}, {"bits", 4}, {"checkpoint_format", "marlin"}}),
              HasSubstr("'marlin' is not one of gptq, gptq_v2"));
  EXPECT_THAT(error({{"quant_method", "gptq"}, {"bits", 4}, {"dynamic", {{"a", 1}}}}),
              HasSubstr("'dynamic': rules for single modules"));
  EXPECT_THAT(error({{"quant_method", "awq"}, {"version", "gemv"}}), HasSubstr("'gemv' is not"));
  EXPECT_THAT(error({{"quant_method", "awq"}, {"bits", 8}}), HasSubstr("'bits': 8"));
  EXPECT_THAT(error({{"quant_method", "compressed-tensors"}, {"format", "marlin-24"}}),
              HasSubstr("'marlin-24' is not one of pack-quantized"));
  EXPECT_THAT(error({{"quant_method", "compressed-tensors"},
                     {"sparsity_config", {{"format", "sparse-24-bitmask"}}}}),
              HasSubstr("'sparse-24-bitmask' is not one of dense"));
  EXPECT_THAT(error({{"quant_method", "compressed-tensors"},
                     {"transform_config", {{"config_groups", {{"a", json::object()}}}}}}),
              HasSubstr("rotated weights are not supported"));
  EXPECT_THAT(error({{"quant_method", "fp8"}, {"fmt", "e5m2"}}), HasSubstr("'e5m2' is not one of"));
  EXPECT_THAT(error({{"quant_method", "fp8"}, {"weight_block_size", {128}}}),
              HasSubstr("'weight_block_size': is not rows and columns"));
  EXPECT_THAT(error({{"quant_method", "fp8"}, {"weight_block_size", {0, 128}}}),
              HasSubstr("'weight_block_size'"));
}

TEST_F(ModelsTest, TheCheckpointSaysHowKeysAndValuesAreCached) {
  const auto cache_with = [&](const json::object& quantization) {
    json::object config = config_;
    if (!quantization.empty()) config["quantization_config"] = quantization;
    const auto model = read(config);
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? model->graph.model.kv_dtype : DType::kF32;
  };
  const auto scheme = [](int bits, const char* type) {
    return json::object{{"quant_method", "compressed-tensors"},
                        {"kv_cache_scheme", {{"num_bits", bits}, {"type", type}}}};
  };
  EXPECT_EQ(cache_with(scheme(8, "float")), DType::kF8E4M3);
  EXPECT_EQ(cache_with(scheme(8, "int")), DType::kI8);
  EXPECT_EQ(cache_with({{"quant_method", "compressed-tensors"}, {"kv_cache_scheme", nullptr}}),
            DType::kBF16);
  const auto named = [](const char* name) {
    return json::object{{"quant_method", "modelopt"}, {"kv_cache_quant_algo", name}};
  };
  EXPECT_EQ(cache_with(named("FP8")), DType::kF8E4M3);
  EXPECT_EQ(cache_with(named("INT8")), DType::kI8);
  EXPECT_EQ(cache_with(named("NO_QUANT")), DType::kBF16);
  EXPECT_THAT(error_with("quantization_config", named("NVFP4")),
              HasSubstr("'kv_cache_quant_algo': 'NVFP4' is not one of null, NO_QUANT, INT8, FP8"));
  EXPECT_THAT(error_with("quantization_config", scheme(4, "float")),
              HasSubstr("kv_cache_scheme: field 'num_bits': 4 is not"));
  EXPECT_THAT(error_with("quantization_config", scheme(8, "half")),
              HasSubstr("'half' is not one of float, int"));
  const auto beside = [&](const char* name) {
    const json::object file = {{"quantization", {{"kv_cache_quant_algo", name}}}};
    ASSERT_TRUE(write_file_atomic(dir_ / "hf_quant_config.json", json::serialize(file)).ok());
  };
  beside("FP8");
  EXPECT_EQ(cache_with({}), DType::kF8E4M3);
  beside("NVFP4");
  EXPECT_THAT(error_with("quantization_config", nullptr),
              HasSubstr("hf_quant_config.json: quantization: field 'kv_cache_quant_algo': 'NVFP4' "
                        "is not one of null, NO_QUANT, INT8, FP8"));
}

// Unsupported or nonsensical settings.
TEST_F(ModelsTest, FamiliesRefuseByName) {
  struct Refusal {
    std::string model, field;
    json::value value;
    std::string_view error;
  };
  const json::value long_rope = {
      {"type", "longrope"}, {"short_factor", {1.0, 2.0}}, {"long_factor", {1.0, 2.0}}};
  const Refusal kRefusals[] = {
      {"phi3", "rope_scaling", long_rope, "'short_factor': 2 numbers for 8 frequencies"},
      {"phi3",
       "rope_scaling",
       {{"type", "longrope"}, {"short_factor", 5}},
       "rope_scaling: field 'short_factor': is not an array of at most 1024 numbers"},
      {"phi3",
       "rope_scaling",
       {{"type", "longrope"}, {"short_factor", {1.0, 0.0}}},
       "'short_factor': 0E0 is not a number in [0.001, 1000000]"},
      {"llama-longrope", "rope_scaling", {{"type", "longrope"}, {"factor", 0}}, "'factor': 0"},
      {"phimoe", "router_jitter_noise", -1, "'router_jitter_noise': -1"},
      {"smollm3", "no_rope_layers", {1, 0}, "2 numbers for 3 layers"},
      {"granite", "logits_scaling", 0, "'logits_scaling': 0"},
      {"baichuan2", "tie_word_embeddings", true, "'tie_word_embeddings': true"},
      {"cohere2", "use_qk_norm", true, "'use_qk_norm': true"},
      {"cohere", "logit_scale", 0, "'logit_scale': 0"},
      {"stablelm", "qk_layernorm", 1, "'qk_layernorm'"},
      {"stablelm", "partial_rotary_factor", 0.2, "0.2 of 16 columns is not an even number"},
      {"phi", "qk_layernorm", true, "'qk_layernorm': true"},
      {"gpt_neox", "rotary_pct", 2, "'rotary_pct': 2"},
      {"gptj", "rotary_dim", 7, "'rotary_dim': 7 is odd"},
      {"opt", "_remove_final_layer_norm", true, "'_remove_final_layer_norm': true"},
      {"opt", "layer_norm_elementwise_affine", false, "_elementwise_affine': false"},
      {"opt", "word_embed_proj_dim", 0, "'word_embed_proj_dim': 0"},
      {"mpt", "attn_config", {{"alibi", false}}, "attn_config: field 'alibi': false"},
      {"mpt", "attn_config", {{"alibi", true}, {"clip_qkv", -8}}, "'clip_qkv': -8"},
      {"mpt", "no_bias", false, "'no_bias': false"},
      {"falcon", "alibi", 1, "'alibi': 1 is not true or false"},
      {"falcon", "num_ln_in_parallel_attn", 2, "'num_ln_in_parallel_attn': 2"},
      {"falcon-groups", "num_kv_heads", 4, "4 does not divide num_attention_heads 6"},
      {"gpt_oss", "swiglu_alpha", 1.5, "'swiglu_alpha': 1.5"},
      {"qwen2_moe", "decoder_sparse_step", 0, "'decoder_sparse_step': 0"},
      {"qwen3_moe", "mlp_only_layers", {2}, "'mlp_only_layers': 2"},
      {"deepseek_v2", "topk_method", "noaux_tc", "'noaux_tc' is not one of greedy, group_limited"},
      {"deepseek_v2", "norm_topk_prob", true, "'norm_topk_prob': true"},
      {"deepseek_v2", "num_key_value_heads", 2, "2 is not num_attention_heads 4"},
      {"deepseek_v2", "kv_lora_rank", 15, "'kv_lora_rank': 15 is odd"},
      {"deepseek_v3", "n_group", 3, "3 groups of 8 experts; wanted are equal ones of at least 2"},
      {"deepseek_v3", "n_group", 8, "8 groups of 8 experts; wanted are equal ones of at least 2"},
      {"deepseek_v3", "num_experts_per_tok", 5, "are not enough for num_experts_per_tok 5"},
      {"deepseek_v3", "scoring_func", "softmax", "'scoring_func': \"softmax\""},
      {"deepseek_v3", "qk_rope_head_dim", 1024, "'qk_rope_head_dim': 1024"},
      {"deepseek_v3", "first_k_dense_replace", 4, "'first_k_dense_replace': 4"},
      {"deepseek_v3", "moe_layer_freq", 2, "'moe_layer_freq': 2"},
      {"deepseek_v3", "n_shared_experts", 1 << 30, "'n_shared_experts': 1073741824"},
      {"starcoder2", "norm_type", "rms_norm", "'norm_type': \"rms_norm\""},
  };
  for (const Refusal& r : kRefusals) {
    const std::string path = kSource + "/tests/models/" + r.model + "/config.json";
    config_ = read_json_file(path)->as_object();
    EXPECT_EQ(error_with("use_cache", true), "") << r.model;
    EXPECT_THAT(error_with(r.field, r.value), HasSubstr(r.error)) << r.model;
  }
}

// Sliding windows of the upper layers, if switched on.
TEST_F(ModelsTest, Qwen2Windows) {
  config_ = read_json_file(kSource + "/tests/models/qwen2/config.json")->as_object();
  config_["sliding_window"] = 32;
  EXPECT_EQ(read(config_)->traits.sliding_window, 0);
  config_["use_sliding_window"] = true;
  config_["max_window_layers"] = 1;
  EXPECT_EQ(read(config_)->traits.sliding_window, 32);
  EXPECT_THAT(read(config_)->traits.has_window, ElementsAre(false, true));
}

TEST_F(ModelsTest, AbsentFieldsTakeTheirDefaults) {
  for (const char* key : {"num_key_value_heads", "head_dim", "rope_theta", "rms_norm_eps",
                          "tie_word_embeddings", "hidden_act", "attention_bias"})
    config_.erase(key);
  const auto model = read(config_);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->traits.num_kv_heads, 4);
  EXPECT_EQ(model->traits.head_dim, 16);
  EXPECT_EQ(model->traits.ropes[0].theta, 10000);
  EXPECT_FLOAT_EQ(model->traits.norm_eps, 1e-6f);
}

TEST_F(ModelsTest, BiasesAddTensors) {
  config_["attention_bias"] = true;
  config_["mlp_bias"] = true;
  const auto model = read(config_);
  ASSERT_TRUE(model.ok()) << model.status();
  int biases = 0;
  for (const graph::Weight& w : model->graph.weights)
    biases += w.parts[0].tensor.ends_with(".bias");
  EXPECT_EQ(biases, 2 * 7);
}

// Fields with another name or value in transformers 5.
TEST_F(ModelsTest, Transformers5Fields) {
  config_["architectures"] = {"MistralForCausalLM"};
  config_["sliding_window"] = 0;
  EXPECT_EQ(read(config_)->traits.sliding_window, 0);
  for (const char* name : {"qwen2_moe", "qwen3_moe", "olmoe"}) {
    config_ = read_json_file(kSource + "/tests/models/" + name + "/config.json")->as_object();
    const auto before = read(config_);
    ASSERT_TRUE(before.ok()) << before.status();
    config_["num_local_experts"] = config_["num_experts"];
    config_.erase("num_experts");
    config_["sliding_window"] = 0;
    const auto after = read(config_);
    ASSERT_TRUE(after.ok()) << after.status();
    EXPECT_EQ(after->traits, before->traits) << name;
  }
}

// Python writes NaN and Infinity, which JSON lacks: allowed in unread fields.
TEST_F(ModelsTest, NumbersThatAreNotFinite) {
  config_["time_step_limit"] = "@";
  config_["note"] = "Infinity \"NaN";
  std::string text = json::serialize(config_);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string out = text;
    return out.replace(out.find(from), from.size(), to);
  };
  const auto parsed = parse_python_json(with("\"@\"", "[0.0, Infinity, -Infinity, NaN]"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->at("note"), "Infinity \"NaN");
  EXPECT_TRUE(read(parsed->as_object()).ok());
  config_ = parsed->as_object();
  EXPECT_THAT(error_with("rms_norm_eps", "Infinity"), HasSubstr("'rms_norm_eps'"));
}

TEST_F(ModelsTest, MistralWindow) {
  config_["architectures"] = {"MistralForCausalLM"};
  EXPECT_EQ(read(config_)->traits.sliding_window, 4096);
  config_["sliding_window"] = nullptr;
  EXPECT_EQ(read(config_)->traits.sliding_window, 0);
  config_["sliding_window"] = 32;
  EXPECT_EQ(read(config_)->traits.sliding_window, 32);
}

TEST_F(ModelsTest, Gemma3Layers) {
  config_ = read_json_file(kSource + "/tests/models/gemma3/config.json")->as_object();
  EXPECT_THAT(read(config_)->traits.has_window, ElementsAre(true, true, false));
  EXPECT_THAT(error_with("layer_types", {"sliding_attention"}), HasSubstr("1 kinds for 3 layers"));
  EXPECT_THAT(error_with("layer_types", {"sliding_attention", "a", "b"}),
              HasSubstr("'a' is not one of sliding_attention, full_attention"));
  EXPECT_THAT(error_with("attn_logit_softcapping", 50.0), HasSubstr("'attn_logit_softcapping'"));
  EXPECT_THAT(error_with("query_pre_attn_scalar", 0), HasSubstr("'query_pre_attn_scalar'"));
  EXPECT_EQ(error_with("final_logit_softcapping", 30.0), "");
  // Without the list, every n-th layer has full attention.
  config_.erase("layer_types");
  config_["sliding_window_pattern"] = 2;
  EXPECT_THAT(read(config_)->traits.has_window, ElementsAre(true, false, true));
  // Newer files have an object per kind of layer.
  config_["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 5e5}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 2e4}}}};
  const auto model = read(config_);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->traits.ropes[0].theta, 5e5);
  EXPECT_EQ(model->traits.ropes[0].factor, 8);
  EXPECT_EQ(model->traits.ropes[1].theta, 2e4);
  EXPECT_THAT(error_with("rope_parameters", {{"full_attention", json::object()}}),
              HasSubstr("rope_parameters: field 'sliding_attention': is missing"));
}

TEST_F(ModelsTest, Llama4Layers) {
  config_ = read_json_file(kSource + "/tests/models/llama4-text/config.json")->as_object();
  const auto model = read(config_);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(model->traits.chunked);
  EXPECT_EQ(model->traits.sliding_window, 32);
  EXPECT_THAT(model->traits.has_window, ElementsAre(true, false));
  EXPECT_THAT(model->traits.has_experts, ElementsAre(false, true));
  EXPECT_THAT(error_with("num_experts_per_tok", 2), HasSubstr("only 1 is"));
  EXPECT_THAT(error_with("layer_types", {"sliding_attention", "full_attention"}),
              HasSubstr("'sliding_attention' is not one of chunked_attention, full_attention"));
  config_["attention_chunk_size"] = nullptr;
  EXPECT_FALSE(read(config_)->traits.chunked);
  EXPECT_EQ(read(config_)->traits.sliding_window, 0);
  config_["moe_layers"] = {0};
  EXPECT_THAT(read(config_)->traits.has_experts, ElementsAre(true, false));
}

TEST_F(ModelsTest, MixturesListTheirLayers) {
  config_ = read_json_file(kSource + "/tests/models/glm4_moe/config.json")->as_object();
  EXPECT_THAT(read(config_)->traits.has_experts, ElementsAre(false, true, true));
  EXPECT_THAT(error_with("mlp_layer_types", {"dense"}), HasSubstr("1 kinds for 3 layers"));
  EXPECT_THAT(error_with("mlp_layer_types", {"dense", "sparse", "wide"}),
              HasSubstr("'wide' is not one of dense, sparse"));
  config_["mlp_layer_types"] = {"sparse", "dense", "sparse"};
  EXPECT_THAT(read(config_)->traits.has_experts, ElementsAre(true, false, true));
  config_ = read_json_file(kSource + "/tests/models/hunyuan_v1_moe/config.json")->as_object();
  EXPECT_EQ(error_with("moe_topk", {2, 2}), "");
  EXPECT_THAT(error_with("moe_topk", {2, 1}), HasSubstr("'moe_topk': differs from layer to layer"));
  EXPECT_THAT(error_with("use_mixed_mlp_moe", false), HasSubstr("'use_mixed_mlp_moe'"));
}

TEST_F(ModelsTest, Gpt2Fields) {
  config_ = read_json_file(kSource + "/tests/models/gpt2/config.json")->as_object();
  EXPECT_EQ(read(config_)->traits.intermediate_size, 4 * 48);
  EXPECT_TRUE(read(config_)->graph.model.ropes.empty());
  EXPECT_THAT(error_with("n_head", 5), HasSubstr("48 is not a multiple of n_head 5"));
  EXPECT_THAT(error_with("scale_attn_by_inverse_layer_idx", 1), HasSubstr("not true or false"));
  config_["scale_attn_weights"] = false;
  EXPECT_EQ(read(config_)->traits.attention_scale, 1);
}

TEST_F(ModelsTest, HostileExpertsAreRefusedByName) {
  config_ = read_json_file(kSource + "/tests/models/mixtral/config.json")->as_object();
  EXPECT_EQ(error_with("num_local_experts", 4), "");
  EXPECT_THAT(error_with("num_local_experts", 0),
              HasSubstr("field 'num_local_experts': 0 is not an integer in [1, 1024]"));
  EXPECT_THAT(error_with("num_local_experts", 1 << 20), HasSubstr("'num_local_experts': 1048576"));
  EXPECT_THAT(error_with("num_experts_per_tok", 5),
              HasSubstr("field 'num_experts_per_tok': 5 is not an integer in [1, 4]"));
  EXPECT_THAT(error_with("num_experts_per_tok", 0), HasSubstr("'num_experts_per_tok': 0"));
  config_["num_hidden_layers"] = 1000;
  EXPECT_THAT(error_with("num_local_experts", 1000),
              HasSubstr("1000 experts in each of 1000 layers are more than 131072 in all"));
  config_ = read_json_file(kSource + "/tests/models/qwen3_moe/config.json")->as_object();
  EXPECT_EQ(error_without("norm_topk_prob"), "");
  EXPECT_THAT(error_with("num_experts", 0), HasSubstr("'num_experts': 0"));
  EXPECT_THAT(error_with("num_experts", 1), HasSubstr("'num_experts_per_tok': 2"));
  EXPECT_THAT(error_with("moe_intermediate_size", -1), HasSubstr("'moe_intermediate_size': -1"));
  EXPECT_THAT(error_with("norm_topk_prob", "yes"), HasSubstr("'norm_topk_prob'"));
  EXPECT_THAT(error_with("use_sliding_window", true), HasSubstr("'use_sliding_window'"));
}

TEST_F(ModelsTest, GraniteWithoutExperts) {
  config_ = read_json_file(kSource + "/tests/models/granitemoeshared/config.json")->as_object();
  EXPECT_EQ(read(config_)->traits.num_experts, 8);
  config_["num_local_experts"] = config_["num_experts_per_tok"] = 0;
  const auto model = read(config_);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->traits.num_experts, 0);
  EXPECT_EQ(model->traits.intermediate_size, 24);
  EXPECT_EQ(model->traits.shared_intermediate_size, 0);
  EXPECT_THAT(error_with("shared_intermediate_size", 0),
              HasSubstr("'shared_intermediate_size': 0"));
  // Without a shared expert there is no MLP at all.
  EXPECT_THAT(error_with("architectures", {"GraniteMoeForCausalLM"}),
              HasSubstr("field 'num_local_experts': 0 is not an integer in [1, 1024]"));
  config_["architectures"] = json::array{"GraniteMoeHybridForCausalLM"};
  EXPECT_THAT(error_without("layer_types"), HasSubstr("'layer_types': 0 words for 2 layers"));
  EXPECT_THAT(error_with("layer_types", {"attention", "mamba"}),
              HasSubstr("'layer_types': 'mamba' is not supported, only 'attention' is"));
  config_["layer_types"] = json::array{"attention", "attention"};
  EXPECT_EQ(read(config_)->traits.has_rope, std::vector<bool>(2, false));
  EXPECT_EQ(error_with("layer_types", {"full_attention", "full_attention"}), "");
  EXPECT_EQ(error_with("position_embedding_type", nullptr), "");
  EXPECT_THAT(error_with("position_embedding_type", "alibi"),
              HasSubstr("'position_embedding_type': 'alibi' is not one of rope, nope"));
}

// MTP layers are ignored; other layers beyond num_hidden_layers are errors.
TEST_F(ModelsTest, ExtraLayersAreLeftOut) {
  const auto model = read_model(kSource + "/tests/models/deepseek_v3");
  ASSERT_TRUE(model.ok()) << model.status();
  Traits t = model->traits;
  EXPECT_FALSE(decoder_ignores(t, "model.layers.3.eh_proj.weight"));
  t.num_mtp_layers = 1;
  EXPECT_TRUE(decoder_ignores(t, "model.layers.3.eh_proj.weight"));
  EXPECT_FALSE(decoder_ignores(t, "model.layers.2.eh_proj.weight"));
  EXPECT_FALSE(decoder_ignores(t, "model.layers.30.eh_proj.weight"));
}

// One key per token that contains its value; corrections stay f32.
TEST_F(ModelsTest, LatentAttention) {
  const auto model = read_model(kSource + "/tests/models/deepseek_v3");
  ASSERT_TRUE(model.ok()) << model.status();
  const io::ModelFacts& facts = model->graph.model;
  EXPECT_EQ(facts.num_heads, 4);
  EXPECT_EQ(facts.num_kv_heads, 1);
  EXPECT_EQ(facts.head_dim, 24);
  EXPECT_EQ(facts.latent, 16);
  const auto find = [&](std::string_view name) {
    const auto found = std::ranges::find(model->graph.weights, name, &graph::Weight::name);
    return found == model->graph.weights.end() ? graph::Weight() : *found;
  };
  const graph::Weight keys = find("layers.0.attn.k.up"), values = find("layers.0.attn.v.up");
  EXPECT_EQ((std::array{keys.experts, keys.n, keys.k}), (std::array<int64_t, 3>{4, 16, 16}));
  EXPECT_EQ((std::array{values.experts, values.n, values.k}), (std::array<int64_t, 3>{4, 16, 16}));
  EXPECT_EQ(find("layers.1.mlp.router.correction").format, kernels::kFloat32);
  EXPECT_EQ(find("layers.0.mlp.router").n, 0) << "a dense layer";
}

}  // namespace
}  // namespace nereid::models
