"""Our masks beside those of llguidance and xgrammar, after the method of MaskBench: valid JSON texts are taken token by
token, and each mask is timed with the token before it; one thread, CPU time, all in one run, by turns. The vocabulary is
the tekken one of mistral-common (130,072 tokens). The peers' figures have a Python call of about a microsecond in them.
  python3 -m venv build/masks-venv
  build/masks-venv/bin/pip install mistral-common numpy pydantic transformers apache-tvm-ffi llguidance==1.9.1
  build/masks-venv/bin/pip install --no-deps xgrammar==0.2.8
  build/masks-venv/bin/python bench/mask_peers.py build/release/bin/mask_replay [ROUNDS]"""
import base64
import importlib.metadata
import json
import pathlib
import random
import statistics
import subprocess
import sys
import time
import types

import transformers  # noqa: F401
import tvm_ffi  # noqa: F401

try:
    import torch  # noqa: F401
except ImportError:  # xgrammar wants it for kernels that nothing here uses; these names are what its import needs
    torch = types.SimpleNamespace(int32="int32", tensor=lambda *_, **__: None, Tensor=object, LongTensor=object, FloatTensor=object)
    sys.modules["torch"] = torch

import llguidance  # noqa: E402
import llguidance.numpy  # noqa: E402
import mistral_common  # noqa: E402
import numpy  # noqa: E402
import tiktoken  # noqa: E402
import xgrammar  # noqa: E402

TEXTS = 20
WORDS = "the quick brown fox jumps over a lazy dog while numbers like 42 and names such as Zoë or 東京 pass by".split()


def obj(required=None, **properties):
    return {"type": "object", "properties": properties, "required": required or list(properties),
            "additionalProperties": False}


def words(r, least, most):
    return " ".join(r.choice(WORDS) for _ in range(r.randint(least, most)))


STRING, NUMBER, FLAG = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
COLOURS = ["red", "green", "blue", "light grey"]
PERSON = obj(name=STRING, age={"type": "integer", "minimum": 0, "maximum": 150}, email=STRING)
PLACE = obj(city=STRING, at={"type": "array", "items": NUMBER, "minItems": 2, "maxItems": 2})


def person(r):
    return {"name": words(r, 1, 3), "age": r.randint(0, 150), "email": f"{r.choice(WORDS)}@example.org"}


def place(r):
    return {"city": words(r, 1, 2), "at": [round(r.uniform(-90, 90), 4), round(r.uniform(-180, 180), 4)]}


def tree(r, depth=3):
    return {"value": r.randint(-99, 99), "children": [tree(r, depth - 1) for _ in range(r.randint(0, depth))]}


CASES = [
    ("person", PERSON, person),
    ("call of a tool", obj(name={"enum": ["search", "weather", "mail"]}, arguments=obj(query=STRING, limit={"type": "integer"})),
     lambda r: {"name": r.choice(["search", "weather", "mail"]), "arguments": {"query": words(r, 2, 9), "limit": r.randint(1, 50)}}),
    ("list of records", {"$defs": {"place": PLACE}, "type": "array", "items": {"$ref": "#/$defs/place"}, "maxItems": 20},
     lambda r: [place(r) for _ in range(r.randint(1, 6))]),
    ("tree", {"$defs": {"node": obj(value={"type": "integer"}, children={"type": "array", "items": {"$ref": "#/$defs/node"}})},
              "$ref": "#/$defs/node"}, tree),
    ("bounded strings", obj(title={"type": "string", "maxLength": 80}, text={"type": "string", "minLength": 20, "maxLength": 500}),
     lambda r: {"title": words(r, 2, 8)[:80], "text": words(r, 10, 60)[:500]}),
    ("patterns", obj(date={"type": "string", "format": "date"}, code={"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"}),
     lambda r: {"date": f"20{r.randint(10, 30)}-0{r.randint(1, 9)}-1{r.randint(0, 9)}", "code": f"AB-{r.randint(1000, 9999)}"}),
    ("one of two", {"anyOf": [PERSON, obj(colour={"enum": COLOURS}, on=FLAG)]},
     lambda r: person(r) if r.random() < 0.5 else {"colour": r.choice(COLOURS), "on": r.random() < 0.5}),
    ("any members", {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}},
     lambda r: {f"{word} {i}": r.choice([word, r.random(), i, True, None]) for i, word in enumerate(r.sample(WORDS, 5))}),
    ("thirty fields", obj(**{f"field_{i}": (STRING, NUMBER, FLAG)[i % 3] for i in range(30)}),
     lambda r: {f"field_{i}": (words(r, 1, 4), r.randint(0, 9999), True)[i % 3] for i in range(30)}),
]


def vocabulary():
    path = pathlib.Path(mistral_common.__file__).parent / "data/tekken_240911.json"
    model = json.loads(path.read_text())
    count = model["config"]["default_vocab_size"] - model["config"]["default_num_special_tokens"]
    ranks = {base64.b64decode(one["token_bytes"]): one["rank"] for one in model["vocab"][:count]}
    return ranks, tiktoken.Encoding("tekken", pat_str=model["config"]["pattern"], mergeable_ranks=ranks, special_tokens={})


