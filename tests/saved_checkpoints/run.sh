#!/usr/bin/env bash
# Tiny models of all families, saved by transformers 5 and 4, and the quick-start model, quantised by torchao and
# compressed-tensors, read again.  usage: run.sh BUILD_DIR [NAME...]
# Installs the packages, with PyTorch, beside the build: some GB where there is no wheel for CPUs alone.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "$1")
shift
here=tests/saved_checkpoints
venv=build/saved-checkpoints-venv older=build/saved-checkpoints-4 out=build/saved-checkpoints

if ! cat "$here"/requirements*.txt | cmp -s - "$venv/installed.txt"; then
  echo "saved checkpoints: installing PyTorch and transformers 5 into $venv, transformers 4 into $older"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check -r "$here/requirements.txt"
  "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check --no-deps --upgrade --target "$older" \
    -r "$here/requirements-4.txt"
  cat "$here"/requirements*.txt > "$venv/installed.txt"
fi
rm -rf "$out"
export OMP_NUM_THREADS=1
"$venv/bin/python" "$here/save.py" "$out/5" "$@"
PYTHONPATH=$older "$venv/bin/python" "$here/save.py" "$out/4" "$@"
status=0
"$venv/bin/python" "$here/compare.py" "$build/bin/nereid" "$out/cache" "$out/5" "$out/4" || status=1
"$venv/bin/python" "$here/quantise.py" "$build/bin/nereid" models/quickstart "$out/quantised" || status=1
exit "$status"
