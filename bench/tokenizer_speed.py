"""Our tokenizer beside the `tokenizers` package: the same vocabulary, text and run, one thread each, best rate by CPU time.
The vocabulary is Whisper's copy of GPT-2's ranks (50,256 tokens) with each of the word patterns in turn; the text is this
repository's documentation and sources. Run with the environment of tests/tokenizers/run.sh:
  build/tokenizers-venv/bin/python bench/tokenizer_speed.py build/release/bin/tokenizer_speed [SECONDS]"""
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
root = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(root / "tests/tokenizers"))

import definitions  # noqa: E402
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers  # noqa: E402


def ranks():
    import base64
    file = next(f for f in importlib.metadata.files("openai-whisper") if str(f).endswith("assets/gpt2.tiktoken"))
    lines = pathlib.Path(file.locate()).read_text().split("\n")
    return {base64.b64decode(line.split(" ")[0]): int(line.split(" ")[1]) for line in lines if line}


def letters():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = iter(range(0x100, 0x200))
    return [chr(b) if b in printable else chr(next(rest)) for b in range(256)]


def build(pattern):
    table, alphabet = ranks(), letters()
    spell = lambda token: "".join(alphabet[b] for b in token)  # noqa: E731
    merges = []
    for token, rank in table.items():
        for cut in range(1, len(token)):
            if token[:cut] in table and token[cut:] in table:
                merges.append((rank, table[token[:cut]], spell(token[:cut]), spell(token[cut:])))
    merges.sort()
    t = Tokenizer(models.BPE({spell(k): v for k, v in table.items()}, [(a, b) for _, _, a, b in merges], ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    return t


def sample():
    files = sorted([*root.glob("docs/**/*.md"), *root.glob("src/**/*.cc"), *root.glob("src/**/*.h"), *root.glob("tests/**/*.py")])
    return "".join(f.read_text() for f in files)


def main():
    program = sys.argv[1]
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 5
    text = sample()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text").write_text(text)
        for rule, pattern in (("gpt2", definitions.GPT2), ("cl100k", definitions.CL100K), ("qwen2", definitions.QWEN2),
                              ("o200k", definitions.O200K), ("deepseek (regex)", "|".join(definitions.DEEPSEEK))):
            tokenizer = build(pattern)
            tokenizer.save(str(folder / "tokenizer.json"))
            ours = json.loads(subprocess.check_output([program, str(folder / "tokenizer.json"), str(folder / "text"), str(seconds)]))
            best, start, count = 1e9, time.perf_counter(), 0
            while time.perf_counter() - start < seconds or count < 2:
                before = time.thread_time()
                ids = tokenizer.encode(text).ids
                best = min(best, time.thread_time() - before)
                count += 1
            assert len(ids) == ours["tokens"], (len(ids), ours)
            theirs = ours["bytes"] / (1 << 20) / best
            print(f"{rule}: ours {ours['encode_mib_s']:.1f} MiB/s, tokenizers {theirs:.2f} MiB/s, {ours['encode_mib_s'] / theirs:.1f}x; "
                  f"decode {ours['decode_mib_s']:.1f} MiB/s; {ours['bytes'] / 1e6:.1f} MB, {ours['tokens']} tokens", flush=True)


if __name__ == "__main__":
    main()
