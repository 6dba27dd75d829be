#!/usr/bin/env bash
# Folders of JSON schemas against the grammars that they become (corpus.py lists the counts).
# usage: run.sh BUILD_DIR FOLDER... [--texts COUNT] and the like
#   github.com/guidance-ai/jsonschemabench: data; maskbench/data has tests
#   github.com/json-schema-org/JSON-Schema-Test-Suite: tests/draft2020-12
set -euo pipefail
here=$(dirname "$0")
walks=$1/bin/schema_walks
shift

venv=$here/../../build/schemas-venv
if [ ! -x "$venv/bin/jsonschema" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check 'jsonschema[format-nongpl]==4.26.0'
fi
exec "$venv/bin/python" "$here/corpus.py" "$walks" "$@"
