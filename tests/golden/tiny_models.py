#!/usr/bin/env python3
"""Makes tiny models of families with Hugging Face transformers, and their golden outputs.

    pip install torch transformers safetensors
    tiny_models.py NAME...       writes tests/models/NAME and tests/golden/arch/NAME.{json,safetensors}

Weights are random, then fitted until the greedy token leads clearly at every step: what a random
model would pick is nearly a tie. They are stored as bf16; the golden outputs are computed in f32.
"""
import json
import math
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, LlamaConfig
from transformers.models.llama import modeling_llama
from transformers.models.mpt import modeling_mpt

VOCAB, STEPS, PROMPTS = 512, 24, (5, 12, 40, 70)
ROOT = pathlib.Path(__file__).resolve().parents[1]


def model(architecture, kind, **fields):
    common = dict(vocab_size=VOCAB, bos_token_id=0, pad_token_id=1, eos_token_id=3, torch_dtype="bfloat16")
    return dict(architectures=[architecture], model_type=kind, **common, **fields)


def llama_like(architecture, kind, **fields):
    sizes = dict(hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-6, rope_theta=10000.0,
                 tie_word_embeddings=False, hidden_act="silu")
    return model(architecture, kind, **dict(sizes, **fields))


def with_images(architecture, kind, text, **fields):
    """A model of text and images, of which the text part has `text`."""
    common = dict(bos_token_id=0, pad_token_id=1, eos_token_id=3, torch_dtype="bfloat16")
    text = {key: value for key, value in text.items() if key not in (*common, "architectures")}
    return dict(architectures=[architecture], model_type=kind, **common, text_config=text, **fields)


PHI3 = dict(num_attention_heads=3, num_key_value_heads=1, sliding_window=None, attention_bias=False)
LONGROPE = {"type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.5, 1.8, 2.0, 2.4, 2.8],
            "long_factor": [1.0, 1.5, 2.5, 4.0, 7.0, 12.0, 20.0, 30.0]}
# Never past the original context: transformers 5.23 takes the short factors of this family there, too.
SHORT_FACTORS = [1.0, 1.2, 1.5, 1.9, 2.4, 3.0]
MOE_LONGROPE = {"type": "longrope", "short_factor": SHORT_FACTORS, "long_factor": [9.0] * 6,
                "short_mscale": 1.3, "long_mscale": 2.0, "original_max_position_embeddings": 256}
DEEPSEEK = dict(num_hidden_layers=3, num_key_value_heads=4, kv_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8,
                v_head_dim=12, first_k_dense_replace=1, n_routed_experts=8, num_experts_per_tok=2,
                moe_intermediate_size=16, moe_layer_freq=1, attention_bias=False,
                rope_scaling=dict(type="yarn", factor=8.0, original_max_position_embeddings=32, beta_fast=32,
                                  beta_slow=1, mscale=0.707, mscale_all_dim=0.9))
SIGMOID_EXPERTS = dict(num_hidden_layers=3, first_k_dense_replace=1, n_routed_experts=8, n_shared_experts=1,
                       num_experts_per_tok=2, moe_intermediate_size=16, n_group=1, topk_group=1, norm_topk_prob=True,
                       routed_scaling_factor=2.5)
GRANITE = dict(embedding_multiplier=3.0, attention_multiplier=0.4, residual_multiplier=0.6, logits_scaling=0.7,
               tie_word_embeddings=True)
# Mamba's sizes are not used, but checked.
GRANITE4 = dict(layer_types=["attention", "attention"], attention_bias=False, mamba_n_heads=4, mamba_d_head=24,
                mamba_d_state=16, **GRANITE)
NTK_ALPHA = dict(type="dynamic", alpha=20.0, factor=1.0, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=0.0)
# Scores grow every 16 positions.
MINISTRAL_ROPE = dict(rope_type="yarn", type="yarn", rope_theta=1000000.0, factor=8.0, beta_fast=32.0, beta_slow=1.0,
                      original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3)
