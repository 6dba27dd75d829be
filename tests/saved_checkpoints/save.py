#!/usr/bin/env python3
"""Loads each model of tests/models with the transformers that is installed, saves it again, and writes what that
transformers makes of what it has saved.

    save.py FOLDER [NAME...]     writes FOLDER/NAME, FOLDER/NAME.json and, of transformers 5, FOLDER/NAME-held with the
                                 tensors that the model has in memory, where they are others
"""
import json
import math
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors import safe_open
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForImageTextToText

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "golden"))
import tiny_models  # noqa: E402,F401  mends ALiBi of transformers' MPT
STEPS, TOP = 12, 5
IS_5 = int(transformers.__version__.split(".")[0]) >= 5
# Configurations that transformers 4 refuses.
NOT_IN_4 = {"phi3-partial": "attention_factor in rope_scaling"}


def attention_of(config):
    # Falcon's eager attention adds ALiBi twice, in the mask and to the scores; the default once.
    return "sdpa" if config.get("alibi") else "eager"


def load(folder, config, dtype):
    auto = AutoModelForImageTextToText if "text_config" in config else AutoModelForCausalLM
    name = "dtype" if IS_5 else "torch_dtype"
    net = auto.from_pretrained(folder, attn_implementation=attention_of(config), **{name: dtype})
    if net.config.model_type == "deepseek_v2" and not IS_5:
        # transformers 4 leaves yarn's factor out of the scores.
        scaling = net.config.rope_scaling
        for layer in net.model.layers:
            layer.self_attn.scaling *= (0.1 * scaling["mscale_all_dim"] * math.log(scaling["factor"]) + 1)**2
    return net


def write_tokenizer(folder, size):
    """The text of id N is "N"."""
    vocab = {str(i): i for i in range(size)}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "0"}}))


def outputs(net, prompt):
    """Greedy ids, and the log-probabilities of the likeliest tokens of the first step."""
    if net.config.model_type == "llama4":
        net = net.language_model  # the whole one of transformers 5.24 fails without images
    ids, first = list(prompt), None
    with torch.no_grad():
        for _ in range(STEPS):
            logits = net(input_ids=torch.tensor([ids])).logits[0, -1].float()
            if first is None:
                best = logits.log_softmax(0).topk(TOP)
                first = dict(zip(best.indices.tolist(), best.values.tolist()))
            ids.append(int(logits.argmax()))
    return ids[len(prompt):], first


def save(net, folder, size, **options):
    net.save_pretrained(folder, **options)
    # An end id would end the text.
    for file in ("config.json", "generation_config.json"):
        path = folder / file
        if path.exists():
            fields = json.loads(path.read_text())
            fields.pop("eos_token_id", None)
            path.write_text(json.dumps(fields, indent=2))
    write_tokenizer(folder, size)


def save_as_held(net, out, name, size):
    folder = out / f"{name}-held"
    save(net, folder, size, save_original_format=False)
    with safe_open(out / name / "model.safetensors", "pt") as one, safe_open(folder / "model.safetensors", "pt") as two:
        same = set(one.keys()) == set(two.keys())
    if same:
        shutil.rmtree(folder)


def make(name, out):
    source = ROOT / "models" / name
    config = json.loads((source / "config.json").read_text())
    golden = json.loads((ROOT / "golden" / "arch" / f"{name}.json").read_text())
    net = load(source, config, torch.bfloat16)
    size = config.get("vocab_size") or config["text_config"]["vocab_size"]
    save(net, out / name, size)
    if IS_5:
        save_as_held(net, out, name, size)
    again = load(out / name, config, torch.float32).eval()
    rows = []
    for case in golden["cases"]:
        ids, first = outputs(again, case["prompt_ids"])
        rows.append(dict(prompt_ids=case["prompt_ids"], greedy_ids=ids, log_probs=first,
                         as_golden=ids == case["greedy_ids"][:STEPS]))
    (out / f"{name}.json").write_text(json.dumps(rows))
    return all(row["as_golden"] for row in rows)


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    for name in sys.argv[2:] or sorted(path.name for path in (ROOT / "models").iterdir()):
        config = json.loads((ROOT / "models" / name / "config.json").read_text())
        kinds = {part["model_type"] for part in (config, config.get("text_config", config)) if "model_type" in part}
        if not all(kind in CONFIG_MAPPING for kind in kinds):
            print(f"{name}: not in transformers {transformers.__version__}")
            continue
        if not IS_5 and name in NOT_IN_4:
            print(f"{name}: transformers {transformers.__version__} refuses {NOT_IN_4[name]}")
            continue
        try:
            same = make(name, out)
            print(f"{name}: saved{'' if same else '; what is read again gives other ids than the golden file'}")
        except Exception as error:
            text = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            (out / f"{name}.json").write_text(json.dumps({"error": text}))
            print(f"{name}: {text}")


if __name__ == "__main__":
    main()
