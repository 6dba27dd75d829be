#!/usr/bin/env python3
"""Converts a LoRA adapter: hf_lora_convert.py -i DIR -o DIR [-t float16 | float32 | bfloat16].

Runs `nereid hf_lora_convert`, found through $NEREID, in the build folder of this checkout, or in $PATH.
"""
import glob
import os
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))


def nereid():
    built = glob.glob(os.path.join(ROOT, "build", "*", "bin", "nereid")) + glob.glob(os.path.join(ROOT, "bin", "nereid"))
    return os.environ.get("NEREID") or (max(built, key=os.path.getmtime) if built else "nereid")


if __name__ == "__main__":
    try:
        os.execvp(nereid(), [nereid(), "hf_lora_convert"] + sys.argv[1:])
    except OSError as error:
        sys.exit("hf_lora_convert.py: %s: %s (set NEREID to the nereid binary)" % (nereid(), error.strerror))