PIXTRAL = dict(tie_word_embeddings=False, image_token_index=510, multimodal_projector_bias=False,
               projector_hidden_act="gelu", spatial_merge_size=2, vision_feature_layer=-1,
               vision_config=dict(model_type="pixtral", hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                                  num_attention_heads=2, head_dim=8, num_channels=3, image_size=32, patch_size=8,
                                  hidden_act="silu", rope_theta=10000.0))
LLAMA4 = dict(head_dim=16, intermediate_size=16, num_local_experts=4, num_experts_per_tok=1, attention_chunk_size=32,
              attention_bias=False)
MODELS = {
    "deepseek_v2": llama_like("DeepseekV2ForCausalLM", "deepseek_v2", q_lora_rank=None, n_shared_experts=2, n_group=4,
                              topk_group=2, topk_method="group_limited_greedy", routed_scaling_factor=1.5,
                              scoring_func="softmax", norm_topk_prob=False, **DEEPSEEK),
    "deepseek_v3-yarn": llama_like("DeepseekV3ForCausalLM", "deepseek_v3", q_lora_rank=24, n_shared_experts=1,
                                   n_group=2, topk_group=1, topk_method="noaux_tc", routed_scaling_factor=2.5,
                                   scoring_func="sigmoid", norm_topk_prob=True, num_nextn_predict_layers=0, **DEEPSEEK),
    "qwen3_moe-dense": llama_like("Qwen3MoeForCausalLM", "qwen3_moe", head_dim=16, num_hidden_layers=4, num_experts=4,
                                  num_experts_per_tok=2, moe_intermediate_size=16, norm_topk_prob=True,
                                  decoder_sparse_step=2, mlp_only_layers=[3], use_sliding_window=False,
                                  sliding_window=None, attention_bias=False),
    "phimoe": llama_like("PhimoeForCausalLM", "phimoe", rms_norm_eps=1e-5, intermediate_size=16, attention_bias=True,
                         lm_head_bias=True, num_local_experts=4, num_experts_per_tok=2, router_jitter_noise=0.1,
                         input_jitter_noise=0.0, sliding_window=None, rope_scaling=MOE_LONGROPE),
    "gemma": llama_like("GemmaForCausalLM", "gemma", hidden_size=64, head_dim=16, tie_word_embeddings=True,
                        hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh", attention_bias=False),
    "gptj": model("GPTJForCausalLM", "gptj", n_embd=48, n_layer=2, n_head=3, n_positions=160, n_inner=None,
                  rotary_dim=8, activation_function="gelu_new", layer_norm_epsilon=1e-5, attn_pdrop=0.0,
                  embd_pdrop=0.0, resid_pdrop=0.0, tie_word_embeddings=False),
    "gpt_neox-in-turn": model("GPTNeoXForCausalLM", "gpt_neox", hidden_size=48, intermediate_size=96,
                              num_hidden_layers=2, num_attention_heads=3, rotary_pct=0.25, rotary_emb_base=10000,
                              max_position_embeddings=256, use_parallel_residual=False, hidden_act="gelu",
                              layer_norm_eps=1e-5, attention_bias=True, hidden_dropout=0.0, attention_dropout=0.0,
                              tie_word_embeddings=False),
    "stablelm-parallel": llama_like("StableLmForCausalLM", "stablelm", layer_norm_eps=1e-5, partial_rotary_factor=0.5,
                                    use_qkv_bias=False, qk_layernorm=False, use_parallel_residual=True,
                                    hidden_dropout=0.0, attention_dropout=0.0),
    "falcon-in-turn": model("FalconForCausalLM", "falcon", hidden_size=48, num_hidden_layers=2, num_attention_heads=3,
                            num_kv_heads=None, new_decoder_architecture=False, parallel_attn=False, alibi=False,
                            bias=True, multi_query=False, layer_norm_epsilon=1e-5, max_position_embeddings=256,
                            rope_theta=10000.0, attention_dropout=0.0, hidden_dropout=0.0, activation="gelu",
                            tie_word_embeddings=True),
    "falcon-alibi": model("FalconForCausalLM", "falcon", hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                          num_kv_heads=None, new_decoder_architecture=False, parallel_attn=False, alibi=True,
                          bias=True, multi_query=False, layer_norm_epsilon=1e-5, max_position_embeddings=256,
                          attention_dropout=0.0, hidden_dropout=0.0, activation="gelu", tie_word_embeddings=True),
    "glm": llama_like("GlmForCausalLM", "glm", head_dim=16, partial_rotary_factor=0.5, attention_bias=True),
    "granite": llama_like("GraniteForCausalLM", "granite", attention_bias=False, mlp_bias=False,
                          embedding_multiplier=3.0, attention_multiplier=0.4, residual_multiplier=0.6,
                          logits_scaling=0.7, tie_word_embeddings=True),
    "nemotron": llama_like("NemotronForCausalLM", "nemotron", norm_eps=1e-5, hidden_act="relu2",
                           partial_rotary_factor=0.5, head_dim=16, attention_bias=False, mlp_bias=False),
    "arcee": llama_like("ArceeForCausalLM", "arcee", hidden_act="relu2", attention_bias=False, mlp_bias=False),
    "ernie4_5": llama_like("Ernie4_5ForCausalLM", "ernie4_5", head_dim=16, use_bias=False, tie_word_embeddings=True),
    "helium": llama_like("HeliumForCausalLM", "helium", head_dim=12, attention_bias=False, mlp_bias=False),
    "seed_oss": llama_like("SeedOssForCausalLM", "seed_oss", head_dim=16, attention_bias=True,
                           attention_out_bias=False, mlp_bias=False),
    "smollm3": llama_like("SmolLM3ForCausalLM", "smollm3", num_hidden_layers=3, no_rope_layers=[1, 0, 1],
                          no_rope_layer_interval=2, use_sliding_window=False, sliding_window=None,
                          attention_bias=False, mlp_bias=False),
    "cohere2": llama_like("Cohere2ForCausalLM", "cohere2", layer_norm_eps=1e-5, logit_scale=0.25, sliding_window=32,
                          sliding_window_pattern=2, attention_bias=False, tie_word_embeddings=True),
    "olmo3": llama_like("Olmo3ForCausalLM", "olmo3", rope_theta=500000.0, sliding_window=32, attention_bias=False,
                        layer_types=["sliding_attention", "full_attention"],
                        rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64,
                                          beta_fast=32.0, beta_slow=1.0)),
    "gpt_bigcode": model("GPTBigCodeForCausalLM", "gpt_bigcode", n_embd=48, n_layer=2, n_head=4, n_positions=160,
                         n_inner=None, activation_function="gelu_pytorch_tanh", layer_norm_epsilon=1e-5,
                         multi_query=True, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0,
                         tie_word_embeddings=True),
    "exaone4": llama_like("Exaone4ForCausalLM", "exaone4", head_dim=16, sliding_window=32, sliding_window_pattern="LG",
                          layer_types=["sliding_attention", "full_attention"]),
    # Many queries, keys and values reach the limit.
    "olmo": llama_like("OlmoForCausalLM", "olmo", attention_bias=False, clip_qkv=1.5),
    "olmoe": llama_like("OlmoeForCausalLM", "olmoe", intermediate_size=16, num_experts=4, num_experts_per_tok=2,
                        norm_topk_prob=False, attention_bias=False, clip_qkv=None),
    "baichuan-alibi": model("BaichuanForCausalLM", "baichuan", hidden_size=48, intermediate_size=64, num_hidden_layers=2,
                            num_attention_heads=6, model_max_length=256, rms_norm_eps=1e-6, hidden_act="silu",
                            tie_word_embeddings=False),
    "baichuan2": model("BaichuanForCausalLM", "baichuan", hidden_size=48, intermediate_size=64, num_hidden_layers=2,
                       num_attention_heads=4, max_position_embeddings=256, rms_norm_eps=1e-6, hidden_act="silu",
                       tie_word_embeddings=False, z_loss_weight=0),
    "cohere-norms": llama_like("CohereForCausalLM", "cohere", layer_norm_eps=1e-5, logit_scale=0.25, use_qk_norm=True,
                               attention_bias=False, tie_word_embeddings=True),
    "stablelm-norms": llama_like("StableLmForCausalLM", "stablelm", layer_norm_eps=1e-5, partial_rotary_factor=0.5,
                                 use_qkv_bias=False, qk_layernorm=True, use_parallel_residual=True,
                                 hidden_dropout=0.0, attention_dropout=0.0),
    # Every step is past the original context, so the long factors are those in force.
    "phi3-longrope": llama_like("Phi3ForCausalLM", "phi3", rope_scaling=LONGROPE,
                                original_max_position_embeddings=4, **PHI3),
    # Every step is within the original context, so the short factors are those in force.
    "llama-longrope": llama_like("LlamaForCausalLM", "llama", attention_bias=False, mlp_bias=False,
                                 rope_scaling=dict(rope_type="longrope", factor=4.0, short_factor=SHORT_FACTORS,
                                                   long_factor=[9.0] * 6, original_max_position_embeddings=256)),
    "bloom-post": model("BloomForCausalLM", "bloom", hidden_size=48, n_layer=2, n_head=4, layer_norm_epsilon=1e-5,
                        attention_dropout=0.0, hidden_dropout=0.0, apply_residual_connection_post_layernorm=True,
                        tie_word_embeddings=True),
    "gpt2-scaled": model("GPT2LMHeadModel", "gpt2", n_embd=48, n_layer=3, n_head=3, n_positions=160, n_inner=None,
                         activation_function="gelu_new", layer_norm_epsilon=1e-5, attn_pdrop=0.0, embd_pdrop=0.0,
                         resid_pdrop=0.0, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=True,
                         reorder_and_upcast_attn=True, tie_word_embeddings=True),
    "olmoe-clip": llama_like("OlmoeForCausalLM", "olmoe", intermediate_size=16, num_experts=4, num_experts_per_tok=2,
                             norm_topk_prob=False, attention_bias=False, clip_qkv=1.0),
    "deepseek_v3-bias": llama_like("DeepseekV3ForCausalLM", "deepseek_v3", q_lora_rank=24, n_shared_experts=1,
                                   n_group=2, topk_group=1, topk_method="noaux_tc", routed_scaling_factor=2.5,
                                   scoring_func="sigmoid", norm_topk_prob=True, num_nextn_predict_layers=0,
                                   **dict(DEEPSEEK, attention_bias=True)),
    "starcoder2": model("Starcoder2ForCausalLM", "starcoder2", hidden_size=48, intermediate_size=96,
                        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                        max_position_embeddings=256, norm_epsilon=1e-5, rope_theta=10000.0,
                        hidden_act="gelu_pytorch_tanh", use_bias=True, sliding_window=32, attention_dropout=0.0,
                        embedding_dropout=0.0, residual_dropout=0.0, tie_word_embeddings=True),
    "qwen2_moe": llama_like("Qwen2MoeForCausalLM", "qwen2_moe", moe_intermediate_size=16,
                            shared_expert_intermediate_size=24, num_experts=4, num_experts_per_tok=2,
                            norm_topk_prob=False, decoder_sparse_step=1, mlp_only_layers=[], use_sliding_window=False,
                            sliding_window=None),
    "falcon-groups": model("FalconForCausalLM", "falcon", hidden_size=48, num_hidden_layers=2, num_attention_heads=6,
                           num_kv_heads=2, new_decoder_architecture=True, parallel_attn=True, alibi=False, bias=False,
                           multi_query=True, layer_norm_epsilon=1e-5, max_position_embeddings=256, rope_theta=10000.0,
                           attention_dropout=0.0, hidden_dropout=0.0, ffn_hidden_size=96, activation="gelu",
                           tie_word_embeddings=True),
    # As OPT-350M: norms behind, embeddings narrower than the layers.
    "opt-narrow": model("OPTForCausalLM", "opt", hidden_size=64, word_embed_proj_dim=48, ffn_dim=96,
                        num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=160,
                        do_layer_norm_before=False, activation_function="relu", dropout=0.0, attention_dropout=0.0,
                        layerdrop=0.0, enable_bias=True, layer_norm_elementwise_affine=True,
                        _remove_final_layer_norm=False, tie_word_embeddings=True),
    # As MPT-7B-StoryWriter; the limit is one that many numbers reach.
    "mpt-clip": model("MptForCausalLM", "mpt", d_model=48, n_heads=4, n_layers=2, expansion_ratio=4, max_seq_len=256,
                      no_bias=True, layer_norm_epsilon=1e-5, tie_word_embeddings=True,
                      attn_config=dict(alibi=True, alibi_bias_max=16, attn_impl="torch", attn_pdrop=0,
                                       attn_type="multihead_attention", clip_qkv=1.5, prefix_lm=False, qk_ln=False,
                                       softmax_scale=None)),
    "gemma3-images": with_images(
        "Gemma3ForConditionalGeneration", "gemma3",
        llama_like("", "gemma3_text", hidden_size=64, head_dim=16, num_hidden_layers=3, query_pre_attn_scalar=24,
                   sliding_window=32, sliding_window_pattern=3, rope_theta=1000000.0, rope_local_base_freq=10000.0,
                   rope_scaling=dict(rope_type="linear", factor=8.0), hidden_activation="gelu_pytorch_tanh",
                   attention_bias=False, layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                   tie_word_embeddings=True),
        boi_token_index=508, eoi_token_index=509, image_token_index=510, mm_tokens_per_image=4,
        vision_config=dict(model_type="siglip_vision_model", hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                           num_attention_heads=2, image_size=16, patch_size=4, vision_use_head=False)),
    "mistral3": with_images(
        "Mistral3ForConditionalGeneration", "mistral3",
        llama_like("", "mistral", head_dim=16, rope_theta=1000000.0, sliding_window=None), **PIXTRAL),
    # Others of the glm4_moe kind: routers as DeepSeek-V3 has them.
    "glm4_moe": llama_like("Glm4MoeForCausalLM", "glm4_moe", head_dim=16, partial_rotary_factor=0.5, attention_bias=True,
                           use_qk_norm=True, num_nextn_predict_layers=0, **SIGMOID_EXPERTS),
    "dots1": llama_like("Dots1ForCausalLM", "dots1", head_dim=16, attention_bias=False, sliding_window=None,
                        max_window_layers=3, **SIGMOID_EXPERTS),
    "kimi_k2": llama_like("DeepseekV3ForCausalLM", "kimi_k2", q_lora_rank=24, n_shared_experts=1, n_group=1,
                          topk_group=1, topk_method="noaux_tc", routed_scaling_factor=2.827, scoring_func="sigmoid",
                          norm_topk_prob=True, num_nextn_predict_layers=0, **DEEPSEEK),
    "glm4_moe_lite": llama_like("Glm4MoeLiteForCausalLM", "glm4_moe_lite", q_lora_rank=24, n_shared_experts=1,
                                n_group=1, topk_group=1, topk_method="noaux_tc", routed_scaling_factor=1.8,
                                norm_topk_prob=True, num_nextn_predict_layers=0,
                                **{**DEEPSEEK, "rope_scaling": None}),
    "exaone_moe": llama_like("ExaoneMoeForCausalLM", "exaone_moe", head_dim=16, num_hidden_layers=3, sliding_window=32,
                             layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                             first_k_dense_replace=1, num_experts=8, num_experts_per_tok=2, num_shared_experts=1,
                             moe_intermediate_size=16, n_group=1, topk_group=1, norm_topk_prob=True,
                             routed_scaling_factor=2.5),
    "ernie4_5_moe": llama_like("Ernie4_5_MoeForCausalLM", "ernie4_5_moe", num_hidden_layers=3, use_bias=False,
                               moe_num_experts=8, moe_k=2, moe_intermediate_size=16, moe_num_shared_experts=2,
                               moe_layer_start_index=1, moe_layer_end_index=2, moe_layer_interval=1,
                               tie_word_embeddings=True),
    "minimax_m2": llama_like("MiniMaxM2ForCausalLM", "minimax_m2", head_dim=16, rotary_dim=8, intermediate_size=16,
                             num_local_experts=8, num_experts_per_tok=2, use_qk_norm=True, qk_norm_type="per_layer",
                             scoring_func="sigmoid", use_routing_bias=True),
    "granitemoe": llama_like("GraniteMoeForCausalLM", "granitemoe", intermediate_size=16, num_local_experts=8,
                             num_experts_per_tok=2, attention_bias=False, **GRANITE),
    "granitemoeshared": llama_like("GraniteMoeSharedForCausalLM", "granitemoeshared", intermediate_size=16,
                                   shared_intermediate_size=24, num_local_experts=8, num_experts_per_tok=2,
                                   attention_bias=False, **GRANITE),
    # As Granite 4 micro and 350m: no experts, the shared one is the MLP.
    "granitemoehybrid": llama_like("GraniteMoeHybridForCausalLM", "granitemoehybrid", shared_intermediate_size=64,
                                   num_local_experts=0, num_experts_per_tok=0, position_embedding_type="rope",
                                   **GRANITE4),
    "granitemoehybrid-experts": llama_like("GraniteMoeHybridForCausalLM", "granitemoehybrid", intermediate_size=16,
                                           shared_intermediate_size=24, num_local_experts=8, num_experts_per_tok=2,
                                           position_embedding_type="nope", **GRANITE4),
    "hunyuan_v1_dense": llama_like("HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", head_dim=16, use_qk_norm=True,
                                   attention_bias=False, rope_scaling=NTK_ALPHA),
    "hunyuan_v1_moe": llama_like("HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe", head_dim=16, use_qk_norm=True,
                                 attention_bias=False, intermediate_size=16, num_experts=4, moe_topk=2,
                                 rope_scaling=NTK_ALPHA, tie_word_embeddings=True),
    "internlm3": llama_like("InternLM3ForCausalLM", "internlm3", head_dim=16, qkv_bias=True, bias=True,
                            rope_scaling=dict(rope_type="dynamic", factor=6.0)),
    "minicpm": llama_like("MiniCPMForCausalLM", "minicpm", scale_emb=3, scale_depth=0.9, dim_model_base=24,
                          tie_word_embeddings=True),
    "minicpm3": llama_like("MiniCPM3ForCausalLM", "minicpm3", num_key_value_heads=4, kv_lora_rank=16, q_lora_rank=24,
                           qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12, scale_emb=3, scale_depth=1.4,
                           dim_model_base=24, tie_word_embeddings=True,
                           rope_scaling={"type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.5],
                                         "long_factor": [1.0, 2.5, 7.0, 20.0], "original_max_position_embeddings": 4,
                                         "attention_factor": 1.2}),
    # As Phi-4 mini: a part of each head turns.
    "phi3-partial": llama_like("Phi3ForCausalLM", "phi3", partial_rotary_factor=0.75, tie_word_embeddings=True,
                               rope_scaling={"type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.5, 1.8, 2.0],
                                             "long_factor": [1.0, 1.5, 2.5, 4.0, 7.0, 12.0], "attention_factor": 1.2},
                               original_max_position_embeddings=4, **PHI3),
    "ministral3": with_images("Mistral3ForConditionalGeneration", "mistral3",
                              llama_like("", "ministral3", head_dim=16, sliding_window=None, rope_theta=None,
                                         rope_parameters=MINISTRAL_ROPE), **PIXTRAL),
    # As Scout: queries see their own chunk of 32 positions, in every third layer all, without rotation and with
    # scores that grow every 24 positions.
    "llama4": with_images(
        "Llama4ForConditionalGeneration", "llama4",
        llama_like("", "llama4_text", num_hidden_layers=3, no_rope_layer_interval=3, use_qk_norm=True,
                   attn_temperature_tuning=True, floor_scale=24, attn_scale=0.4, intermediate_size_mlp=64,
                   rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                     original_max_position_embeddings=64), **LLAMA4),
        boi_token_index=508, eoi_token_index=509, image_token_index=510,
        vision_config=dict(model_type="llama4_vision_model", hidden_size=16, intermediate_size=64, num_hidden_layers=1,
                           num_attention_heads=2, image_size=16, patch_size=4, vision_output_dim=16,
                           projector_input_dim=16, projector_output_dim=16, pixel_shuffle_ratio=0.5)),
    # As Maverick: every second layer has experts.
    "llama4-text": llama_like("Llama4ForCausalLM", "llama4_text", num_hidden_layers=2, use_qk_norm=False,
                              attn_temperature_tuning=False, interleave_moe_layer_step=2, no_rope_layers=[1, 0],
                              intermediate_size_mlp=64, **LLAMA4),
    "apertus": llama_like("ApertusForCausalLM", "apertus", hidden_act="xielu", qk_norm=True, attention_bias=False,
                          rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                            original_max_position_embeddings=64)),
}
# The kind by which transformers computes a model of an unknown name.
KINDS = {"kimi_k2": dict(model_type="deepseek_v3"),
         "minicpm": dict(model_type="granite", embedding_multiplier=3, attention_multiplier=12 ** -0.5,
                         residual_multiplier=0.9 / 2 ** 0.5, logits_scaling=48 / 24)}
