"""Layouts that are published on the hub: GPTQ, AWQ, compressed-tensors, fp8, bitsandbytes, ModelOpt, mxfp4, torchao."""
import json
import re

import numpy as np

from common import E2M1, E4M3, Bytes, float_model, integers, pack, random, to_e2m1, to_e4m3, value_of, write_model


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


def exponents(w, largest):
    """For each group of 32 columns the power of two, with a bias of 127, that brings it below `largest`."""
    groups = np.abs(w).reshape(w.shape[0], -1, 32).max(2)
    codes = np.ceil(np.log2(np.maximum(groups, 1e-30) / largest)) + 127
    return codes.astype("u1"), np.repeat(np.exp2(codes.astype("f4") - 127), 32, 1).astype("f4")


def mxfp4(w):
    codes, scale = exponents(w, 6)
    numbers = to_e2m1(w / scale)
    return {"weight_packed": numbers[:, 0::2] | numbers[:, 1::2] << 4, "weight_scale": codes}, E2M1[numbers] * scale


def mxfp8(w):
    codes, scale = exponents(w, 448)
    numbers = to_e4m3(w / scale)
    return {"weight": Bytes("F8_E4M3", numbers), "weight_scale": codes}, E4M3[numbers] * scale


def torchao_integers(bits, group, symmetric):
    def write(w):
        g = group or w.shape[1]
        u, scale, zero = integers(w, bits, g, symmetric)
        middle = 2**(bits - 1)
        return {"_weight_qdata": (u - middle).astype("i1"), "_weight_scale": scale,
                "_weight_zero_point": (zero - middle).astype("i1")}, value_of(u, scale, zero, g)
    return write


def torchao_fp8(scales):
    def write(w):
        tensors, value = fp8(scales)(w)
        scale = tensors.get("weight_scale", tensors.get("weight_scale_inv"))
        scale = scale.reshape(1, 1) if scale.ndim == 0 else scale
        return {"_weight_qdata": tensors["weight"], "_weight_scale": scale}, value
    return write


