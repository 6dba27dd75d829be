#!/usr/bin/env python3
"""Links of all Markdown files: a file, picture or folder that a link names is there, and so is the heading behind '#';
so is each page docs/*.md that a script, or a text of the program, names. The site (tools/docs/mkdocs.yml) has every page.
usage: check_links.py [ROOT]    Exit status 1: a link leads nowhere."""
import pathlib
import re
import sys
import urllib.parse

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
SKIPPED = {"build", ".git", ".cache", "__pycache__"}
SOURCES = {".cc", ".h", ".cu", ".cuh", ".py", ".sh", ".md", ".txt", ".cmake", ".yaml", ".toml"}
CODE = {".cc", ".h", ".cu", ".cuh"}
FENCE = re.compile(r"^ {0,3}(```|~~~)")
LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]+(?:\([^()]*\)[^()\s]*)?)(?:\s+\"[^\"]*\")?\)")
PAGE = re.compile(r"(?<![\w./-])docs/[\w/-]+\.md\b")


def files():
    folders = [ROOT]
    while folders:
        for path in sorted(folders.pop().iterdir()):
            if path.is_dir() and not path.is_symlink() and path.name not in SKIPPED:
                folders.append(path)
            elif path.is_file() and path.suffix in SOURCES:
                yield path


def prose(text):
    """(number, line) outside of fenced and indented code, with code spans blanked."""
    fence = ""
    for number, line in enumerate(text.split("\n"), 1):
        found = FENCE.match(line)
        if found and fence in ("", found[1]):
            fence = "" if fence else found[1]
        elif not fence and not line.startswith("    "):
            yield number, re.sub(r"`[^`]*`", lambda code: " " * len(code[0]), line)


def anchors_of(path, known={}):
    """The ids that GitHub gives the headings of a page."""
    if path not in known:
        ids, fence = set(), False
        for line in path.read_text("utf-8").split("\n"):
            fence ^= bool(FENCE.match(line))
            heading = re.match(r"^#{1,6} +(.*?)#* *$", line)
            if fence or not heading:
                continue
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1])
            name = re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")
            number = sum(1 for known_id in ids if re.fullmatch(re.escape(name) + r"(-\d+)?", known_id))
            ids.add(f"{name}-{number}" if number else name)
        known[path] = ids
    return known[path]


def fault_of(page, target):
    if re.match(r"[a-z][a-z0-9+.-]*:", target):  # other sites are not asked
        return ""
    name, _, anchor = target.partition("#")
    path = (page.parent / urllib.parse.unquote(name)).resolve() if name else page
    if not path.is_relative_to(ROOT) or not path.exists():
        return "no such file"
    if anchor and path.suffix == ".md" and anchor not in anchors_of(path):
        return "no such heading"
    return ""


def missing_in_site(pages):
    """Pages that `make docs` would refuse because no list of the site has them; site.py adds those of the sources."""
    config = ROOT / "tools" / "docs" / "mkdocs.yml"
    listed = set(re.findall(r"[\w/.-]+\.md", config.read_text("utf-8"))) if config.exists() else None
    return [page for page in pages if listed is not None and page not in listed and page.split("/")[0] not in ("src", "tests")]


def main():
    count, faults, pages = 0, [], []
    for path in files():
        text = path.read_text("utf-8", "replace")
        shown = path.relative_to(ROOT)
        if path.suffix == ".md":
            pages.append(shown.as_posix())
            for number, line in prose(text):
                for target in LINK.findall(line):
                    count += 1
                    if fault := fault_of(path, target):
                        faults.append(f"{shown}:{number}: {target}: {fault}")
            continue
        # Comments of sources name pages of other projects, too.
        code = re.sub(r"//.*", lambda comment: " " * len(comment[0]), text) if path.suffix in CODE else text
        for found in PAGE.finditer(code):
            count += 1
            if not (ROOT / found[0]).exists():
                faults.append(f"{shown}:{text.count(chr(10), 0, found.start()) + 1}: {found[0]}: no such file")
    faults += [f"{page}: not in tools/docs/mkdocs.yml" for page in missing_in_site(pages)]
    print("\n".join(faults + [f"links: {count}, {len(faults)} lead nowhere"]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
