"""Random schemas, regular expressions and choices with random seeds: every text that ended by itself is valid, by the
jsonschema package and by re. usage: structured_output.py [REQUESTS]"""
import concurrent.futures
import json
import os
import random
import re
import sys

import jsonschema
import openai
import requests

URL = os.environ["NEREID_URL"] + "/v1/completions"
COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 60
WORDS = ["name", "id", "a", "ab", "größe", "x y", "q\"t", "list", "deep", "on"]


def number(r, kind):
    schema = {"type": kind}
    if r.random() < 0.5:
        schema[r.choice(["minimum", "exclusiveMinimum"])] = r.randint(-1000, 50)
    if r.random() < 0.5:
        schema[r.choice(["maximum", "exclusiveMaximum"])] = r.randint(53, 12345)
    if r.random() < 0.3:
        schema["multipleOf"] = r.randint(1, 40)
    elif r.random() < 0.3:
        schema["not"] = {"enum": [r.randint(-5, 60)]}
    return schema


def string(r):
    schema = {"type": "string"}
    form = r.randrange(5)
    if form == 0:
        schema["maxLength"] = r.randint(2, 12)
        schema["minLength"] = r.randint(0, 2)
    elif form == 1:
        schema["pattern"] = r.choice(["^[a-z]{1,5}$", "^(foo|bar)+[0-9]?$", "^\\d{2}-\\w{1,3}$", "^[^\"a]{0,4}\"$", "x.?y$"])
    elif form == 2:
        schema["format"] = r.choice(["date", "time", "date-time", "uuid", "ipv4", "email", "hostname"])
    elif form == 3:
        schema = {"enum": r.sample(WORDS, 3) + [None, 3]}
    if form < 2 and r.random() < 0.3:
        schema["not"] = {"const": r.choice(["a", "foo", "ab"])}
    return schema


def array(r, depth):
    schema = {"type": "array", "maxItems": r.randint(1, 4)}
    if r.random() < 0.7:
        schema["items"] = any_schema(r, depth - 1)
    if r.random() < 0.3:
        schema["prefixItems"] = [any_schema(r, depth - 1) for _ in range(r.randint(1, 3))]
    if r.random() < 0.5:
        schema["minItems"] = r.randint(0, schema["maxItems"])
    if r.random() < 0.2:
        schema = {"type": "array", "items": {"enum": r.sample(WORDS, 4)}, "uniqueItems": True}
    elif "items" not in schema and "prefixItems" not in schema:
        schema["contains"] = {"type": r.choice(["null", "string", "integer"])}
    return schema


def obj(r, depth):
    names = r.sample(WORDS, r.randint(1, 4))
    schema = {"type": "object", "properties": {name: any_schema(r, depth - 1) for name in names}}
    schema["required"] = r.sample(names, r.randint(0, len(names)))
    form = r.randrange(3)
    if form:
        schema["additionalProperties"] = form == 2 and any_schema(r, 0)
    if r.random() < 0.3:
        schema["minProperties"] = r.randint(0, len(names))
    if r.random() < 0.3:
        schema["maxProperties"] = r.randint(len(names), len(names) + 2)
    form = r.randrange(8)
    if form == 0:
        pattern = r.choice(["^a", "b$", "^[a-d]{2}$"])
        if not any(re.search(pattern, name) for name in schema.get("required", [])):
            schema["patternProperties"] = {pattern: {"type": ["integer", "null"]}}
    elif form == 1:
        schema["propertyNames"] = {"maxLength": r.randint(5, 9)}
    elif form == 2 and len(names) > 1:
        schema["dependentRequired"] = {names[0]: [names[1]]}
    elif form == 3 and len(names) > 1:
        schema["if"], schema["then"] = {"required": [names[0]]}, {"required": [names[1]]}
    elif form == 4:
        schema = {"allOf": [schema], "type": "object", "unevaluatedProperties": False}
    return schema


def any_schema(r, depth):
    form = r.randrange(9 if depth > 0 else 5)
    if form == 0:
        return number(r, "integer")
    if form == 1:
        return number(r, "number")
    if form == 2:
        return {"type": r.choice(["boolean", "null", ["boolean", "null"]])}
    if form in (3, 4):
        return string(r)
    if form == 5:
        return array(r, depth)
    if form == 6:
        return {"anyOf": [any_schema(r, depth - 1) for _ in range(2)]}
    if form == 7:
        return {"allOf": [{"type": "integer", "minimum": 2}, {"maximum": r.randint(5, 99)}]}
    return obj(r, depth)


