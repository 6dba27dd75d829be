#!/usr/bin/env python3
"""Perplexity of a Llama checkpoint on a text by a plain float32 forward pass, windows as in transformers' guide
"Perplexity of fixed-length models": made once to get the numbers that perplexity_test.cc compares with.

    pip install numpy tokenizers
    perplexity.py MODEL_DIR TEXT_FILE WINDOW STRIDE [MAX_TOKENS]
"""
import json
import struct
import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer


def read_weights(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for name, row in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = row["data_offsets"]
        bits = np.frombuffer(raw[8 + size + begin:8 + size + end], "u2").astype("u4") << 16  # BF16
        out[name] = bits.view("f4").reshape(row["shape"])
    return out


def rotated(x, base):
    count, _, size = x.shape
    angles = np.arange(count)[:, None] * base ** (-np.arange(0, size, 2) / size)
    cos, sin = (np.tile(f(angles), 2)[:, None].astype("f4") for f in (np.cos, np.sin))
    low, high = np.split(x, 2, axis=-1)
    return x * cos + np.concatenate([-high, low], -1) * sin


def log_probs(config, w, ids):
    """[len(ids) - 1]: of each id but the first, given those before it."""
    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"]) * w[name]

    heads, keys, size = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    x = w["model.embed_tokens.weight"][ids]
    hidden = np.triu(np.full((len(ids), len(ids)), -np.inf, "f4"), 1)
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        h = norm(x, p + "input_layernorm.weight")
        q, k, v = (h @ w[f"{p}self_attn.{n}_proj.weight"].T for n in "qkv")
        q = rotated(q.reshape(len(ids), heads, size), config["rope_theta"])
        k = rotated(k.reshape(len(ids), keys, size), config["rope_theta"]).repeat(heads // keys, 1)
        v = v.reshape(len(ids), keys, size).repeat(heads // keys, 1)
        scores = np.einsum("qhd,khd->hqk", q, k, optimize=True) / np.sqrt(size) + hidden
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", scores, v, optimize=True).reshape(len(ids), -1)
        x = x + mixed @ w[p + "self_attn.o_proj.weight"].T
        h = norm(x, p + "post_attention_layernorm.weight")
        gate, up = (h @ w[f"{p}mlp.{n}_proj.weight"].T for n in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[p + "mlp.down_proj.weight"].T
    logits = (norm(x, "model.norm.weight") @ w["model.embed_tokens.weight"].T).astype("f8")[:-1]
    top = logits.max(-1, keepdims=True)
    sums = np.log(np.exp(logits - top).sum(-1)) + top[:, 0]
    return logits[np.arange(len(ids) - 1), ids[1:]] - sums


def main(model, text, window, stride, most=None):
    model, window, stride = Path(model), int(window), int(stride)
    config = json.loads((model / "config.json").read_text())
    weights = read_weights(model / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    ids = tokenizer.encode(Path(text).read_text()).ids[:int(most) if most else None]
    total = count = scored = 0
    for begin in range(0, len(ids), stride):
        end = min(begin + window, len(ids))
        new = min(end - scored, end - begin - 1)
        if new > 0:
            total -= log_probs(config, weights, ids[begin:end])[-new:].sum()
            count += new
        scored = end
        if end == len(ids):
            break
    print(f"{len(ids)} tokens, {count} scored, perplexity {np.exp(total / count):.5f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
