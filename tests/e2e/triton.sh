#!/usr/bin/env bash
# Triton's users end to end: the commands of docs/migrate-from-triton.md as they stand there, the unmodified clients of
# Triton (tritonclient, perf_analyzer, genai-perf, curl, gRPC reflection) and the scenarios of the TensorRT-LLM backend's
# CI, against the quick-start model.  usage: triton.sh BUILD_DIR [SCENARIO...]
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "$1")
here=tests/e2e

venv=$PWD/build/triton-venv
if ! cmp -s "$here/requirements-triton.txt" "$venv/installed.txt"; then
  echo "e2e: installing Triton's clients into $venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check genai-perf==0.0.8
  # genai-perf brings an empty package of the same name as the real binary of tritonclient.
  "$venv/bin/pip" uninstall --quiet --yes perf_analyzer tritonclient >/dev/null 2>&1 || true
  "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check -r "$here/requirements-triton.txt"
  "$venv/bin/pip" uninstall --quiet --yes perf_analyzer >/dev/null 2>&1 || true
  "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check --force-reinstall --no-deps tritonclient==2.49.0
  chmod +x "$venv/bin/perf_analyzer"
  cp "$here/requirements-triton.txt" "$venv/installed.txt"
fi
if ! ldconfig -p | grep -q libb64; then
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libb64-0d >/dev/null
fi

# For launched.py.
command -v mpirun >/dev/null ||
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openmpi-bin >/dev/null 2>&1 || true

site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
export PATH="$build/bin:$venv/bin:$PATH" HF_HUB_OFFLINE=1 NEREID="$build/bin/nereid"
export LD_LIBRARY_PATH="$site/nvidia/cuda_runtime/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export NEREID_CACHE_DIR=$build/e2e/cache

# The walk-through uses Triton's ports and stops servers by name: in a network and process space of its own where the
# system lets us have one.
own=()
. tools/skips.sh
mkdir -p "$build/e2e"
begin_skips "$build/e2e/triton_skips.txt"
# bash stays as the first process there: it collects servers that end after their starters.
inside='ip link set lo up 2>/dev/null || true; "$0" "$@"; exit $?'
if unshare -n -p -f --mount-proc true 2>/dev/null; then
  own=(unshare -n -p -f --mount-proc --kill-child)
else
  skip "namespaces of their own for servers on Triton's ports" "unshare -n -p is not permitted"
fi
"${own[@]}" bash -c "$inside" \
  "$venv/bin/python" "$here/triton_walkthrough.py" "$build"
"${own[@]}" bash -c "$inside" \
  "$venv/bin/python" "$here/triton_scenarios.py" "$build" "${@:2}"
"${own[@]}" bash -c "$inside" \
  "$venv/bin/python" "$here/launched.py" "$build"
if [ ${#own[@]} -gt 0 ]; then
  "${own[@]}" bash -c "$inside" \
    "$venv/bin/python" "$here/seed_commands.py" "$build" multi-model "python3 python/openai" latency
else
  skip "seed_commands.py" "it stops servers by name, and has no namespaces of its own"
fi
end_skips
echo "== e2e: Triton: all passed"
