#!/usr/bin/env bash
# Makes an OCI image of a bundle, without a daemon: one layer of the bundle and this machine's glibc, no shell.
# OUT_DIR/layer.tar.gz is that layer (for tools/packages/Dockerfile), OUT_DIR/oci the image's layout, OUT_DIR/spdx.json its
# SBOM. The image has the notices of its libraries, glibc's too, in /usr/lib/nereid/NOTICES.
# `tar -C OUT_DIR/oci -c . | podman load` takes it. SOURCE_DATE_EPOCH is the time of every file.
# usage: image.sh BUNDLE_DIR VERSION OUT_DIR
set -euo pipefail
bundle=$1
version=$2
out=$3
: "${SOURCE_DATE_EPOCH:?}"
user=65532
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
umask 022

root=$out/rootfs
if [ -n "$(find "$out" ! -type d -print -quit 2>/dev/null)" ] && [ ! -d "$root/usr/lib/nereid" ] && [ ! -f "$out/oci/oci-layout" ]; then
  echo "image: $out has files and is not an image of this script; remove it or name another folder" >&2
  exit 1
fi
rm -rf "$out"
mkdir -p "$root"/{etc,lib/x86_64-linux-gnu,lib64,tmp,usr/bin,usr/lib,var/cache/nereid} "$out/oci/blobs/sha256"
cp -RP "$bundle" "$root/usr/lib/nereid"
ln -s ../lib/nereid/bin/nereid "$root/usr/bin/nereid"
# What the bundle leaves to the system; the last four are for the driver's libraries and for names of hosts.
libraries=(/lib/x86_64-linux-gnu/{libc.so.6,libm.so.6,libdl.so.2,libpthread.so.0,librt.so.1,libresolv.so.2})
loader=/lib64/ld-linux-x86-64.so.2
cp -L "${libraries[@]}" "$root/lib/x86_64-linux-gnu/"
cp -L "$loader" "$root/lib64/"
python3 "$(dirname "$0")/packages/sbom.py" "$bundle" "$version" "$out/spdx.json" "$root/usr/lib/nereid/NOTICES" "${libraries[@]}" "$loader"
echo "root:x:0:0:root:/root:/sbin/nologin
nereid:x:$user:$user:nereid:/var/cache/nereid:/sbin/nologin" >"$root/etc/passwd"
echo "root:x:0:
nereid:x:$user:" >"$root/etc/group"
echo "hosts: files dns" >"$root/etc/nsswitch.conf"
# Certificates for downloads of models, of Debian's ca-certificates.
mkdir -p "$root/etc/ssl/certs"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
chmod -R u=rwX,go=rX "$root"
chmod 1777 "$root/tmp"

pack() { tar -C "$root" --format=gnu --sort=name --mtime="@$SOURCE_DATE_EPOCH" --numeric-owner "$@"; }
pack --owner=0 --group=0 --exclude=./var/cache/nereid -cf "$out/layer.tar" .
pack --owner=$user --group=$user -rf "$out/layer.tar" ./var/cache/nereid
diff_id=$(sha256sum <"$out/layer.tar" | cut -d' ' -f1)
gzip -n "$out/layer.tar"

# Moves a file to the blobs; prints its descriptor.
blob() { # FILE MEDIA_TYPE
  local digest
  digest=$(sha256sum <"$1" | cut -d' ' -f1)
  cp "$1" "$out/oci/blobs/sha256/$digest"
  printf '{"mediaType":"application/vnd.oci.image.%s","digest":"sha256:%s","size":%s}' "$2" "$digest" "$(stat -c %s "$1")"
}
layer=$(blob "$out/layer.tar.gz" layer.v1.tar+gzip)
cat >"$out/config.json" <<JSON
{"created":"$created","architecture":"amd64","os":"linux","config":{"User":"$user:$user","WorkingDir":"/var/cache/nereid",
"Env":["PATH=/usr/bin","NEREID_CACHE_DIR=/var/cache/nereid","NVIDIA_VISIBLE_DEVICES=all","NVIDIA_DRIVER_CAPABILITIES=compute,utility"],
"Entrypoint":["/usr/bin/nereid"],"Cmd":["serve","/usr/lib/nereid/models/quickstart","--host","0.0.0.0"],
"ExposedPorts":{"8000/tcp":{},"8001/tcp":{},"8002/tcp":{}},"Volumes":{"/var/cache/nereid":{}},
"Labels":{"org.opencontainers.image.title":"nereid","org.opencontainers.image.version":"$version","org.opencontainers.image.licenses":"Apache-2.0"}},
"rootfs":{"type":"layers","diff_ids":["sha256:$diff_id"]},"history":[{"created":"$created","created_by":"tools/image.sh"}]}
JSON
config=$(blob "$out/config.json" config.v1+json)
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":%s,"layers":[%s]}' "$config" "$layer" >"$out/manifest.json"
manifest=$(blob "$out/manifest.json" manifest.v1+json)
printf '{"schemaVersion":2,"manifests":[%s]}' "${manifest%\}},\"annotations\":{\"org.opencontainers.image.ref.name\":\"nereid:$version\",\"io.containerd.image.name\":\"docker.io/library/nereid:$version\"}}" >"$out/oci/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' >"$out/oci/oci-layout"
rm -rf "$root" "$out/config.json" "$out/manifest.json"
echo "image: $out/oci, layer $(($(stat -c %s "$out/layer.tar.gz") >> 20)) MiB compressed"
