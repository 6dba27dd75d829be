#!/usr/bin/env bash
# Makes a relocatable folder: the binary, its backends, libnereid_cuda.so when it was built, and every third-party shared
# library they need except glibc and the NVIDIA driver. Everything is found through $ORIGIN. cuBLASLt (540 MB) is opened
# when the system has it and does without otherwise; NEREID_BUNDLE_CUBLASLT=/path/libcublasLt.so.13 puts it in.
# usage: bundle.sh BUILD_DIR TARGET_DIR [CUDA_BUILD_DIR]
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
target=$2
cuda_build=${3:-build/cuda-release}

if [ -n "$(find "$target" ! -type d -print -quit 2>/dev/null)" ] && ! { [ -f "$target/bin/nereid" ] && [ -d "$target/backends" ]; }; then
  echo "bundle: $target has files and is not a bundle; remove it or name another folder" >&2
  exit 1
fi
rm -rf "$target"
mkdir -p "$target/bin" "$target/lib" "$target/backends"
cp "$build/bin/nereid" "$target/bin/"
cp -L "$build/lib/libtritonserver.so" "$target/lib/"
cp -r "$build/backends/." "$target/backends"
# Triton's tools under their names, templates and clients.
for name in convert_checkpoint trtllm-build fill_template hf_lora_convert launch_triton_server tritonserver trtllm-serve trtllm-bench trtllm-llmapi-launch prepare_dataset; do
  ln -sf nereid "$target/bin/$name"
done
sources=(LICENSE models/quickstart all_models scripts inflight_batcher_llm python tools/fill_template.py tools/inflight_batcher_llm
  examples/hf_lora_convert.py examples/llama examples/models docs/migrate-from-triton.md)
if git ls-files --error-unmatch LICENSE >/dev/null 2>&1; then # a checkout may have other files, a release's tar has none
  git ls-files -z -- "${sources[@]}" | xargs -0 cp -P --parents -t "$target"
else
  cp -r --parents -t "$target" "${sources[@]}"
fi
[ -f "$cuda_build/lib/libnereid_cuda.so" ] && cp "$cuda_build/lib/libnereid_cuda.so" "$target/lib/"
[ -n "${NEREID_BUNDLE_CUBLASLT:-}" ] && cp -L "$NEREID_BUNDLE_CUBLASLT" "$target/lib/"

# The program opens libcurl by its name when it downloads a model.
curl=$(ldconfig -p | awk '$1 == "libcurl.so.4" && /x86-64/ && !found++ {print $NF}')
[ -n "$curl" ] || { echo "bundle: no libcurl.so.4 on this machine (apt-get install libcurl4)" >&2; exit 1; }
cp -L "$curl" "$target/lib/"

# Libraries of every system with glibc, and those of the driver.
skip='^(ld-linux.*|linux-vdso.*|lib(c|m|dl|rt|pthread|resolv|util|mvec|anl|nsl|thread_db|cuda|nvidia-.*))\.so'
find "$target" -type f \( -name nereid -o -name '*.so*' \) -print0 | xargs -0 ldd 2>/dev/null |
  awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
  while read -r library; do
    name=$(basename "$library")
    [[ $name =~ $skip ]] || [[ $library == *"/$target/"* ]] || [ -e "$target/lib/$name" ] || cp -L "$library" "$target/lib/$name"
  done
find "$target" -type f \( -name nereid -o -name '*.so*' \) -exec strip --strip-unneeded {} + 2>/dev/null || true
# No file names libcurl as needed, so checkers of wheels look at it alone: its libraries are those beside it.
patchelf --force-rpath --set-rpath '$ORIGIN' "$target/lib/libcurl.so.4"

missing=$(cd "$target" && find . -type f \( -name nereid -o -name '*.so*' \) -print0 | LD_LIBRARY_PATH="$PWD/lib" xargs -0 ldd 2>/dev/null | grep 'not found' | grep -v libcublasLt | sort -u || true)
if [ -n "$missing" ]; then
  echo "bundle: missing libraries:" >&2
  echo "$missing" >&2
  exit 1
fi
# The newest version of glibc that a file needs, and that file.
newest=$(find "$target" -type f \( -name nereid -o -name '*.so*' \) -exec objdump -T {} + 2>/dev/null |
  awk '/file format/ {sub(/:$/, "", $1); sub(/.*\//, "", $1); file = $1}
       match($0, /GLIBC_2\.[0-9]+/) {version = substr($0, RSTART + 8, RLENGTH - 8) + 0; if (version > last) {last = version; by = file}}
       END {print "GLIBC_2." last " or newer (" by ")"}')
echo "bundle: $target, $(du -sm "$target" | cut -f1) MiB, needs $newest"
