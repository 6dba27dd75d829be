#!/usr/bin/env bash
# Every route and every error code, by curl.  NEREID_URL and NEREID_METRICS_URL say where the server is.
set -euo pipefail
failures=0
count=0
body=$(mktemp)
big=$(mktemp)
trap 'rm -f "$body" "$big"' EXIT

# check STATUS TEXT CURL_ARGS...: the answer has that status and its body or headers contain TEXT (a regular expression).
check() {
  local want=$1 text=$2
  shift 2
  count=$((count + 1))
  local got
  got=$(curl -s -i -o "$body" -w '%{http_code}' --max-time 120 "$@") || got="curl failed: $got"
  if [ "$got" != "$want" ] || ! grep -Eq -- "$text" "$body"; then
    failures=$((failures + 1))
    echo "FAIL: curl $*" | cut -c1-300
    echo "  wanted $want with /$text/, got $got:"
    head -c 1000 "$body" | sed 's/^/  | /'
  fi
}
json='Content-Type: application/json'
v2=$NEREID_URL/v2
v1=$NEREID_URL/v1

check 200 '' "$v2/health/live"
check 200 '' "$v2/health/ready"
check 200 '"extensions"' "$v2"
for model in ensemble tensorrt_llm preprocessing postprocessing tensorrt_llm_bls; do
  check 200 "\"name\":\"$model\"" "$v2/models/$model"
  check 200 '' "$v2/models/$model/ready"
  check 200 "\"name\":\"$model\"" "$v2/models/$model/config"
  check 200 "\"inputs\"" "$v2/models/$model/versions/1"
done
for model in ensemble tensorrt_llm_bls; do
  check 200 '"text_output":"' "$v2/models/$model/generate" -d '{"text_input": "What is machine learning?", "max_tokens": 8}'
  check 200 '^data: .*"text_output"' "$v2/models/$model/generate_stream" \
    -d '{"text_input": "What is machine learning?", "max_tokens": 8, "stream": true}'
  check 200 '"text_output":"' "$v2/models/$model/versions/1/generate" -d '{"text_input": "x", "max_tokens": 1}'
done
check 200 '"id":"quickstart"' "$v1/models"
check 200 '"object":"model"' "$v1/models/quickstart"
check 200 '"text_completion"' "$v1/completions" -H "$json" -d '{"model": "quickstart", "prompt": "Hello", "max_tokens": 4}'
check 200 'data: \[DONE\]' "$v1/completions" -H "$json" -d '{"prompt": "Hello", "max_tokens": 4, "stream": true}'
check 200 '"role":"assistant"' "$v1/chat/completions" -H "$json" -d '{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}'
check 200 'data: \[DONE\]' "$v1/chat/completions" -H "$json" \
  -d '{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "stream": true}'
check 200 'script-src .sha256-' -H 'Accept: text/html' "$NEREID_URL/"
check 200 'Ollama is running' "$NEREID_URL/"
check 404 'Not Found' -H 'Accept: text/html' "$NEREID_METRICS_URL/"
check 200 'nv_inference_request_success' "$NEREID_METRICS_URL/metrics"
check 200 'nv_trt_llm_kv_cache_block_metrics' "$NEREID_METRICS_URL/metrics"
check 200 'process_resident_memory_bytes' "$NEREID_METRICS_URL/metrics"
check 200 'Content-Length' -I "$v2/health/ready"
check 204 'Allow: POST' -X OPTIONS "$v1/completions"

check 404 '"error":"Not Found"' "$v2/nope"
check 404 '"error":"Not Found"' "$v2/health/live/"
check 404 'not_found_error' "$v1/nope"
check 405 'Allow: GET' -X POST "$v2/health/live"
check 405 'Allow: POST' "$v2/models/ensemble/generate"
check 405 'Method Not Allowed' "$v1/completions"
check 404 "unknown model: 'nope'" "$v2/models/nope"
check 404 "unknown model: 'nope'" "$v2/models/nope/generate" -d '{}'
check 404 'version 9' "$v2/models/ensemble/versions/9"
check 400 'not ready' "$v2/models/nope/ready"
check 404 'model_not_found' "$v1/completions" -d '{"model": "gpt-4", "prompt": "x"}'
check 404 'does not exist' "$v1/models/gpt-4"

check 400 'line 1, column' "$v2/models/ensemble/generate" -d '{"text_input": '
check 400 'JSON object' "$v2/models/ensemble/generate" -d '[]'
check 400 'text_input' "$v2/models/ensemble/generate" -d '{"text_input": 5, "max_tokens": 2}'
check 400 'max_tokens' "$v2/models/ensemble/generate" -d '{"text_input": "x", "max_tokens": "2"}'
check 400 '2147483647' "$v2/models/ensemble/generate" -d '{"text_input": "x", "max_tokens": 3000000000}'
check 400 'text_input' "$v2/models/ensemble/generate" -d '{"max_tokens": 2}'
check 400 'line 2, column' "$v1/completions" -d $'{"prompt": "x",\n "n" 1}'
check 400 '"param":"max_tokens"' "$v1/completions" -d '{"prompt": "x", "max_tokens": "many"}'
check 400 '"param":"n"' "$v1/completions" -d '{"prompt": "x", "n": 0}'
check 400 '"param":"messages"' "$v1/chat/completions" -d '{"messages": []}'
long=$(printf 'word %.0s' $(seq 6000))
check 400 '[0-9]{4}' "$v2/models/ensemble/generate" -d "{\"text_input\": \"$long\", \"max_tokens\": 2}"
check 400 'context_length_exceeded' "$v1/completions" -d "{\"prompt\": \"$long\"}"
check 400 '2048 tokens' "$v1/completions" -d '{"prompt": "x", "max_tokens": 5000}'
head -c 70000000 /dev/zero | tr '\0' ' ' >"$big"
check 413 '67108864 bytes' "$v2/models/ensemble/generate" -H 'Expect: 100-continue' --data-binary "@$big"
check 413 'invalid_request_error' "$v1/completions" -H 'Expect: 100-continue' --data-binary "@$big"
check 431 'header' "$v2" -H "X-Long: $(head -c 40000 /dev/zero | tr '\0' 'x')"
check 400 "only 'identity'" "$v2/models/ensemble/generate" -H 'Content-Encoding: gzip' -d '{}'

echo "routes: $count checks, $failures failed"
[ "$failures" = 0 ]
