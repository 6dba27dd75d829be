"""`nereid serve` on folders as the hub and other programs lay them out: the same model answers the same from each of them.
usage: hub_layouts.py NEREID"""
import functools
import itertools
import json
import pathlib
import shutil
import struct
import sys
import tempfile
import urllib.request
import zipfile

from own_server import serving

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEREID = sys.argv[1]
QUICK, TINY = ROOT / "models/quickstart", ROOT / "tests/models"
CONFIG = json.loads((QUICK / "config.json").read_text())


def read_tensors(path):
    """Name -> shape and bytes; all are bf16."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header, data = json.loads(data[8:8 + length]), data[8 + length:]
    header.pop("__metadata__", None)
    assert all(entry["dtype"] == "BF16" for entry in header.values()), path
    return {name: (entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items()}


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, data in tensors.values()))


def write_torch(path, tensors):
    """The file that torch.save() writes for a dictionary of tensors."""
    def word(text):
        return b"X" + struct.pack("<I", len(text)) + text.encode()

    def numbers(values):
        return b"(" + b"".join(b"J" + struct.pack("<i", value) for value in values) + b"t"

    items = b""
    with zipfile.ZipFile(path, "w") as archive:
        for i, (name, (shape, data)) in enumerate(tensors.items()):
            strides = list(itertools.accumulate(shape[:0:-1], lambda a, b: a * b, initial=1))[::-1]
            items += (word(name) + b"ctorch._utils\n_rebuild_tensor_v2\n((" + word("storage") + b"ctorch\nBFloat16Storage\n" + word(str(i)) +
                      word("cpu") + b"J" + struct.pack("<i", len(data) // 2) + b"tQJ\0\0\0\0" + numbers(shape) + numbers(strides) +
                      b"\x89ccollections\nOrderedDict\n)RtR")
            archive.writestr(f"archive/data/{i}", data)
        archive.writestr("archive/data.pkl", b"\x80\x02}(" + items + b"u.")
        archive.writestr("archive/byteorder", "little")


def write_shards(folder, stem, ending, write, tensors):
    names, where = list(tensors), {}
    for i, part in enumerate((names[:7], names[7:])):
        file = f"{stem}-0000{i + 1}-of-00002.{ending}"
        write(folder / file, {name: tensors[name] for name in part})
        where |= dict.fromkeys(part, file)
    (folder / f"{stem}.{ending}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))


def gguf_value(value):
    if isinstance(value, list):
        kind = gguf_value(value[0])[:4]
        return struct.pack("<I", 9) + kind + struct.pack("<Q", len(value)) + b"".join(gguf_value(one)[4:] for one in value)
    if isinstance(value, str):
        return struct.pack("<IQ", 8, len(value.encode())) + value.encode()
    return struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value)


def gguf_name(name):
    words = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
             "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down", "model.embed_tokens": "token_embd", "model.norm": "output_norm"}
    stem = name.removesuffix(".weight")
    if not stem.startswith("model.layers."):
        return words[stem] + ".weight"
    _, _, layer, module = stem.split(".", 3)
    return f"blk.{layer}.{words[module]}.weight"


def in_pairs(name, shape, data):
    """Rows of a rotary pair lie side by side in the file."""
    heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}.get(name.split(".")[-2])
    if not heads:
        return data
    width, half = len(data) // shape[0], shape[0] // CONFIG[heads] // 2
    rows = [data[i:i + width] for i in range(0, len(data), width)]
    order = [head * 2 * half + i + side * half for head in range(CONFIG[heads]) for i in range(half) for side in (0, 1)]
    return b"".join(rows[row] for row in order)


def write_gguf(path, tensors, tokenizer):
    added = {row["content"]: row["id"] for row in tokenizer["added_tokens"]}
    ids = tokenizer["model"]["vocab"] | added
    tokens = sorted(ids, key=ids.get)
    fields = {"general.architecture": "llama", "llama.context_length": CONFIG["max_position_embeddings"],
              "llama.embedding_length": CONFIG["hidden_size"], "llama.block_count": CONFIG["num_hidden_layers"],
              "llama.feed_forward_length": CONFIG["intermediate_size"], "llama.attention.head_count": CONFIG["num_attention_heads"],
              "llama.attention.head_count_kv": CONFIG["num_key_value_heads"],
              "llama.attention.layer_norm_rms_epsilon": float(CONFIG["rms_norm_eps"]), "llama.rope.freq_base": float(CONFIG["rope_theta"]),
              "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": tokens,
              "tokenizer.ggml.token_type": [3 if token in added else 1 for token in tokens],
              "tokenizer.ggml.merges": [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]],
              "tokenizer.ggml.eos_token_id": CONFIG["eos_token_id"], "tokenizer.ggml.padding_token_id": CONFIG["pad_token_id"]}
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields))
    out += b"".join(gguf_value(key)[4:] + gguf_value(value) for key, value in fields.items())
    blob = b""
    for name, (shape, data) in tensors.items():
        name, is_vector = gguf_name(name), len(shape) == 1
        if is_vector:  # f32
            data = b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))
        out += gguf_value(name)[4:] + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], 0 if is_vector else 30, len(blob))
        blob += in_pairs(name, shape, data)
        blob += bytes(-len(blob) % 32)
    path.write_bytes(out + bytes(-len(out) % 32) + blob)


def copy(folder, *names):
    for name in names:
        shutil.copy(QUICK / name, folder)


def without_template(folder):
    """tokenizer_config.json, and its template in a file of its own."""
    fields = json.loads((QUICK / "tokenizer_config.json").read_text())
    template = fields.pop("chat_template")
    (folder / "tokenizer_config.json").write_text(json.dumps(fields | {"tokenizer_class": "Qwen2Tokenizer"}))
    return template


def sharded(folder, tensors, _):
    copy(folder, "config.json", "generation_config.json", "tokenizer.json")
    (folder / "chat_template.jinja").write_text(without_template(folder))
    write_shards(folder, "model", "safetensors", write_safetensors, tensors)


def torch_sharded(folder, tensors, _):
    copy(folder, "config.json", "generation_config.json", "tokenizer.json")
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": without_template(folder)}))
    write_shards(folder, "pytorch_model", "bin", write_torch, tensors)


def torch(folder, tensors, tokenizer):
    copy(folder, "config.json", "generation_config.json", "tokenizer_config.json")
    (folder / "vocab.json").write_text(json.dumps(tokenizer["model"]["vocab"] | {t["content"]: t["id"] for t in tokenizer["added_tokens"]}))
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges]) + "\n")
    write_torch(folder / "pytorch_model.bin", tensors)


def snapshot(folder, _, __):
    """A snapshot in the hub's cache: links to blobs with other names."""
    for i, file in enumerate(QUICK.iterdir()):
        blob = folder.parent / "blobs" / f"{i:040x}"
        blob.parent.mkdir(exist_ok=True)
        shutil.copy(file, blob)
        (folder / file.name).symlink_to(blob)


