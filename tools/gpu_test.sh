#!/usr/bin/env bash
# Tests a bundle on a machine with an NVIDIA GPU; nothing is built there and nothing but the driver has to be installed.
# usage: gpu_test.sh [BUNDLE_DIR]                  run (default: the bundle this script lies in, else build/bundle/nereid)
#        gpu_test.sh --pack BUILD CUDA_BUILD BUNDLE_DIR  add test programs, what they read and this script to a bundle
#        gpu_test.sh --programs host|cuda                the test programs of BUILD or CUDA_BUILD, which are CMake targets
# Environment: DEVICE (cuda:0), NEREID_CUBLASLT_DIR (folder of libcublasLt.so.N; searched for otherwise).
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

host_programs=(exec_test encoder_test exactness_test rank_worker)
cuda_programs=(gpu_kernels_test gpu_comm_test gpu_hang_test)

pack() {
  set -e
  local build=$1 cuda_build=$2 bundle=$3 program library name
  mkdir -p "$bundle/bin" "$bundle/lib" "$bundle/tools" "$bundle/tests" "$bundle/models"
  cp "$cuda_build/lib/libnereid_cuda.so" "$bundle/lib/"
  for program in "${cuda_programs[@]/#/$cuda_build/bin/}" "${host_programs[@]/#/$build/bin/}"; do
    cp "$program" "$bundle/bin/"
    strip --strip-unneeded "$bundle/bin/$(basename "$program")"
  done
  cp -r "$here"/../tests/{golden,models,heads,adapters,encoder_models,picture_models} "$bundle/tests/"
  cp -r "$here"/../models/quickstart* "$bundle/models/"
  cp "${BASH_SOURCE[0]}" "$bundle/tools/"
  # Libraries missing in the bundle, except glibc's own.
  ldd "$bundle"/bin/*_test "$bundle/lib/libnereid_cuda.so" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    while read -r library; do
      name=$(basename "$library")
      [[ $name =~ ^lib(c|m|dl|rt|pthread|resolv)\.so ]] || [ -e "$bundle/lib/$name" ] || cp -L "$library" "$bundle/lib/"
    done
  echo "gpu_test: packed $bundle, $(du -sm "$bundle" | cut -f1) MiB"
}

case "${1:-}:${2:-}" in
  --programs:host) echo "${host_programs[@]}"; exit ;;
  --programs:cuda) echo "${cuda_programs[@]}"; exit ;;
esac
if [ "${1:-}" = --pack ]; then
  [ $# -eq 4 ] || { echo "usage: gpu_test.sh --pack BUILD CUDA_BUILD BUNDLE_DIR" >&2; exit 2; }
  pack "$2" "$3" "$4"
  exit
fi

bundle=${1:-$here/..}
[ $# -gt 0 ] || [ -x "$bundle/bin/gpu_kernels_test" ] || bundle=$here/../build/bundle/nereid
if [ ! -x "$bundle/bin/gpu_kernels_test" ]; then
  echo "gpu_test: $bundle holds no bin/gpu_kernels_test; build with -DNEREID_CUDA=ON, then: make bundle;" \
    "tools/gpu_test.sh --pack BUILD CUDA_BUILD BUNDLE_DIR" >&2
  exit 2
fi
bundle=$(cd "$bundle" && pwd)
device=${DEVICE:-cuda:0}
model=$bundle/models/quickstart
golden=$bundle/tests/golden
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# cuBLASLt is too large for the bundle; toolkits and Python packages bring it.
find_cublaslt() {
  local directory
  for directory in "${NEREID_CUBLASLT_DIR:-}" "$bundle/lib" /usr/local/cuda/lib64 /usr/local/cuda/targets/x86_64-linux/lib \
    $(ldconfig -p 2>/dev/null | awk '/libcublasLt\.so\.13/ {print $NF}' | xargs -r -n 1 dirname) \
    $(python3 -c 'import sys; print(*(p + "/nvidia/cu13/lib" for p in sys.path if p))' 2>/dev/null); do
    if compgen -G "$directory/libcublasLt.so.1*" >/dev/null; then
      echo "$directory"
      return
    fi
  done
  timeout 30 find / -xdev -name 'libcublasLt.so.1*' -printf '%h\n' -quit 2>/dev/null
}
cublaslt=$(find_cublaslt)
# Not the bundle's libraries: its programs find them by themselves, and the system's tools must not.
export LD_LIBRARY_PATH="$cublaslt"

rows=()
failed=0
# step NAME LIMIT_SECONDS COMMAND...: runs a program (or a function, which keeps its own time) and notes the result.
step() {
  local name=$1 limit=$2 start=$SECONDS result=PASS
  shift 2
  echo "== $name"
  local code=0
  if declare -F "$1" >/dev/null; then "$@" 2>&1 || code=$?; else timeout "$limit" "$@" 2>&1 || code=$?; fi
  if [ "$code" -ne 0 ]; then
    result="FAIL (exit $code)"
    failed=1
  fi
  rows+=("$(printf '%-34s %-16s %4d s' "$name" "$result" $((SECONDS - start)))")
}
skip() { rows+=("$(printf '%-34s %s' "$1" "SKIP: $2")"); }

# Tests of whole models, which run on a CPU otherwise.
on_device=(env "NEREID_TEST_DEVICE=$device" "NEREID_SOURCE_DIR=$bundle" "TMPDIR=$work" "TEST_TMPDIR=$work"
  "LD_LIBRARY_PATH=$bundle/lib:$cublaslt")

# Values of the first golden prompt: its numbers of a list, with single spaces; the number of steps that are clear.
golden_list() { echo $(grep -o "\"$1\": \[[^]]*\]" "$golden/target.json" | head -n 1 | tr -cd '0-9 '); }
golden_clear() { grep -o '"clear_steps": [0-9]*' "$golden/target.json" | head -n 1 | tr -cd '0-9'; }

# The server's own path, sampler included: ids of the first golden prompt as far as they are clear.
generate_golden() {
  local prompt wanted clear got
  prompt=$(grep -o '"prompt": "[^"]*"' "$golden/target.json" | head -n 1 | cut -d '"' -f 4)
  wanted=$(golden_list greedy_ids)
  clear=$(golden_clear)
  got=$(timeout 120 "$bundle/bin/nereid" generate "$model" --device "$device" --cache-dir "$work/cache" --ids -n "$clear" -p "$prompt") ||
    return 1
  echo "prompt: $prompt"
  echo "wanted: $(echo $wanted | cut -d ' ' -f "1-$clear")"
  echo "got:    $(echo $got)"
  [ "$(echo $got)" = "$(echo $wanted | cut -d ' ' -f "1-$clear")" ]
}

# In use on the GPU; nothing where it cannot be asked.
gpu_megabytes() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i "${device#cuda:}" 2>/dev/null; }

# One server with models on the GPU, each within its budget: four requests to each at once give the golden ids.
# usage: serve_models NAMES TOKENS [PREFIX...], such as a sanitizer and its flags
serve_models() {
  local names=$1 tokens=$2 budget=$((1 << 30)) port=18000 repository=$work/repository log=$work/server.log
  local prompt wanted server process name i used count ready=no code=0 start=$(date +%s%N) clients=()
  shift 2
  count=$(wc -w <<<"$names")
  prompt=$(golden_list prompt_ids)
  wanted=$(golden_list greedy_ids | cut -d ' ' -f "1-$tokens")
  rm -rf "$repository"
  for name in $names; do
    mkdir -p "$repository/$name/1"
    cat >"$repository/$name/config.pbtxt" <<EOF
backend: "tensorrtllm"
max_batch_size: 8
input [ { name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] },
        { name: "input_lengths" data_type: TYPE_INT32 dims: [ 1 ] reshape: { shape: [ ] } },
        { name: "request_output_len" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "output_ids" data_type: TYPE_INT32 dims: [ -1, -1 ] } ]
parameters { key: "gpt_model_type" value { string_value: "inflight_fused_batching" } }
parameters { key: "gpt_model_path" value { string_value: "$model" } }
parameters { key: "device" value { string_value: "$device" } }
parameters { key: "memory_bytes" value { string_value: "$budget" } }
parameters { key: "exclude_input_in_output" value { string_value: "true" } }
EOF
  done
  rm -f "$work"/answer.*  # of an earlier run
  used=$(gpu_megabytes)
  "$@" "$bundle/bin/nereid" tritonserver --model-repository "$repository" --http-port $port --grpc-port 0 --metrics-port 0 >"$log" 2>&1 &
  server=$!
  for _ in $(seq 1200); do
    kill -0 $server 2>/dev/null || break
    if curl -sf -m 5 "http://127.0.0.1:$port/v2/health/ready" >/dev/null; then ready=yes && break; fi
    sleep 0.05
  done
  echo "ready: $ready after $((($(date +%s%N) - start) / 1000000)) ms"
  for i in 1 2 3 4; do
    for name in $names; do
      curl -s -m 100 "http://127.0.0.1:$port/v2/models/$name/generate" -o "$work/answer.$name.$i" \
        -d "{\"input_ids\": [${prompt// /,}], \"input_lengths\": $(wc -w <<<"$prompt"), \"request_output_len\": $tokens}" &
      clients+=($!)
    done
  done
  wait "${clients[@]}"
  [ -z "$used" ] || used=$(($(gpu_megabytes) - used))
  for process in /proc/[0-9]*; do  # the server itself: a sanitizer in front of it would end without it
    [ "$(readlink "$process/exe")" = "$bundle/bin/nereid" ] && grep -qF "$repository" "$process/cmdline" && kill -TERM "${process#/proc/}"
  done
  wait $server || code=$?
  for i in 1 2 3 4; do
    for name in $names; do
      grep -q "\"output_ids\":\[${wanted// /,}\]" "$work/answer.$name.$i" && continue
      echo "model $name, request $i: $(cat "$work/answer.$name.$i")"
      code=1
    done
  done
  if [ -n "$used" ]; then
    echo "4 requests to each of $count models; $used MB of the GPU in use for budgets of $((budget >> 20)) MB and the driver's context"
    # The context and the library's code are no part of a budget.
    [ "$used" -le $((count * (budget >> 20) + 1024)) ] || code=1
  else
    echo "4 requests to each of $count models; the budgets are not checked, as nvidia-smi does not tell what is in use"
  fi
  [ $code -eq 0 ] || tail -n 20 "$log"
  return $code
}

echo "gpu_test: $(date -u '+%Y-%m-%d %H:%M:%S UTC'), $bundle"
nvidia-smi --query-gpu=index,name,driver_version,memory.total --format=csv,noheader 2>/dev/null || echo "nvidia-smi is missing"
echo "cuBLASLt: ${cublaslt:-not found, our own products only}"

step "kernels against ref" 300 "$bundle/bin/gpu_kernels_test" "$device"
sanitizer=$({
  command -v compute-sanitizer
  ls /usr/local/cuda*/bin/compute-sanitizer /opt/nvidia/*/compute-sanitizer /opt/nvidia/*/*/compute-sanitizer
} 2>/dev/null | head -n 1)
if [ -n "$sanitizer" ]; then
  for tool in memcheck synccheck; do
    step "kernels under $tool" 420 "$sanitizer" --tool $tool --error-exitcode 9 --print-limit 5 \
      "$bundle/bin/gpu_kernels_test" "$device" --once
  done
  step "exchange under memcheck" 180 "$sanitizer" --tool memcheck --error-exitcode 9 --print-limit 5 \
    "$bundle/bin/gpu_comm_test" --once --ranks 0,0
