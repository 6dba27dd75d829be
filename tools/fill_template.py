#!/usr/bin/env python3
"""Fills the ${placeholders} of a config.pbtxt: fill_template.py [-i] FILE name:value,name:value...

Runs `nereid fill_template`, found through $NEREID, in the build folder of this checkout, or in $PATH.
"""
import glob
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def nereid():
    built = glob.glob(os.path.join(ROOT, "build", "*", "bin", "nereid")) + glob.glob(os.path.join(ROOT, "bin", "nereid"))
    return os.environ.get("NEREID") or (max(built, key=os.path.getmtime) if built else "nereid")


if __name__ == "__main__":
    try:
        os.execvp(nereid(), [nereid(), "fill_template"] + sys.argv[1:])
    except OSError as error:
        sys.exit("fill_template.py: %s: %s (set NEREID to the nereid binary)" % (nereid(), error.strerror))
