#!/usr/bin/env bash
# Fails when a C++ file differs from what clang-format 14 makes of it. `tools/check_format.sh --fix` rewrites them.
set -euo pipefail
cd "$(dirname "$0")/.."
tool=$(command -v clang-format-14 || command -v clang-format || true)
if [ -z "$tool" ] || ! "$tool" --version | grep -q 'version 14\.'; then
  echo "check_format: needs clang-format 14 (apt-get install clang-format-14)" >&2
  exit 1
fi
mode=(--dry-run --Werror)
[ "${1:-}" = "--fix" ] && mode=(-i)
git ls-files -z --cached --others --exclude-standard '*.h' '*.cc' '*.cu' '*.cuh' | xargs -0 -r "$tool" "${mode[@]}"
echo "check_format: clean"
