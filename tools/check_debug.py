#!/usr/bin/env python3
"""Compiles files of the debug preset one by one (no unity build, no precompiled header) without making objects.

Finds what tools/check_includes.py cannot. Generated headers are taken from build/release, which must be built.
usage: tools/check_debug.py [-j N] [FOLDER or FILE ...]   without names: all of src, about 45 CPU minutes
       tools/check_debug.py [-j N] --commit   what the gate checks: of the files that the newest commit changes at most MOST,
                                              and one of PARTS parts of the others, which commits take by turns"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTS = 100
MOST = 8


def compile_alone(entry):
    command = re.sub(r" -o \S+| -g\b| -fpch-preprocess\b", " ", entry["command"])
    command = command.replace(f"{ROOT}/build/debug/", f"{ROOT}/build/release/") + " -fsyntax-only"
    result = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
    return result.returncode, result.stdout + result.stderr


def git(*words):
    """Lines of git's output; none where it fails, as for the parent of a shallow clone's commit."""
    result = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return result.stdout.split() if result.returncode == 0 else []


def of_commit(paths):
    """Those that the newest commit changes, alone or with their header, and those whose turn it is."""
    names = {(ROOT / name).with_suffix("") for name in git("diff", "--name-only", "HEAD~1", "HEAD")}
    turn = int(git("rev-parse", "HEAD")[0], 16) % PARTS
    changed = [path for path in sorted(paths) if path.with_suffix("") in names]
    step = -(-len(changed) // MOST) or 1
    return sorted({*changed[turn % step::step], *sorted(paths)[turn::PARTS]})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-j", type=int, default=1, metavar="N", help="compilers at once")
    parser.add_argument("--commit", action="store_true", help="files of the newest commit and a part of the others")
    parser.add_argument("names", nargs="*", default=["src"], help="folders or files of the checkout")
    args = parser.parse_args()
    subprocess.run(["cmake", "--preset", "debug"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    commands = json.loads((ROOT / "build/debug/compile_commands.json").read_text())
    wanted = [(ROOT / name).resolve() for name in args.names]
    chosen = {}
    for entry in commands:
        path = pathlib.Path(entry["file"])
        if path.suffix == ".cc" and any(path == name or name in path.parents for name in wanted):
            chosen.setdefault(path, entry)
    if args.commit:
        chosen = {path: chosen[path] for path in of_commit(chosen)}
    faults = 0
    with concurrent.futures.ThreadPoolExecutor(args.j) as pool:
        for path, (code, text) in zip(chosen, pool.map(compile_alone, chosen.values())):
            if code or text:
                faults += 1
                print(f"check_debug: {path.relative_to(ROOT)}\n{text}", flush=True)
    print(f"check_debug: {len(chosen)} files, {faults} with faults")
    return 1 if faults or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
