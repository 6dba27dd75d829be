"""Log-probabilities of outputs and of prompts with the openai package."""
from openai_base import MESSAGES, MODEL, client


def log_probs():
    plain = dict(model=MODEL, prompt="Machine learning is", max_tokens=16, temperature=0)
    scored = client.completions.create(logprobs=3, **plain).choices[0]
    lp = scored.logprobs
    assert len(lp.tokens) == len(lp.token_logprobs) == len(lp.top_logprobs) == len(lp.text_offset) <= 16, lp
    assert "".join(lp.tokens).startswith(scored.text), (lp.tokens, scored.text)
    assert all(v <= 0 for v in lp.token_logprobs) and lp.text_offset[0] == 0, lp
    for token, value, top in zip(lp.tokens, lp.token_logprobs, lp.top_logprobs):
        assert top[token] == value == max(top.values()) and 3 <= len(top) <= 4, "greedy draws the likeliest"
    assert scored.text == client.completions.create(**plain).choices[0].text
    streamed = []
    for chunk in client.completions.create(logprobs=3, stream=True, **plain):
        for c in chunk.choices:
            if c.logprobs:
                streamed += c.logprobs.token_logprobs
    assert streamed == lp.token_logprobs, (streamed, lp.token_logprobs)
    chat = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=8, temperature=0, logprobs=True,
                                          top_logprobs=2).choices[0]
    entries = chat.logprobs.content
    assert b"".join(bytes(e.bytes) for e in entries).decode().startswith(chat.message.content), chat
    assert all(len(e.top_logprobs) == 2 and e.top_logprobs[0].logprob == e.logprob for e in entries), entries


def prompt_log_probs():
    """A text is worth as a prompt what it was worth when it was generated."""
    plain = dict(model=MODEL, temperature=0, extra_body={"return_token_ids": True})
    said = client.completions.create(prompt="Machine learning is", max_tokens=16, logprobs=2, **plain).choices[0]
    ids = said.prompt_token_ids + said.token_ids[:len(said.logprobs.tokens)]
    scored = client.completions.create(prompt=ids, max_tokens=0, echo=True, logprobs=2, **plain)
    again = scored.choices[0].logprobs
    assert scored.choices[0].text == "Machine learning is" + said.text and scored.usage.completion_tokens == 0, scored
    assert again.token_logprobs[0] is None and again.top_logprobs[0] is None, again
    generated = said.logprobs.token_logprobs
    apart = [abs(a - b) for a, b in zip(again.token_logprobs[-len(generated):], generated)]
    assert len(again.tokens) == len(ids) and max(apart) < 1e-4, apart
    assert again.tokens[-len(generated):] == said.logprobs.tokens
    assert again.text_offset[-len(generated)] == len("Machine learning is"), again
    streamed = []
    for chunk in client.completions.create(prompt=ids, max_tokens=1, echo=True, logprobs=2, stream=True, **plain):
        for c in chunk.choices:
            streamed += c.logprobs.token_logprobs if c.logprobs else []
    assert streamed[:len(ids)] == again.token_logprobs, streamed
    by_id = client.completions.create(model=MODEL, prompt=ids, max_tokens=1,
                                      extra_body={"prompt_logprobs": 2}).choices[0].prompt_logprobs
    assert by_id[0] is None and len(by_id) == len(ids)
    for token, entries, value in list(zip(ids, by_id, again.token_logprobs))[1:]:
        own = entries[str(token)]
        assert abs(own["logprob"] - value) < 1e-6 and own["rank"] >= 1, (own, value)
        assert sum(e["rank"] <= 2 for e in entries.values()) == 2 and len(entries) in (2, 3), entries
