"""Vocabularies in GGUF files against the packages that own them: SentencePiece's of both kinds and BERT's, written as
llama.cpp's converter writes them.
usage: gguf_vocabularies.py TOKENIZER_LINES [--strings N] [--seed S]"""
import argparse
import json
import pathlib
import random
import struct
import tempfile

import definitions
from differential import Lines, compare
from real import plain_pairs, sentencepiece_models, sentencepiece_pairs

UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 2, 3, 4, 5
BPE_OF_IDENTITY, UNIGRAM = ("llama", "gemma"), ("t5", "unigram", "xlnet")


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value(item):
    """Type and bytes."""
    if isinstance(item, bool):
        return 7, struct.pack("<?", item)
    if isinstance(item, int):
        return 5, struct.pack("<i", item)
    if isinstance(item, float):
        return 6, struct.pack("<f", item)
    if isinstance(item, str):
        return 8, text(item)
    if isinstance(item, bytes):
        return 9, struct.pack("<IQ", 0, len(item)) + item
    kinds = [value(one) for one in item]
    return 9, struct.pack("<IQ", kinds[0][0], len(kinds)) + b"".join(data for _, data in kinds)


def write_gguf(path, tokenizer):
    keys = {"general.architecture": "llama", **{f"tokenizer.ggml.{key}": item for key, item in tokenizer.items()}}
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys))
    for key, item in keys.items():
        kind, data = value(item)
        out += text(key) + struct.pack("<I", kind) + data
    path.write_bytes(out)


def pieces_of(model):
    """A ".model" file, with a few places that are left over, as models have more rows than pieces."""
    from sentencepiece import sentencepiece_model_pb2
    file = sentencepiece_model_pb2.ModelProto()
    file.ParseFromString(model.read_bytes())
    tokens, scores, types = [], [], []
    for piece in file.pieces:
        spaced = piece.piece.replace("▁", " ") if piece.type == USER_DEFINED else piece.piece
        tokens.append(spaced), scores.append(piece.score), types.append(piece.type)
    for i in range(3):
        tokens.append(f"[PAD{len(tokens)}]"), scores.append(-10000.0), types.append(UNUSED)
    rules, trainer = file.normalizer_spec, file.trainer_spec
    out = {"tokens": tokens, "scores": scores, "token_type": types, "add_space_prefix": rules.add_dummy_prefix}
    for name, i in (("bos", trainer.bos_id), ("eos", trainer.eos_id), ("unknown", trainer.unk_id)):
        if i >= 0:
            out[f"{name}_token_id"] = i
    if trainer.model_type == 1:
        return {"model": "t5", "remove_extra_whitespaces": rules.remove_extra_whitespaces,
                "precompiled_charsmap": rules.precompiled_charsmap, "add_bos_token": False, "add_eos_token": True, **out}
    return {"model": "llama", **out}


def word_pieces(path):
    """BERT's, and the reference that it is made of."""
    from tokenizers import Tokenizer
    spec = json.loads(definitions.bert().to_str())
    spec["model"]["max_input_chars_per_word"] = 100
    spec["added_tokens"] = [one for one in spec["added_tokens"] if one["content"].startswith("[")]
    reference = Tokenizer.from_str(json.dumps(spec))
    special = {one["content"] for one in spec["added_tokens"]}
    tokens = sorted(spec["model"]["vocab"], key=spec["model"]["vocab"].get)
    shown = [one if one in special else one[2:] if one.startswith("##") else "▁" + one for one in tokens]
    write_gguf(path, {"model": "bert", "tokens": shown, "token_type": [CONTROL if one in special else 1 for one in tokens],
                      "token_type_count": 2, "unknown_token_id": tokens.index("[UNK]"), "cls_token_id": tokens.index("[CLS]"),
                      "seperator_token_id": tokens.index("[SEP]")})
    return reference


def cases(root):
    for name, model in sentencepiece_models(root):
        if name in BPE_OF_IDENTITY + UNIGRAM:
            path = root / f"{name}.gguf"
            write_gguf(path, pieces_of(model))
            yield name, path, lambda texts, rng, m=model: sentencepiece_pairs(m, texts, rng)
    path = root / "bert.gguf"
    reference = word_pieces(path)
    size = reference.get_vocab_size()
    yield "bert", path, lambda texts, rng: [
        ({"encode": one, "add": True, "parse": False}, reference.encode(one).ids) for one in texts if "[" not in one
    ] + plain_pairs([one for one in texts if "[" not in one], rng, lambda one: reference.encode(one, add_special_tokens=False).ids,
                    reference.decode, size)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--strings", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=20261129)
    options = parser.parse_args()
    lines = Lines(options.program)
    compared = wrong = formats = 0
    with tempfile.TemporaryDirectory() as name:
        for kind, path, make_pairs in cases(pathlib.Path(name)):
            rng = random.Random(f"{options.seed} {kind}")
            texts = [definitions.text(rng) for _ in range(options.strings // 6)]
            pairs = make_pairs(texts, rng)
            wrong += compare(lines, "gguf " + kind, path, pairs)
            compared += len(pairs)
            formats += 1
    print(f"gguf: {formats} vocabularies, {compared} comparisons, {wrong} differences")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
