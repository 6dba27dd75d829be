"""docs/errors.md against the sources of OpenAI's routes: each code that they give an error has its section, and each section a code.
usage: errors.py"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Beginnings of lists of arguments, and which of them is the code: ApiError{status, message, param, code}, fail(param, message, code).
LISTS = ((re.compile(r"\{\s*[45]\d\d,"), 3), (re.compile(r"\bfail\("), 2))
NAMED = re.compile(r'\bcode"?[,=\s]+"([a-z_]+)"')  # error.code = "x", {"code", "x"}
WORD = re.compile(r'"([a-z_]+)"')


def arguments(text, begin):
    """Those of the list whose bracket stands at `begin`."""
    depth, found, last, at = 0, [], begin + 1, begin
    while at < len(text):
        char = text[at]
        if char == '"':
            at = re.compile(r'"(?:[^"\\]|\\.)*"').match(text, at).end()
            continue
        depth += (char in "([{") - (char in ")]}")
        if depth == 0 or (depth == 1 and char == ","):
            found.append(text[last:at].strip())
            last = at + 1
            if depth == 0:
                break
        at += 1
    return found


def codes_of(text):
    found = set(NAMED.findall(text))
    for pattern, place in LISTS:
        for start in pattern.finditer(text):
            words = arguments(text, start.start() if start[0][0] == "{" else start.end() - 1)
            if len(words) > place and (code := WORD.fullmatch(words[place])):
                found.add(code[1])
    return found


def main():
    written = set(re.findall(r"^### (\w+)$", (ROOT / "docs" / "errors.md").read_text("utf-8"), re.M))
    given = set()
    for path in sorted((ROOT / "src" / "front" / "openai").rglob("*.cc")):
        if not path.name.endswith("_test.cc"):
            given |= codes_of(path.read_text("utf-8"))
    faults = [f"errors: '{code}' has no section in docs/errors.md" for code in sorted(given - written)]
    faults += [f"errors: no source gives the code '{code}' of docs/errors.md" for code in sorted(written - given)]
    print("\n".join(faults + [f"errors: {len(given)} codes, {len(faults)} faults"]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