else
  skip "kernels under memcheck, synccheck" "no compute-sanitizer"
fi
step "exchange between ranks" 300 "$bundle/bin/gpu_comm_test"
step "golden ids, logits, trees" 300 "${on_device[@]}" "$bundle/bin/exec_test" --gtest_filter='*Golden*:*TreeKernels.*'
# Processes that share a GPU wait for each other's turns: this is quicker in one than in several.
step "every feature, exact" 900 "${on_device[@]}" "$bundle/bin/exactness_test" --gtest_filter='-*OnRanks*'
step "encoder-decoder models, pictures" 300 "${on_device[@]}" "$bundle/bin/encoder_test" --gtest_filter='-*Ranks*:*Stages*'
# A rank on a GPU is a thread, and each has a GPU of its own.
cards=$(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null | wc -l)
rank_cells=""
[ "$cards" -lt 2 ] || rank_cells='*OnRanks*tp2_pp1_ep?:*OnRanks*tp1_pp2_ep?'
[ "$cards" -lt 4 ] || rank_cells+=':*OnRanks*tp4_pp1_ep?:*OnRanks*tp2_pp2_ep?'
if [ -n "$rank_cells" ]; then
  step "every model on ranks, exact" 600 "${on_device[@]}" "$bundle/bin/exactness_test" --gtest_filter="$rank_cells"
  # Adapters of encoder-decoder models want two ranks of two stages.
  step "encoders on ranks" 300 "${on_device[@]}" "$bundle/bin/encoder_test" \
    --gtest_filter="*Ranks*:*Stages*$([ "$cards" -ge 4 ] || echo '-EncoderAdapters.*')"
