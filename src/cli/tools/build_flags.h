// The flags of all versions of trtllm-build, and the treatment of each here.
#pragma once

#include "cli/flags/arg_table.h"

namespace nereid::cli {

// Plugins whose word goes into config.json's plugin_config, and features stored there as booleans;
// names with dashes.
inline constexpr const char* kPlugins[] = {"--bert_attention_plugin",
                                           "--gpt_attention_plugin",
                                           "--gemm_plugin",
                                           "--gemm_swiglu_plugin",
                                           "--low_latency_gemm_plugin",
                                           "--low_latency_gemm_swiglu_plugin",
                                           "--fp8_rowwise_gemm_plugin",
                                           "--gemm_allreduce_plugin",
                                           "--lora_plugin",
                                           "--moe_plugin",
                                           "--mamba_conv1d_plugin",
                                           "--nccl_plugin",
                                           "--identity_plugin"};
inline constexpr const char* kFeatures[] = {
    "--dora_plugin",          "--context_fmha",         "--bert_context_fmha_fp32_acc",
    "--remove_input_padding", "--norm_quant_fusion",    "--reduce_fusion",
    "--user_buffer",          "--use_fp8_context_fmha", "--fuse_fp4_quant",
    "--multiple_profiles",    "--paged_state",          "--streamingllm",
    "--manage_weights",       "--use_fused_mlp",        "--pp_reduce_scatter"};

extern const std::span<const ArgFlag> kBuildFlags;

}  // namespace nereid::cli