def torchao_int4(factors):
    """Scales and offsets lie by groups; an offset is any number."""
    def write(w):
        n, k = w.shape
        factor = (0.5 + random.random(k)).astype("f4") if factors else np.ones(k, "f4")
        groups = (w / factor).reshape(n, k // 128, 128)
        low = groups.min(2)
        scale = ((groups.max(2) - low) / 15).astype("f2").astype("f4")
        offset = (low + 8 * scale).astype("f2").astype("f4")
        codes = np.clip(np.round((groups - offset[..., None]) / scale[..., None]), -8, 7).astype("i4")
        value = codes.astype("f4") * scale[..., None] + offset[..., None]
        flat = (codes.reshape(n, k) & 15).astype("u1")
        tensors = {"_weight_qdata": (flat[:, 0::2] | flat[:, 1::2] << 4).view("i1"),
                   "_weight_scale": scale.T.astype("f2"), "_weight_zero_point": offset.T.astype("f2")}
        if factors:
            tensors["_weight_act_pre_scale"] = factor
        return tensors, value.reshape(n, k) * factor
    return write


def torchao_tiles(w):
    """Rows in eights and columns in 1024s, filled up; tiles of 8 x 16, two to a word of four bits each, 32 lanes."""
    n, k = w.shape
    groups = w.reshape(n, k // 128, 128)
    low = groups.min(2)
    bf16 = lambda x: (x.astype("f4").view("u4") >> 16).astype("u2")
    number = lambda bits: (bits.astype("u4") << 16).view("f4")
    scale_bits = bf16((groups.max(2) - low) / 15)
    scale = number(scale_bits)
    offset_bits = bf16(low + 8 * scale)
    offset = number(offset_bits)
    codes = np.clip(np.round((groups - offset[..., None]) / scale[..., None]) + 8, 0, 15).astype("i4")
    value = ((codes - 8).astype("f4") * scale[..., None] + offset[..., None]).reshape(n, k)
    rows, cols = -(-n // 8) * 8, -(-k // 1024) * 1024
    full = np.zeros((rows, cols), "u4")
    full[:n, :k] = codes.reshape(n, k)
    # tile, row, outer tile, word, tile of the word, half of the tile, lane of the row, first or second of a pair
    parts = full.reshape(rows // 8, 8, cols // 128, 4, 2, 2, 4, 2).transpose(0, 2, 1, 6, 3, 7, 4, 5)
    words = (parts.reshape(-1, 8) << (4 * np.arange(8, dtype="u4"))).sum(1, dtype="u4")
    pairs = np.zeros((cols // 128, rows, 2), "u2")
    pairs[:k // 128, :n, 0], pairs[:k // 128, :n, 1] = scale_bits.T, offset_bits.T
    return {"_weight_qdata": words.view("i4").reshape(rows // 8, cols // 128, 32, 4),
            "_weight_scale_and_zero": Bytes("BF16", pairs)}, value


def modelopt_awq(w):
    factor = (0.5 + random.random(w.shape[1])).astype("f4")
    u, scale, zero = integers(w / factor, 4, 128, True)
    signed = (u - 8).astype("i4") & 15
    packed = (signed[0::2] | signed[1::2] << 4).astype("u1")
    return {"weight": packed, "weight_scale": scale, "pre_quant_scale": factor}, \
        value_of(u, scale, zero, 128) * factor


COMPRESSED = {"quant_method": "compressed-tensors", "quantization_status": "compressed",
              "ignore": ["lm_head"]}



def torchao(kind):
    return {"quant_method": "torchao", "quant_type": {"default": {"_type": kind, "_version": 2, "_data": {}}}}


# Formats for which the engine multiplies other numbers than those of the plain checkpoint, rounded to bf16: rounded activations,
# scales behind the sum.
OTHERWISE = ("fp8-rows", "fp8-one", "modelopt-fp8", "int8-both", "torchao-int8-both", "torchao-fp8-rows",
             "torchao-fp8-one")
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
    "mxfp4": ({**COMPRESSED, "format": "mxfp4-pack-quantized"}, mxfp4),
    "mxfp8": ({**COMPRESSED, "format": "mxfp8-quantized"}, mxfp8),
    "torchao-int8": (torchao("Int8WeightOnlyConfig"), torchao_integers(8, 0, True)),
    "torchao-int8-both": (torchao("Int8DynamicActivationInt8WeightConfig"), torchao_integers(8, 0, True)),
    "torchao-intx": (torchao("IntxWeightOnlyConfig"), torchao_integers(4, 32, False)),
    "torchao-int4": (torchao("Int4WeightOnlyConfig"), torchao_int4(False)),
    "torchao-int4-factors": (torchao("Int4WeightOnlyConfig"), torchao_int4(True)),
    "torchao-int4-tiles": (torchao("Int4WeightOnlyConfig"), torchao_tiles),
    "torchao-fp8-rows": (torchao("Float8WeightOnlyConfig"), torchao_fp8("rows")),
    "torchao-fp8-one": (torchao("Float8DynamicActivationFloat8WeightConfig"), torchao_fp8("one")),
    "torchao-fp8-blocks": (torchao("Float8DynamicActivationFloat8WeightConfig"), torchao_fp8("blocks")),
    "modelopt-fp8": (None, fp8("one")),
    "modelopt-nvfp4": (None, nvfp4(True)),
    "modelopt-awq": (None, modelopt_awq),
}


def published_layouts(checker, model):
    config, tensors = float_model(model)
    for name, (quantization, write) in LAYOUTS.items():
        stored, plain, sizes = {}, {}, {}
        for key, value in tensors.items():
            if not key.endswith("_proj.weight"):
                stored[key] = plain[key] = value
                continue
            parts, number = write(value)
            stem = key.removesuffix("weight")
            stored.update({stem + part: tensor for part, tensor in parts.items()})
            plain[key] = np.ascontiguousarray(number, "f4")
            if "_weight_scale_and_zero" in parts:  # of matrices in tiles
                sizes[key] = json.dumps({"_type": "Int4TilePackedTo4dTensor",
                                         "_data": {"block_size": [1, 128], "shape": list(value.shape)}})
        quantised, floats = checker.scratch / name, checker.scratch / (name + "-plain")
        write_model(quantised, model, config | ({"quantization_config": quantization} if quantization else {}), stored,
                    sizes)
        write_model(floats, model, config, plain)
        if quantization is None:
            (quantised / "hf_quant_config.json").write_text(json.dumps(
                {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": name}}))
        checker.compare(name, quantised, floats, name not in OTHERWISE)


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
    stored = len(re.findall(r"(?m)^ *\d+ expert_linear .* fp8 in groups of 128\b", checker.run("inspect", path)))
    print(f"{'fp8-experts':24} products of experts by numbers as they are stored: {stored}")
    checker.failures += stored < 3
