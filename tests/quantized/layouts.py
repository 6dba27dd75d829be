#!/usr/bin/env python3
"""Quantised checkpoints in the layouts that others publish, written here from one float model, each beside a
plain checkpoint of the numbers that its layout stands for. nereid must read the same numbers from both (compared
value by value after `nereid convert --dtype float32`), and generate the same text from them.

usage: layouts.py NEREID MODEL_DIR SCRATCH_DIR
"""
import shutil
import sys
from pathlib import Path

from common import Checker
from gguf_files import gguf_blocks
from published import fp8_experts, gpt_oss, published_layouts
from trtllm import trtllm_float, trtllm_layouts, trtllm_written
from trtllm_written import trtllm_quantised


def main():
    nereid, model, scratch = sys.argv[1], Path(sys.argv[2]).resolve(), Path(sys.argv[3])
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    checker = Checker(nereid, scratch)
    published_layouts(checker, model)
    base, tensors = trtllm_float(checker, model)
    trtllm_layouts(checker, base, tensors)
    trtllm_written(checker, base, tensors)
    trtllm_quantised(checker)
    gpt_oss(checker, model)
    fp8_experts(checker, model)
    gguf_blocks(checker, model)
    shutil.rmtree(scratch)
    if checker.failures:
        sys.exit(f"{checker.failures} layouts are not read as they should be")
    print("quantised layouts: all equal")


if __name__ == "__main__":
    main()
