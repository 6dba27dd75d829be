#!/usr/bin/env bash
# Unit and end-to-end tests under a sanitizer.  usage: sanitize.sh address|thread
set -euo pipefail
cd "$(dirname "$0")/.."
case "$1" in
  address) preset=asan ;;
  thread) preset=tsan ;;
  *) echo "usage: sanitize.sh address|thread" >&2; exit 2 ;;
esac
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tools/tsan.supp
export NEREID_EXACTNESS=quick
cmake --preset "$preset"
cmake --build "build/$preset"
ctest --test-dir "build/$preset" --output-on-failure
NEREID_E2E_SLOW=1 tests/e2e/run.sh "build/$preset"
