#!/usr/bin/env python3
"""Functions of the C++ sources with more lines than the house style allows, longest first: lines, file, line, head.
Tables (`= {...};` of several lines) are not counted.

usage: tools/long_functions.py [--lines N] [FOLDER...]   (60 lines; src, include and bench)"""
import argparse
import pathlib
import re

STRINGS = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.S)
TABLE = re.compile(r"= \{\n(?:(?!\s*\};).*\n)*\s*\};")
NO_FUNCTION = re.compile(r"\b(namespace|class|struct|enum|union|extern)\b[^()]*$|^\s*(if|for|while|switch|else|do|try|catch)\b|=\s*$|\breturn\b")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def functions(text):
    """(first line, lines, head) of every function body that is not inside another one."""
    text = STRINGS.sub(blank, text)
    text = re.sub(r"^\s*#.*(?:\\\n.*)*$", blank, text, flags=re.M)
    stack, head_begin, inside = [], 0, None
    for at, c in enumerate(text):
        if c == "{":
            head = text[head_begin:at].strip()
            is_function = inside is None and ")" in head and not NO_FUNCTION.search(head)
            stack.append((is_function, at, head_begin))
            if is_function:
                inside = len(stack)
            head_begin = at + 1
        elif c == "}" and stack:
            is_function, _, begin = stack.pop()
            if is_function:
                inside = None
                head = text[begin:at].lstrip()
                first = text.count("\n", 0, at - len(text[begin:at].lstrip())) + 1
                lines = text.count("\n", 0, at) + 2 - first - sum(t.count("\n") for t in TABLE.findall(head))
                yield first, lines, " ".join(head.split("{")[0].split())
            head_begin = at + 1
        elif c == ";" and inside is None:
            head_begin = at + 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=60)
    parser.add_argument("folders", nargs="*", default=["src", "include", "bench"])
    options = parser.parse_args()
    found = []
    for folder in options.folders:
        for path in sorted(p for end in ("*.cc", "*.h", "*.cu", "*.cuh") for p in pathlib.Path(folder).rglob(end)):
            found += [(lines, path, first, head) for first, lines, head in functions(path.read_text()) if lines > options.lines]
    for lines, path, first, head in sorted(found, key=lambda row: -row[0]):
        print(f"{lines:4} {path}:{first} {head[:90]}")
    print(f"{len(found)} functions over {options.lines} lines")


if __name__ == "__main__":
    main()
