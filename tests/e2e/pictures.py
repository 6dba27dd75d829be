#!/usr/bin/env python3
"""Pictures in chats, completions, responses and KServe requests, by OpenAI's client and by HTTP.

    pictures.py NEREID      serves a tiny LLaVA with random weights (tests/e2e/llava: with golden tokens by transformers),
                            then LLaVA 1.6, Llama 3.2 vision and Qwen3-VL (tests/picture_models)

Needs `pip install openai`. Checks agreement between routes, tokens of the golden outputs, and refusals, not words.
"""
import base64
import contextlib
import json
import pathlib
import shutil
import sys
import tempfile
import urllib.error
import urllib.request

import openai

import own_server

ROOT = pathlib.Path(__file__).resolve().parents[2]
PICTURES = ROOT / "tests" / "pictures"
LLAVA = ROOT / "tests" / "e2e" / "llava"
# Models of tests/picture_models: the mark and its id, the processor, the tokens of a picture of 97 x 31 pixels.
OTHERS = {
    "llava_next": ("<image>", 500, dict(image_processor_type="LlavaNextImageProcessor", size=dict(shortest_edge=16), crop_size=16,
                                   image_grid_pinpoints=[[16, 32], [32, 16], [32, 32]]), 4 * 4 + 2 * (8 + 1)),
    "llava_onevision": ("<image>", 500, dict(image_processor_type="LlavaOnevisionImageProcessor", size=dict(height=18, width=18),
                                        image_grid_pinpoints=[[18, 36], [36, 18], [36, 36], [36, 54]]), 4 * 4 + 3 * (9 + 1)),
    "mllama": ("<|image|>", 512, dict(image_processor_type="MllamaImageProcessor", size=dict(height=16, width=16)), 1),
    "qwen3_vl": ("<|image_pad|>", 500, dict(image_processor_type="Qwen2VLImageProcessorFast", patch_size=4,
                                       size=dict(shortest_edge=64, longest_edge=4096)), 12 * 4)}
IMAGE, TOKENS = 512, 16  # id of the model's mark, tokens of a picture
TEMPLATE = ("{% for m in messages %}{{ m['role'] }}: {% if m['content'] is string %}{{ m['content'] }}{% else %}"
            "{% for part in m['content'] %}{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}"
            "{% endfor %}{% endif %} {% endfor %}assistant:")


def check(condition, what):
    print(("ok    " if condition else "FAILED"), what)
    return bool(condition)


def data_url(name):
    return "data:image/png;base64," + base64.b64encode((PICTURES / name).read_bytes()).decode()


def part(url):
    return {"type": "image_url", "image_url": {"url": url}}


def chat(client, model, *parts, **options):
    words = [part(p) if p.startswith(("data:", "http")) else {"type": "text", "text": p} for p in parts]
    return client.chat.completions.create(model=model, max_tokens=12, temperature=0,
                                          messages=[{"role": "user", "content": words}], **options)


def text_of(answer):
    return answer.choices[0].message.content


def by_client(client, model):
    first, second = data_url("rgb_28x28.png"), data_url("rgb_27x29.png")
    answer = chat(client, model, first, "What is it?")
    good = check(answer.usage.prompt_tokens == len("user: What is it? assistant:") + TOKENS, "a picture has 16 tokens")
    same = [text_of(chat(client, model, first, "What is it?")) for _ in range(2)]
    good &= check(set(same) == {text_of(answer)}, f"the same picture, the same answer: {text_of(answer)!r}")
    again = chat(client, model, first, "What is it?")
    good &= check(text_of(again) == text_of(answer), "a reused prefix, the same answer")
    others = {text_of(chat(client, model, data_url(name), "What is it?"))
              for name in ("rgb_64x48.png", "plain.jpg", "grey.png", "lossy.webp", "plain.gif")}
    good &= check(len(others) > 1, f"pictures make answers differ: {len(others)} of 5")
    deltas = [c.choices[0].delta.content or "" for c in chat(client, model, first, "What is it?", stream=True) if c.choices]
    good &= check("".join(deltas) == text_of(answer), "the stream has the same text")
    two = chat(client, model, first, " and ", second)
    good &= check(two.usage.prompt_tokens == len("user:  and  assistant:") + 2 * TOKENS, "two pictures")
    swapped = chat(client, model, second, " and ", first)
    good &= check(swapped.usage.prompt_tokens == two.usage.prompt_tokens, "two pictures in the other order")
    plain = client.completions.create(model=model, max_tokens=12, temperature=0, prompt="user: <image>What is it? assistant:",
                                      extra_body={"images": [first]})
    good &= check(plain.choices[0].text == text_of(answer), "a completion with the same prompt, the same text")
    response = client.responses.create(model=model, max_output_tokens=12, temperature=0, input=[
        {"role": "user", "content": [{"type": "input_image", "image_url": first, "detail": "auto"},
                                     {"type": "input_text", "text": "What is it?"}]}])
    good &= check(response.output_text == text_of(answer), "a response, the same text")
    return good


def refusals(client, model):
    cases = [("data:image/png;base64,AAAA", "no picture"), ("https://example.com/a.png", "--allow-media-domain"),
             ("data:image/svg+xml;base64," + base64.b64encode(b"<svg/>").decode(), "SVG"),
             ("data:image/png;base64,####", "base64")]
    good = True
    for url, words in cases:
        try:
            chat(client, model, url, "x")
            good &= check(False, f"{url[:40]} is refused")
        except openai.BadRequestError as error:
            good &= check(words in str(error), f"{url[:40]} is refused: {words}")
    try:
        chat(client, model, data_url("rgb_28x28.png"), "or <image>?")
        good &= check(False, "a mark in a text is refused")
    except openai.BadRequestError as error:
        good &= check("<image>" in str(error), "a mark in a text is refused")
    return good


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{url}: {error.code} {error.read().decode()[:500]}") from error


