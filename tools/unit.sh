#!/usr/bin/env bash
# The unit tests of a build directory. Skipped tests, with the reason, and failed ones are listed at
# the end, where a long log is read first.
# usage: unit.sh BUILD [options of ctest]
set -euo pipefail
. "$(dirname "$0")/skips.sh"
log=$1/Testing/Temporary/LastTest.log
begin_skips "$1/skips.txt"
export NEREID_FSYNC=0  # no flush of the thousands of files that tests write
failed=0
ctest --test-dir "$1" -j 2 --output-on-failure "${@:2}" || failed=1
# A reason is the line after "file:line: Skipped"; tests of one reason are counted together.
while read -r count reason; do echo "SKIP $count unit tests: $reason" >>"$NEREID_SKIPS"; done < <(
  grep -hE -A 1 ':[0-9]+: Skipped$' "$log" | grep -vE ':[0-9]+: Skipped$|^--$' | sed "s/^'[^']*' //" | sort | uniq -c | sort -rn)
end_skips
[ $failed = 1 ] || exit 0
echo "=== from $log:"
grep -hE -A 6 ': Failure$|^\[  FAILED  \]|ERROR: |WARNING: ThreadSanitizer|runtime error:' "$log" | tail -60
exit 1
