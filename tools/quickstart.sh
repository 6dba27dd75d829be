#!/usr/bin/env bash
# Serves models/quickstart once: waits for ready, sends a generate request and a streamed chat request, shows both
# replies, stops the server and prints the command that starts it for good.  usage: quickstart.sh BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/.."
nereid=$1/bin/nereid
log=$(mktemp)
ports=$(mktemp)

"$nereid" serve models/quickstart --host 127.0.0.1 --http-port 0 --metrics-port 0 --port-file "$ports" >"$log" 2>&1 &
server=$!
stop() {
  kill -TERM "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  rm -f "$log" "$ports"
}
trap stop EXIT

for _ in $(seq 300); do
  if ! kill -0 "$server" 2>/dev/null; then
    echo "quickstart: the server ended early:" >&2
    cat "$log" >&2
    exit 1
  fi
  http=$(sed -n 's/^http=//p' "$ports")
  [ -n "$http" ] && curl -fs "http://127.0.0.1:$http/v2/health/ready" >/dev/null && break
  sleep 0.1
done
curl -fsS "http://127.0.0.1:$http/v2/health/ready" >/dev/null
base=http://127.0.0.1:$http

echo
echo "== Triton generate request: POST /v2/models/ensemble/generate"
curl -fsS "$base/v2/models/ensemble/generate" \
  -d '{"text_input": "What is machine learning?", "max_tokens": 32, "bad_words": "", "stop_words": ""}'
echo
echo
echo "== OpenAI chat request, streamed: POST /v1/chat/completions"
curl -fsSN "$base/v1/chat/completions" -H 'Content-Type: application/json' \
  -d '{"model": "quickstart", "stream": true, "max_tokens": 32, "messages": [{"role": "user", "content": "What is the capital of France?"}]}'
echo "== Both answered. To start the server for good:"
echo
echo "    $nereid serve models/quickstart"
echo