# Tolerances other than 0: a rounding that decides about an expert moves the logits further than roundings do elsewhere.
SEEDS = {"phimoe": 1, "llama4": 1, "llama4-text": 2, "glm4_moe_lite": 1, "granitemoe": 1, "granitemoeshared": 2,
         "ministral3": 1, "granitemoehybrid-experts": 1}


def randomise(net):
    """Matrices with a gain of 1.6, norms and biases a little off."""
    with torch.no_grad():
        for name, p in net.named_parameters():
            noise = torch.randn(p.shape)
            if p.dim() < 2:
                p.add_(0.15 * noise)
            elif "embed" in name or "wte" in name:
                p.copy_(0.5 * noise)
            elif name.endswith(("gate.weight", "router.weight")):
                p.copy_(noise)
            else:
                p.copy_(1.6 * noise / p.shape[-1] ** 0.5)
        for buffer in corrections(net):
            buffer.copy_(0.2 * torch.randn(buffer.shape))


def corrections(net):
    """Router weights, f32 in checkpoints."""
    named = [*net.named_buffers(), *net.named_parameters()]
    return [tensor for name, tensor in named if name.endswith("e_score_correction_bias")]


class UnitHead(torch.nn.Linear):
    """A head whose rows are divided by their lengths."""

    def forward(self, x):
        return torch.nn.functional.linear(x, torch.nn.functional.normalize(self.weight))


