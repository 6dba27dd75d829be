#!/usr/bin/env python3
"""Writes random requests for benchmarks: prepare_dataset.py --tokenizer DIR --stdout token-norm-dist --num-requests N ...

Runs `nereid prepare_dataset`, found through $NEREID, in the build folder of this checkout, or in $PATH.
"""
import os
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tools"))
sys.dont_write_bytecode = True
from fill_template import nereid  # noqa: E402

if __name__ == "__main__":
    try:
        os.execvp(nereid(), [nereid(), "prepare_dataset"] + sys.argv[1:])
    except OSError as error:
        sys.exit("prepare_dataset.py: %s: %s (set NEREID to the nereid binary)" % (nereid(), error.strerror))
