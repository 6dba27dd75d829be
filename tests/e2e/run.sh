#!/usr/bin/env bash
# End-to-end tests: serves models/quickstart with the built binary and talks to it with curl, requests and the openai
# package. NEREID_E2E_SLOW=1 (sanitizer builds) loosens times and skips the memory figure.  usage: run.sh BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "$1")
here=tests/e2e
work=$build/e2e
mkdir -p "$work"
. tools/skips.sh
begin_skips "$work/skips.txt"
export NEREID_CACHE_DIR=$work/cache

venv=build/e2e-venv
if ! cmp -s "$here/requirements.txt" "$venv/installed.txt"; then
  echo "e2e: installing the clients into $venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$venv/installed.txt"
fi
python=$venv/bin/python

# For dashboard.py. The package is unpacked, not installed: installing it would start it as a service.
prometheus=$(command -v prometheus || echo "$PWD/build/prometheus/usr/bin/prometheus")
if [ ! -x "$prometheus" ]; then
  echo "e2e: unpacking prometheus into build/prometheus"
  fresh=build/prometheus.new
  rm -rf "$fresh" && mkdir -p "$fresh"
  download() { (cd "$fresh" && apt-get download -qq -o APT::Sandbox::User=root prometheus >/dev/null); }
  download || { apt-get update -qq && download; }  # the list of packages may be missing or old
  dpkg-deb -x "$fresh"/prometheus_*.deb "$fresh"
  rm -rf "$fresh"/prometheus_*.deb build/prometheus && mv "$fresh" build/prometheus
fi

# The client over libgrpc++, of the distribution.
if [ ! -e /usr/include/grpcpp/grpcpp.h ]; then
  echo "e2e: installing libgrpc++-dev"
  install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libgrpc++-dev >/dev/null; }
  install || { apt-get update -qq && install; }
fi
if [ "$here/grpc_interop.cc" -nt "$work/grpc_interop" ]; then
  protoc -I proto --cpp_out="$work" proto/infer.proto
  "${CXX:-c++}" -std=c++17 -I "$work" "$here/grpc_interop.cc" "$work/infer.pb.cc" -o "$work/grpc_interop" \
    -lgrpc++ -lgrpc -lgpr -lprotobuf -labsl_synchronization
fi

# For page.py.
if [ -z "${NEREID_E2E_SLOW:-}" ] && ! { command -v chromium && command -v chromedriver; } >/dev/null; then
  echo "e2e: installing chromium"
  install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null; }
  install || { apt-get update -qq && install; } || echo "e2e: chromium cannot be installed"
fi

server=""
stop_server() {
  [ -n "$server" ] || return 0
  kill -TERM "$server" 2>/dev/null || true
  wait "$server" || { echo "e2e: the server ended with code $?" >&2; return 1; }
  server=""
}
trap 'code=$?; stop_server || code=1; [ $code = 0 ] || tail -n 40 "$work/server.log" >&2; exit $code' EXIT

rm -f "$work/ports"
"$build/bin/nereid" serve models/quickstart --host 127.0.0.1 --http-port 0 --grpc-port 0 --metrics-port 0 --max-beam-width 4 --lora upper=tests/adapters/upper --lora-load-dir tests/adapters --ollama --trust-request-chat-template \
  --port-file "$work/ports" >"$work/server.log" 2>&1 &
server=$!
for _ in $(seq 1200); do
  [ -s "$work/ports" ] && break
  kill -0 "$server" 2>/dev/null || { echo "e2e: the server ended early" >&2; exit 1; }
  sleep 0.1
done
export NEREID_URL=http://127.0.0.1:$(sed -n 's/^http=//p' "$work/ports")
export NEREID_METRICS_URL=http://127.0.0.1:$(sed -n 's/^metrics=//p' "$work/ports")

step() {
  echo "== e2e: $*"
  local begin=$SECONDS
  "$@"
  echo "== e2e: done in $((SECONDS - begin))s"
}
step "$here/routes.sh"
step "$python" "$here/kserve_client.py"
step "$python" "$here/openai_client.py"
step "$python" "$here/other_apis.py"
step "$python" "$here/agent_clients.py"
step "$python" "$here/structured_output.py"
step "$python" "$here/concurrency.py"
step python3 "$here/dashboard.py" "$prometheus" "$NEREID_METRICS_URL" "$NEREID_URL"
step python3 tests/docs/metrics.py "$NEREID_METRICS_URL"
step python3 tests/docs/errors.py
stop_server
step python3 "$here/conversion.py" "$build"
step python3 "$here/hub_layouts.py" "$build/bin/nereid"
step python3 "$here/hostile_files.py" "$build/bin/nereid"
step python3 "$here/robustness.py" "$build/bin/nereid"
step python3 "$here/hostile.py" "$build/bin/nereid"
if [ -n "${NEREID_E2E_SLOW:-}" ]; then
  skip short_of_memory "sanitizers map terabytes"
  skip "times and memory of hostile, robustness and lifecycle" "NEREID_E2E_SLOW is set"
  skip "page.py, instances.py, hosts.py, shell_pages.py, hub.py, chat.py, tutorials.py" "the release build runs them; unit tests have their code under sanitizers"
else
  step python3 "$here/short_of_memory.py" "$build"
  step "$python" "$here/page.py" "$build/bin/nereid" "$work"
  step env PATH="$build/bin:$PATH" python3 "$here/instances.py" "$build"
  step python3 "$here/hosts.py" "$build"
  step python3 "$here/shell_pages.py" "$build/bin/nereid"
  step python3 "$here/hub.py" "$build/bin/nereid"
  step python3 "$here/chat.py" "$build/bin/nereid"
  step "$python" tests/docs/tutorials.py "$build"
fi
step python3 "$here/pods.py" "$build/bin/nereid"
step "$python" "$here/key_limits.py" "$build/bin/nereid"
step "$python" "$here/reasoning.py" "$build/bin/nereid"
step "$python" "$here/tool_calls.py" "$build/bin/nereid"
step python3 "$here/scores.py" "$build/bin/nereid"
step "$python" "$here/speech.py" "$build/bin/nereid"
step "$python" "$here/pictures.py" "$build/bin/nereid"
step "$python" "$here/lifecycle.py" "$build/bin/nereid"
step "$python" "$here/grpc_client.py" "$build"
step "$python" "$here/grpc_interop.py" "$build" --also "$here/grpc_interop_grpclib.py" --also "$work/grpc_interop"
end_skips
echo "== e2e: all passed"
