"""Files of tensors, rounding, and the comparison of a quantised checkpoint with a plain one of its numbers."""
import json
import shutil
import struct
import subprocess

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


def write_safetensors(path, tensors, metadata=None):
    header, blob = {"__metadata__": metadata} if metadata else {}, []
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


def write_model(path, model, config, tensors, metadata=None):
    path.mkdir(parents=True)
    for file in model.glob("*"):
        if file.name.startswith(("token", "chat", "special", "generation")):
            shutil.copy(file, path / file.name)
    (path / "config.json").write_text(json.dumps(config))
    write_safetensors(path / "model.safetensors", tensors, metadata)