class Ours:
    name = "nereid"

    def __init__(self, program, tokens):
        self.program, self.tokens = program, tokens

    def run(self, cases):
        document = {"tokens": [token.hex() for token in self.tokens] + [""],
                    "cases": [{"schema": schema, "texts": texts} for _, schema, texts in cases]}
        out = json.loads(subprocess.run([self.program], input=json.dumps(document).encode(), stdout=subprocess.PIPE, check=True).stdout)
        return [(one["compile"], one["masks"], one["refused"]) for one in out]


class Peer:
    """compile(schema) -> anything; start(compiled) -> (fill(), take(id) -> whether it is allowed)"""

    def run(self, cases):
        results = []
        for _, schema, texts in cases:
            text = json.dumps(schema)
            before = time.thread_time_ns()
            compiled = self.compile(text)
            took = time.thread_time_ns() - before
            masks, refused = [], 0
            for ids in texts:
                fill, take = self.start(compiled)
                before = time.thread_time_ns()
                fill()
                masks.append(time.thread_time_ns() - before)
                for token in ids:
                    before = time.thread_time_ns()
                    taken = take(token)
                    if taken:
                        fill()
                    masks.append(time.thread_time_ns() - before)
                    if not taken:
                        refused += 1
                        break
            results.append((took, masks, refused))
        return results


class LlGuidance(Peer):
    def __init__(self, tokens, encoding):
        self.name = "llguidance " + importlib.metadata.version("llguidance")

        class Tokenizer:
            eos_token_id, bos_token_id = len(tokens), None
            special_token_ids = [len(tokens)]

            def __call__(self, text):
                return encoding.encode_ordinary(text.decode("utf-8", "replace") if isinstance(text, bytes) else text)

        Tokenizer.tokens = [*tokens, b"</s>"]
        wrapper = llguidance.TokenizerWrapper(Tokenizer())
        self.tokenizer = llguidance.LLTokenizer(wrapper, slices=llguidance.LLTokenizer.json_slices())
        self.mask = llguidance.numpy.allocate_token_bitmask(1, len(tokens) + 1)

    def compile(self, schema):
        matcher = llguidance.LLMatcher(self.tokenizer, llguidance.LLMatcher.grammar_from_json_schema(schema))
        assert not matcher.is_error(), matcher.get_error()
        return matcher

    def start(self, compiled):
        matcher = compiled.deep_copy()
        return (lambda: llguidance.numpy.fill_next_token_bitmask(matcher, self.mask, 0)), matcher.consume_token


class XGrammar(Peer):
    def __init__(self, tokens):
        self.name = "xgrammar " + importlib.metadata.version("xgrammar")
        info = xgrammar.TokenizerInfo([*tokens, b"</s>"], xgrammar.VocabType.RAW, vocab_size=len(tokens) + 1, stop_token_ids=[len(tokens)])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.mask = numpy.full((1, (len(tokens) + 32) // 32), -1, numpy.int32)

    def compile(self, schema):
        return self.compiler.compile_json_schema(schema)

    def start(self, compiled):
        matcher = xgrammar.GrammarMatcher(compiled)
        return (lambda: matcher.fill_next_token_bitmask(self.mask)), matcher.accept_token


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    ranks, encoding = vocabulary()
    tokens = sorted(ranks, key=ranks.get)
    cases = []
    for name, schema, make in CASES:
        r = random.Random(name)
        texts = [encoding.encode_ordinary(json.dumps(make(r), ensure_ascii=False)) for _ in range(TEXTS)]
        cases.append((name, schema, texts))
    engines = [Ours(sys.argv[1], tokens), LlGuidance(tokens, encoding), XGrammar(tokens)]
    runs = {engine.name: [] for engine in engines}
    for _ in range(rounds):
        for engine in engines:
            runs[engine.name].append(engine.run(cases))
    print(f"{len(tokens)} tokens, {len(cases)} schemas of {TEXTS} texts, median of {rounds} rounds; us\n")
    print("| | compile: mean | most | first mask: mean | masks: mean | median | p99 | most | texts refused |\n" + "|---" * 9 + "|")
    for name, results in runs.items():
        rows = []
        for result in results:
            compiled = [took / 1e3 for took, _, _ in result]
            first = [masks[0] / 1e3 for _, masks, _ in result]
            masks = sorted(ns / 1e3 for _, all_masks, _ in result for ns in all_masks)
            rows.append((statistics.mean(compiled), max(compiled), statistics.mean(first), statistics.mean(masks), masks[len(masks) // 2],
                         masks[len(masks) * 99 // 100], masks[-1], sum(refused for _, _, refused in result)))
        row = [statistics.median(column) for column in zip(*rows)]
        print(f"| {name} | " + " | ".join(f"{value:,.1f}" for value in row[:-1]) + f" | {row[-1]:.0f} |")


if __name__ == "__main__":
    main()
