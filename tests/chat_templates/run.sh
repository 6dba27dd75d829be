#!/usr/bin/env bash
# Chat templates against Jinja2 as transformers sets it up: same texts, errors where it has errors.
# usage: run.sh BUILD_DIR [CONVERSATIONS], with 500 conversations in the long form
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "$1")
tests/tokenizers/install.sh
build/tokenizers-venv/bin/python tests/chat_templates/differential.py "$build/bin/template_lines" --conversations "${2:-25}"
