"""The generate extension with the requests package: replies, streams, parameters."""
import json
import os

import requests

BASE = os.environ["NEREID_URL"] + "/v2/models/"
PROMPT = {"text_input": "What is machine learning?", "max_tokens": 24}


def generate(model, **body):
    reply = requests.post(f"{BASE}{model}/generate", json=body, timeout=120)
    assert reply.status_code == 200, reply.text
    return reply.json()


def stream(model, **body):
    events = []
    with requests.post(f"{BASE}{model}/generate_stream", json=body, stream=True, timeout=120) as reply:
        assert reply.status_code == 200, reply.text
        assert reply.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        for line in reply.iter_lines():
            if line:
                assert line.startswith(b"data: "), line
                events.append(json.loads(line[6:]))
    return events


def main():
    whole = generate("ensemble", **PROMPT)
    assert whole["model_name"] == "ensemble" and whole["model_version"] == "1", whole
    assert whole["sequence_id"] == 0 and whole["sequence_start"] is False, whole
    text = whole["text_output"]
    assert text, whole
    assert generate("ensemble", **PROMPT)["text_output"] == text, "greedy output changed"
    assert generate("ensemble", id="q7", **PROMPT)["id"] == "q7"

    bls = generate("tensorrt_llm_bls", **PROMPT)
    assert bls["text_output"] == text, (bls, text)
    assert "sequence_id" not in bls, bls

    for model in ("ensemble", "tensorrt_llm_bls"):
        events = stream(model, stream=True, **PROMPT)
        assert len(events) > 1, events
        joined = "".join(e["text_output"] for e in events)
        assert text.endswith(joined.strip()) or joined in text, (text, joined)

    drawn = dict(PROMPT, temperature=0.9, top_k=50, top_p=0.95, random_seed=7)
    assert generate("ensemble", **drawn)["text_output"] == generate("ensemble", **drawn)["text_output"]
    in_object = {"text_input": PROMPT["text_input"], "parameters": {"max_tokens": 24}}
    assert generate("ensemble", **in_object)["text_output"] == text
    print("kserve: generate and generate_stream agree")


if __name__ == "__main__":
    main()
