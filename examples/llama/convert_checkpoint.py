#!/usr/bin/env python3
"""Converts a checkpoint: convert_checkpoint.py --model_dir DIR --output_dir DIR [flags; --help shows all].

Runs `nereid convert_checkpoint`, found through $NEREID, in the build folder of this checkout, or in $PATH.
"""
import glob
import os
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


def nereid():
    built = glob.glob(os.path.join(ROOT, "build", "*", "bin", "nereid")) + glob.glob(os.path.join(ROOT, "bin", "nereid"))
    return os.environ.get("NEREID") or (max(built, key=os.path.getmtime) if built else "nereid")


if __name__ == "__main__":
    try:
        os.execvp(nereid(), [nereid(), "convert_checkpoint"] + sys.argv[1:])
    except OSError as error:
        sys.exit("convert_checkpoint.py: %s: %s (set NEREID to the nereid binary)" % (nereid(), error.strerror))
