# For scripts that run tests: skip WHAT REASON notes what this machine cannot run; begin_skips and end_skips stand around
# the tests and print all notes of theirs at the end. With NEREID_SKIPS set by a caller, the caller's list gets them too.

skip() {
  echo "SKIP $1: $2"
  [ -z "${NEREID_SKIPS:-}" ] || echo "SKIP $1: $2" >>"$NEREID_SKIPS"
}

# usage: begin_skips FILE
begin_skips() {
  skips_of_caller=${NEREID_SKIPS:-}
  export NEREID_SKIPS=$1
  : >"$NEREID_SKIPS"
}

end_skips() {
  echo "=== $(wc -l <"$NEREID_SKIPS") skipped"
  cat "$NEREID_SKIPS"
  [ -z "$skips_of_caller" ] || cat "$NEREID_SKIPS" >>"$skips_of_caller"
}
