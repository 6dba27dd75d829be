#!/usr/bin/env python3
"""Fails on C++ comments that leave out their subject or use words of their own instead of the field's (docs/glossary.md).

usage: tools/check_comments.py [FOLDER|FILE]...     (default: src include)
Findings, each with file, line and the rule:
  subject  a sentence begins with Of, What, Those or Such (not "such as"), or with With and has no comma ("With X, Y does Z"
           is a sentence); a comment behind code begins with what, those, such or likewise
  word     a word of WORDS below: a program does not want, know or tell, and a thing has its term of the glossary
  widow    the last line of a comment is one or two words alone: reword it, or break its lines evenly"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
RAW = re.compile(r'R"(\w*)\(.*?\)\1"', re.S)
QUOTED = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')
SENTENCE = re.compile(r"(?:(?<=[.?!])|(?<=[.?!][)\"]))(?<!e\.g\.)(?<!i\.e\.)\s+")
NO_SUBJECT = re.compile(r"(?:Of|What|Those|Such(?! as))\b|With\b(?![^.]*,)")
BEHIND_CODE = re.compile(r"(?:what|those|such(?! as)|likewise)\b")
CODE = re.compile(r"`[^`]*`|\"[^\"]*\"|'[^']*'|\b\w+[_(/.]\w+\S*|\w*\(\)")
WORDS = {
    "a program is no person": "wants? wish(?:es)? knows? thinks? believes? likes hopes? tells? told speaks? says said happy",
    "name the subject": "whoever somebody nobody",
    "draft token": "guess(?:es)?",
    "update": "news",
}
WORDS = {term: re.compile(rf"\b(?:{words.replace(' ', '|')})\b", re.I) for term, words in WORDS.items()}


def blocks(text):
    """(line, is behind code, [lines of text]) of each comment; comments of whole lines at one column are one block."""
    text = RAW.sub(lambda m: "\n" * m.group().count("\n"), text)
    found, last = [], None
    for number, line in enumerate(text.split("\n"), 1):
        at = QUOTED.sub(lambda m: "x" * len(m.group()), line).find("//")
        if at < 0:
            last = None
            continue
        words = line[at + 2:]
        behind = bool(line[:at].strip())
        if not behind and last == at:
            found[-1][2].append(words)
        else:
            found.append((number, behind, [words]))
        last = at
    return found


def findings(text):
    """(line, rule, quotation) of each."""
    out = []
    for line, behind, lines in blocks(text):
        whole = " ".join(part.strip() for part in lines)
        for sentence in SENTENCE.split(whole.strip()):
            if NO_SUBJECT.match(sentence):
                out.append((line, "subject", sentence))
        if behind and BEHIND_CODE.match(whole.strip()):
            out.append((line, "subject", whole.strip()))
        prose = CODE.sub(" ", whole)
        for term, words in WORDS.items():
            if found := words.search(prose):
                out.append((line, f"word ({term})", found.group()))
        last = lines[-1]
        if len(lines) > 1 and len(last.split()) in (1, 2) and len(last) < 30 and lines[-2].strip() and last[:2] != "  ":
            out.append((line + len(lines) - 1, "widow", last.strip()))
    return out


SAMPLE = '''// Of equal keys the last one counts. With a lock.
// With overlap, step N+1 is launched early. What is left: nothing.
int a;  // what the client sent
int b = f("// Of a string");  // of the model
// The engine wants a token; `wants` and wants_token() are names.

// A comment whose last line the formatter has cut into a single
// word.

// e.g. Such as this:
//   a list
const char* c = R"(
// Of raw text.
)";  // bytes
'''


def self_test():
    got = [(line, rule.split()[0]) for line, rule, _ in findings(SAMPLE)]
    wanted = [(1, "subject"), (1, "subject"), (1, "subject"), (3, "subject"), (5, "word"), (8, "widow")]
    assert got == wanted, got


def main():
    self_test()
    names = sys.argv[1:] or ["src", "include"]
    paths = [path for name in names for path in ([ROOT / name] if (ROOT / name).is_file() else sorted((ROOT / name).rglob("*")))]
    paths = [path for path in paths if path.suffix in SUFFIXES]
    count = 0
    for path in paths:
        for line, rule, quotation in findings(path.read_text()):
            count += 1
            print(f"check_comments: {path.relative_to(ROOT)}:{line}: {rule}: {quotation[:80]}")
    print(f"check_comments: {len(paths)} files, {count} findings")
    return count > 0 or not paths


if __name__ == "__main__":
    sys.exit(main())
