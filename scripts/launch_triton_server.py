#!/usr/bin/env python3
"""Starts the server on a model repository, in the background: launch_triton_server.py --model_repo=DIR ...

Runs `nereid launch_triton_server`, found through $NEREID, in the build folder of this checkout, or in $PATH.
"""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tools"))
sys.dont_write_bytecode = True
from fill_template import nereid  # noqa: E402

if __name__ == "__main__":
    arguments = sys.argv[1:]
    if not any(word.startswith("--model_repo") for word in arguments):
        arguments.insert(0, "--model_repo=" + os.path.join(ROOT, "all_models", "gpt"))
    try:
        os.execvp(nereid(), [nereid(), "launch_triton_server"] + arguments)
    except OSError as error:
        sys.exit("launch_triton_server.py: %s: %s (set NEREID to the nereid binary)" % (nereid(), error.strerror))
