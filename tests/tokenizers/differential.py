"""Tokenizers against the `tokenizers` package: same ids, same text, for generated strings.
usage: differential.py TOKENIZER_LINES [--strings N] [--seed S] [--only NAME]"""
import argparse
import json
import pathlib
import random
import subprocess
import tempfile

import definitions


class Lines:
    """Our side: a process that answers JSON lines."""

    def __init__(self, program):
        self.program = program

    def ask(self, requests):
        text = "".join(json.dumps(r) + "\n" for r in requests)
        done = subprocess.run([self.program], input=text.encode(), stdout=subprocess.PIPE, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]


def requests_of(reference, texts, rng):
    """(request, expected answer) for encoding and decoding."""
    out = []
    size = reference.get_vocab_size(with_added_tokens=True)
    for text in texts:
        for add in (True, False):
            reference.encode_special_tokens = False
            try:
                ids = reference.encode(text, add_special_tokens=add).ids
            except Exception:  # no token and no unknown token
                ids = "error"
            out.append(({"encode": text, "add": add, "parse": True}, ids))
        if ids == "error":
            continue
        reference.encode_special_tokens = True
        out.append(({"encode": text, "add": False, "parse": False}, reference.encode(text, add_special_tokens=False).ids))
        reference.encode_special_tokens = False
        mixed = ids + [rng.randrange(size) for _ in range(rng.randrange(1, 8))]
        rng.shuffle(mixed)
        for some in (ids, mixed):
            if not some:
                continue
            for skip in (True, False):
                try:
                    text_of_ids = reference.decode(some, skip_special_tokens=skip)
                except BaseException:  # a decoder that panics on nothing left
                    continue
                out.append(({"decode": some, "skip": skip}, text_of_ids))
    return out


def compare(lines, name, path, pairs):
    answers = lines.ask([{"load": str(path)}] + [request for request, _ in pairs])
    assert answers[0] is True, f"{name}: {answers[0]}"
    bad = 0
    for (request, expected), answer in zip(pairs, answers[1:]):
        if expected == "error" and isinstance(answer, dict):
            continue
        if answer != expected:
            bad += 1
            if bad <= 3:
                print(f"  {name}: {json.dumps(request)}\n    expected {json.dumps(expected)}\n    got      {json.dumps(answer)}")
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--strings", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=20261123)
    parser.add_argument("--only")
    options = parser.parse_args()
    lines = Lines(options.program)
    all_definitions = definitions.all_definitions()
    each = -(-options.strings // len(all_definitions))
    compared = wrong = strings = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, make in all_definitions.items():
            if options.only not in (None, name):
                continue
            rng = random.Random(f"{options.seed} {name}")
            reference = make()
            path = pathlib.Path(folder) / name / "tokenizer.json"
            path.parent.mkdir()
            reference.save(str(path))
            pairs = requests_of(reference, [definitions.text(rng) for _ in range(each)], rng)
            wrong += compare(lines, name, path.parent, pairs)
            compared += len(pairs)
            strings += each
    print(f"differential: {len(all_definitions)} definitions, {strings} strings, {compared} comparisons, {wrong} differences")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