def tensor(name, kind, shape, data):
    return {"name": name, "datatype": kind, "shape": shape, "data": data}


def by_kserve(url):
    golden = json.loads((LLAVA / "golden.json").read_text())
    picture = "data:image/png;base64," + base64.b64encode((LLAVA / "image.png").read_bytes()).decode()
    prepared = post(url + "/v2/models/preprocessing/infer", {"inputs": [
        tensor("QUERY", "BYTES", [1, 1], ["a<image>b"]), tensor("REQUEST_OUTPUT_LEN", "INT32", [1, 1], [4]),
        tensor("IMAGE_URL", "BYTES", [1, 1], [picture])]})
    out = {o["name"]: o for o in prepared["outputs"]}
    good = check(out["IMAGE_GRIDS"]["data"] == [1, 4, 4], "preprocessing: the picture's grid")
    good &= check(out["IMAGE_TOKEN_SPANS"]["data"] == [1, TOKENS], "preprocessing: the picture's tokens")
    good &= check(out["INPUT_ID"]["data"].count(IMAGE) == TOKENS, "preprocessing: a mark for each row")
    patches = out["IMAGE_PATCHES"]
    for case in golden["cases"]:
        ids = case["prompt_ids"]
        reply = post(url + "/v2/models/tensorrt_llm/infer", {"inputs": [
            tensor("input_ids", "INT32", [1, len(ids)], ids), tensor("input_lengths", "INT32", [1, 1], [len(ids)]),
            tensor("request_output_len", "INT32", [1, 1], [len(case["greedy_ids"])]),
            tensor("end_id", "INT32", [1, 1], [-1]), tensor("runtime_top_k", "INT32", [1, 1], [1]),
            tensor("exclude_input_in_output", "BOOL", [1, 1], [True]),
            tensor("image_patches", "FP32", patches["shape"], patches["data"]),
            tensor("image_grids", "INT32", [1, 1, 3], [1, 4, 4]),
            tensor("image_token_spans", "INT32", [1, 1, 2], [ids.index(IMAGE), ids.count(IMAGE)])]})
        got = next(o["data"] for o in reply["outputs"] if o["name"] == "output_ids")
        good &= check(got == case["greedy_ids"], f"the golden tokens behind a prompt of {len(ids)}")
    body = {"text_input": "What is it?", "image_url_input": [picture], "max_tokens": 12}
    reply = post(url + "/v2/models/ensemble/generate", body)
    good &= check(isinstance(reply["text_output"], str), f"the ensemble: {reply['text_output'][:40]!r}")
    return good


def of_other(url, client, tokens):
    model = client.models.list().data[0].id
    first, second = data_url("rgb_97x31.png"), data_url("rgb_64x48.png")
    answer = chat(client, model, first, "What is it?")
    good = check(answer.usage.prompt_tokens == len("user: What is it? assistant:") + tokens, f"a picture has {tokens} tokens")
    good &= check(text_of(chat(client, model, first, "What is it?")) == text_of(answer), "the same picture, the same answer")
    both = [text_of(chat(client, model, *p)) for p in ((first, " and ", second), (second, " and ", first))]
    good &= check(all(isinstance(text, str) for text in both), f"two pictures: {both}")
    body = {"text_input": "What is it?", "image_url_input": [first], "max_tokens": 12}
    reply = post(url + "/v2/models/ensemble/generate", body)
    good &= check(isinstance(reply["text_output"], str), f"the ensemble: {reply['text_output'][:40]!r}")
    return good


def tokenizer(size, mark):
    """tokenizer.json of the 256 bytes, special tokens up to `size`, and `mark`."""
    visible = [b for b in range(256) if chr(b).isprintable() and b not in (0x20, 0xa0, 0xad)]
    hidden = [b for b in range(256) if b not in visible]
    names = {b: chr(b) for b in visible} | {b: chr(256 + i) for i, b in enumerate(hidden)}
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    added = [dict(id=i, content=f"<|{i}|>", **flags) for i in range(256, size)] + [dict(id=size, content=mark, **flags)]
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    return dict(version="1.0", added_tokens=added, normalizer=None, pre_tokenizer=level, post_processor=None, decoder=level,
                model=dict(type="BPE", vocab={names[b]: b for b in range(256)}, merges=[]))


@contextlib.contextmanager
def served(nereid, source=LLAVA, image=IMAGE, mark="<image>", processor=None):
    with tempfile.TemporaryDirectory() as scratch:
        model = pathlib.Path(scratch) / source.name
        model.mkdir()
        for name in ("config.json", "model.safetensors"):
            shutil.copyfile(source / name, model / name)
        if processor:
            (model / "preprocessor_config.json").write_text(json.dumps(processor))
        else:
            shutil.copyfile(source / "preprocessor_config.json", model / "preprocessor_config.json")
        (model / "tokenizer.json").write_text(json.dumps(tokenizer(image, mark)))
        (model / "chat_template.jinja").write_text(TEMPLATE.replace("<image>", mark))
        with own_server.serving(nereid, model=str(model)) as url:
            yield url


def main():
    with served(sys.argv[1]) as url:
        client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
        model = client.models.list().data[0].id
        good = by_client(client, model)
        good &= refusals(client, model)
        good &= by_kserve(url)
    for name, (mark, image, processor, tokens) in OTHERS.items():
        with served(sys.argv[1], ROOT / "tests" / "picture_models" / name, image, mark, processor) as url:
            good &= of_other(url, openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0), tokens)
    assert good, "see the lines that begin with FAILED"


if __name__ == "__main__":
    main()
