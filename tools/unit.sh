#!/usr/bin/env bash
# The unit tests of a build directory. Says what failed again at the end, where a long log is read first.
# usage: unit.sh BUILD [options of ctest]
set -euo pipefail
ctest --test-dir "$1" -j 2 --output-on-failure "${@:2}" && exit
echo "=== from $1/Testing/Temporary/LastTest.log:"
grep -hE -A 6 ': Failure$|^\[  FAILED  \]|ERROR: |WARNING: ThreadSanitizer|runtime error:' \
  "$1/Testing/Temporary/LastTest.log" | tail -60
exit 1
