#!/usr/bin/env bash
# A compiler for another processor is refused at configure time, by name and with what to do; the one of x86-64 is not.
# Another processor is a compiler without x86-64's macro, and g++-aarch64-linux-gnu where it is installed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(architecture LANGUAGES CXX)
include($here/architecture.cmake)
END

check() { # good or bad, and words for cmake
  local wanted=$1 result=good
  shift
  rm -rf "$work/build"
  cmake -S "$work" -B "$work/build" "$@" >"$work/log" 2>&1 || result=bad
  [ $result = "$wanted" ] || { echo "architecture_test: cmake $* is $result, should be $wanted" >&2; cat "$work/log" >&2; exit 1; }
  [ $result = good ] && return
  text=$(tr -s ' \n' ' ' <"$work/log")
  for part in "nereid builds for 64-bit x86 only" "What to do: build on an x86-64 machine"; do
    [[ $text == *"$part"* ]] || { echo "architecture_test: cmake $*: no '$part' in" >&2; cat "$work/log" >&2; exit 1; }
  done
}
check good
check bad "-DCMAKE_CXX_FLAGS=-U__x86_64__"
check bad "-DCMAKE_CXX_FLAGS=-D__ILP32__=1"
if command -v aarch64-linux-gnu-g++ >/dev/null; then
  check bad -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++
fi
