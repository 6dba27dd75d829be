#!/usr/bin/env python3
"""What nereid makes of the folders that save.py has written, against what transformers makes of them.

usage: compare.py NEREID SCRATCH FOLDER...
"""
import json
import pathlib
import re
import subprocess
import sys

# Tolerance of log-probabilities: activations are rounded to bf16, which in some mixtures sends a token to another expert.
TOLERANCE, MIXTURE_TOLERANCE = 0.25, 1.5
LINE = re.compile(r'(-[0-9.]+|0\.0000) "(\d+)"')


def run(nereid, scratch, model, row):
    prompt = " ".join(map(str, row["prompt_ids"]))
    done = subprocess.run([nereid, "generate", str(model), "-p", prompt, "-n", str(len(row["greedy_ids"])), "--ids",
                           "--logprobs", "5", "--cache-dir", str(scratch)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1][-300:])
    lines = done.stdout.strip().splitlines()
    first = next(line for line in lines + done.stderr.splitlines() if LINE.search(line))
    return [int(x) for x in lines[0].split()], {name: float(value) for value, name in LINE.findall(first)}


def compare(nereid, scratch, model, rows):
    """The fault, or ''."""
    worst = 0.0
    for row in rows:
        ids, first = run(nereid, scratch, model, row)
        if ids != row["greedy_ids"]:
            return f"ids {ids}, wanted {row['greedy_ids']}"
        worst = max([worst] + [abs(first[i] - value) for i, value in row["log_probs"].items() if i in first])
    config = (model / "config.json").read_text()
    limit = MIXTURE_TOLERANCE if "experts" in config else TOLERANCE
    return f"log-probabilities differ by {worst:.3f}" if worst > limit else ""


def main():
    nereid, scratch, folders = sys.argv[1], pathlib.Path(sys.argv[2]), [pathlib.Path(x) for x in sys.argv[3:]]
    failures = 0
    names = sorted({path.name for folder in folders for path in folder.iterdir() if path.is_dir()}
                   | {path.stem for folder in folders for path in folder.glob("*.json")})
    for name in names:
        words = []
        for folder in folders:
            rows = folder / f"{name.removesuffix('-held')}.json"
            if not rows.exists() or (name.endswith("-held") and not (folder / name).exists()):
                continue
            rows = json.loads(rows.read_text())
            if isinstance(rows, dict):
                words.append(f"{folder.name}: not saved: {rows['error']}")
                failures += 1
                continue
            try:
                problem = compare(nereid, scratch, folder / name, rows)
            except RuntimeError as error:
                problem = str(error)
            failures += bool(problem)
            words.append(f"{folder.name}: {problem or 'equal'}")
        print(f"{name:24} " + "; ".join(words), flush=True)
    print(f"saved checkpoints: {failures} of them are not read as transformers reads them" if failures
          else "saved checkpoints: all equal")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