else
  skip "every model on ranks, exact" "$cards GPU"
fi
step "a kernel that spins" 60 "$bundle/bin/gpu_hang_test" "$device"
if [ -x "$bundle/bin/nereid" ]; then
  step "nereid generate, golden ids" 120 generate_golden
  step "nereid bench" 240 "$bundle/bin/nereid" bench "$model" --device "$device" --cache-dir "$work/cache" \
    --batch 1,16 --repeats 2
  if command -v curl >/dev/null; then
    step "two models on one GPU, served" 120 serve_models "one two" "$(golden_clear)"
    if [ -n "$sanitizer" ]; then
      step "the same under memcheck" 240 serve_models "one two" "$(golden_clear)" \
        "$sanitizer" --tool memcheck --error-exitcode 9 --print-limit 5
      # In clusters of 16 blocks synccheck misses waits that are there (tools/sanitizer_forms.cu).
      step "the same under synccheck" 240 serve_models "one two" "$(golden_clear)" \
        "$sanitizer" --tool synccheck --error-exitcode 9 --print-limit 5 \
        --kernel-name-exclude kernel_substring=cluster_kernel
      # racecheck needs seconds for a step.
      step "one model under racecheck" 240 serve_models one 4 \
        "$sanitizer" --tool racecheck --error-exitcode 9 --print-limit 5
    fi
  else
    skip "two models on one GPU, served" "no curl"
  fi
else
  skip "nereid generate, bench and serve" "no bin/nereid"
fi

echo
echo "gpu_test summary, $(date -u '+%Y-%m-%d %H:%M:%S UTC'), $device"
printf '%s\n' "${rows[@]}"
exit "$failed"
