#!/usr/bin/env python3
"""Serves a model repository by OpenAI's API: main.py --model-repository DIR [flags; --help shows all].

Runs `nereid openai_frontend`, found through $NEREID, in the build folder of this checkout, or in $PATH.
"""
import os
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tools"))
sys.dont_write_bytecode = True
from fill_template import nereid  # noqa: E402

if __name__ == "__main__":
    try:
        os.execvp(nereid(), [nereid(), "openai_frontend"] + sys.argv[1:])
    except OSError as error:
        sys.exit("main.py: %s: %s (set NEREID to the nereid binary)" % (nereid(), error.strerror))
