#!/usr/bin/env bash
# Quantised checkpoints of all layouts that are read, against plain ones of the same numbers.  usage: run.sh BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "$1")
here=tests/quantized

venv=build/quantized-venv
if ! cmp -s "$here/requirements.txt" "$venv/installed.txt"; then
  echo "quantized: installing numpy and gguf into $venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$venv/installed.txt"
fi
"$venv/bin/python" "$here/layouts.py" "$build/bin/nereid" models/quickstart build/quantized-scratch
