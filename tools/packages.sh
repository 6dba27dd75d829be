#!/usr/bin/env bash
# Makes the download forms from a release build: a tar with install.sh, a .deb, a wheel, an OCI image; SBOM, checksums.
# With libnereid_cuda.so in CUDA_BUILD_DIR also the wheel nereid-cuda and an image with it. The same commit and build
# give the same bytes; SOURCE_DATE_EPOCH is the commit's time unless it is set.
# usage: packages.sh BUILD_DIR OUT_DIR [CUDA_BUILD_DIR]
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
out=$2
cuda_build=${3:-build/cuda-release}
here=tools/packages
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH LC_ALL=C
maintainer="nereid maintainers <maintainers@nereid.example>"
umask 022
unset NEREID_BUNDLE_CUBLASLT

if [ -n "$(find "$out" ! -type d -print -quit 2>/dev/null)" ] && ! grep -qs ' nereid-.*json$' "$out/SHA256SUMS" &&
  [ -z "$(compgen -G "$out/work/nereid-*")" ]; then
  echo "packages: $out has files and they are not of this script; remove it or name another folder" >&2
  exit 1
fi
rm -rf "$out"
mkdir -p "$out"
work=$out/work
version=$("$build/bin/nereid" --version | cut -d' ' -f2)
name=nereid-$version-linux-x86_64

# Everything below the prefix: lib/nereid has the bundle, bin/nereid is a link.
stage=$work/$name
bundled=$(tools/bundle.sh "$build" "$stage/lib/nereid" /nowhere)
echo "$bundled"
glibc=$(sed -n 's/.*needs GLIBC_\([0-9.]*\).*/\1/p' <<<"$bundled")
find "$stage" -name __pycache__ -prune -exec rm -r {} +
mkdir -p "$stage"/{bin,share/man/man1,share/bash-completion/completions,share/zsh/site-functions,share/fish/vendor_completions.d}
ln -s ../lib/nereid/bin/nereid "$stage/bin/nereid"
nereid=$stage/bin/nereid
"$nereid" man >"$stage/share/man/man1/nereid.1"
for command in $(sed -n 's/^\.BR nereid-\(.*\) (1),*$/\1/p' "$stage/share/man/man1/nereid.1" | tr -d '\\'); do
  "$nereid" man "$command" >"$stage/share/man/man1/nereid-$command.1"
done
gzip -9n "$stage"/share/man/man1/*
"$nereid" completions bash >"$stage/share/bash-completion/completions/nereid"
"$nereid" completions zsh >"$stage/share/zsh/site-functions/_nereid"
"$nereid" completions fish >"$stage/share/fish/vendor_completions.d/nereid.fish"
python3 $here/sbom.py "$stage/lib/nereid" "$version" "$out/nereid-$version.spdx.json" "$stage/lib/nereid/NOTICES"

# Modes and times that do not depend on umask and day.
settle() { # FOLDER
  chmod -R u=rwX,go=rX "$1"
  find "$1" -name '*.so*' -type f -exec chmod 644 {} +
  find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

make_tar() {
  cp $here/install.sh "$stage/"
  settle "$stage"
  tar -C "$work" --format=gnu --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -c "$name" |
    gzip -n >"$out/$name.tar.gz"
  rm "$stage/install.sh"
}

make_deb() {
  local deb=$work/deb doc=$work/deb/usr/share/doc/nereid kib
  mkdir -p "$deb"/{DEBIAN,etc/default,lib/systemd/system} "$deb/usr/share/lintian/overrides" "$deb/usr/share/zsh"
  cp -RP "$stage"/{bin,lib,share} "$deb/usr/"
  mv "$deb/usr/share/zsh/site-functions" "$deb/usr/share/zsh/vendor-completions"
  mkdir -p "$doc"
  { cat $here/copyright; cat "$stage/lib/nereid/NOTICES"; } >"$doc/copyright"
  rm "$deb/usr/lib/nereid/NOTICES" "$deb/usr/lib/nereid/LICENSE"
  printf 'nereid (%s) unstable; urgency=medium\n\n  * Release %s; CHANGELOG.md has what changed.\n\n -- %s  %s\n' "$version" "$version" \
    "$maintainer" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.gz"
  cp docs/security.md "$doc/"
  cp $here/nereid.default "$deb/etc/default/nereid"
  cp $here/nereid.{service,socket} "$deb/lib/systemd/system/"
  cp $here/lintian-overrides "$deb/usr/share/lintian/overrides/nereid"
  echo /etc/default/nereid >"$deb/DEBIAN/conffiles"
  # As dpkg-gencontrol counts: files in KiB, rounded up, and 1 KiB for each folder and link.
  kib=$(find "$deb" -path "$deb/DEBIAN" -prune -o -type f -printf '%s\n' -o -printf '1\n' | awk '{kib += int(($1 + 1023) / 1024)} END {print kib}')
  sed "s/@VERSION@/$version/; s/@GLIBC@/$glibc/; s/@MAINTAINER@/$maintainer/; s/@KIB@/$kib/" \
    $here/control >"$deb/DEBIAN/control"
  cp $here/{postinst,prerm,postrm} "$deb/DEBIAN/"
  (cd "$deb" && find usr lib -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
  settle "$deb"
  dpkg-deb --root-owner-group -Zxz --build "$deb" "$out/nereid_${version}_amd64.deb" >/dev/null
}

# Wheels have no links: the environment's bin/nereid is a script.
make_wheel() {
  local wheel=$work/wheel tag=manylinux_${glibc/./_}_x86_64
  mkdir -p "$wheel/scripts" "$wheel/data"
  cp -RP "$stage"/{lib,share} "$wheel/data/"
  find "$wheel/data" -type l -delete
  cp $here/wheel_launcher.sh "$wheel/scripts/nereid"
  settle "$wheel"
  python3 $here/wheel.py "$wheel" nereid "$version" "$tag" "$out"
}

make_cuda() {
  local gpu=$work/cuda-bundle wheel=$work/cuda-wheel
  tools/bundle.sh "$build" "$gpu" "$cuda_build"
  mkdir -p "$wheel/data/lib/nereid/lib"
  for library in "$gpu"/lib/*; do
    [ -e "$stage/lib/nereid/lib/$(basename "$library")" ] || cp "$library" "$wheel/data/lib/nereid/lib/"
  done
  settle "$wheel"
  python3 $here/wheel.py "$wheel" nereid-cuda "$version" "manylinux_${glibc/./_}_x86_64" "$out" "nereid==$version"
  make_image "$gpu" nereid-cuda
}

make_image() { # BUNDLE NAME
  tools/image.sh "$1" "$version" "$work/$2-image"
  cp "$work/$2-image/spdx.json" "$out/$2-$version-image.spdx.json"
  tar -C "$work/$2-image/oci" --format=gnu --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
    --mode=u=rwX,go=rX -cf "$out/$2-$version-image.tar" .
}

make_tar
make_deb
make_wheel
make_image "$stage/lib/nereid" nereid
mkdir "$out/image"
mv "$work/nereid-image/layer.tar.gz" "$out/image/"
[ ! -f "$cuda_build/lib/libnereid_cuda.so" ] || make_cuda
(cd "$out" && sha256sum -- *.tar.gz image/*.tar.gz *.deb *.whl *.tar *.json >SHA256SUMS)
rm -rf "$work"
(cd "$out" && ls -l -- *.tar.gz *.deb *.whl *.tar image/* | awk '{printf "packages: %5.1f MiB  %s\n", $5 / 1048576, $9}')
