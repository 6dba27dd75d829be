#!/usr/bin/env bash
# Fails when a file under src/ includes a folder that its own folder does not name as DEPS (tests: or TEST_DEPS) in CMake.
# usage: check_layers.sh BUILD_DIR/layers.txt [SOURCE_DIR]
set -euo pipefail
layers=$1
source_dir=${2:-$(cd "$(dirname "$0")/.." && pwd)}

find "$source_dir/src" \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) -printf '%P\n' | sort |
awk -v layers="$layers" -v root="$source_dir/src/" '
  BEGIN {
    while ((getline line < layers) > 0) {
      split(line, halves, /[:|]/)
      folder = halves[1]
      known[folder] = 1
      n = split(halves[2], deps, /[ ;]+/)
      for (i = 1; i <= n; i++) if (deps[i] != "") allowed[folder, deps[i]] = 1
      n = split(halves[3], deps, /[ ;]+/)
      for (i = 1; i <= n; i++) if (deps[i] != "") tests_only[folder, deps[i]] = 1
    }
  }
  # The longest known folder that is a prefix of the path.
  function home(path,   dir) {
    dir = path
    while (sub(/\/[^\/]*$/, "", dir)) if (dir in known) return dir
    return ""
  }
  {
    file = $0
    mine = home(file)
    if (mine == "") { print "check_layers: " file " belongs to no library"; bad = 1; next }
    is_test = file ~ /_(test\.cc|fixture\.h)$|\/testing\//
    while ((getline line < (root file)) > 0) {
      if (line !~ /^#include "/) continue
      sub(/^#include "/, "", line); sub(/".*/, "", line)
      theirs = home(line)
      if (theirs == "" || theirs == mine || (mine, theirs) in allowed) continue
      if (is_test && (mine, theirs) in tests_only) continue
      print "check_layers: src/" file " includes \"" line "\": " mine " does not name " theirs " in DEPS"
      bad = 1
    }
    close(root file)
    count++
  }
  END { if (bad) exit 1; print "check_layers: " count " files, every include follows an arrow" }'
