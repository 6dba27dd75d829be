#include "cli/tools/build_flags.h"

namespace nereid::cli {
namespace {

using enum ArgKind;
using enum ArgUse;

constexpr const char* kTypes = "auto float16 float32 bfloat16 int32 disable";
constexpr const char* kGemmTypes = "auto float16 float32 bfloat16 int32 fp8 nvfp4 disable";
constexpr const char* kFp8 = "fp8 disable";

constexpr ArgFlag kFlags[] = {
    {"--checkpoint_dir", kText, kActed, "", "",
     "checkpoint or Hugging Face directory, .gguf file, or a .json like --model_config"},
    {"--output_dir", kText, kActed, "", "engine_outputs", "folder that the engine is written to"},
    {"--device", kText, kActed, "", "auto", "device that the engine is for: auto, cpu or cuda:N"},
    {"--isa", kText, kActed, "", "",
     "instruction set of CPU kernels; default: the best of this CPU"},
    {"--build_config", kText, kActed, "", "", "JSON file whose limits replace those given here"},
    {"--dry_run", kFlag, kActed, "", "", "write config.json and no engine"},
    {"--log_level", kText, kActed, "", "info", "debug, info, warning, error"},
    // Limits.
    {"--max_batch_size", kInteger, kActed, "", "2048",
     "most sequences computed together in a step"},
    {"--max_seq_len --max_decoder_seq_len", kInteger, kActed, "", "",
     "most prompt and output tokens of a sequence; default: the model's maximum"},
    {"--max_output_len", kInteger, kActed, "", "", "old: max_seq_len is max_input_len plus this"},
    {"--max_beam_width", kInteger, kActed, "", "1", "widest beam search of a request"},
    {"--max_num_tokens", kInteger, kActed, "", "8192", "most tokens computed in one step"},
    {"--tokens_per_block", kInteger, kActed, "", "32", "KV cache block: 16, 32, 64 or 128"},
    {"--kv_cache_type", kText, kActed, "", "", "paged, or continuous, which has the same effect"},
    {"--paged_kv_cache", kFeature, kActed, "", "enable", "old name of --kv_cache_type"},
    {"--use_paged_context_fmha", kFeature, kActed, "", "enable",
     "disable: no KV cache reuse and no chunked context"},
    {"--context_fmha", kFeature, kActed, "", "enable",
     "disable: also disables --use_paged_context_fmha"},
    {"--max_input_len", kInteger, kActed, "", "1024",
     "longest prompt, where --remove_input_padding or --context_fmha is disabled"},
    {"--opt_num_tokens", kInteger, kNoted, "", "", "tuning point"},
    {"--max_encoder_input_len", kInteger, kActed, "", "",
     "longest input of the encoder; default: the model's"},
    {"--gather_context_logits", kFlag, kActed, "", "", "requests may ask for a prompt's logits"},
    {"--gather_generation_logits", kFlag, kNoted, "", "", "logits of outputs are always available"},
    {"--gather_all_token_logits", kFlag, kActed, "", "", "old: --gather_context_logits"},
    {"--logits_dtype", kChoice, kNoted, "float16 float32", "float32",
     "the model's config.pbtxt decides"},
    {"--max_prompt_embedding_table_size --max_multimodal_len", kInteger, kActed, "", "0",
     "most rows of a request's prompt table; 0: any number"},
    // Models without a checkpoint, adapters, speculation, separate weights.
    {"--model_config", kText, kActed, "", "",
     "config.json, without --checkpoint_dir; the weights are random"},
    {"--lora_plugin", kChoice, kActed, kTypes, "disable", "any type: requests may have adapters"},
    {"--max_lora_rank", kInteger, kActed, "", "64", "largest rank of an adapter"},
    {"--lora_dir", kList, kActed, "", "", "adapters of Hugging Face PEFT that must fit the engine"},
    {"--lora_ckpt_source", kChoice, kOnly, "hf nemo", "hf", "source format of --lora_dir"},
    {"--lora_target_modules", kList, kIgnored, "", "", "all modules may be adapted"},
    {"--dora_plugin", kFeature, kNoted, "", "disable", "adapters may always be of DoRA"},
    {"--speculative_decoding_mode", kChoice, kActed,
     "draft_tokens_external lookahead_decoding medusa explicit_draft_tokens eagle", "",
     "medusa, explicit_draft_tokens, eagle: with the heads that convert_checkpoint stored; "
     "draft_tokens_external, lookahead_decoding: noted, since every engine allows both"},
    {"--max_draft_len", kInteger, kNoted, "", "0", "draft tokens of a request"},
    {"--streamingllm", kFeature, kOnly, "", "disable",
     "attention sinks (the server's sink_token_length does it)"},
    {"--strip_plan", kFlag, kActed, "", "",
     "build an engine without weights: they come from the checkpoint at load, or by trtllm-refit"},
    {"--auto_parallel", kInteger, kActed, "", "1", "automatic sharding: only 1"},
    // Plugins and features of TensorRT.
    {"--bert_attention_plugin", kChoice, kNoted, kTypes, "auto", "kernel choice"},
    {"--gpt_attention_plugin", kChoice, kNoted, kTypes, "auto", "kernel choice"},
    {"--gemm_plugin", kChoice, kNoted, kGemmTypes, "disable", "kernel choice"},
    {"--gemm_swiglu_plugin", kChoice, kNoted, kFp8, "disable", "kernel choice"},
    {"--low_latency_gemm_plugin", kChoice, kNoted, kFp8, "disable", "kernel choice"},
    {"--low_latency_gemm_swiglu_plugin", kChoice, kNoted, kFp8, "disable", "kernel choice"},
    {"--fp8_rowwise_gemm_plugin", kChoice, kNoted, kTypes, "disable", "kernel choice"},
    {"--gemm_allreduce_plugin", kChoice, kNoted, "float16 bfloat16 disable", "disable",
     "kernel choice"},
    {"--moe_plugin", kChoice, kNoted, kTypes, "auto", "kernel choice"},
    {"--mamba_conv1d_plugin", kChoice, kNoted, kTypes, "auto", "kernel choice"},
    {"--nccl_plugin", kChoice, kNoted, kTypes, "auto", "communication"},
    {"--identity_plugin", kChoice, kNoted, kTypes, "disable", "kernel choice"},
    {"--lookup_plugin", kChoice, kIgnored, kTypes, "disable", "kernel choice"},
    {"--bert_context_fmha_fp32_acc --context_fmha_fp32_acc", kFeature, kNoted, "", "disable",
     "kernel choice"},
    {"--remove_input_padding", kFeature, kActed, "", "enable",
     "disable: --max_input_len is a limit; batches are packed anyway"},
    {"--use_fp8_context_fmha", kFeature, kNoted, "", "enable", "kernel choice"},
    {"--fuse_fp4_quant", kFeature, kNoted, "", "disable", "kernel choice"},
    {"--norm_quant_fusion", kFeature, kNoted, "", "disable", "kernel choice"},
    {"--reduce_fusion", kFeature, kNoted, "", "disable", "kernel choice"},
    {"--user_buffer", kFeature, kNoted, "", "disable", "communication"},
    {"--multiple_profiles", kFeature, kNoted, "", "disable", "kernel choice"},
    {"--paged_state", kFeature, kNoted, "", "enable", "state-space models"},
    {"--manage_weights", kFeature, kNoted, "", "disable", "file layout"},
    {"--use_fused_mlp", kFeature, kNoted, "", "enable", "kernel choice"},
    {"--pp_reduce_scatter", kFeature, kNoted, "", "disable", "communication"},
    {"--profiling_verbosity", kChoice, kNoted, "layer_names_only detailed none", "layer_names_only",
     "profiling"},
    {"--enable_debug_output", kFlag, kNoted, "", "", "debugging"},
    {"--weight_sparsity", kFlag, kNoted, "", "", "kernel choice"},
    {"--weight_streaming", kFlag, kNoted, "", "", "weights are memory-mapped"},
    {"--monitor_memory", kFlag, kNoted, "", "", "build report"},
    {"--fast_build", kFlag, kActed, "", "", "choose kernels of products without measuring them"},
    {"--model_cls_file", kText, kIgnored, "", "", "Python model class"},
    {"--model_cls_name", kText, kIgnored, "", "", "Python model class"},
    {"--input_timing_cache", kText, kIgnored, "", "", "TensorRT tactics"},
    {"--output_timing_cache", kText, kIgnored, "", "model.cache", "TensorRT tactics"},
    {"--workers", kInteger, kActed, "", "1", "ranks written in parallel"},
    {"--visualize_network", kMaybe, kIgnored, "", "", "ONNX dump"},
    {"--gpus_per_node", kInteger, kIgnored, "", "8", "automatic sharding"},
    {"--cluster_key", kText, kIgnored, "", "", "automatic sharding"},
    // Flags of very old versions.
    {"--use_custom_all_reduce", kFeature, kIgnored, "", "disable", "old"},
    {"--multi_block_mode", kFeature, kIgnored, "", "disable", "old"},
    {"--enable_xqa", kFeature, kIgnored, "", "enable", "old"},
    {"--attention_qk_half_accumulation", kFeature, kIgnored, "", "disable", "old"},
    {"--use_context_fmha_for_generation", kFeature, kIgnored, "", "disable", "old"},
    {"--builder_opt", kInteger, kIgnored, "", "", "old"},
    {"--strongly_typed", kFlag, kIgnored, "", "", "old"},
    {"--use_embedding_sharing", kFlag, kIgnored, "", "", "old"},
    {"--parallel_build", kFlag, kIgnored, "", "", "old"},
};

}  // namespace

const std::span<const ArgFlag> kBuildFlags = kFlags;

}  // namespace nereid::cli
