#!/usr/bin/env bash
# Makes the download forms twice and compares them, then forms.py installs each in a bare root and asks the model for an
# answer. Needs root's rights; the roots (Debian 12, the same with Python and with systemd, Debian 13, Ubuntu 24.04) come
# from debootstrap and stay in NEREID_TEST_ROOTS, build/roots by default.  usage: run.sh BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$1
work=build/packages-test
roots=${NEREID_TEST_ROOTS:-build/roots}
mkdir -p "$work" "$roots"
. tools/skips.sh
begin_skips "$work/skips.txt"

tools/packages.sh "$build" build/packages
(umask 077 && tools/packages.sh "$build" "$work/again" >/dev/null)
diff build/packages/SHA256SUMS "$work/again/SHA256SUMS" || { echo "packages: two runs differ" >&2; exit 1; }
rm -rf "$work/again"
(cd build/packages && sha256sum --quiet -c SHA256SUMS)
echo "packages: two runs give the same bytes"

# What the distributions' own checkers say. tools/packages/lintian-overrides has the reasons of what is not followed.
install_here() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }
if ! command -v lintian >/dev/null; then
  install_here lintian || { apt-get update -qq && install_here lintian; } || true
fi
if command -v lintian >/dev/null; then
  lintian --no-cfg --fail-on error --fail-on warning build/packages/nereid_*.deb
  echo "packages: lintian has no finding"
else
  skip "lintian" "cannot be installed"
fi
venv=build/packages-venv
if ! cmp -s tests/packages/requirements.txt "$venv/installed.txt"; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check -r tests/packages/requirements.txt
  cp tests/packages/requirements.txt "$venv/installed.txt"
fi
"$venv/bin/hadolint" tools/packages/Dockerfile
echo "packages: hadolint has no finding"
wheel=$(echo build/packages/nereid-*.whl)
tag=${wheel##*-}
shown=$("$venv/bin/auditwheel" show "$wheel" | tr '\n' ' ')
[[ $shown == *"following platform tag: \"${tag%.whl}\""* ]] ||
  { echo "packages: auditwheel finds another tag than ${tag%.whl}" >&2; exit 1; }
echo "packages: auditwheel agrees with ${tag%.whl}"

command -v debootstrap >/dev/null || install_here debootstrap || { apt-get update -qq && install_here debootstrap; }

# A system with nothing but apt, from debootstrap's own mirror of the distribution.
bare_root() { # NAME SUITE [SCRIPT KEYRING]
  local root=$roots/$1
  [ -d "$root" ] && return
  [ -z "${4:-}" ] || [ -f "$4" ] || return 1
  rm -rf "$root.new"
  debootstrap --variant=minbase --force-check-gpg ${4:+"--keyring=$4"} "$2" "$root.new" "" ${3:+"$3"} >"$work/$1.log" 2>&1 || return 1
  mv "$root.new" "$root"
}
# Debian 12 with more packages.
more_root() { # NAME PACKAGES
  local root=$roots/$1
  [ -d "$root" ] && return
  rm -rf "$root.new"
  cp -a "$roots/debian" "$root.new"
  cp /etc/resolv.conf "$root.new/etc/"
  chroot "$root.new" sh -ec "apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $2" \
    >"$work/$1.log" 2>&1 || return 1
  mv "$root.new" "$root"
}
bare_root debian bookworm || skip "packages in a bare root" "debootstrap got no Debian 12: $work/debian.log"
bare_root debian13 trixie || skip "the .deb in Debian 13" "debootstrap got none: $work/debian13.log"
ubuntu_keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg
bare_root ubuntu noble gutsy $ubuntu_keys ||
  skip "the .deb in Ubuntu 24.04" "no $ubuntu_keys, or debootstrap got none: $work/ubuntu.log"
if [ -d "$roots/debian" ]; then
  more_root debian-python python3-venv || skip "the wheel" "no python3-venv: $work/debian-python.log"
  more_root debian-systemd "systemd systemd-sysv" || skip "the service" "no systemd: $work/debian-systemd.log"
fi
command -v systemd-nspawn >/dev/null || install_here systemd-container || skip "the service" "no systemd-nspawn"

python3 tests/packages/forms.py build/packages "$roots" "$work"
end_skips