def gguf(folder, tensors, tokenizer):
    write_gguf(folder / "quickstart.gguf", tensors, tokenizer)
    return folder / "quickstart.gguf"


# Files of the quick-start model, with a chat template or without.
PROMPT = "Once upon a time, 3 of"
SAME = [(sharded, True), (torch_sharded, True), (torch, True), (snapshot, True), (gguf, False)]


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def answers(address, has_template):
    """Answers to a text and to a chat, with their prompts' numbers of tokens."""
    common = {"max_tokens": 12, "temperature": 0}
    found = [post(address + "/v1/completions", common | {"prompt": PROMPT})]
    if has_template:
        found.append(post(address + "/v1/chat/completions", common | {"messages": [{"role": "user", "content": "Hello!"}]}))
    return [(one["choices"][0].get("text") or one["choices"][0]["message"]["content"], one["usage"]["prompt_tokens"]) for one in found]


def expect_defaults(folder, prompt, wanted):
    """Sampling defaults for a request without any: the likeliest token alone."""
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 0], "top_k": 1, "max_new_tokens": 12}))
    with serving(NEREID, "--threads", "1", "--generation-config", "auto", model=folder) as address:
        found = post(address + "/v1/completions", {"prompt": prompt})["choices"][0]["text"]
        assert found == wanted, (wanted, found)


def expect_golden(address, model):
    for case in json.loads((ROOT / f"tests/golden/arch/{model}.json").read_text())["cases"]:
        prompt, wanted = case["prompt_ids"], case["greedy_ids"]
        body = {"input_ids": prompt, "input_lengths": len(prompt), "request_output_len": len(wanted), "end_id": -1}
        found = post(address + "/v2/models/tensorrt_llm/generate", body)["output_ids"][-len(wanted):]
        assert found == wanted, (model, wanted, found)


def pieces_only(folder):
    """tokenizer.model is all that there is of a tokenizer."""
    for file in (TINY / "llama").iterdir():
        shutil.copy(file, folder)
    shutil.copy(ROOT / "tests/fuzz/seeds/sentencepiece_bpe.bin", folder / "tokenizer.model")


def main():
    tensors = read_tensors(QUICK / "model.safetensors")
    tokenizer = json.loads((QUICK / "tokenizer.json").read_text())
    serve = functools.partial(serving, NEREID, "--threads", "1")
    with tempfile.TemporaryDirectory() as name:
        with serve(model=QUICK) as address:
            wanted = answers(address, True)
        for make, has_template in SAME:
            folder = pathlib.Path(name) / make.__name__ / "snapshots"
            folder.mkdir(parents=True)
            path = make(folder, tensors, tokenizer) or folder
            with serve(model=path) as address:
                found = answers(address, has_template)
                assert found == wanted[:len(found)], (make.__name__, wanted, found)
        expect_defaults(pathlib.Path(name) / "sharded/snapshots", PROMPT, wanted[0][0])
        folder = pathlib.Path(name) / "pieces"
        folder.mkdir()
        pieces_only(folder)
        with serve(model=folder) as address:
            expect_golden(address, "llama")
            assert answers(address, False)[0][1] > 3
        with serve(model=TINY / "mistral3") as address:  # of text and images, the tensors under prefixes
            expect_golden(address, "mistral3")
    print(f"hub_layouts: {len(SAME) + 3} layouts answer as they should")


if __name__ == "__main__":
    main()
