#!/usr/bin/env bash
# The documents as a site with a search that works without a network; mkdocs comes from PyPI.  usage: docs.sh OUT
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/docs-venv
if ! cmp -s tools/docs/requirements.txt "$venv/installed.txt"; then
  echo "docs: installing mkdocs into $venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check -r tools/docs/requirements.txt
  cp tools/docs/requirements.txt "$venv/installed.txt"
fi
"$venv/bin/python" tools/docs/site.py "$venv/bin/mkdocs" "$1"
