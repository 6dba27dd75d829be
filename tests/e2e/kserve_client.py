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


def options(text):
    """Log-probabilities, beams, several sequences and bans through both text models."""
    for model in ("ensemble", "tensorrt_llm_bls"):
        scored = generate(model, return_log_probs=True, num_top_log_probs=2, **PROMPT)
        values = scored["output_log_probs"]
        assert scored["text_output"] == text and 0 < len(values) <= 24, scored
        assert all(v <= 0 for v in values) and len(scored["top_log_probs"]) == 2 * len(values), scored
        assert abs(scored["cum_log_probs"] - sum(values)) < 1e-3 or len(values) < 24, scored
        beams = generate(model, beam_width=3, length_penalty=1.0, return_log_probs=True, **PROMPT)
        assert len(beams["text_output"]) == 3 and len(set(beams["text_output"])) == 3, beams
        sums = beams["cum_log_probs"]
        assert len(sums) == 3 and max(sums) > min(sums), beams
        one = generate(model, beam_width=3, num_return_sequences=1, length_penalty=1.0, **PROMPT)
        assert one["text_output"] == beams["text_output"][0], (one, beams)
        last = stream(model, beam_width=3, length_penalty=1.0, stream=True, exclude_input_in_output=True, **PROMPT)[-1]
        whole = generate(model, beam_width=3, length_penalty=1.0, exclude_input_in_output=True, **PROMPT)
        assert last["text_output"] == whole["text_output"], (last, whole)
        several = stream(model, num_return_sequences=2, temperature=2.0, top_k=50, random_seed=5, **PROMPT)
        assert sorted(e["sequence_index"] for e in several) == [0, 1], several
        alone = generate(model, temperature=2.0, top_k=50, random_seed=6, **PROMPT)["text_output"]
        assert [e["text_output"] for e in several if e["sequence_index"] == 1] == [alone], (several, alone)
        word = text.split()[0]
        banned = generate(model, bad_words=[word, " " + word], **PROMPT)["text_output"]
        assert not banned.strip().startswith(word + " "), (word, banned)
        too_wide = requests.post(f"{BASE}{model}/generate", json=dict(PROMPT, beam_width=5), timeout=60)
        assert too_wide.status_code == 400 and "max beam width 4" in too_wide.text, too_wide.text


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
    options(text)
    in_object = {"text_input": PROMPT["text_input"], "parameters": {"max_tokens": 24}}
    assert generate("ensemble", **in_object)["text_output"] == text
    print("kserve: generate and generate_stream agree")


if __name__ == "__main__":
    main()
