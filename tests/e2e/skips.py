"""Tests that this machine cannot run: a line of its own at once, and again at the end of the script that set NEREID_SKIPS (a file)."""
import os


def skip(what, reason):
    line = f"SKIP {what}: {reason}"
    print(line, flush=True)
    if file := os.environ.get("NEREID_SKIPS"):
        with open(file, "a", encoding="utf-8") as out:
            out.write(line + "\n")
