#!/usr/bin/env bash
# Real client packages, the newest of each, against a started server; not part of the gate, for it installs from PyPI.
# Prints a table: package | version | uses that went well | result.  usage: run.sh BUILD_DIR [PACKAGE...]
# Packages stay in BUILD_DIR/clients; remove that for newer ones.
set -euo pipefail
build=$(realpath "$1")
shift
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || set -- openai anthropic ollama litellm langchain-openai langchain-anthropic langchain-ollama instructor \
  pydantic-ai-slim openai-agents llama-index-llms-openai-like llama-index-llms-ollama haystack-ai outlines guidance dspy aider-chat llm
work=$build/clients
mkdir -p "$work"
rm -f "$work/ports"
"$build/bin/nereid" serve models/quickstart --device cpu --host 127.0.0.1 --http-port 0 --metrics-port -1 --ollama \
  --port-file "$work/ports" >"$work/server.log" 2>&1 &
server=$!
trap 'kill "$server"' EXIT
for _ in $(seq 600); do
  [ -s "$work/ports" ] && break
  kill -0 "$server" || { cat "$work/server.log"; exit 1; }
  sleep 0.1
done
NEREID_URL=http://127.0.0.1:$(sed -n 's|^http=||p' "$work/ports")
export NEREID_URL
if [ ! -x "$work/uv/bin/uv" ]; then
  python3 -m venv "$work/uv"
  "$work/uv/bin/pip" install --quiet --disable-pip-version-check uv
fi
failed=0
echo "| Package | Version | Uses | Result |"
echo "|---|---|---|---|"
for package; do
  python=$work/$package/bin/python
  if [ ! -f "$work/$package/installed" ]; then
    extra=$(python3 tests/clients/uses.py --extra "$package")
    # shellcheck disable=SC2086
    if ! { "$work/uv/bin/uv" venv --quiet --clear "$work/$package" &&
      "$work/uv/bin/uv" pip install --quiet --python "$python" "$package" $extra; } >"$work/$package.log" 2>&1; then
      echo "| $package | - | - | not installed: $(tail -n 1 "$work/$package.log") |"
      failed=1
      continue
    fi
    touch "$work/$package/installed"
  fi
  ended=0
  timeout 600 "$python" tests/clients/uses.py "$package" 2>>"$work/$package.log" || ended=$?
  [ "$ended" -ne 124 ] || echo "| $package | - | - | not done in 600 s |"
  [ "$ended" -eq 0 ] || failed=1
done
exit "$failed"
