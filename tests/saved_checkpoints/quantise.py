#!/usr/bin/env python3
"""The quick-start model as torchao and compressed-tensors quantise and write it, beside a plain one of the numbers that
they say these stand for; nereid has to read the same from both.

usage: quantise.py NEREID MODEL SCRATCH
"""
import json
import pathlib
import shutil
import sys

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import preset_name_to_scheme
from safetensors.torch import load_file, save_file
from torchao.quantization import (Float8WeightOnlyConfig, Int8DynamicActivationInt8WeightConfig,
                                  Int8DynamicActivationIntxWeightConfig, Int8WeightOnlyConfig,
                                  IntxUnpackedToInt8Tensor, IntxWeightOnlyConfig)
from torchao.quantization.granularity import PerGroup
from transformers import AutoModelForCausalLM, TorchAoConfig

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "quantized"))
from common import Checker  # noqa: E402

TORCHAO = {
    "torchao-int8": Int8WeightOnlyConfig(version=2),
    "torchao-int8-both": Int8DynamicActivationInt8WeightConfig(version=2),
    "torchao-intx": IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
    "torchao-8da4w": Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32)),
    "torchao-fp8": Float8WeightOnlyConfig(),
}
COMPRESSED = {"mxfp4-pack-quantized": ("MXFP4A16", 6), "mxfp8-quantized": ("MXFP8A16", 448)}


def copy_rest(model, folder, config=None):
    folder.mkdir(parents=True, exist_ok=True)
    for file in model.iterdir():
        if file.name.startswith(("token", "chat", "special", "generation")):
            shutil.copy(file, folder)
    if config:
        (folder / "config.json").write_text(json.dumps(config))


def plain_model(model, folder, tensors):
    copy_rest(model, folder, json.loads((model / "config.json").read_text()))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")


def torchao(model, folder, config):
    net = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16, quantization_config=TorchAoConfig(config))
    net.save_pretrained(folder)
    copy_rest(model, folder)
    tensors = {}
    for name, tensor in net.state_dict().items():
        if isinstance(tensor, IntxUnpackedToInt8Tensor):
            tensor = tensor.to(torch.float32).dequantize()
        elif type(tensor) is not torch.Tensor and hasattr(tensor, "dequantize"):
            tensor = tensor.dequantize(torch.float32)
        tensors[name] = tensor
    if net.config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    plain_model(model, folder.with_name(folder.name + "-plain"), tensors)


def compressed(model, folder, layout):
    preset, largest = COMPRESSED[layout]
    scheme = preset_name_to_scheme(preset, ["Linear"])
    compressor = BaseCompressor.get_value_from_registry(layout)
    stored, plain = {}, {}
    for name, tensor in load_file(model / "model.safetensors").items():
        if not name.endswith("_proj.weight"):
            stored[name] = plain[name] = tensor
            continue
        groups = tensor.float().reshape(tensor.shape[0], -1, 32).abs().amax(2)
        scale = torch.exp2(torch.ceil(torch.log2(groups.clamp(min=1e-20) / largest))).to(torch.bfloat16)
        parts = compressor.compress({"weight": tensor, "weight_scale": scale}, scheme)
        plain[name] = compressor.decompress(parts, scheme)["weight"].float()
        stored.update({name.removesuffix("weight") + key: part.contiguous() for key, part in parts.items()})
    config = json.loads((model / "config.json").read_text())
    quantization = {"quant_method": "compressed-tensors", "format": layout, "quantization_status": "compressed",
                    "config_groups": {"group_0": json.loads(scheme.model_dump_json())}, "ignore": ["lm_head"]}
    copy_rest(model, folder, config | {"quantization_config": quantization})
    save_file(stored, folder / "model.safetensors")
    plain_model(model, folder.with_name(folder.name + "-plain"), plain)


def main():
    nereid, model, scratch = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3])
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    checker = Checker(nereid, scratch)
    for name, config in TORCHAO.items():
        torchao(model, scratch / name, config)
        checker.compare(name, scratch / name, scratch / (name + "-plain"), False)
    for name in COMPRESSED:
        compressed(model, scratch / name, name)
        checker.compare(name, scratch / name, scratch / (name + "-plain"), False)
    sys.exit(checker.failures > 0)


if __name__ == "__main__":
    main()
