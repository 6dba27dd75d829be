#!/usr/bin/env bash
# Installs the reference packages of the differential tests into build/tokenizers-venv, once.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=tests/tokenizers

venv=build/tokenizers-venv
if ! cmp -s "$here/requirements.txt" "$venv/installed.txt"; then
  echo "tokenizers: installing the reference packages into $venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check -r "$here/requirements.txt"
  # These two carry vocabularies; the rest of what they depend on is large and not used.
  "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check --no-deps mistral-common==1.13.1 openai-whisper==20250625
  cp "$here/requirements.txt" "$venv/installed.txt"
fi