ROTATE = modeling_llama.apply_rotary_pos_emb


class Baichuan:
    """Not in transformers: its Llama, without rotation and with ALiBi in the mask where the model is a large one."""

    @staticmethod
    def make(config):
        rotary = "max_position_embeddings" in config
        modeling_llama.apply_rotary_pos_emb = ROTATE if rotary else lambda q, k, *_, **__: (q, k)
        names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                 "rms_norm_eps", "tie_word_embeddings")
        net = AutoModelForCausalLM.from_config(LlamaConfig(**{name: config[name] for name in names}),
                                               attn_implementation="eager")
        net.has_alibi = not rotary
        if "z_loss_weight" in config:
            net.lm_head = UnitHead(config["hidden_size"], config["vocab_size"], bias=False)
        return net

    @staticmethod
    def mask(length, heads):
        whole = 2 ** int(math.log2(heads))
        slopes = [2 ** (-8 * (i + 1) / whole) for i in range(whole)]
        slopes += [2 ** (-8 * (i + 0.5) / whole) for i in range(heads - whole)]
        distance = torch.arange(length)[:, None] - torch.arange(length)[None, :]
        scores = -torch.tensor(slopes)[:, None, None] * distance
        return scores.masked_fill(distance < 0, float("-inf"))[None]

    @staticmethod
    def save(net, folder):
        state = net.state_dict()
        for name in [name for name in state if "q_proj" in name]:
            parts = [state.pop(name.replace("q_proj", part)) for part in ("q_proj", "k_proj", "v_proj")]
            state[name.replace("q_proj", "W_pack")] = torch.cat(parts)
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def logits_of(net, ids):
    mask = Baichuan.mask(len(ids), net.config.num_attention_heads) if getattr(net, "has_alibi", False) else None
    if net.config.model_type == "llama4":
        net = net.language_model  # the whole model requires images (transformers 5.24)
    return net(input_ids=torch.tensor([ids]), attention_mask=mask).logits[0]


