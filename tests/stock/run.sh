#!/usr/bin/env bash
# Tests against a stock Triton 2.51: parts of both servers together, the recorded corpus, and generated requests sent to
# both. Installs the stock server's wheel into build/stock-venv once.  usage: run.sh BUILD_DIR [mutations COUNT]
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "$1")
here=tests/stock
venv=build/stock-venv
export PYTHONDONTWRITEBYTECODE=1 NEREID_CACHE_DIR=$build/stock/cache
if ! cmp -s "$here/requirements.txt" "$venv/installed.txt"; then
  echo "stock: installing the stock server and its clients into $venv"
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$venv/installed.txt"
fi
python=$venv/bin/python

step() {
  echo "== stock: $*"
  local begin=$SECONDS
  "$@"
  echo "== stock: done in $((SECONDS - begin))s"
}
if [ "${2:-}" = mutations ]; then
  step "$python" "$here/mutate.py" "$build" --count "$3"
  exit
fi
step "$python" "$here/proofs.py" "$build"
mkdir -p "$build/stock"
# Side by side: much of the corpus is waiting.
step "$python" "$here/corpus.py" "$build" >"$build/stock/corpus.txt" 2>&1 &
corpus=$!
step "$python" "$here/differential.py" "$build"
wait "$corpus" || { cat "$build/stock/corpus.txt"; exit 1; }
cat "$build/stock/corpus.txt"
echo "== stock: all passed"
