#!/usr/bin/env bash
# Runs a command, shows its output, and fails when a compiler, linker or CMake warned in it. Not -Werror: ccache takes a
# build with it for another one, and repeats the warnings of what it keeps.  usage: no_warnings.sh COMMAND...
set -euo pipefail
output=$(mktemp)
trap 'rm -f "$output"' EXIT
"$@" 2>&1 | tee "$output"
# GCC's analysis of flow finds what is not so inside headers of the system, depending on what it inlines.
false='^/usr/include/.* \[-W(maybe-uninitialized|array-bounds=?|stringop-overflow=?|restrict)\]$'
at_place='(:[0-9]+: |\([0-9]+\): )warning\b|\.s:[0-9]+: Warning: '  # GCC; nvcc; the assembler
by_program='^([^ :]*[/-])?(cc1(plus)?|lto1|lto-wrapper|collect2|as|ld(\.[a-z]+)?|ar|ranlib|(gcc|[cg]\+\+|clang)(-[0-9.]+)?): warning: '
by_option='^<(command-line|built-in|artificial)>: warning: '
by_cuda='^([^ :]*/)?(nvcc|cicc|ptxas|nvlink|fatbinary|cudafe\+\+)( [^:]*)?[ ;:] *[Ww]arning *:'
by_cmake='^CMake (Deprecation )?Warning'
found=$(grep -vE "$false" "$output" | grep -E "$at_place|$by_program|$by_option|$by_cuda|$by_cmake" || true)
[ -z "$found" ] || { printf 'no_warnings: the build printed:\n%s\n' "$found" >&2; exit 1; }
