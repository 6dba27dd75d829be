#!/usr/bin/env bash
# Tokenizers against the reference packages: zero differences in ids and in text, both ways.
# usage: run.sh BUILD_DIR [STRINGS], with 100000 strings in the long form
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "$1")
strings=${2:-4000}
here=tests/tokenizers

venv=build/tokenizers-venv
if ! cmp -s "$here/requirements.txt" "$venv/installed.txt"; then
  echo "tokenizers: installing the reference packages into $venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
  # These two carry vocabularies; the rest of what they depend on is large and not used.
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps mistral-common==1.13.1 openai-whisper==20250625
  cp "$here/requirements.txt" "$venv/installed.txt"
fi
"$venv/bin/python" "$here/differential.py" "$build/bin/tokenizer_lines" --strings "$strings"
"$venv/bin/python" "$here/real.py" "$build/bin/tokenizer_lines" --strings "$((strings / 2))"