def ask(seed):
    """(what was asked, text or None, fault or None)"""
    r = random.Random(seed)
    body = {"model": "quickstart", "prompt": "The answer is", "max_tokens": 250, "seed": seed,
            "temperature": r.choice([0.7, 1.0, 2.0]), "stream": False}
    check = None
    if seed % 6 == 0:
        pattern = r.choice(["[a-c]{2,4}(-\\d{1,3})?", "(yes|no|maybe)!*", "\\w{1,6}@\\w{2,5}\\.(com|org)", "[^a-z\n]{3}"])
        body["guided_regex"] = pattern
        check = lambda text: None if re.fullmatch(pattern, text, re.ASCII) else "no match"
    elif seed % 12 == 1:
        body["guided_grammar"] = 'start: sum\nsum: INT | sum "+" INT\n%import common.INT\n%ignore /[ ]/'
        check = lambda text: None if re.fullmatch(r" *\d+[ \d]*(\+ *\d+ *)*", text) else "no sum"
    elif seed % 6 == 1:
        texts = r.sample(WORDS, 3)
        body["guided_choice"] = texts
        check = lambda text: None if text in texts else "no choice"
    else:
        schema = obj(r, 3) if seed % 6 < 4 else any_schema(r, 3)
        if seed % 6 == 2:
            schema = {"$defs": {"t": schema}, "type": "array", "items": {"$ref": "#/$defs/t"}, "maxItems": 2}
        if seed % 6 == 5:
            body["structured_outputs"] = {"json": schema}
        else:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}

        def check(text):
            try:
                jsonschema.Draft202012Validator(schema).validate(json.loads(text))
            except (ValueError, jsonschema.ValidationError) as e:
                return str(e)[:200]
    reply = requests.post(URL, json=body, timeout=120)
    if reply.status_code != 200:
        return body, None, f"status {reply.status_code}: {reply.text[:300]}"
    choice = reply.json()["choices"][0]
    if choice["finish_reason"] != "stop":
        return body, None, None
    return body, choice["text"], check(choice["text"])


def refusals():
    for fields, text in [
            ({"guided_json": {"properties": {"a": {"multipleOf": 1001}}}}, "'/properties/a/multipleOf'"),
            ({"guided_regex": "(?=a)"}, "lookaround"),
            ({"guided_grammar": "root ::= x"}, "no rule 'x'"),
            ({"guided_grammar": "start: \"a\"\n%declare X"}, "'%declare', which is not supported"),
            ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice")]:
        reply = requests.post(URL, json={"model": "quickstart", "prompt": "x", "max_tokens": 4, **fields}, timeout=60)
        assert reply.status_code == 400 and text in reply.text, (fields, reply.status_code, reply.text)


def chat_streams():
    body = {"model": "quickstart", "messages": [{"role": "user", "content": "Say it"}], "max_tokens": 60, "n": 2,
            "stream": True, "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {
                "type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
                "additionalProperties": False}}}}
    texts = ["", ""]
    with requests.post(os.environ["NEREID_URL"] + "/v1/chat/completions", json=body, stream=True, timeout=60) as reply:
        for line in reply.iter_lines():
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    texts[choice["index"]] += choice["delta"].get("content") or ""
    assert all(isinstance(json.loads(text)["ok"], bool) for text in texts), texts


def structural_tags():
    """Free text up to an "e", which an integer and "!" follow: whole, streamed, several, with log-probabilities."""
    form = {"type": "structural_tag", "triggers": ["e"], "structures": [
        {"begin": "e", "schema": {"type": "integer", "minimum": 0, "maximum": 999}, "end": "!"}]}
    number = r"(?:0|[1-9]\d{0,2})"
    held = re.compile(rf"(?:[^e]|e{number}!)*(?:e{number}?)?", re.S)  # may be cut
    client = openai.OpenAI(base_url=os.environ["NEREID_URL"] + "/v1", api_key="none", max_retries=0)
    options = dict(model="quickstart", messages=[{"role": "user", "content": "Say it"}], n=2, seed=4, temperature=1,
                   max_tokens=60, logprobs=True)
    wanted = {**options, "response_format": form}
    whole = client.chat.completions.create(**wanted)
    texts = [choice.message.content for choice in whole.choices]
    assert all(held.fullmatch(text) for text in texts) and re.search(f"e{number}!", "".join(texts)), texts
    assert all(choice.logprobs.content for choice in whole.choices)
    streamed = ["", ""]
    for chunk in client.chat.completions.create(**wanted, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == texts, (streamed, texts)
    for field in ({"structural_tag": json.dumps(form)}, {"structured_outputs": {"structural_tag": form}}):
        again = client.chat.completions.create(**options, extra_body=field)
        assert [choice.message.content for choice in again.choices] == texts
    form["structures"][0]["begin"] = "x"
    try:
        client.chat.completions.create(**wanted)
        raise AssertionError("a tag that no trigger begins was accepted")
    except openai.BadRequestError as e:
        assert "none of them begins 'x'" in str(e), e


refusals()
chat_streams()
structural_tags()
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    results = list(pool.map(ask, range(COUNT)))
faults = [result for result in results if result[2]]
for body, text, fault in faults[:5]:
    print(json.dumps(body), repr(text), fault, sep="\n  ")
ended = sum(text is not None for _, text, _ in results)
print(f"structured_output: {COUNT} requests, {ended} texts ended by themselves, {len(faults)} of them wrong or refused")
assert not faults and ended > COUNT // 2
