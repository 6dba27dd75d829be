#!/usr/bin/env bash
# Compiles the CUDA code as far as PTX, for both architectures of the build, and the host code beside it: errors and
# warnings in a fifth of the time of `make gpu-bundle`, which also assembles, links and packs.  usage: check_cuda.sh BUILD
# BUILD: a built directory, for its generated headers.
set -euo pipefail
cd "$(dirname "$0")/.."
generated=$1/generated
[ -e "$generated/kernels/interface_hash.h" ] || { echo "check_cuda: $1 is not built" >&2; exit 1; }
cuda=$(dirname "$(dirname "$(realpath "$(command -v nvcc)")")")
export flags="-std=c++20 -DFMT_SHARED -DNEREID_VERSION=\"check\" -Isrc -Iinclude -I$generated/kernels -isystem $cuda/include"

ptx() { nvcc -ptx -arch="compute_$1" -Xcicc=-O0 -diag-suppress=177 --expt-relaxed-constexpr $flags -o /dev/null "$2"; }
host() { "${CXX:-g++}" -fsyntax-only -Wall -Wextra -Wno-missing-field-initializers $flags "$1"; }
export -f ptx host
{
  for source in $(find src/kernels/cuda -name '*.cu' | sort); do printf 'ptx 80 %s\nptx 90a %s\n' "$source" "$source"; done
  for source in $(find src/kernels/cuda src/tensor -name '*.cc' | grep -E 'kernels/cuda|tensor/cuda' | sort); do echo "host $source"; done
} >"$1/check_cuda.txt"
xargs -P 2 -I{} bash -c '{}' <"$1/check_cuda.txt"
echo "check_cuda: $(wc -l <"$1/check_cuda.txt") compilations, no error"
