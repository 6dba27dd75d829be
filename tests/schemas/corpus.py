"""Compiles a folder of JSON schemas: how many are accepted, why the others are refused, how long compiling
takes, and whether random texts of their grammars are valid by the jsonschema package.
  corpus.py WALKS FOLDER... [--texts COUNT] [--seed NUMBER] [--only TEXT] [--refused FILE]
WALKS is the program schema_walks. A file holds a schema, or one with tests: MaskBench's {"schema", "tests": [{"data",
"valid"}]} or JSON-Schema-Test-Suite's list of these. Counted are tests that are accepted but invalid, and tests that are valid
but not accepted. Formats are held to where jsonschema can check them. Exit status 1: an output was invalid, or a test was
taken that is not valid."""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys

import jsonschema
import jsonschema._keywords
import jsonschema.validators

# ECMA-262 has digits and letters of ASCII alone, and no end before a last line break.
re_search, re_compile = re.search, re.compile
jsonschema._keywords.re = type("re", (), {
    "search": staticmethod(lambda pattern, text: re_search(re.sub(r"(?<!\\)\$$", r"\\Z", pattern), text, re.ASCII)),
    "compile": staticmethod(lambda pattern: re_compile(pattern, re.ASCII))})


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def cases(path):
    """(name, schema, tests) of a file."""
    value = json.loads(path.read_text("utf-8-sig"))
    groups = value if isinstance(value, list) else [value]
    for i, group in enumerate(groups):
        if isinstance(group, dict) and isinstance(group.get("tests"), list) and "schema" in group:
            yield f"{path}#{i}" if len(groups) > 1 else str(path), group["schema"], group["tests"]
        else:
            yield str(path), value, []
            return


def validator(schema, formats):
    known = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return known(schema, format_checker=known.FORMAT_CHECKER if formats else None)


def reason(error):
    """Without what is of one schema alone."""
    text = error.split("': ", 1)[-1]
    text = re.sub(r"regular expression '.*': (.*) at byte \d+", r"regular expression: \1", text, flags=re.S)
    return re.sub(r"'[^']*'|\d+", "_", text)[:110] if "this keyword" not in text else \
        error.split("'")[1].rsplit("/", 1)[-1] + ": " + text[:90]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("walks")
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--texts", type=int, default=1, help="random texts of each schema")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", default="", help="files with this in their path")
    parser.add_argument("--refused", type=pathlib.Path, help="a file for the refused and slow ones")
    args = parser.parse_args()
    walks = subprocess.Popen([args.walks, args.seed], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    counts, reasons, times, notes = collections.Counter(), collections.Counter(), [], []
    for folder in args.folders:
        paths = sorted(folder.rglob("*.json")) if folder.is_dir() else [folder]
        for path in paths:
            if args.only in str(path):
                for name, schema, tests in cases(path):
                    one(walks, name, schema, tests, args, counts, reasons, times, notes)
    times.sort()
    place = lambda part: times[min(len(times) - 1, int(len(times) * part))] / 1000
    print(f"{counts['schemas']} schemas: {counts['accepted']} accepted, {counts['refused']} refused")
    for text, count in reasons.most_common():
        print(f"{count:7} {text}")
    if times:
        print(f"compiling, ms of CPU: p50 {place(0.5):.2f}, p99 {place(0.99):.1f}, most {place(1):.1f}")
    print(f"random texts: {counts['texts']}, invalid {counts['invalid']}, without an end {counts['endless']}, "
          f"not checked {counts['unchecked']}")
    if counts["tests"]:
        print(f"tests of accepted schemas: {counts['tests']}, wrongly taken {counts['wrong']}, "
              f"wrongly refused {counts['missed']}")
    if args.refused:
        args.refused.write_text("\n".join(notes) + "\n")
    return 1 if counts["invalid"] or counts["wrong"] else 0


def one(walks, name, schema, tests, args, counts, reasons, times, notes):
    line = {"schema": compact(schema), "texts": [compact(test["data"]) for test in tests], "walks": args.texts}
    walks.stdin.write(json.dumps(line) + "\n")
    walks.stdin.flush()
    answer = json.loads(walks.stdout.readline())
    counts["schemas"] += 1
    times.append(answer["us"])
    if answer["us"] > 100_000:
        notes.append(f"slow {answer['us']} us\t{name}")
    if "error" in answer:
        counts["refused"] += 1
        reasons[reason(answer["error"])] += 1
        notes.append(f"{answer['error']}\t{name}")
        return
    counts["accepted"] += 1
    if "walk_error" in answer:
        print(f"{name}: {answer['walk_error']}", file=sys.stderr)
    for test, taken in zip(tests, answer["taken"]):
        counts["tests"] += 1
        if taken and not test["valid"]:
            counts["wrong"] += 1
            print(f"{name}: taken, but not valid: {compact(test['data'])}", file=sys.stderr)
        if test["valid"] and not taken:
            counts["missed"] += 1
            notes.append(f"missed {compact(test['data'])[:300]}\t{name}")
    counts["endless"] += args.texts - len(answer["texts"])
    for text in answer["texts"]:
        counts["texts"] += 1
        try:
            value = json.loads(text)
            errors = [next(validator(schema, True).iter_errors(value), None)]
        except Exception as e:  # a schema that the package cannot read, or a reference out of it
            if isinstance(e, json.JSONDecodeError):
                errors = [e]
            else:
                counts["unchecked"] += 1
                notes.append(f"unchecked {type(e).__name__} {str(e)[:100]}\t{name}")
                continue
        if errors[0]:
            counts["invalid"] += 1
            print(f"{name}: invalid: {text}\n  {str(errors[0].message if hasattr(errors[0], 'message') else errors[0])[:300]}",
                  file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
