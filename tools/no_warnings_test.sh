#!/usr/bin/env bash
# Holds no_warnings.sh to the forms in which the build's programs warn.
set -euo pipefail
cd "$(dirname "$0")"
bad=0
check() { # good or bad, and a line of output
  local result=good
  ./no_warnings.sh printf '%s\n' "$2" >/dev/null 2>&1 || result=bad
  [ "$result" = "$1" ] || { printf 'no_warnings_test: "%s" is %s, should be %s\n' "$2" "$result" "$1" >&2; bad=1; }
}
while IFS= read -r line; do check bad "$line"; done <<'END'
src/base/file.cc:12:3: warning: unused variable 'x' [-Wunused-variable]
/tmp/x.s:17: Warning: ignoring changed section attributes
cc1plus: warning: command-line option '-Wx' is valid for C but not for C++
/usr/lib/gcc/x86_64-linux-gnu/12/cc1: warning: unrecognized command-line option '-Wno-x'
g++-12: warning: x.a: linker input file unused because linking not done
x86_64-linux-gnu-g++: warning: '-pipe' ignored
lto1: warning: using serial compilation of 8 LTRANS jobs
/usr/bin/ld: warning: x.o: missing .note.GNU-stack section implies executable stack
/usr/bin/x86_64-linux-gnu-ld.gold: warning: cannot scan executable section
<command-line>: warning: "X" redefined
src/kernels/cuda/attention/attention.cu(12): warning #177-D: variable "x" was declared but never referenced
src/kernels/cuda/attention/attention.cu(12): warning: extended type
nvcc warning : The 'compute_50' architecture is deprecated
nvcc warning: incompatible redefinition for option 'std'
ptxas warning : Stack size for entry function 'f' cannot be statically determined
ptxas /tmp/tmpxft_1.ptx, line 8; warning : Unresolved extern variable
ptxas src/x.ptx, line 8; warning   : Potential Performance Loss
nvlink warning : Skipping incompatible 'x.a'
CMake Warning at CMakeLists.txt:3 (message):
CMake Deprecation Warning at CMakeLists.txt:1 (cmake_minimum_required):
END
while IFS= read -r line; do check good "$line"; done <<'END'
/usr/include/c++/12/bits/stl_algobase.h:431:30: warning: 'void* memcpy()' writing 1 [-Wstringop-overflow=]
[12/90] Building CXX object src/warning.cc.o
ptxas info    : Used 32 registers, 400 bytes cmem[0]
W0101 12:00:00.000000 1 server.cc:12] warning: this is a log of a test
tests/e2e/x.py: a warning: is expected here
END
exit $bad
