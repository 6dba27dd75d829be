#!/usr/bin/env python3
"""The table of docs/quantization.md: perplexity of a text, Kullback-Leibler divergence of the next token and how often
the likeliest one is the same, for every type of weights and KV cache that a model can be served with, for what `nereid
quantize` makes of it, and for GGUF files of it.

    pip install -r tests/quantized/requirements.txt
    table.py NEREID MODEL_DIR TEXT_FILE SCRATCH_DIR
"""
import json
import re
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "quantized"))
import gguf_files  # noqa: E402
from common import read_safetensors  # noqa: E402

TYPES = gguf.GGMLQuantizationType
BF16_HEAD = ["--head-weights", "bf16"]
SERVED = {"bf16": [], "int8 weights": ["--weights", "int8"],
          "int8 weights, bf16 head (`--head-weights bf16`)": ["--weights", "int8", *BF16_HEAD],
          "int8 head, the rest bf16 (`--head-weights int8`)": ["--head-weights", "int8"],
          "fp8 head, the rest bf16 (`--head-weights fp8`)": ["--head-weights", "fp8"],
          "int4 weights, groups of 128": ["--weights", "int4"],
          "int4 weights, groups of 128, bf16 head": ["--weights", "int4", *BF16_HEAD],
          "int4 weights, groups of 128, int4 head": ["--weights", "int4", "--head-weights", "int4"],
          "int8 weights and activations": ["--weights", "w8a8"],
          "int8 weights and activations, bf16 head": ["--weights", "w8a8", *BF16_HEAD], "fp8 weights": ["--weights", "fp8"],
          "fp8 weights, fp8 head": ["--weights", "fp8", "--head-weights", "fp8"], "int8 KV cache": ["--kv-cache-type", "int8"],
          "fp8 KV cache": ["--kv-cache-type", "fp8"],
          "int8 weights, int8 KV cache": ["--weights", "int8", "--kv-cache-type", "int8"]}
MIXES = {"GGUF Q8_0": (TYPES.Q8_0, TYPES.Q8_0), "GGUF Q5_1": (TYPES.Q5_1, TYPES.Q5_1),
         "GGUF Q5_0": (TYPES.Q5_0, TYPES.Q5_0), "GGUF Q4_1": (TYPES.Q4_1, TYPES.Q4_1),
         "GGUF Q4_0": (TYPES.Q4_0, TYPES.Q4_0), "GGUF Q4_K": ("Q4_K", "Q4_K"),
         "GGUF Q4_K, values and down Q6_K": ("Q4_K", "Q6_K")}
CALIBRATION = str(Path(__file__).resolve().parent / "calibration.txt")
ALL_INT4 = ["--int8_modules", "none"]
QUANTIZED = {"quantize: fp8, error feedback": ["fp8", "--error_feedback"],
             "quantize: fp8, error feedback, sequential": ["fp8", "--error_feedback", "--sequential"],
             "quantize: int8, error feedback": ["int8_wo", "--error_feedback"],
             "quantize: int8 both, SmoothQuant": ["int8_sq"],
             "quantize: int4": ["int4_wo"], "quantize: int4 AWQ": ["int4_awq"], "quantize: int4 GPTQ": ["int4_gptq"],
             "quantize: int4 GPTQ, sequential": ["int4_gptq", "--sequential"],
             "quantize: int4 AWQ, all int4": ["int4_awq", *ALL_INT4], "quantize: int4 GPTQ, all int4": ["int4_gptq", *ALL_INT4],
             "quantize: int4 GPTQ, all int4, sequential": ["int4_gptq", "--sequential", *ALL_INT4],
             "quantize: int4 GPTQ, all int4, zero points": ["int4_gptq", "--zero_point", *ALL_INT4],
             "quantize: int4 GPTQ, all int4, groups of 32": ["int4_gptq", "--awq_block_size", "32", *ALL_INT4]}
MORE_BITS = ("attn_v", "ffn_down")  # have the second type of a mix


def halves(x):
    """f16 numbers as bytes, and what they stand for."""
    x = x.astype("f2")
    return x[..., None].view("u1"), x.astype("f4")


def best_q4_k(blocks):
    """Scales and minima (positive, taken off) of groups [..., 32]: of integers by 21 candidate steps, the line through
    the numbers by weighted least squares, the candidate of least weighted squared error. Large numbers weigh more."""
    weights = np.sqrt((blocks ** 2).mean(-1, keepdims=True)) + np.abs(blocks)
    least, most = np.minimum(blocks.min(-1), 0), blocks.max(-1)
    span = np.where(most > least, most - least, 1)
    best_error, best_scale, best_least = np.full(least.shape, np.inf), np.zeros(least.shape), least
    sum_w, sum_x = weights.sum(-1), (weights * blocks).sum(-1)
    for steps in [15, *np.arange(14, 16.05, 0.1)]:
        q = np.rint((blocks - least[..., None]) * (steps / span)[..., None]).clip(0, 15)
        sum_q, sum_qq = (weights * q).sum(-1), (weights * q * q).sum(-1)
        sum_qx = (weights * q * blocks).sum(-1)
        spread = sum_w * sum_qq - sum_q ** 2
        ok = spread > 0
        spread = np.where(ok, spread, 1)
        scale, low = (sum_w * sum_qx - sum_x * sum_q) / spread, (sum_qq * sum_x - sum_q * sum_qx) / spread
        above = low > 0  # the minimum is taken off, so it is not above zero
        scale = np.where(above, sum_qx / np.where(sum_qq > 0, sum_qq, 1), scale)
        low = np.where(above, 0, low)
        error = (weights * (scale[..., None] * q + low[..., None] - blocks) ** 2).sum(-1)
        better = ok & (scale > 0) & (error < best_error)
        best_error, best_scale = np.where(better, error, best_error), np.where(better, scale, best_scale)
        best_least = np.where(better, low, best_least)
    return best_scale, -best_least


