#!/usr/bin/env bash
# Serves models/quickstart once: waits for ready, sends a generate request and a streamed chat request, shows both
# replies, stops the server and prints the command that starts it for good. With --plan it says what `make quickstart`
# is going to do.  usage: quickstart.sh [--plan] BUILD_DIR
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$1" = --plan ]; then
  echo "quickstart: 1. installs the Debian packages that are missing (tools/setup.sh; with sudo where you are not root)"
  echo "            2. compiles nereid into $2 with $(nproc) cores; the first time takes 860 CPU seconds, eight minutes on two cores"
  echo "            3. serves models/quickstart on a free port of 127.0.0.1, asks it twice, and stops it"
  exit 0
fi
nereid=$1/bin/nereid
log=$(mktemp)
ports=$(mktemp)

"$nereid" serve models/quickstart --host 127.0.0.1 --http-port 0 --metrics-port 0 --port-file "$ports" >"$log" 2>&1 &
server=$!
stop() {
  kill -TERM "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  rm -f "$log" "$log.events" "$ports"
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
  -d '{"model": "quickstart", "stream": true, "max_tokens": 32, "messages": [{"role": "user", "content": "What is the capital of France?"}]}' >"$log.events"
grep -q '^data: \[DONE\]' "$log.events"
head -n 1 "$log.events"
echo "... $(grep -c '^data: {' "$log.events") events, whose texts are together:"
sed -n 's/.*"content":"\([^"]*\)".*/\1/p' "$log.events" | tr -d '\n'
echo
echo
echo "== Both answered. To start the server for good:"
echo
echo "    $nereid serve models/quickstart"
echo
