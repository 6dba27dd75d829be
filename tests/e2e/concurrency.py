"""64 concurrent streamed requests, some cancelled half-way: the others equal their one-at-a-time texts bit for bit, and
afterwards every KV block is free again."""
import concurrent.futures
import json
import os
import random
import re
import time

import requests

NUM_REQUESTS = 64
URL = os.environ["NEREID_URL"] + "/v1/completions"
METRICS = os.environ["NEREID_METRICS_URL"] + "/metrics"
SLOW = os.environ.get("NEREID_E2E_SLOW") == "1"
TOPICS = ["machine learning", "the sea", "bread", "a long journey", "rain in spring", "numbers", "old maps", "a cat"]


def make_request(index):
    dice = random.Random(index)
    topic = TOPICS[index % len(TOPICS)]
    body = {"prompt": f"Tell me about {topic}. " * dice.randint(1, 12), "max_tokens": dice.randint(8, 64),
            "ignore_eos": True, "temperature": 0}
    if index % 2:
        body.update(temperature=0.8, top_p=0.9, top_k=40, seed=index)
    return body


def ask_whole(body):
    reply = requests.post(URL, json=body, timeout=600)
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["text"]


def ask_stream(body, cancel_after):
    """The text, or None when the request was cancelled after that many events."""
    pieces, done = [], False
    with requests.post(URL, json=dict(body, stream=True), stream=True, timeout=600) as reply:
        assert reply.status_code == 200, reply.text
        for line in reply.iter_lines(chunk_size=1):
            if not line:
                continue
            if line == b"data: [DONE]":
                done = True
                break
            pieces.append(json.loads(line[6:])["choices"][0]["text"])
            if cancel_after is not None and len(pieces) >= cancel_after:
                return None
    assert done, "the stream ended without [DONE]"
    return "".join(pieces)


def gauge(page, family, label):
    found = re.search(rf'^{family}{{[^}}]*"{label}"[^}}]*}} (\S+)$', page, re.MULTILINE)
    assert found, f"{family} {label} is not on the metrics page"
    return float(found.group(1))


def wait_for_free_blocks():
    deadline = time.monotonic() + (120 if SLOW else 20)
    while True:
        page = requests.get(METRICS, timeout=60).text
        total = gauge(page, "nv_trt_llm_kv_cache_block_metrics", "max")
        free = gauge(page, "nv_trt_llm_kv_cache_block_metrics", "free")
        active = gauge(page, "nv_trt_llm_request_metrics", "active")
        if free == total and active == 0:
            return int(total)
        assert time.monotonic() < deadline, f"free {free} of {total} blocks, {active} active requests"
        time.sleep(0.1)


def main():
    bodies = [make_request(i) for i in range(NUM_REQUESTS)]
    expected = [ask_whole(body) for body in bodies]
    dice = random.Random(0)
    cancels = [dice.randint(1, 6) if dice.random() < 0.3 else None for _ in bodies]
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(NUM_REQUESTS) as pool:
        texts = list(pool.map(ask_stream, bodies, cancels))
    seconds = time.monotonic() - start
    for i, (text, want, cancel) in enumerate(zip(texts, expected, cancels)):
        if cancel is None or text is not None:
            assert text == want, f"request {i}: {text!r} is not {want!r}"
    total = wait_for_free_blocks()
    num_cancelled = sum(text is None for text in texts)
    print(f"concurrency: {NUM_REQUESTS} streams in {seconds:.2f} s, {num_cancelled} cancelled, "
          f"{NUM_REQUESTS - num_cancelled} equal to the lone texts, all {total} KV blocks free")


if __name__ == "__main__":
    main()
