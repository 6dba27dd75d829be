"""Makes the site of the documents: every Markdown file and picture in its folder, so that the links between them hold, then
mkdocs, which fails at a link that leads nowhere. Links to other files, which the site does not have, become their text. Each
error code of docs/errors.md gets a page of its own. The theme's script for pages opened from a folder, which it loads from
another host, is replaced by worker_in_frame.js.
usage: site.py MKDOCS OUT    MKDOCS: the program; OUT: the folder of the site"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CONFIG = pathlib.Path(__file__).with_name("mkdocs.yml")
WORKER = pathlib.Path(__file__).with_name("worker_in_frame.js")
PICTURES = {".png", ".webp", ".svg"}
ERROR = re.compile(r"^### (\w+)\n(.*?)(?=^##)", re.M | re.S)
FOREIGN = re.compile(r'<script src="https?://[^"]*/iframe-worker/[^"]*">')
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^()\s#]+)(#[^()\s]*)?\)")


def without_other_files(text):
    def link(found):
        target = found[2]
        is_kept = re.match(r"[a-z]+:", target) or target.endswith(".md") or pathlib.PurePath(target).suffix in PICTURES
        return found[0] if is_kept else found[1]
    return LINK.sub(link, text)


def stage(pages):
    shutil.rmtree(pages, ignore_errors=True)
    skipped = {"build", "tests", ".git", ".cache"}
    for path in sorted(ROOT.rglob("*")):
        name = path.relative_to(ROOT)
        if name.parts[0] in skipped or not path.is_file() or path.suffix not in PICTURES | {".md"}:
            continue
        target = pages / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            target.write_text(without_other_files(path.read_text("utf-8")), "utf-8")
        else:
            shutil.copy(path, target)


def write_errors(pages):
    """A page for each code; returns their names."""
    folder = pages / "docs" / "errors"
    folder.mkdir()
    names = []
    for code, text in ERROR.findall((pages / "docs" / "errors.md").read_text("utf-8")):
        text = re.sub(r"\]\((?![a-z]+:)", "](../", text)
        (folder / f"{code}.md").write_text(f"# {code}\n\nValue of `error.code` on OpenAI's routes.\n{text.rstrip()}\n\n"
                                           f"[All errors](../errors.md#{code})\n", "utf-8")
        names.append(f"docs/errors/{code}.md")
    return names


def replace_worker(out):
    target = out / "assets" / WORKER.name
    shutil.copy(WORKER, target)
    for page in out.rglob("*.html"):
        path = os.path.relpath(target, page.parent)
        page.write_text(FOREIGN.sub(f'<script src="{path}">', page.read_text("utf-8")), "utf-8")


def main():
    mkdocs, out = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    pages, config = out.with_name(out.name + "-pages"), out.with_name(out.name + ".yml")
    stage(pages)
    errors = write_errors(pages)
    assert errors, "no codes in docs/errors.md"
    sources = sorted(str(path.relative_to(pages)) for path in pages.glob("src/**/*.md"))
    text = CONFIG.read_text("utf-8").replace("@ERRORS@", ", ".join(errors)).replace("@SOURCES@", ", ".join(sources))
    config.write_text(text + f"docs_dir: {pages}\nsite_dir: {out}\n", "utf-8")
    # Not --quiet, which hides warnings from --strict.
    done = subprocess.run([mkdocs, "build", "--strict", "--config-file", config], check=False, capture_output=True, text=True,
                          env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    replace_worker(out)
    print(f"docs: {sum(1 for _ in out.rglob('*.html'))} pages, {out}/index.html")


if __name__ == "__main__":
    main()