def q4_k(x):
    blocks = x.reshape(-1, 8, 32)
    scales, minima = best_q4_k(blocks)
    d, d_value = halves(scales.max(-1) / 63)
    m, m_value = halves(minima.max(-1) / 63)
    s = np.rint(scales / np.where(d_value == 0, 1, d_value)[:, None]).clip(0, 63).astype("u1")
    t = np.rint(minima / np.where(m_value == 0, 1, m_value)[:, None]).clip(0, 63).astype("u1")
    step = (d_value[:, None] * s)[..., None]
    q = np.rint((blocks + (m_value[:, None] * t)[..., None]) / np.where(step == 0, 1, step)).clip(0, 15).astype("u1")
    packed = np.concatenate([s[:, :4] | s[:, 4:] >> 4 << 6, t[:, :4] | t[:, 4:] >> 4 << 6,
                             (s[:, 4:] & 15) | (t[:, 4:] & 15) << 4], -1)
    pairs = q.reshape(-1, 4, 2, 32)
    data = (pairs[:, :, 0] | pairs[:, :, 1] << 4).reshape(-1, 128)
    return np.concatenate([d, m, packed, data], -1).reshape(x.shape[0], -1)


def best_q6_k(blocks):
    """Scales of groups [..., 16], likewise: the extreme number becomes -32, or some tenths of a step beside it."""
    weights = blocks ** 2
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(-1)[..., None], -1)[..., 0]
    best_gain, best_scale = np.zeros(extreme.shape), np.zeros(extreme.shape)
    for tenths in range(-9, 10):
        steps = -(32 + tenths / 10) / np.where(extreme == 0, 1, extreme)
        q = np.rint(blocks * steps[..., None]).clip(-32, 31)
        along, square = (weights * q * blocks).sum(-1), (weights * q * q).sum(-1)
        gain = along ** 2 / np.where(square > 0, square, 1)
        better = gain > best_gain
        best_gain = np.where(better, gain, best_gain)
        best_scale = np.where(better, along / np.where(square > 0, square, 1), best_scale)
    return best_scale


def q6_k(x):
    blocks = x.reshape(-1, 16, 16)
    scales = best_q6_k(blocks)
    extreme = np.take_along_axis(scales, np.abs(scales).argmax(-1)[..., None], -1)[..., 0]
    d, d_value = halves(extreme / -128)
    s = np.rint(scales / np.where(d_value == 0, 1, d_value)[:, None]).clip(-128, 127).astype("i1")
    step = (d_value[:, None] * s)[..., None]
    q = (np.rint(blocks / np.where(step == 0, 1, step)).clip(-32, 31) + 32).astype("u1").reshape(-1, 2, 4, 32)
    low = np.concatenate([(q[:, :, i] & 15) | (q[:, :, i + 2] & 15) << 4 for i in (0, 1)], -1).reshape(-1, 128)
    high = sum((q[:, :, i] >> 4) << 2 * i for i in range(4)).astype("u1").reshape(-1, 64)
    return np.concatenate([low, high, s.view("u1"), d], -1).reshape(x.shape[0], -1)


def encoded(x, kind):
    if kind == "Q4_K":
        return q4_k(x), TYPES.Q4_K
    if kind == "Q6_K":
        return q6_k(x), TYPES.Q6_K
    return gguf.quantize(x, kind), kind


def write_gguf(path, model, mix):
    config = json.loads((model / "config.json").read_text())
    writer = gguf_files.gguf_writer(path, model, config, config["num_hidden_layers"])
    for name, value in read_safetensors(model / "model.safetensors").items():
        name = gguf_files.gguf_name(name)
        value = gguf_files.paired_rows(value, config, name)
        if value.ndim == 1 or name == "token_embd.weight":
            writer.add_tensor(name, value.astype("f4"))
            continue
        raw, kind = encoded(value.astype("f4"), mix[name.split(".")[-2] in MORE_BITS])
        writer.add_tensor(name, raw, raw_dtype=kind)
    gguf_files.finish(writer)


def main():
    nereid, model, text, scratch = sys.argv[1], Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    scratch.mkdir(parents=True, exist_ok=True)
    baseline = None
    print("| served as | perplexity | beside bf16 | KL divergence, nats | same likeliest token |\n|---|---|---|---|---|")
    for name, choice in (SERVED | QUANTIZED | MIXES).items():
        path, flags = model, choice
        if name in QUANTIZED:
            path, flags = scratch / "quantized", []
            subprocess.run([nereid, "quantize", "--model_dir", str(model), "--output_dir", str(path), "--calib_dataset",
                            CALIBRATION, "--log_level", "error", "--qformat", *choice], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        elif isinstance(choice, tuple):
            path, flags = scratch / "model.gguf", []
            write_gguf(path, model, choice)
        out = subprocess.run([nereid, "perplexity", str(path), "-f", text, "--reference", str(model), "--log-level",
                              "error", *flags], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        value = float(re.search(r"^perplexity ([\d.]+)", out)[1])
        divergence, same = re.search(r"([\d.]+) nats a token, same likeliest token ([\d.]+) %", out).groups()
        baseline = baseline or value
        print(f"| {name} | {value:.4f} | {value / baseline:.4f} | {float(divergence):.5f} | {same} % |", flush=True)


if __name__ == "__main__":
    main()