def lead(logits, wanted):
    """How far the wanted tokens are ahead of all others, at worst."""
    index = torch.tensor(wanted)[:, None]
    others = logits.scatter(1, index, float("-inf")).max(1, keepdim=True).values
    return float((logits.gather(1, index) - others).min())


def fit(net, prompts, wanted):
    optimiser = torch.optim.AdamW(net.parameters(), lr=4e-3, weight_decay=0.0)
    for _ in range(300):
        loss, worst = 0.0, float("inf")
        for prompt, tokens in zip(prompts, wanted):
            logits = logits_of(net, prompt + tokens[:-1])[len(prompt) - 1:]
            loss = loss + torch.nn.functional.cross_entropy(logits, torch.tensor(tokens))
            worst = min(worst, lead(logits.detach(), tokens))
        if worst > 4.5:
            return
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimiser.step()


def build_mpt_alibi(model, heads, length, device=None):
    """As MPT's own code does; transformers (5.24) leaves alibi_bias_max at 8."""
    return modeling_mpt.build_mpt_alibi_tensor(heads, length, model.config.attn_config.alibi_bias_max, device)


modeling_mpt.MptModel.build_mpt_alibi_tensor = build_mpt_alibi


def make(name, config):
    folder = ROOT / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config | KINDS.get(config["model_type"], {})))
    own = AutoConfig.from_pretrained(folder) if not name.startswith("baichuan") else None
    torch.manual_seed(SEEDS.get(name, 0))
    # Falcon's eager attention (transformers 5.24) adds ALiBi twice, in the mask and to the scores; the default once.
    attention = "sdpa" if config.get("alibi") else "eager"
    auto = AutoModelForImageTextToText if "text_config" in config else AutoModelForCausalLM
    is_baichuan = name.startswith("baichuan")
    if is_baichuan:
        net = Baichuan.make(config)
    else:
        net = auto.from_config(own, attn_implementation=attention)
    net = net.float().eval()
    randomise(net)
    ids = iter((torch.randperm(VOCAB - 16)[:sum(PROMPTS) + len(PROMPTS) * STEPS] + 8).tolist())
    prompts = [[next(ids) for _ in range(length)] for length in PROMPTS]
    wanted = [[next(ids) for _ in range(STEPS)] for _ in PROMPTS]
    fit(net, prompts, wanted)
    exact = [buffer.clone() for buffer in corrections(net)]
    net.to(torch.bfloat16)
    for buffer, numbers in zip(corrections(net), exact):
        buffer.data = numbers
    if is_baichuan:
        Baichuan.save(net, folder)
    else:
        net.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config, indent=2))  # as it was, not as saved
    (folder / "generation_config.json").unlink(missing_ok=True)
    if is_baichuan:
        net = net.float()
    else:
        net = auto.from_pretrained(folder, config=own, dtype=torch.float32, attn_implementation=attention).eval()
    cases, rows = [], {}
    for i, prompt in enumerate(prompts):
        greedy, leads = [], []
        for step in range(STEPS):
            with torch.no_grad():
                logits = logits_of(net, prompt + greedy)[-1]
            best = logits.topk(2)
            greedy.append(int(best.indices[0]))
            leads.append(float(best.values[0] - best.values[1]))
            if step in (0, STEPS - 1):
                rows[f"logits.{i}.{step}"] = logits.clone()
        cases.append(dict(prompt_ids=prompt, greedy_ids=greedy, min_lead=round(min(leads), 3)))
        print(name, i, "as fitted" if greedy == wanted[i] else "not as fitted", cases[-1]["min_lead"])
    golden = ROOT / "golden" / "arch"
    (golden / f"{name}.json").write_text(json.dumps(dict(model=name, cases=cases)))
    save_file(rows, golden / f"{name}.safetensors")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for chosen in sys.argv[1:] or MODELS:
        make(chosen, MODELS[chosen])
