#!/usr/bin/env python3
"""Quantised checkpoints in the layouts that others publish, written here from one float model, each beside a
plain checkpoint of the numbers that its layout stands for. nereid must read the same numbers from both (compared
value by value after `nereid convert --dtype float32`), and generate the same text from them.

usage: layouts.py NEREID MODEL_DIR SCRATCH_DIR
"""
import json
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np

NAMES = {np.dtype("f4"): "F32", np.dtype("f2"): "F16", np.dtype("i4"): "I32", np.dtype("i8"): "I64",
         np.dtype("u1"): "U8", np.dtype("i1"): "I8"}
PROMPTS = ["The river", "Once there was a small", "A list of animals:"]
LAYERS = 2
random = np.random.default_rng(7)


class Bytes:
    """A tensor of a type that numpy lacks."""

    def __init__(self, dtype, codes):
        self.dtype, self.codes = dtype, codes


def write_safetensors(path, tensors):
    header, blob = {}, []
    at = 0
    for name, tensor in tensors.items():
        dtype, array = (tensor.dtype, tensor.codes) if isinstance(tensor, Bytes) else (NAMES[tensor.dtype], tensor)
        data = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + len(data)]}
        blob.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blob))


def read_safetensors(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    out = {}
    for name, row in header.items():
        if name == "__metadata__":
            continue
        begin, end = row["data_offsets"]
        data = raw[8 + size + begin:8 + size + end]
        if row["dtype"] == "BF16":
            bits = np.frombuffer(data, "u2").astype("u4") << 16
            out[name] = bits.view("f4").reshape(row["shape"])
        else:
            kind = {"F32": "f4", "F16": "f2", "I8": "i1", "F8_E4M3": "u1"}[row["dtype"]]
            out[name] = np.frombuffer(data, kind).reshape(row["shape"])
    return out


def e4m3_table():
    values = []
    for code in range(256):
        exponent, mantissa = code >> 3 & 15, code & 7
        value = (mantissa / 8 * 2.0**-6) if exponent == 0 else (1 + mantissa / 8) * 2.0**(exponent - 7)
        values.append(np.nan if code & 127 == 127 else -value if code & 128 else value)
    return np.array(values, "f4")


E4M3 = e4m3_table()
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], "f4")


def to_e4m3(x):
    """The nearest code, of two the even one; magnitudes are at most 448."""
    table = E4M3[:127]
    place = np.clip(np.searchsorted(table, np.abs(x)), 1, 126)
    below, above = np.abs(x) - table[place - 1], table[place] - np.abs(x)
    lower = (below < above) | (below == above) & (place % 2 == 1)
    codes = np.where(lower, place - 1, place).astype("u1")
    return codes | np.where(np.signbit(x), 128, 0).astype("u1")


def to_e2m1(x):
    return np.abs(np.asarray(x)[..., None] - E2M1).argmin(-1).astype("u1")


