#!/usr/bin/env bash
# Runs a command, shows its output, and fails when a compiler, linker or CMake warned in it. Not -Werror: ccache takes a
# build with it for another one, and repeats the warnings of what it keeps.  usage: no_warnings.sh COMMAND...
set -euo pipefail
output=$(mktemp)
trap 'rm -f "$output"' EXIT
"$@" 2>&1 | tee "$output"
# GCC's analysis of flow finds what is not so inside headers of the system, depending on what it inlines.
false='^/usr/include/.* \[-W(maybe-uninitialized|array-bounds=?|stringop-overflow=?|restrict)\]$'
found=$(grep -vE "$false" "$output" | grep -E '(:[0-9]+|/ld): warning: |\([0-9]+\): warning |^CMake (Deprecation )?Warning' || true)
[ -z "$found" ] || { printf 'no_warnings: the build printed:\n%s\n' "$found" >&2; exit 1; }
