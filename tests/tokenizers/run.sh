#!/usr/bin/env bash
# Tokenizers against the reference packages: zero differences in ids and in text, both ways.
# usage: run.sh BUILD_DIR [STRINGS], with 100000 strings in the long form
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "$1")
strings=${2:-4000}
here=tests/tokenizers

"$here/install.sh"
python=build/tokenizers-venv/bin/python
"$python" "$here/differential.py" "$build/bin/tokenizer_lines" --strings "$strings"
"$python" "$here/real.py" "$build/bin/tokenizer_lines" --strings "$((strings / 2))"
"$python" "$here/gguf_vocabularies.py" "$build/bin/tokenizer_lines" --strings "$((strings / 2))"