def integers(w, bits, group, symmetric):
    """u in [0, 2^bits), scales and zero points [n, groups]: w is about scale * (u - zero)."""
    n, k = w.shape
    g = w.reshape(n, k // group, group)
    top = 2**bits - 1
    if symmetric:
        scale = (np.abs(g).max(2) / (2**(bits - 1) - 1)).astype("f2").astype("f4") + np.float32(1e-4)
        zero = np.full(scale.shape, 2**(bits - 1), "i4")
    else:
        low, high = np.minimum(g.min(2), 0), np.maximum(g.max(2), 0)
        scale = ((high - low) / top).astype("f2").astype("f4") + np.float32(1e-4)
        zero = np.clip(np.round(-low / scale), 1, top).astype("i4")
    scale = scale.astype("f2").astype("f4")
    u = np.clip(np.round(g / scale[..., None]) + zero[..., None], 0, top).astype("i4")
    return u.reshape(n, k), scale, zero


def value_of(u, scale, zero, group):
    return np.repeat(scale, group, 1) * (u - np.repeat(zero, group, 1)).astype("f4")


def pack(fields, bits, axis):
    """Words of 32 bits from fields along an axis, the first in the lowest bits."""
    per = 32 // bits
    fields = np.moveaxis(fields.astype("u4"), axis, -1)
    fields = fields.reshape(*fields.shape[:-1], fields.shape[-1] // per, per)
    words = np.zeros(fields.shape[:-1], "u4")
    for i in range(per):
        words |= fields[..., i] << np.uint32(bits * i)
    return np.ascontiguousarray(np.moveaxis(words, -1, axis)).view("i4")


# Each gives the tensors of a module and the matrix that they stand for.

def gptq(bits=4, group=128, shift=1, order=False):
    def write(w):
        index = np.arange(w.shape[1]) // group
        if order:
            index = random.permutation(index)
        by_group = np.argsort(index, kind="stable")
        u, scale, zero = integers(w[:, by_group], bits, group, False)
        value = np.empty_like(w)
        value[:, by_group] = value_of(u, scale, zero, group)
        codes = np.empty_like(u)
        codes[:, by_group] = u
        return {"qweight": pack(codes.T, bits, 0), "qzeros": pack((zero.T - shift).astype("u4"), bits, 1),
                "scales": scale.T.astype("f2"), "g_idx": index.astype("i4")}, value
    return write


def awq(w, group=128):
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    u, scale, zero = integers(w, 4, group, False)
    shuffled = lambda x: x.reshape(x.shape[0], -1, 8)[..., order].reshape(x.shape)
    return {"qweight": pack(shuffled(u.T), 4, 1), "qzeros": pack(shuffled(np.minimum(zero, 15).T), 4, 1),
            "scales": scale.T.astype("f2")}, value_of(u, scale, zero, group)


def compressed_packed(bits, group, symmetric):
    def write(w):
        g = group or w.shape[1]
        u, scale, zero = integers(w, bits, g, symmetric)
        tensors = {"weight_packed": pack(u, bits, 1), "weight_scale": scale,
                   "weight_shape": np.array(w.shape, "i8")}
        if not symmetric:
            tensors["weight_zero_point"] = pack(zero, bits, 0)
        return tensors, value_of(u, scale, zero, g)
    return write


def compressed_int8(w):
    u, scale, zero = integers(w, 8, w.shape[1], True)
    return {"weight": (u - 128).astype("i1"), "weight_scale": scale}, value_of(u, scale, zero, w.shape[1])


def compressed_both(w):
    u, scale, _ = integers(w, 8, w.shape[1], True)
    return {"weight": (u - 128).astype("i1"), "weight_scale": scale.astype("f4")}, \
        scale * (u - 128).astype("f4")


def fp8(scales):
    def write(w):
        n, k = w.shape
        if scales == "blocks":
            rows, cols = -(-n // 128), -(-k // 128)
            padded = np.zeros((rows * 128, cols * 128), "f4")
            padded[:n, :k] = w
            scale = np.abs(padded.reshape(rows, 128, cols, 128)).max((1, 3)) / 448
            whole = np.repeat(np.repeat(scale, 128, 0), 128, 1)[:n, :k]
            name = "weight_scale_inv"
        elif scales == "rows":
            scale = np.abs(w).max(1, keepdims=True) / 448
            whole, name = scale, "weight_scale"
        else:
            scale = np.array(np.abs(w).max() / 448, "f4")
            whole, name = scale, "weight_scale"
        codes = to_e4m3(w / whole)
        tensors = {"weight": Bytes("F8_E4M3", codes), name: np.asarray(scale, "f4")}
        if scales == "one":
            tensors["input_scale"] = np.array(0.02, "f4")
        return tensors, E4M3[codes] * np.asarray(whole, "f4")
    return write


def bnb_int8(w):
    largest = np.abs(w).max(1)
    codes = np.round(w / largest[:, None] * 127).astype("i1")
    factor = largest * (np.float32(1) / np.float32(127))
    return {"weight": codes, "SCB": largest, "weight_format": np.array(0, "u1")}, codes.astype("f4") * factor[:, None]


def bnb_nf4(nested):
    def write(w):
        table = np.sort(random.normal(size=16)).astype("f4")
        table /= np.abs(table).max()
        blocks = w.reshape(-1, 64)
        largest = np.abs(blocks).max(1)
        state = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": list(w.shape)}
        tensors = {"weight.quant_map": table}
        if nested:
            offset = float(largest.mean())
            outer = np.abs((largest - offset)).reshape(-1, 1)
            pieces = [outer[i:i + 256].max() for i in range(0, len(outer), 256)]
            scale = np.array(pieces, "f4")
            steps = np.linspace(-1, 1, 256).astype("f4")
            whole = np.repeat(scale, 256)[:len(largest)]
            codes = np.abs(((largest - np.float32(offset)) / whole)[:, None] - steps).argmin(1).astype("u1")
            largest = steps[codes] * whole + np.float32(offset)
            state.update(nested_blocksize=256, nested_dtype="float32", nested_offset=offset)
            tensors.update({"weight.absmax": codes, "weight.nested_absmax": scale, "weight.nested_quant_map": steps})
        else:
            tensors["weight.absmax"] = largest
        codes = np.abs((blocks / largest[:, None])[..., None] - table).argmin(-1)
        flat = codes.reshape(-1).astype("u1")
        tensors["weight"] = (flat[0::2] << 4 | flat[1::2]).reshape(-1, 1)
        tensors["weight.quant_state.bitsandbytes__nf4"] = np.frombuffer(json.dumps(state).encode(), "u1").copy()
        return tensors, (table[codes] * largest[:, None]).reshape(w.shape)
    return write


def nvfp4(modelopt):
    def write(w):
        n, k = w.shape
        groups = w.reshape(n, k // 16, 16)
        largest = np.abs(groups).max(2) / 6
        whole = np.float32(largest.max() / 448)
        codes = to_e4m3(largest / whole)
        if modelopt:
            factor = whole
        else:
            stored = np.float32(1) / whole
            factor = np.float32(1) / stored
        scale = E4M3[codes] * (factor / 2)
        numbers = to_e2m1(groups / np.maximum(2 * scale, 1e-9)[..., None])
        value = (2 * E2M1[numbers]) * scale[..., None]
        flat = numbers.reshape(n, k)
        packed = flat[:, 0::2] | flat[:, 1::2] << 4
        if modelopt:
            return {"weight": packed, "weight_scale": Bytes("F8_E4M3", codes),
                    "weight_scale_2": np.array(whole, "f4"), "input_scale": np.array(1, "f4")}, value.reshape(n, k)
        return {"weight_packed": packed, "weight_scale": Bytes("F8_E4M3", codes),
                "weight_global_scale": np.array([stored], "f4"),
                "input_global_scale": np.array([1], "f4")}, value.reshape(n, k)
    return write


def modelopt_awq(w):
    factor = (0.5 + random.random(w.shape[1])).astype("f4")
    u, scale, zero = integers(w / factor, 4, 128, True)
    signed = (u - 8).astype("i4") & 15
    packed = (signed[0::2] | signed[1::2] << 4).astype("u1")
    return {"weight": packed, "weight_scale": scale, "pre_quant_scale": factor}, \
        value_of(u, scale, zero, 128) * factor


COMPRESSED = {"quant_method": "compressed-tensors", "quantization_status": "compressed",
              "ignore": ["lm_head"]}
LAYOUTS = {
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": False}, gptq()),
    "gptq-v2": ({"quant_method": "gptq", "bits": 4, "group_size": 64, "checkpoint_format": "gptq_v2"},
                gptq(4, 64, 0)),
    "gptq-8-bits": ({"quant_method": "gptq", "bits": 8, "group_size": 32, "sym": False}, gptq(8, 32)),
    "gptq-order": ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True}, gptq(order=True)),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "GEMM"}, awq),
    "packed-4": ({**COMPRESSED, "format": "pack-quantized"}, compressed_packed(4, 128, True)),
    "packed-4-zeros": ({**COMPRESSED, "format": "pack-quantized"}, compressed_packed(4, 32, False)),
    "packed-8-rows": ({**COMPRESSED, "format": "pack-quantized"}, compressed_packed(8, 0, True)),
    "int8": ({**COMPRESSED, "format": "int-quantized"}, compressed_int8),
    "int8-both": ({**COMPRESSED, "format": "int-quantized", "config_groups": {"group_0": {
        "targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
        "input_activations": {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}}}}, compressed_both),
    "fp8-rows": ({**COMPRESSED, "format": "float-quantized"}, fp8("rows")),
    "fp8-one": ({"quant_method": "fp8", "activation_scheme": "static"}, fp8("one")),
    "fp8-blocks": ({"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
                    "weight_block_size": [128, 128]}, fp8("blocks")),
    "bitsandbytes-8": ({"quant_method": "bitsandbytes", "load_in_8bit": True}, bnb_int8),
    "bitsandbytes-4": ({"quant_method": "bitsandbytes", "load_in_4bit": True}, bnb_nf4(False)),
    "bitsandbytes-4-nested": ({"quant_method": "bitsandbytes", "load_in_4bit": True}, bnb_nf4(True)),
    "nvfp4": ({**COMPRESSED, "format": "nvfp4-pack-quantized"}, nvfp4(False)),
    "modelopt-fp8": (None, fp8("one")),
    "modelopt-nvfp4": (None, nvfp4(True)),
    "modelopt-awq": (None, modelopt_awq),
}


