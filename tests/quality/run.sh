#!/usr/bin/env bash
# The table of docs/quantization.md, of the quick-start model.  usage: run.sh BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "$1")
requirements=tests/quantized/requirements.txt

venv=build/quantized-venv
if ! cmp -s "$requirements" "$venv/installed.txt"; then
  echo "quality: installing numpy and gguf into $venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check -r "$requirements"
  cp "$requirements" "$venv/installed.txt"
fi
"$venv/bin/python" tests/quality/table.py "$build/bin/nereid" models/quickstart tests/quality/held_out.txt build/quality-scratch
rm -r build/quality-scratch
