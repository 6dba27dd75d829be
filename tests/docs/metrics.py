"""docs/metrics.md against the pages of metrics of a live server: each family that a page shows has its row, with type, labels and
meaning. Families of the table that the pages lack are of other machines (GPUs) or options, and stay.
usage: metrics.py METRICS_URL [--write]"""
import pathlib
import re
import sys
import urllib.request

PAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "metrics.md"
ROW = re.compile(r"^\| `([\w:]+)` \| (\w+) \| ([^|]*) \| (.*) \|$", re.M)
HEAD = "| Family | Type | Labels | Meaning |\n|---|---|---|---|\n"


def families(url):
    """Rows of the table by name."""
    text = urllib.request.urlopen(url + "/metrics", timeout=30).read().decode()
    helps, types, labels = {}, {}, {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, meaning = line.split(" ", 3)
            helps[name] = meaning
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ", 3)
            types[name] = kind
        elif found := re.match(r"([\w:]+)(?:\{(.*)\})? ", line):
            name = next(name for name in (found[1], re.sub(r"_(bucket|sum|count)$", "", found[1])) if name in types)
            labels.setdefault(name, set()).update(set(re.findall(r"(\w+)=\"", found[2] or "")) - {"le", "quantile"})
    return {name: (types[name], ", ".join(f"`{label}`" for label in sorted(labels.get(name, ()))), meaning.replace("|", "\\|"))
            for name, meaning in helps.items()}


def main():
    shown = families(sys.argv[1])
    text = PAGE.read_text("utf-8")
    written = {name: tuple(rest) for name, *rest in ROW.findall(text)}
    if "--write" in sys.argv[2:]:
        rows = "".join(f"| `{name}` | {' | '.join(cells)} |\n" for name, cells in sorted({**written, **shown}.items()))
        PAGE.write_text(text[:text.index(HEAD)] + HEAD + rows, "utf-8")
        return 0
    faults = [f"{name}: {cells} on the page, {written.get(name)} in docs/metrics.md" for name, cells in shown.items()
              if written.get(name) != cells]
    print("\n".join(faults + [f"metrics: {len(shown)} families, {len(faults)} not as in docs/metrics.md"]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
