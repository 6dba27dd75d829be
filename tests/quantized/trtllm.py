"""TensorRT-LLM's checkpoints: each gives what lies beside a module's weight, and the matrix that it stands for."""
import json
import shutil

import numpy as np

from common import (E4M3, Bytes, float_model, integers, random, read_safetensors, to_e4m3, value_of, write_model,
                    write_safetensors)
from published import nvfp4


def pairs_of_rows(signed):
    low = signed.astype("i4") & 15
    return (low[0::2] | low[1::2] << 4).astype("u1").view("i1")


def signed_rows(packed):
    """The other way."""
    halves = np.stack([packed.view("u1") & 15, packed.view("u1") >> 4], 1).astype("i4")
    return ((halves ^ 8) - 8).reshape(-1, packed.shape[1]).astype("f4")


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


def trtllm_awq_fp8(group):
    """Activations of f8e4m3 as well: the loader divides what it multiplies results with out of both factors."""
    awq, whole, activations = trtllm_awq(group), np.array([0.25], "f4"), np.array([0.5], "f4")

    def write(w):
        parts, number = awq(w)
        kept = {"weights_scaling_factor_2": whole, "activation_scaling_factor": activations}
        k, scale = w.shape[1], parts["weights_scaling_factor"].astype("f4")
        loaded = signed_rows(parts["weight"]) * np.repeat(scale / whole, group, 1) * (activations * whole)
        assert (loaded * (parts["prequant_scaling_factor"] / activations) == number).all() and number.shape[1] == k
        return {**parts, **kept}, number
    return write


NVFP4_NAMES = ("weights_scaling_factor", "weights_scaling_factor_2", "activation_scaling_factor")
NVFP4_LOADED = ("weights_block_scaling_factor", "weights_global_scaling_factor", "activation_global_scaling_factor")


def trtllm_nvfp4(names, as_bytes):
    optimizer = nvfp4(True)

    def write(w):
        stored, number = optimizer(w)
        codes = stored["weight_scale"].codes
        return {"weight": stored["weight"].view("i1") if as_bytes else stored["weight"],
                names[0]: codes if as_bytes else Bytes("F8_E4M3", codes),
                names[1]: np.array([stored["weight_scale_2"]], "f4").reshape(1),
                names[2]: np.array([0.02], "f4"), **({"alpha": np.array([1], "f4")} if as_bytes else {})}, number
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


# Factors that round the inputs of a layer's modules, and factors that turn results into floats.
INPUT_FACTORS = {"input_layernorm.scale_to_int": 16, "attention.quantization_scaling_factor": 8,
                 "post_layernorm.scale_to_int": 32, "mlp.quantization_scaling_factor": 64}
READERS = {"qkv": "input_layernorm.scale_to_int", "dense": "attention.quantization_scaling_factor",
           "fc": "post_layernorm.scale_to_int", "gate": "post_layernorm.scale_to_int",
           "proj": "mlp.quantization_scaling_factor"}
RESULT_FACTOR = 1 / 32


def trtllm_fixed(per_channel):
    def write(w, module):
        full = per_channel or module == "qkv"
        scale = (np.abs(w).max(1) if full else np.abs(w).max(keepdims=True)[0]).reshape(1, -1) / np.float32(127)
        integer = np.round(w / scale.T).astype("i1")
        stored = scale / np.float32(INPUT_FACTORS[READERS[module]] * RESULT_FACTOR)
        parts = {"weight": integer, "per_channel_scale": stored, "act_scale": np.array([[RESULT_FACTOR]], "f4")}
        if module in ("dense", "proj"):
            parts["smoother"] = np.full((1, w.shape[1]), 2, "f4")
            return parts, integer.astype("f4") * scale.T / np.float32(2)
        return parts, integer.astype("f4") * scale.T
    return write


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
    "W4A8_AWQ": ({"group_size": 64, "pre_quant_scale": True, "has_zero_point": False}, trtllm_awq_fp8(64)),
    "NVFP4": ({"group_size": 16}, trtllm_nvfp4(NVFP4_NAMES, False)),
    "NVFP4-bytes": ({}, trtllm_nvfp4(NVFP4_LOADED, True)),
    "W8A8_SQ_PER_CHANNEL": ({"kv_cache_quant_algo": "INT8"}, trtllm_smooth),
    "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN": ({}, trtllm_per_token),
    "W8A8_SQ_PER_TENSOR_PER_TOKEN_PLUGIN": ({}, trtllm_per_tensor),
    "W8A8_SQ_PER_TENSOR_PLUGIN": ({}, trtllm_fixed(False)),
    "W8A8_SQ_PER_CHANNEL_PER_TENSOR_PLUGIN": ({}, trtllm_fixed(True)),
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
            module = key.split(".")[-2]
            parts, number = write(value, module) if "PER_TENSOR_PLUGIN" in name else write(value)
            stem = key.removesuffix("weight")
            layer = ".".join(key.split(".")[:3])
            if "PER_TENSOR_PLUGIN" in name:
                stored.update({f"{layer}.{factor}": np.array([x], "f4") for factor, x in INPUT_FACTORS.items()})
            stored.update({stem + part: tensor for part, tensor in parts.items()})
            plain[key] = np.ascontiguousarray(number, "f4")
            if "kv_cache_quant_algo" in fields and "qkv" in key:
                stored[key.replace("qkv.weight", "kv_cache_scaling_factor")] = np.array([0.1], "f4")
        quantised, floats = checker.scratch / name, checker.scratch / (name + "-plain")
        rewrite(base, quantised, {"quant_algo": name.removesuffix("-bytes"), **fields}, stored)
        cache = {key: value for key, value in fields.items() if key == "kv_cache_quant_algo"}
        rewrite(base, floats, {"quant_algo": None, **cache}, plain)
        rounds_inputs = name.startswith(("FP8", "W8A8_SQ_PER_TENSOR", "W8A8_SQ_PER_CHANNEL_PER_TENSOR"))
        checker.compare("TensorRT-LLM " + name, quantised, floats, not rounds_inputs)


# The converter's files for each flag, against the same made here.
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
