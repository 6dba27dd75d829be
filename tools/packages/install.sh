#!/bin/sh
# Installs nereid from this folder, or removes it: PREFIX/lib/nereid has the program, PREFIX/bin/nereid is a link to it,
# PREFIX/share has man pages and completions.
# usage: install.sh [--prefix PREFIX] [--uninstall]     PREFIX: /usr/local, or ~/.local without root's rights
set -eu
umask 022
unset CDPATH
here=$(cd -- "$(dirname -- "$0")" && pwd)
prefix=/usr/local
[ "$(id -u)" = 0 ] || prefix=$HOME/.local
action=install
while [ $# -gt 0 ]; do
  case $1 in
    --prefix=*) prefix=${1#*=} ;;
    --prefix) [ $# -gt 1 ] || { echo "install.sh: --prefix needs a folder" >&2; exit 2; }; prefix=$2; shift ;;
    --uninstall) action=uninstall ;;
    *) echo "usage: install.sh [--prefix PREFIX] [--uninstall]" >&2; exit 2 ;;
  esac
  shift
done
case $prefix in /*) ;; *) prefix=$PWD/$prefix ;; esac
# The files of bin and share that an installation makes, one a line, below PREFIX: written first and removed last, so that
# an interrupted installation or removal can be repeated.
list=$prefix/lib/nereid/installed-files

remove_installed() {
  while IFS= read -r file; do
    case $file in *..*) ;; bin/* | share/*) rm -f -- "$prefix/$file" ;; esac
  done <"$list"
  find "$prefix/lib/nereid" -mindepth 1 -maxdepth 1 ! -name installed-files -exec rm -rf {} +
  rm -rf "$prefix/lib/nereid"
}

if [ "$action" = uninstall ]; then
  [ -f "$list" ] || { echo "install.sh: nereid is not installed in $prefix ($list is missing)" >&2; exit 1; }
  remove_installed
  echo "nereid is removed from $prefix; engines that it built are in ~/.cache/nereid"
  exit 0
fi

if [ -e "$prefix/lib/nereid" ] && ! rmdir "$prefix/lib/nereid" 2>/dev/null; then
  [ -f "$list" ] || { echo "install.sh: $prefix/lib/nereid is there and not from install.sh; remove it first" >&2; exit 1; }
  "$here/bin/nereid" --version >/dev/null || { echo "install.sh: $here/bin/nereid does not start; $prefix is as it was" >&2; exit 1; }
  remove_installed
fi
mkdir -p "$prefix/lib/nereid"
(cd "$here" && find bin share ! -type d) >"$list"
while IFS= read -r file; do
  mkdir -p "$prefix/$(dirname "$file")"
  cp -P --remove-destination "$here/$file" "$prefix/$file"
done <"$list"
cp -RP "$here/lib/nereid/." "$prefix/lib/nereid"
"$prefix/bin/nereid" --version >/dev/null || { echo "install.sh: $prefix/bin/nereid does not start" >&2; exit 1; }
echo "nereid is installed: $prefix/bin/nereid"
case :$PATH: in *:$prefix/bin:*) ;; *) echo "add it to PATH: export PATH=$prefix/bin:\$PATH" ;; esac
