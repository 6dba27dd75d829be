"""TensorRT-LLM checkpoints that nereid writes of quantised models: what each module's tensors stand for, by a reader of
its own, against the numbers of the source. (That an engine has the source's bytes: cli_test, RankExport*.)"""
import json

import numpy as np

from common import E4M3, read_safetensors, to_e4m3
from trtllm import READERS

HF_PARTS = {"attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            "attention.dense": ("self_attn.o_proj",), "mlp.fc": ("mlp.gate_proj",), "mlp.gate": ("mlp.up_proj",),
            "mlp.proj": ("mlp.down_proj",)}
LAYERS = 2


def signed_nibbles(packed):
    """[out / 2, in], rows 2 i in the low halves, as numbers from -8 to 7."""
    halves = np.stack([packed.view("u1") & 15, packed.view("u1") >> 4], 1).astype("i4")
    return ((halves ^ 8) - 8).reshape(-1, packed.shape[1]).astype("f4")


def per_column(groups, k):
    return np.repeat(groups, k // groups.shape[1], 1)


def stands_for(algorithm, tensors, stem):
    """The matrix of a module."""
    get = lambda part: tensors[stem + "." + part]
    weight = get("weight")
    if weight.dtype == np.float32:
        return weight
    if algorithm in ("W4A16", "W4A16_AWQ", "W4A8_AWQ", "W4A16_GPTQ"):
        numbers = signed_nibbles(weight)
    elif algorithm.startswith("FP8"):
        numbers = E4M3[weight.view("u1")]
    else:
        numbers = weight.astype("f4")
    n, k = numbers.shape
    if algorithm == "W4A8_AWQ":  # f8e4m3 numbers of weights, once the factor for all is out of their scales
        assert get("activation_scaling_factor").shape == get("weights_scaling_factor_2").shape == (1,)
        scales = per_column(get("weights_scaling_factor") / get("weights_scaling_factor_2"), k)
        assert np.abs(numbers * scales).max() < 449
    if algorithm in ("W4A16_AWQ", "W4A8_AWQ"):
        assert get("prequant_scaling_factor").shape == (k,)
        return numbers * per_column(get("weights_scaling_factor"), k) * get("prequant_scaling_factor")
    if algorithm.endswith("_GPTQ"):
        assert get("zero").shape == get("weights_scaling_factor").shape and get("zero").shape[1] == n
        scale, steps = get("weights_scaling_factor"), np.rint(get("zero") / get("weights_scaling_factor"))
        assert (steps * scale == get("zero")).all()
        return (numbers + per_column(steps.T, k)) * per_column(scale.T, k)
    if algorithm == "FP8":
        assert get("weights_scaling_factor").shape == (1,) and get("activation_scaling_factor").shape == (1,)
        return numbers * get("weights_scaling_factor")[0]
    if algorithm == "W8A8_SQ_PER_CHANNEL":
        assert get("weights_scaling_factor").shape == (n,) and get("activation_scaling_factor").shape == (1,)
        return numbers * get("weights_scaling_factor")[:, None] * get("prequant_scaling_factor")
    scale = get("per_channel_scale")
    if algorithm.endswith("TENSOR_PLUGIN"):  # results are floats once they are multiplied with this
        assert get("act_scale").shape == (1, 1)
        layer, module = stem.rsplit(".", 2)[0], stem.rsplit(".", 1)[1]
        scale = scale * (tensors[f"{layer}.{READERS[module]}"] * get("act_scale")[0])
    if algorithm.endswith("PLUGIN"):
        full = (1, n) if "PER_CHANNEL" in algorithm or stem.endswith("qkv") else (1, 1)
        assert scale.shape == full, f"{stem}: {scale.shape} is not {full}"
        if stem.endswith(("dense", "proj")):
            numbers = numbers / get("smoother")
    return numbers * scale.reshape(-1, 1)


def merged(algorithm, folder, ranks):
    """All modules of the tensor parallel ranks: rows of most, columns of those that read heads and gated units."""
    parts = [read_safetensors(folder / f"rank{i}.safetensors") for i in range(ranks)]
    out = {}
    for layer in range(LAYERS):
        for module in HF_PARTS:
            stem = f"transformer.layers.{layer}.{module}"
            matrices = [stands_for(algorithm, tensors, stem) for tensors in parts]
            axis = 1 if module in ("attention.dense", "mlp.proj") else 0
            out[stem] = np.concatenate(matrices, axis)
    return out


def by_module(floats, ranks):
    """The tensors of a Hugging Face folder, as the modules of `ranks` ranks one behind the other."""
    out = {}
    for layer in range(LAYERS):
        for module, names in HF_PARTS.items():
            parts = [floats[f"model.layers.{layer}.{name}.weight"] for name in names]
            shares = [np.split(part, ranks) for part in parts] if module == "attention.qkv" else None
            whole = np.concatenate([share[rank] for rank in range(ranks) for share in shares]) if shares else parts[0]
            out[f"transformer.layers.{layer}.{module}"] = whole
    return out


def different(ours, wanted, share=0):
    """Numbers that are further from those wanted than a share of them."""
    assert ours.keys() == wanted.keys()
    count = 0
    for name, matrix in wanted.items():
        assert ours[name].shape == matrix.shape, f"{name}: {ours[name].shape} is not {matrix.shape}"
        count += int((np.abs(ours[name] - matrix) > share * np.abs(matrix)).sum())
    return count


CALIBRATION = "tests/quality/calibration.txt"
TEXT = ["--calib_dataset", CALIBRATION, "--calib_size", 2, "--calib_max_seq_length", 64]
WEIGHT_ONLY = ["--use_weight_only", "--weight_only_precision"]
# Source of published.py, flags, quant_algo, numbers of ranks.
TAKEN = [
    ("gptq", WEIGHT_ONLY + ["int4_gptq", "--per_group"], "W4A16_GPTQ", (1, 2)),
    ("gptq-8-bits", WEIGHT_ONLY + ["int8_gptq"], "W8A16_GPTQ", (1,)),
    ("awq", WEIGHT_ONLY + ["int4_gptq", "--group_size", "128"], "W4A16_GPTQ", (1,)),
    ("packed-4", WEIGHT_ONLY + ["int4_awq"], "W4A16_AWQ", (1, 2)),
    ("packed-4", WEIGHT_ONLY + ["w4a8_awq", *TEXT], "W4A8_AWQ", (2,)),
    ("int8", WEIGHT_ONLY + ["int8"], "W8A16", (1,)),
    ("int8-both", ["--smoothquant", "0.5", "--per_token", "--per_channel"], "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN",
     (1, 2)),
    ("int8-both", ["--use_smooth_quant", "--int8_kv_cache", *TEXT], "W8A8_SQ_PER_CHANNEL", (1,)),
    ("fp8-rows", ["--use_fp8_rowwise", "--fp8_kv_cache"], "FP8_PER_CHANNEL_PER_TOKEN", (1,)),
]


def config_of(folder):
    return json.loads((folder / "config.json").read_text())["quantization"]


def check_factors(folder, quantization):
    """Factors of caches and activations are positive numbers, and present where config.json requires them."""
    tensors = read_safetensors(folder / "rank0.safetensors")
    for layer in range(LAYERS):
        stem = f"transformer.layers.{layer}."
        has_cache = quantization["kv_cache_quant_algo"] is not None
        assert (stem + "attention.kv_cache_scaling_factor" in tensors) == has_cache
        for name, factor in tensors.items():
            if name.startswith(stem) and name.endswith(("kv_cache_scaling_factor", "activation_scaling_factor")):
                assert factor.shape == (1,) and 0 < factor[0] < 10, f"{name}: {factor}"


def trtllm_taken(checker):
    for source, flags, algorithm, numbers in TAKEN:
        floats = read_safetensors(checker.scratch / (source + "-plain") / "model.safetensors")
        for ranks in numbers:
            out = checker.scratch / f"taken-{source}-{algorithm}-{ranks}"
            checker.run("convert", "--model_dir", checker.scratch / source, "--output_dir", out, "--dtype", "float32",
                        "--tp_size", ranks, *flags)
            quantization = config_of(out)
            assert quantization["quant_algo"] == algorithm, quantization
            check_factors(out, quantization)
            count = different(merged(algorithm, out, ranks), by_module(floats, ranks))
            checker.failures += count > 0
            print(f"{source} by {ranks} as {algorithm}: {count} numbers differ")


# Most matrices are left out where each takes seconds.
FEW = ["--int8_modules", "none", "--exclude_modules", "*.mlp.*", "*.1.self_attn.*", *TEXT]
# The output of quantize for the float model, beside the same as a Hugging Face folder.
MADE = {
    "int8_wo": ([], "W8A16"),
    "w8a8": ([], "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN"),
    "int8_sq": (TEXT, "W8A8_SQ_PER_CHANNEL"),
    "int4_awq": (FEW, "W4A16_AWQ"),
    "int4_gptq": (["--zero_point", *FEW], "W4A16_GPTQ"),
}


def trtllm_made(checker):
    for name, (flags, algorithm) in MADE.items():
        folders = {}
        for export in ("hf", "tensorrt_llm"):
            folders[export] = checker.scratch / f"made-{name}-{export}"
            of_ranks = ["--dtype", "float32"] if export == "tensorrt_llm" else []
            checker.run("quantize", "--model_dir", checker.scratch / "float", "--output_dir", folders[export],
                        "--qformat", name, "--export_format", export, *of_ranks, *flags)
        ours = folders["tensorrt_llm"]
        assert config_of(ours)["quant_algo"] == algorithm
        check_factors(ours, config_of(ours))
        wanted = {key.removesuffix(".weight"): value for key, value in checker.numbers(folders["hf"]).items()
                  if key.removesuffix(".weight").endswith(tuple(HF_PARTS))}
        count = different(merged(algorithm, ours, 1), wanted)
        checker.failures += count > 0
        print(f"quantize {name} as {algorithm}: {count} numbers differ")


def trtllm_made_fp8(checker):
    """A scale for each matrix, queries, keys and values being one: made here too."""
    out = checker.scratch / "made-fp8"
    checker.run("quantize", "--model_dir", checker.scratch / "float", "--output_dir", out, "--qformat", "fp8",
                "--kv_cache_dtype", "fp8", "--export_format", "tensorrt_llm", "--tp_size", 2, *TEXT)
    assert config_of(out)["quant_algo"] == "FP8" and config_of(out)["kv_cache_quant_algo"] == "FP8"
    check_factors(out, config_of(out))
    floats = read_safetensors(checker.scratch / "float" / "model.safetensors")
    wanted = by_module(floats, 2)
    inputs = {"attention.qkv": ("attention.qkv",), "attention.dense": ("attention.dense",),
              "mlp.fc": ("mlp.fc", "mlp.gate"), "mlp.gate": ("mlp.fc", "mlp.gate"), "mlp.proj": ("mlp.proj",)}
    rounded = {}
    for stem, matrix in wanted.items():
        module = ".".join(stem.split(".")[-2:])
        together = [wanted[stem.removesuffix(module) + other] for other in inputs[module]]
        scale = np.float32(max(np.abs(other).max() for other in together)) / np.float32(448)
        rounded[stem] = E4M3[to_e4m3(matrix / scale)] * scale
    count = different(merged("FP8", out, 2), rounded)
    checker.failures += count > 0
    print(f"quantize fp8 as FP8 by 2: {count} numbers differ")


LAST_PLACES = 2.0**-22  # of scales, which are divided and multiplied, and of their products


def trtllm_static_plugins(checker):
    """Scales that are divided by two factors, against those of the plugins that lack them."""
    for rows, algorithm in ((["--per_channel"], "W8A8_SQ_PER_CHANNEL_PER_TENSOR_PLUGIN"),
                            ([], "W8A8_SQ_PER_TENSOR_PLUGIN")):
        matrices = []
        for flags in (["--per_token", *rows], rows):
            out = checker.scratch / f"static-{len(rows)}-{len(flags)}"
            checker.run("convert", "--model_dir", checker.scratch / "float", "--output_dir", out, "--dtype", "float32",
                        "--tp_size", 2, "--smoothquant", 0.5, *TEXT, *flags)
            matrices.append(merged(config_of(out)["quant_algo"], out, 2))
        assert config_of(out)["quant_algo"] == algorithm
        count = different(matrices[1], matrices[0], LAST_PLACES)
        checker.failures += count > 0
        print(f"--smoothquant as {algorithm} by 2: {count} numbers differ")


def trtllm_quantised(checker):
    trtllm_taken(checker)
    trtllm_static_plugins(checker)
    trtllm_made(checker)
    trtllm_made_fp8(checker)
