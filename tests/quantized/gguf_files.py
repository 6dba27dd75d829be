"""GGUF files of random blocks."""
import json

import gguf
import numpy as np

from common import LAYERS, float_model, random, write_model


def gguf_writer(path, model, config, layers):
    """The writer of a Llama model's file, with everything but the tensors in it."""
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    ids = tokenizer["model"]["vocab"] | {row["content"]: row["id"] for row in tokenizer["added_tokens"]}
    tokens = sorted(ids, key=ids.get)
    kinds = {row["content"]: 3 if row["special"] else 4 for row in tokenizer["added_tokens"]}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(layers)
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([kinds.get(token, 1) for token in tokens])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]])
    return writer


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_name(key):
    words = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
             "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    if not key.startswith("model.layers."):
        return {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}[key]
    _, _, layer, module = key.removesuffix(".weight").split(".", 3)
    return f"blk.{layer}.{words[module]}.weight"


def paired_rows(value, config, name, to_file=True):
    """Rows of a rotary pair lie side by side in the file, half a head apart elsewhere."""
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    count = heads.get(name.split(".")[-2])
    if not count:
        return value
    n, k = value.shape
    parts = value.reshape(count, 2, -1, k) if to_file else value.reshape(count, -1, 2, k)
    return parts.swapaxes(1, 2).reshape(n, k)


def gguf_blocks(checker, model):
    """Files of random blocks; their values are those of the gguf package."""
    types = gguf.GGMLQuantizationType
    # Where the f16 scales of a block are.
    scales = {types.Q4_0: [0], types.Q4_1: [0, 2], types.Q5_0: [0], types.Q5_1: [0, 2], types.Q8_0: [0],
              types.Q2_K: [80, 82], types.Q3_K: [108], types.Q4_K: [0, 2], types.Q5_K: [0, 2], types.Q6_K: [208],
              types.IQ4_NL: [0], types.IQ4_XS: [0], types.MXFP4: []}
    config, tensors = float_model(model)
    for kind, places in scales.items():
        numbers, size = gguf.GGML_QUANT_SIZES[kind]
        path, floats = checker.scratch / f"{kind.name}.gguf", checker.scratch / f"{kind.name}-plain"
        writer = gguf_writer(path, model, config, LAYERS)
        plain = {}
        for key, value in tensors.items():
            name = gguf_name(key)
            if value.ndim == 1:
                writer.add_tensor(name, value.astype("f4"))
                plain[key] = value
                continue
            n, k = value.shape
            blocks = random.integers(0, 256, (n, k // numbers, size)).astype("u1")
            for place in places:
                some = (random.random((n, k // numbers)) * 0.004).astype("f2")
                blocks[..., place:place + 2] = some[..., None].view("u1")
            if kind == types.MXFP4:
                blocks[..., 0] = random.integers(118, 124, blocks.shape[:2])
            raw = blocks.reshape(n, -1)
            writer.add_tensor(name, raw, raw_dtype=kind)
            number = paired_rows(gguf.dequantize(raw, kind).astype("f4"), config, name, to_file=False)
            plain[key] = np.ascontiguousarray(number)
        finish(writer)
        write_model(floats, model, config, plain)
        checker.compare("gguf " + kind.name, path, floats, True)
