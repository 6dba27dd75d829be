"""Our tokenizer beside the `tokenizers` package: the same vocabulary, text and run, one thread each, best rate by CPU time.
The vocabulary is Whisper's copy of GPT-2's ranks (50,256 tokens) with each of the word patterns in turn; the text is this
repository's documentation and sources. Then SentencePiece models beside that library: Mistral's (BPE) and a Unigram one made
of the text. Run with the environment of tests/tokenizers/run.sh:
  build/tokenizers-venv/bin/python bench/tokenizer_speed.py build/release/bin/tokenizer_speed [SECONDS]"""
import importlib.metadata
import io
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


def pieces(text):
    """A model of the library's two kinds each."""
    import sentencepiece
    file = next(f for f in importlib.metadata.files("mistral-common") if str(f).endswith("data/mistral_instruct_tokenizer_240323.model.v3"))
    yield "sentencepiece BPE", pathlib.Path(file.locate()).read_bytes()
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text.split("\n")[:40000]), model_writer=model, vocab_size=8000,
                                             model_type="unigram", byte_fallback=True, hard_vocab_limit=False, minloglevel=2)
    yield "sentencepiece Unigram", model.getvalue()


def best_of(encode, seconds):
    best, start, count = 1e9, time.perf_counter(), 0
    while time.perf_counter() - start < seconds or count < 2:
        before = time.thread_time()
        ids = encode()
        best = min(best, time.thread_time() - before)
        count += 1
    return ids, best


def compare(rule, theirs, program, tokenizer, text_file, seconds, encode):
    ours = json.loads(subprocess.check_output([program, str(tokenizer), str(text_file), str(seconds)]))
    ids, best = best_of(encode, seconds)
    assert len(ids) == ours["tokens"], (len(ids), ours)
    rate = ours["bytes"] / (1 << 20) / best
    print(f"{rule}: ours {ours['encode_mib_s']:.1f} MiB/s, {theirs} {rate:.2f} MiB/s, {ours['encode_mib_s'] / rate:.1f}x; "
          f"decode {ours['decode_mib_s']:.1f} MiB/s; {ours['bytes'] / 1e6:.1f} MB, {ours['tokens']} tokens", flush=True)


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
            compare(rule, "tokenizers", program, folder / "tokenizer.json", folder / "text", seconds, lambda t=tokenizer: t.encode(text).ids)
        import sentencepiece
        for rule, model in pieces(text):
            (folder / "tokenizer.model").write_bytes(model)
            processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            plain = text  # the library never takes text for control pieces
            for i in filter(processor.is_control, range(processor.get_piece_size())):
                plain = plain.replace(processor.id_to_piece(i), "")
            (folder / "plain").write_text(plain)
            compare(rule, "sentencepiece", program, folder / "tokenizer.model", folder / "plain", seconds,
                    lambda p=processor, t=plain: p.encode(t, add_bos=True))


if __name__ == "__main__":
    main()
