"""File formats and real vocabularies against the packages that own them: SentencePiece, mistral-common, openai-whisper,
transformers.
usage: real.py TOKENIZER_LINES [--strings N] [--seed S]"""
import argparse
import importlib.metadata
import importlib.util
import io
import json
import os
import pathlib
import random
import sys
import tempfile

import definitions
from differential import Lines, compare

os.environ["HF_HUB_OFFLINE"] = "1"


def plain_pairs(texts, rng, encode, decode, ids_below, first_id=0):
    """Encoding without special tokens, and decoding of those ids and of random ones."""
    pairs = []
    for text in texts:
        ids = encode(text)
        pairs.append(({"encode": text, "add": False, "parse": False}, ids))
        mixed = [rng.randrange(first_id, ids_below) for _ in range(rng.randrange(1, 12))]
        for some in (ids, mixed):
            if some:
                pairs.append(({"decode": some, "skip": True}, decode(some)))
    return pairs


def sentencepiece_models(folder):
    """Models trained here with the settings that checkpoints use."""
    import sentencepiece
    settings = {
        "llama": dict(model_type="bpe", byte_fallback=True, remove_extra_whitespaces=False, normalization_rule_name="identity",
                      split_digits=True, user_defined_symbols=["<tool_call>", "Ünïcode"]),
        "gemma": dict(model_type="bpe", byte_fallback=True, remove_extra_whitespaces=False, normalization_rule_name="identity",
                      add_dummy_prefix=False, allow_whitespace_only_pieces=True),
        "t5": dict(model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
        "unigram": dict(model_type="unigram", byte_fallback=True, normalization_rule_name="nfkc", user_defined_symbols=["<mask>", "word"]),
        "xlnet": dict(model_type="unigram", normalization_rule_name="nmt_nfkc_cf", treat_whitespace_as_suffix=False),
        "suffix": dict(model_type="unigram", treat_whitespace_as_suffix=True),
        "bpe_unknown": dict(model_type="bpe", character_coverage=0.98),
    }
    for name, options in settings.items():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(list(definitions.corpus())), model_writer=model, vocab_size=700,
                                                 hard_vocab_limit=False, minloglevel=2, **options)
        path = folder / f"{name}.model"
        path.write_bytes(model.getvalue())
        yield name, path


def sentencepiece_pairs(path, texts, rng):
    import sentencepiece
    reference = sentencepiece.SentencePieceProcessor(model_file=str(path))
    size = reference.get_piece_size()

    def decode(ids):
        return reference.decode([i for i in ids if not reference.is_control(i)])

    # Sums of scores grow with the text: near ties are decided by the last bits.
    long = "".join(file.read_text() for file in sorted((pathlib.Path(__file__).parents[2] / "docs").glob("*.md")))
    return plain_pairs([*texts, long], rng, reference.encode, decode, size)


def mistral_pairs(path, texts, rng):
    from mistral_common.tokens.tokenizers.tekken import SpecialTokenPolicy, Tekkenizer
    reference = Tekkenizer.from_file(path)
    return plain_pairs(texts, rng, lambda text: reference.encode(text, bos=False, eos=False),
                       lambda ids: reference.decode(ids, special_token_policy=SpecialTokenPolicy.IGNORE), reference.n_words,
                       reference.num_special_tokens)


def whisper_module():
    file = next(f for f in importlib.metadata.files("openai-whisper") if str(f).endswith("whisper/tokenizer.py"))
    spec = importlib.util.spec_from_file_location("whisper_tokenizer", file.locate())
    module = importlib.util.module_from_spec(spec)
    sys.modules["whisper_tokenizer"] = module
    spec.loader.exec_module(module)  # without the package, which would need a deep learning library
    return module, pathlib.Path(file.locate()).parent / "assets"


def transformers_pairs(folder, texts, rng):
    from transformers import AutoTokenizer
    reference = AutoTokenizer.from_pretrained(folder)
    pairs = []
    for text in texts:
        ids = reference.encode(text)
        pairs.append(({"encode": text, "add": True, "parse": True}, ids))
        pairs.append(({"encode": text, "add": False, "parse": True}, reference.encode(text, add_special_tokens=False)))
        mixed = ids + [rng.randrange(len(reference)) for _ in range(4)]
        rng.shuffle(mixed)
        for some in (ids, mixed):
            for skip in (True, False):
                if some:
                    pairs.append(({"decode": some, "skip": skip}, reference.decode(some, skip_special_tokens=skip)))
    return pairs


def transformers_folders(root):
    """Directories as checkpoints have them: tokenizer.json and tokenizer_config.json."""
    entry = {"lstrip": False, "rstrip": False, "single_word": False}
    fast = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    settings = {
        "gpt2": {**fast, "added_tokens_decoder": {"900": {"content": "<|end|>", "special": True, "normalized": False, **entry},
                                                  "901": {"content": "<tool_call>", "special": False, "normalized": False, **entry}},
                 "eos_token": "<|end|>"},
        "qwen2": {**fast, "eos_token": "</s>", "pad_token": "<|end|>"},
        "llama2_first": {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False, "bos_token": "<s>",
                         "eos_token": "</s>", "unk_token": "<unk>", "legacy": False, "clean_up_tokenization_spaces": False},
        "bert": {**fast, "clean_up_tokenization_spaces": True, "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]",
                 "pad_token": "[PAD]", "mask_token": {"content": "[MASK]", "lstrip": True, **entry} | {"__type": "AddedToken", "normalized": False}},
        "word_level": {**fast, "unk_token": "<unk>", "clean_up_tokenization_spaces": True},
    }
    makers = definitions.all_definitions()
    for name, config in settings.items():
        folder = root / ("hub_" + name)
        folder.mkdir()
        makers[name]().save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        yield name, folder


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--strings", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=20261123)
    options = parser.parse_args()
    lines = Lines(options.program)
    import mistral_common
    data = pathlib.Path(mistral_common.__file__).parent / "data"
    whisper, assets = whisper_module()
    compared = wrong = formats = 0
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        cases = [(n, p, sentencepiece_pairs) for n, p in sentencepiece_models(root)]
        cases += [(p.name, p, sentencepiece_pairs) for p in sorted(data.glob("*.model*"))]
        cases += [(p.name, p, mistral_pairs) for p in sorted(data.glob("tekken*.json"))]
        for ranks in ("gpt2", "multilingual"):
            encoding = whisper.get_encoding(ranks)
            size = len(encoding._mergeable_ranks)
            cases.append((ranks, assets / f"{ranks}.tiktoken",
                          lambda path, texts, rng, e=encoding, s=size: plain_pairs(
                              texts, rng, lambda text: e.encode(text, disallowed_special=()), lambda ids: e.decode(ids), s)))
        cases += [(n, p, transformers_pairs) for n, p in transformers_folders(root)]
        each = -(-options.strings // len(cases))
        for name, path, make_pairs in cases:
            rng = random.Random(f"{options.seed} {name}")
            texts = [definitions.text(rng) for _ in range(each)]
            pairs = make_pairs(path, texts, rng)
            wrong += compare(lines, name, path, pairs)
            compared += len(pairs)
            formats += 1
    print(f"real: {formats} vocabularies, {formats * each} strings, {compared} comparisons, {wrong} differences")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