class Checker:
    def __init__(self, nereid, scratch):
        self.nereid, self.scratch, self.failures = nereid, scratch, 0

    def run(self, *args):
        done = subprocess.run([self.nereid, *map(str, args)], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{args[0]} {args[1]}: {done.stderr.strip()[-400:]}")
        return done.stdout

    def numbers(self, model):
        out = self.scratch / "converted"
        shutil.rmtree(out, ignore_errors=True)
        self.run("convert", "--model_dir", model, "--output_dir", out, "--dtype", "float32")
        return read_safetensors(out / "rank0.safetensors")

    def text(self, model, *options):
        return [self.run("generate", model, "--prompt", prompt, "--max-tokens", 24, "--cache-dir",
                         self.scratch / "cache", *options) for prompt in PROMPTS]

    def compare(self, name, quantised, plain, same_text, converts=True):
        """`same_text`: the engine multiplies the very numbers of the plain checkpoint, rounded to bf16, where it has the
        reference kernels; faster ones may leave that rounding out of products with integers."""
        try:
            ours, wanted = (self.numbers(quantised), self.numbers(plain)) if converts else ({}, {})
            assert ours.keys() == wanted.keys(), "other tensors"
            worst, count = 0, 0
            for key, value in wanted.items():
                assert ours[key].shape == value.shape, key
                worst += int((ours[key] != value).sum())
                count += value.size
            reference = ["--kernel", "linear:ref", "--kernel", "expert_linear:ref"]
            same = self.text(quantised, *reference) == self.text(plain, *reference)
            as_bf16 = self.text(quantised, "--weights", "bf16") == self.text(plain)
            good = worst == 0 and as_bf16 and (same or not same_text)
            print(f"{name:24} {count} numbers, {worst} differ; text {'equal' if same else 'differs'}"
                  f"{'' if same_text else ' (activations are rounded too)'}, as bf16 {'equal' if as_bf16 else 'differs'}")
        except (RuntimeError, AssertionError) as error:
            good = False
            print(f"{name:24} {error}")
        self.failures += not good


def float_model(model):
    config = json.loads((model / "config.json").read_text())
    config["num_hidden_layers"] = LAYERS
    tensors = {name: value for name, value in read_safetensors(model / "model.safetensors").items()
               if not name.startswith("model.layers.") or int(name.split(".")[2]) < LAYERS}
    return config, tensors


def write_model(path, model, config, tensors):
    path.mkdir(parents=True)
    for file in model.glob("*"):
        if file.name.startswith(("token", "chat", "special", "generation")):
            shutil.copy(file, path / file.name)
    (path / "config.json").write_text(json.dumps(config))
    write_safetensors(path / "model.safetensors", tensors)


def published_layouts(checker, model):
    config, tensors = float_model(model)
    for name, (quantization, write) in LAYOUTS.items():
        stored, plain = {}, {}
        for key, value in tensors.items():
            if not key.endswith("_proj.weight"):
                stored[key] = plain[key] = value
                continue
            parts, number = write(value)
            stem = key.removesuffix("weight")
            stored.update({stem + part: tensor for part, tensor in parts.items()})
            plain[key] = np.ascontiguousarray(number, "f4")
        quantised, floats = checker.scratch / name, checker.scratch / (name + "-plain")
        write_model(quantised, model, config | ({"quantization_config": quantization} if quantization else {}), stored)
        write_model(floats, model, config, plain)
        if quantization is None:
            (quantised / "hf_quant_config.json").write_text(json.dumps(
                {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": name}}))
        checker.compare(name, quantised, floats, name not in ("fp8-rows", "fp8-one", "modelopt-fp8", "int8-both"))


# TensorRT-LLM's checkpoints: each gives what lies beside a module's weight, and the matrix that it stands for.

def pairs_of_rows(signed):
    low = signed.astype("i4") & 15
    return (low[0::2] | low[1::2] << 4).astype("u1").view("i1")


def trtllm_fp8(as_bytes):
    def write(w):
        scale = np.float32(np.abs(w).max() / 448)
        codes = to_e4m3(w / scale)
        return {"weight": codes.view("i1") if as_bytes else Bytes("F8_E4M3", codes),
                "weights_scaling_factor": np.array([scale]), "activation_scaling_factor": np.array([0.02], "f4")}, \
            E4M3[codes] * scale
    return write


def trtllm_fp8_rows(w):
    scale = np.maximum(np.abs(w).max(1) / np.float32(448), np.float32(1) / np.float32(448 * 512))
    codes = to_e4m3(w / scale[:, None])
    return {"weight": Bytes("F8_E4M3", codes), "per_channel_scale": scale}, E4M3[codes] * scale[:, None]


def trtllm_awq(group):
    def write(w):
        factor = (0.5 + random.random(w.shape[1])).astype("f4")
        u, scale, zero = integers(w / factor, 4, group, True)
        return {"weight": pairs_of_rows(u - 8), "weights_scaling_factor": scale.astype("f2"),
                "prequant_scaling_factor": factor}, value_of(u, scale, zero, group) * factor
    return write


def trtllm_smooth(w):
    factor = (0.5 + random.random(w.shape[1])).astype("f4")
    u, scale, zero = integers(w / factor, 8, w.shape[1], True)
    return {"weight": (u - 128).astype("i1"), "weights_scaling_factor": scale[:, 0],
            "activation_scaling_factor": np.array([0.02], "f4"), "prequant_scaling_factor": factor}, \
        value_of(u, scale, zero, w.shape[1]) * factor


def trtllm_per_token(w):
    factor = (0.5 + random.random(w.shape[1])).astype("f4")
    u, scale, zero = integers(w * factor, 8, w.shape[1], True)
    return {"weight": (u - 128).astype("i1"), "per_channel_scale": scale.reshape(1, -1), "smoother": factor[None]}, \
        value_of(u, scale, zero, w.shape[1]) / factor


def trtllm_per_tensor(w):
    scale = np.float32(np.abs(w).max() / 127)
    integer = np.round(w / scale).astype("i1")
    return {"weight": integer, "per_channel_scale": np.array([[scale]], "f4")}, integer.astype("f4") * scale


def as_bf16(x):
    bits = np.ascontiguousarray(x, "f4").view("u4")
    return (bits + 0x7fff + (bits >> 16 & 1) & 0xffff0000).view("f4")


def weight_only(bits, dtype="f2"):
    half = 2**(bits - 1)

    def write(w):
        largest = np.abs(w).max(1) / np.float32(half)
        scale = as_bf16(largest) if dtype == "bf16" else largest.astype(dtype).astype("f4")
        integer = np.clip(np.round(w / scale[:, None]), -half, half - 1).astype("i1")
        stored = pairs_of_rows(integer) if bits == 4 else integer
        return {"weight": stored, "per_channel_scale": scale if dtype == "bf16" else scale.astype(dtype)}, \
            integer.astype("f4") * scale[:, None]
    return write


ROW_MAJOR = {"weight_layout": "row_major"}
TRTLLM_LAYOUTS = {
    "FP8": ({"kv_cache_quant_algo": "FP8"}, trtllm_fp8(False)),
    "FP8-bytes": ({}, trtllm_fp8(True)),
    "FP8_PER_CHANNEL_PER_TOKEN": ({}, trtllm_fp8_rows),
    "W4A16_AWQ": ({"group_size": 64, "pre_quant_scale": True, "has_zero_point": False}, trtllm_awq(64)),
    "W8A8_SQ_PER_CHANNEL": ({"kv_cache_quant_algo": "INT8"}, trtllm_smooth),
    "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN": ({}, trtllm_per_token),
    "W8A8_SQ_PER_TENSOR_PER_TOKEN_PLUGIN": ({}, trtllm_per_tensor),
    "W8A16": (ROW_MAJOR, weight_only(8)),
    "W4A16": (ROW_MAJOR, weight_only(4)),
}
MODULES = ("attention.qkv.weight", "attention.dense.weight", "mlp.fc.weight", "mlp.gate.weight", "mlp.proj.weight")


def rewrite(source, target, quantization, tensors):
    shutil.copytree(source, target)
    config = json.loads((target / "config.json").read_text())
    config["quantization"] = quantization
    (target / "config.json").write_text(json.dumps(config))
    write_safetensors(target / "rank0.safetensors", tensors)


def trtllm_float(checker, model):
    """A float checkpoint of the other layout, and its tensors."""
    config, tensors = float_model(model)
    write_model(checker.scratch / "float", model, config, tensors)
    base = checker.scratch / "trtllm-float"
    checker.run("convert", "--model_dir", checker.scratch / "float", "--output_dir", base, "--dtype", "float32")
    return base, read_safetensors(base / "rank0.safetensors")


def trtllm_layouts(checker, base, tensors):
    for name, (fields, write) in TRTLLM_LAYOUTS.items():
        stored, plain = {}, {}
        for key, value in tensors.items():
            if not key.endswith(MODULES):
                stored[key] = plain[key] = value
                continue
            parts, number = write(value)
            stem = key.removesuffix("weight")
            stored.update({stem + part: tensor for part, tensor in parts.items()})
            plain[key] = np.ascontiguousarray(number, "f4")
            if "kv_cache_quant_algo" in fields and "qkv" in key:
                stored[key.replace("qkv.weight", "kv_cache_scaling_factor")] = np.array([0.1], "f4")
        quantised, floats = checker.scratch / name, checker.scratch / (name + "-plain")
        rewrite(base, quantised, {"quant_algo": name.removesuffix("-bytes"), **fields}, stored)
        rewrite(base, floats, {"quant_algo": None}, plain)
        checker.compare("TensorRT-LLM " + name, quantised, floats, not name.startswith(("FP8", "W8A8_SQ_PER_TENSOR")))


# What the converter's flags write, against the same made here.
WRITTEN = {
    "int8": (["--use_weight_only"], weight_only(8, "bf16")),
    "int4": (["--use_weight_only", "--weight_only_precision", "int4"], weight_only(4, "bf16")),
    "fp8_rowwise": (["--use_fp8_rowwise"], trtllm_fp8_rows),
}


def trtllm_written(checker, base, tensors):
    for name, (flags, write) in WRITTEN.items():
        for ranks in (1, 2):
            out = checker.scratch / f"written-{name}-{ranks}"
            checker.run("convert", "--model_dir", checker.scratch / "float", "--output_dir", out, "--dtype", "bfloat16",
                        "--tp_size", ranks, *flags)
            different = stored_differences(out, tensors, write) if ranks == 1 else 0
            plain = {}
            for key, value in tensors.items():
                if not key.endswith(MODULES):
                    plain[key] = as_bf16(value) if value.ndim else value
                elif ranks == 2 and key.endswith(("dense.weight", "proj.weight")):  # each rank has columns
                    plain[key] = np.concatenate([write(half)[1] for half in np.split(value, 2, 1)], 1)
                else:
                    plain[key] = write(value)[1]
            floats = checker.scratch / f"written-{name}-{ranks}-plain"
            rewrite(base, floats, {"quant_algo": None}, plain)
            checker.failures += different > 0
            print(f"written {name}: {different} bytes differ" if ranks == 1 else f"written {name} by 2 ranks")
            checker.compare(f"written {name} x {ranks}", out, floats, not name.startswith("fp8"))


def stored_differences(path, tensors, write):
    there, count = read_safetensors(path / "rank0.safetensors"), 0
    for key, value in tensors.items():
        if not key.endswith(MODULES):
            continue
        for part, wanted in write(value)[0].items():
            wanted = wanted.codes if isinstance(wanted, Bytes) else wanted
            found = there[key.removesuffix("weight") + part]
            assert found.shape == wanted.shape, f"{key} {part}: {found.shape} is not {wanted.shape}"
            count += int((found != wanted).sum())
    return count


def gpt_oss(checker, model):
    """Experts in mxfp4: [experts, rows, groups of 32, 16 bytes], the other way round than the float tensors."""
    config = json.loads((model.parent.parent / "tests/models/gpt_oss/config.json").read_text())
    config.update(hidden_size=64, intermediate_size=32, num_hidden_layers=1, layer_types=["full_attention"],
                  vocab_size=4096)
    h, f, e, d = 64, 32, config["num_local_experts"], config["head_dim"]
    q, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    small = lambda *shape: (random.normal(size=shape) / 8).astype("f4")
    layer = "model.layers.0."
    tensors = {"model.embed_tokens.weight": small(4096, h), "lm_head.weight": small(4096, h),
               "model.norm.weight": small(h) + 1, layer + "input_layernorm.weight": small(h) + 1,
               layer + "post_attention_layernorm.weight": small(h) + 1,
               layer + "self_attn.sinks": small(config["num_attention_heads"]),
               layer + "mlp.router.weight": small(e, h), layer + "mlp.router.bias": small(e),
               layer + "mlp.experts.gate_up_proj_bias": small(e, 2 * f), layer + "mlp.experts.down_proj_bias": small(e, h)}
    for name, rows, cols in (("q", q, h), ("k", kv, h), ("v", kv, h), ("o", h, q)):
        tensors[f"{layer}self_attn.{name}_proj.weight"] = small(rows, cols)
        tensors[f"{layer}self_attn.{name}_proj.bias"] = small(rows)
    stored, plain = dict(tensors), dict(tensors)
    for name, rows, cols in (("gate_up_proj", 2 * f, h), ("down_proj", h, f)):
        codes = random.integers(0, 16, (e, rows, cols)).astype("u1")
        scales = random.integers(120, 126, (e, rows, cols // 32)).astype("u1")
        stored[f"{layer}mlp.experts.{name}_blocks"] = (codes[..., 0::2] | codes[..., 1::2] << 4).reshape(
            e, rows, cols // 32, 16)
        stored[f"{layer}mlp.experts.{name}_scales"] = scales
        value = E2M1[codes] * np.repeat(np.exp2(scales.astype("f4") - 127), 32, 2)
        plain[f"{layer}mlp.experts.{name}"] = np.ascontiguousarray(value.transpose(0, 2, 1), "f4")
    write_model(checker.scratch / "gpt-oss", model,
                config | {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": []}}, stored)
    write_model(checker.scratch / "gpt-oss-plain", model, config, plain)
    checker.compare("gpt-oss", checker.scratch / "gpt-oss", checker.scratch / "gpt-oss-plain", True,
                    converts=False)  # the other layout has no name for its sinks


def fp8_experts(checker, model):
    """Qwen3-MoE with fp8 in blocks, experts too, some of whose blocks are cut off."""
    config = json.loads((model.parent.parent / "tests/models/qwen3_moe/config.json").read_text())
    h, f, e, d = 192, 144, config["num_experts"], 64
    config.update(hidden_size=h, head_dim=d, moe_intermediate_size=f, num_hidden_layers=1, vocab_size=4096)
    q, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    small = lambda *shape: (random.normal(size=shape) / 8).astype("f4")
    layer = "model.layers.0."
    stored = {"model.embed_tokens.weight": small(4096, h), "lm_head.weight": small(4096, h),
              "model.norm.weight": small(h) + 1, layer + "input_layernorm.weight": small(h) + 1,
              layer + "post_attention_layernorm.weight": small(h) + 1, layer + "mlp.gate.weight": small(e, h),
              layer + "self_attn.q_norm.weight": small(d) + 1, layer + "self_attn.k_norm.weight": small(d) + 1}
    plain = dict(stored)
    shapes = {f"self_attn.{name}_proj.": shape for name, shape in
              (("q", (q, h)), ("k", (kv, h)), ("v", (kv, h)), ("o", (h, q)))}
    for i in range(e):
        shapes |= {f"mlp.experts.{i}.{name}_proj.": shape for name, shape in
                   (("gate", (f, h)), ("up", (f, h)), ("down", (h, f)))}
    for name, shape in shapes.items():
        parts, number = fp8("blocks")(small(*shape))
        stored.update({layer + name + part: tensor for part, tensor in parts.items()})
        plain[layer + name + "weight"] = np.ascontiguousarray(number, "f4")
    path = checker.scratch / "fp8-experts"
    write_model(path, model, config | {"quantization_config": LAYOUTS["fp8-blocks"][0]}, stored)
    write_model(checker.scratch / "fp8-experts-plain", model, config, plain)
    checker.compare("fp8-experts", path, checker.scratch / "fp8-experts-plain", True)
    stored = len(re.findall(r"expert_linear .* fp8 in groups of 128\n", checker.run("inspect", path)))
    print(f"{'fp8-experts':24} products of experts by numbers as they are stored: {stored}")
    checker.failures += stored < 3


def gguf_writer(path, model, config, layers):
    """Of a Llama model's file, with everything but the tensors in it."""
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
    """Files of random blocks; what they stand for is what the gguf package says."""
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


def main():
    nereid, model, scratch = sys.argv[1], Path(sys.argv[2]).resolve(), Path(sys.argv[3])
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    checker = Checker(nereid, scratch)
    published_layouts(checker, model)
    base, tensors = trtllm_float(checker, model)
    trtllm_layouts(checker, base, tensors)
    trtllm_written(checker, base, tensors)
    gpt_oss(checker, model)
    fp8_experts(checker, model)
    gguf_blocks(checker, model)
    shutil.rmtree(scratch)
    if checker.failures:
        sys.exit(f"{checker.failures} layouts are not read as they should be")
    print("quantised layouts: all equal")


if __name__ == "__main__":
    main()
