"""Model directories with one damaged or absurd file each: `nereid check` (or `build`, which reads all weights) names the file, tensor
or key, and takes no more memory for any of them than for a good one.  usage: hostile_files.py NEREID"""
import json
import os
import pathlib
import pickle
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEREID = sys.argv[1]
SPARE_KIB = 128 << 10  # beside the good directory; the sizes in the files are gigabytes and more
HUGE = 10**9


def split(data):
    """A safetensors file's header and data."""
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + length]), data[8 + length:]


def joined(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def change_tensor(fields):
    def change(data):
        header, tensors = split(data)
        header["model.norm.weight"].update(fields)
        return joined(header, tensors)
    return change


def with_nan(data):
    header, tensors = split(data)
    begin = header["model.norm.weight"]["data_offsets"][0]
    return joined(header, tensors[:begin] + b"\xc0\x7f" + tensors[begin + 2:])


def overlapping(data):
    header, tensors = split(data)
    first, second = (header[name] for name in ("model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.weight"))
    first["data_offsets"] = second["data_offsets"]
    return joined(header, tensors)


class Command:
    def __reduce__(self):
        return os.system, ("touch was_run",)


def torch_file(data_pkl, storage=b"1234"):
    def make(_):
        with tempfile.TemporaryFile() as file:
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr("a/data.pkl", data_pkl)
                archive.writestr("a/data/0", storage)
            file.seek(0)
            return file.read()
    return make


def gguf(version=3, tensors=0, pairs=0, rest=b""):
    return lambda _: b"GGUF" + struct.pack("<IQQ", version, tensors, pairs) + rest


def gguf_string(text):
    return struct.pack("<Q", len(text)) + text.encode()


def with_field(**fields):
    return lambda data: json.dumps(json.loads(data) | fields).encode()


def tokenizer_model(**fields):
    def change(data):
        document = json.loads(data)
        document["model"].update(fields)
        return json.dumps(document).encode()
    return change


def text(value):
    return lambda _: value.encode()


# Directory, file, what becomes of its bytes, what the error has. In front of the file: "-" when those of REPLACED go first, "+" when the
# file is the model, "!" when only a build can find it.
LLAMA, QUICK = "tests/models/llama", "models/quickstart"
WEIGHTS, TORCH = "model.safetensors", "pytorch_model.bin"
CASES = [
    (LLAMA, WEIGHTS, lambda d: d[:5], ["model.safetensors", "too few"]),
    (LLAMA, WEIGHTS, lambda d: d[:-10], ["model.safetensors: tensor '", "ends at byte"]),
    (LLAMA, WEIGHTS, lambda d: struct.pack("<Q", 1 << 62) + d[8:], ["model.safetensors: header of 4611686018427387904 bytes"]),
    (LLAMA, WEIGHTS, overlapping, ["model.safetensors: ", "tensor 'model.layers"]),
    (LLAMA, WEIGHTS, change_tensor({"shape": [1 << 60]}), ["'model.norm.weight'", "data_offsets"]),
    (LLAMA, WEIGHTS, change_tensor({"shape": [1 << 62, 1 << 62]}), ["'model.norm.weight'", "too large"]),
    (LLAMA, WEIGHTS, change_tensor({"shape": [-64]}), ["'model.norm.weight'", "not a size"]),
    (LLAMA, WEIGHTS, change_tensor({"dtype": "X1"}), ["'model.norm.weight'", "'X1' is not known"]),
    (LLAMA, "!" + WEIGHTS, with_nan, ["model.safetensors: tensor 'model.norm.weight': element 0 is not a finite number"]),
    (LLAMA, WEIGHTS, lambda d: struct.pack("<Q", 200_000) + b"[" * 200_000, ["model.safetensors: header"]),
    (LLAMA, "-" + TORCH, lambda d: b"PK\x03\x04" * 9, [TORCH, "not a zip archive"]),
    (LLAMA, "-" + TORCH, torch_file(pickle.dumps({"w": Command()})), [TORCH, "system"]),
    (LLAMA, "-" + TORCH, torch_file(b"\x80\x02" + b"(" * 300_000 + b"."), [TORCH]),
    (LLAMA, "-" + TORCH, torch_file(b"\x80\x02X\xff\xff\xff\x7fabc."), [TORCH]),
    (LLAMA, "-model.safetensors.index.json", text('{"weight_map": {"w": "../../etc/passwd"}}'), ["index.json: tensor 'w' is not mapped to a file name"]),
    (LLAMA, "-model.safetensors.index.json", text('{"weight_map": {"w": "none.safetensors"}}'), ["none.safetensors"]),
    (LLAMA, "config.json", lambda d: d[:40], ["config.json", "line "]),
    (LLAMA, "config.json", text("[" * 500_000), ["config.json"]),
    *[(LLAMA, "config.json", with_field(**{key: value}), ["config.json: field", key])
      for key in ("vocab_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size", "intermediate_size",
                  "max_position_embeddings") for value in (HUGE, -1, 0, 1e300, "8")],
    (LLAMA, "+model.gguf", gguf(tensors=1 << 60), ["model.gguf"]),
    (LLAMA, "+model.gguf", gguf(pairs=1 << 60), ["model.gguf"]),
    (LLAMA, "+model.gguf", gguf(pairs=1, rest=struct.pack("<Q", 1 << 60) + b"x"), ["model.gguf"]),
    (LLAMA, "+model.gguf", gguf(pairs=1, rest=gguf_string("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 1 << 60)), ["model.gguf", "tokenizer.ggml.tokens"]),
    (LLAMA, "+model.gguf", gguf(pairs=1, rest=gguf_string("a") + struct.pack("<IIQ", 9, 9, 1) * 100), ["model.gguf", "'a'"]),
    (QUICK, "tokenizer.json", lambda d: d[:1000], ["tokenizer.json"]),
    (QUICK, "tokenizer.json", text("[" * 500_000), ["tokenizer.json"]),
    (QUICK, "tokenizer.json", tokenizer_model(vocab={"a": HUGE}), ["tokenizer.json"]),
    (QUICK, "tokenizer.json", tokenizer_model(vocab={"a": -1}), ["tokenizer.json"]),
    (QUICK, "tokenizer.json", tokenizer_model(merges=["nothere alsonot"]), ["tokenizer.json", "nothere"]),
    (QUICK, "-tokenizer.model", lambda d: b"\x0a\xff\xff\xff\xff\x0f" + b"x" * 100, ["tokenizer.model"]),
    (QUICK, "-tokenizer.model", text("IQ== 0\nIg== 1000000000\n"), ["tokenizer.model"]),
    (QUICK, "chat_template.jinja", text("{% for m in messages %}{{ m.content }}"), ["chat_template.jinja", "line 1"]),
    (QUICK, "chat_template.jinja", text("{{ " + "(" * 200_000), ["chat_template.jinja", "line 1"]),
    (QUICK, "generation_config.json", text('{"eos_token_id": 1000000000}'), ["generation_config.json", "eos_token_id"]),
]
REPLACED = {TORCH: [WEIGHTS], "model.safetensors.index.json": [WEIGHTS], "tokenizer.model": ["tokenizer.json", "tokenizer_config.json"]}


def run(*words):
    """Exit code, output, seconds and the most KiB in memory."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen([NEREID, *words], stdout=out, stderr=out)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        return child.returncode, out.read().decode(errors="replace"), time.monotonic() - start, usage.ru_maxrss


def main():
    slowest = most = 0
    good = {}
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        for directory in (LLAMA, QUICK):
            code, out, _, good[directory] = run("check", ROOT / directory)
            assert code == 0, out
        for number, (directory, file, change, wanted) in enumerate(CASES):
            folder = pathlib.Path(name) / str(number)
            shutil.copytree(ROOT / directory, folder)
            path = folder / file.lstrip("-+!")
            for other in REPLACED.get(path.name, []) if file[0] == "-" else []:
                (folder / other).unlink(missing_ok=True)
            path.write_bytes(change(path.read_bytes() if path.exists() else b""))
            words = ("build", "--checkpoint_dir", folder, "--output_dir", "engine") if file[0] == "!" else ("check", path if file[0] == "+" else folder)
            code, out, seconds, kib = run(*words)
            case = (number, directory, file, wanted, out[-600:])
            assert code == 1 and all(part in out for part in wanted), case
            assert kib < good[directory] + SPARE_KIB, (kib, good[directory], case)
            slowest, most = max(slowest, seconds), max(most, kib - good[directory])
            shutil.rmtree(folder)
        assert not pathlib.Path("was_run").exists(), "a pickle's command was run"
    print(f"hostile files: {len(CASES)} refused by name; the slowest took {slowest:.2f} s, the largest {most / 1024:.0f} MiB more than a good one "
          f"({good[LLAMA] / 1024:.0f} and {good[QUICK] / 1024:.0f} MiB)")


if __name__ == "__main__":
    main()
