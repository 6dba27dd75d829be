#!/usr/bin/env bash
# Installs the Debian 12 / Ubuntu 24.04 packages that building and testing need and that are missing. Safe to run again:
# with everything there it changes nothing and asks for no rights.
set -euo pipefail

. /etc/os-release
case "${ID:-}:${VERSION_ID:-}" in
  debian:12) boost="libboost1.81-dev libboost-json1.81-dev" ;;
  *) boost="libboost-dev libboost-json-dev" ;;
esac
packages="g++ make cmake ninja-build ccache pkg-config protobuf-compiler libprotobuf-dev libssl-dev libabsl-dev $boost
  libfmt-dev libspdlog-dev libcli11-dev prometheus-cpp-dev libpcre2-dev libre2-dev libutf8proc-dev libxxhash-dev libyaml-dev libmimalloc-dev zlib1g-dev libnghttp2-dev libcurl4-openssl-dev libtomlplusplus-dev libsndfile1-dev libsoxr-dev libmpg123-dev libvorbis-dev libjpeg-dev libpng-dev libwebp-dev libgif-dev libgtest-dev libgmock-dev patchelf
  curl ca-certificates python3 python3-venv"

missing=""
for package in $packages; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "install ok installed" || missing="$missing $package"
done
if [ -z "$missing" ]; then
  echo "setup: all packages are there"
  exit 0
fi
echo "setup: installing with apt-get:$missing"
as_root=""
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "setup: not root and no sudo; install the packages above, then run again" >&2; exit 1; }
  as_root="sudo"
fi
$as_root apt-get update -qq
# shellcheck disable=SC2086  # a list of words
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
echo "setup: done"
