"""Costly requests of every kind, 16 at once with bodies of up to 5 MB, and what they cost others: a table with a row for each
kind. Columns: what the 16 were answered ("open": nothing within --limit seconds, and the client left); seconds until the last
one was; the worst of another client's tokens and first tokens, alone and beside the attack; its refused requests; the worst
answer to live (of HTTP and gRPC); the worst answer of a process that only echoes, which is what the machine adds; and how much
memory the server took at most, in MiB, beside the budget of --client-memory-bytes.

A row is "ok" where a token and an answer to live take at most 100 ms more than the worst alone (or than the worst echo, where
that is more), and memory grows by at most the budget and a tenth; the pages of weights and KV cache, which the server asked
for when it started, have been written to before. Each kind has a server of its own. This takes minutes and needs an idle
machine: it is no part of `make e2e`.

usage: attacks.py BUILD_DIR [--only TEXT] [--part I/N] [--at-once N] [--limit SECONDS]        exits 1 when a row is not ok"""
import argparse
import base64
import collections
import gzip
import io
import json
import os
import socket
import struct
import tempfile
import threading
import time
import zipfile

import robustness_grpc
import watch
from robustness import MIB, Server, post, status_of

BUDGET = 256 * MIB
GOAL = 0.1  # seconds
CHAT, TEXTS = "/v1/chat/completions", "/v1/completions"
PREPROCESS, ENGINE = "/v2/models/preprocessing/infer", "/v2/models/tensorrt_llm/generate"
HELLO = [{"role": "user", "content": "hello"}]
TRUST = "--trust-request-chat-template"


def body_of(value):
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def http(path, *bodies, headers=()):
    return [post(path, body_of(body), "Connection: close", *headers) for body in bodies]


def chat(**fields):
    return http(CHAT, {"model": "quickstart", "messages": HELLO, "max_tokens": 2, **fields})


def texts(**fields):
    return http(TEXTS, {"model": "quickstart", "prompt": "a", "max_tokens": 2, **fields})


def guided(name, make, **fields):
    """Requests that all differ, so that none is answered from a cache."""
    return [texts(**{name: make(i), "max_tokens": 1900, "temperature": 2, "stream": True, **fields})[0] for i in range(16)]


def schema(make):
    return [chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": make(i)}})[0] for i in range(16)]


def template(text):
    return chat(chat_template=text)


def tools(count, **more):
    return [{"type": "function", "function": {"name": f"tool_{i}", "description": "d" * 40, "parameters": {
        "type": "object", "properties": {f"p{j}": {"type": "string", "pattern": f"^a{{{i % 50}}}b*$"} for j in range(3)}, **more}}}
        for i in range(count)]


def bytes_rows(rows):
    return [{"name": "QUERY", "datatype": "BYTES", "shape": [len(rows), 1], "data": rows},
            {"name": "REQUEST_OUTPUT_LEN", "datatype": "INT32", "shape": [len(rows), 1], "data": [1] * len(rows)}]


def torch_file(rows, width, compression):
    """The file that torch.save() writes for one bf16 tensor of zeros."""
    def numbers(*values):
        return b"(" + b"".join(b"J" + struct.pack("<i", value) for value in values) + b"t"

    def word(text):
        return b"X" + struct.pack("<I", len(text)) + text.encode()

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((" + word("storage") + b"ctorch\nBFloat16Storage\n" +
                         word("0") + word("cpu") + b"J" + struct.pack("<i", rows * width) + b"tQJ\0\0\0\0" + numbers(rows, width) +
                         numbers(width, 1) + b"\x89ccollections\nOrderedDict\n)RtR.")
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/data/0", bytes(rows * width * 2))
    return base64.b64encode(out.getvalue()).decode()


def field(number, payload):
    size, length = len(payload), b""
    while size > 127:
        size, length = size >> 7, length + bytes([size & 127 | 128])
    return bytes([number << 3 | 2]) + length + bytes([size]) + payload


def grpc_bytes(name, count):
    return field(5, field(1, name) + field(2, b"BYTES") + field(3, struct.pack("B", count) + b"\1"))


def grpc_message(message, is_compressed=False):
    return struct.pack(">BI", is_compressed, len(message)) + message


# Requests over gRPC: (method, more headers, messages with their prefixes).
def grpc_refusals():
    query = b"a " * (2 * MIB)
    first = (field(1, b"preprocessing") + grpc_bytes(b"QUERY", 1) + field(5, field(1, b"REQUEST_OUTPUT_LEN") + field(2, b"INT32") +
             field(3, b"\1\1")) + field(6, field(1, b"REQUEST_INPUT_LEN")) + field(7, struct.pack("<I", len(query)) + query) +
             field(7, struct.pack("<i", 1)))
    return [("ModelStreamInfer", (), grpc_message(first) + grpc_message(field(1, b"x")) * 60000)]


def grpc_compressed():
    message = gzip.compress(field(1, b"preprocessing") + field(5, b"") * (50 * MIB), 6)
    return [("ModelInfer", (("grpc-encoding", "gzip"),), grpc_message(message, True))]


def grpc_fields(number):
    return [("ModelInfer", (), grpc_message(field(1, b"preprocessing") + field(number, b"") * (5 * MIB // 2)))]


def kinds(longest):
    """(name, flags, requests), which are sent in turn; `longest`: a token of many bytes."""
    words = "The quick brown fox jumps over the lazy dog. "
    wide = "{" + ",".join(f'"k{i}":1' for i in range(380000)) + "}"
    yield "template kwargs, 350,000 members", (), chat(chat_template_kwargs={f"k{i}": 0 for i in range(350000)})
    yield "template kwargs, an array of 1 M", (), chat(chat_template_kwargs={"k": [0] * MIB})
    yield "JSON of 5 M brackets", (), http(CHAT, b"[" * 5 * MIB)
    yield "JSON of 380,000 members", (), http(TEXTS, wide.encode())
    yield "JSON of 2 M numbers", (), http(TEXTS, b'{"prompt":[' + b"1," * (2 * MIB) + b'1],"max_tokens":1}')
    yield "4,000 levels in a tool's schema", (), http(CHAT, b'{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":'
                                                      b'{"name":"f","parameters":' + b'{"a":' * 4000 + b"1" + b"}" * 4000 + b"}}]}")
    yield "100,000 messages", (), chat(messages=HELLO * 100000)
    yield "50,000 parts of a message", (), chat(messages=[{"role": "user", "content": [{"type": "text", "text": "a"}] * 50000}])
    yield "50,000 blocks (Anthropic)", (), http("/v1/messages", {"model": "quickstart", "max_tokens": 2, "messages": [
        {"role": "user", "content": [{"type": "text", "text": "a"}] * 50000}]})
    yield "50,000 items (Responses)", (), http("/v1/responses", {"model": "quickstart", "max_output_tokens": 2, "input": HELLO * 50000})
    yield "50,000 messages (Ollama)", ("--ollama",), http("/api/chat", {"model": "quickstart", "messages": HELLO * 50000, "stream": False,
                                                                      "options": {"num_predict": 2}})
    yield "history of 20,000 tool calls", (), chat(messages=[*HELLO, {"role": "assistant", "content": None, "tool_calls": [
        {"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": '{"a": [1, 2, 3]}'}} for i in range(20000)]}])
    yield "regex walked again", (), guided("guided_regex", lambda i: "|".join(
        f"([ab]*{x}[ab]{{{2980 + i}}})" for x in ("a", "b", "aa", "ab", "ba", "bb")), logit_bias={"3": -100})
    yield "regex of nested counts", (), guided("guided_regex", lambda i: f"((a{{1,30}}b?){{1,30}}c?){{1,{30 + i}}}")
    yield "regex of 5 MB", (), guided("guided_regex", lambda i: f"{i}(" + "|".join(f"w{j}" for j in range(600000)) + ")")
    yield "schema of pattern properties", (), schema(lambda i: {"type": "object", "title": str(i), "patternProperties": {
        f"^.*a.{{{j}}}b.*$": {"type": ["integer", "string"][:1 + j % 2]} for j in range(30)}})
    yield "schema of allOf and anyOf", (), schema(lambda i: {"title": str(i), "allOf": [{"anyOf": [
        {"type": "object", "properties": {f"a{j}_{k}": {"type": "string"}}} for k in range(8)]} for j in range(12)]})
    yield "schema with 12,000 enum texts", (), schema(lambda i: {"enum": [f"value {i} {j}" for j in range(12000)]})
    yield "schema of 100,000 properties", (), schema(lambda i: {"type": "object", "properties": {
        f"p{i}_{j}": {"type": "integer"} for j in range(100000)}})
    yield "schema with deep $ref", (), schema(lambda i: {"title": str(i), "$ref": "#/$defs/d0", "$defs": {
        f"d{j}": {"type": "object", "properties": {x: {"$ref": f"#/$defs/d{j + 1}"} for x in "abcd"}} for j in range(200)} | {
            "d200": {"type": "string"}}})
    yield "grammar, ambiguous", (), guided("guided_grammar", lambda i: f'root ::= s{i}\ns{i} ::= s{i} s{i} | "a" | "b" | ""')
    yield "grammar of 50,000 rules", (), guided("guided_grammar", lambda i: f'root ::= r0 "{i}"\n' + "".join(
        f'r{j} ::= "a" r{j + 1} | "b"\n' for j in range(50000)) + 'r50000 ::= "c"')
    yield "choice of 100,000", (), guided("guided_choice", lambda i: [f"word {i} {j}" for j in range(100000)])
    yield "template: search in a text", (TRUST,), template("{% set a='a'*2000000 %}{{ ('a'*1000000 ~ 'b') in a }}")
    yield "template: loops", (TRUST,), template("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}")
    yield "template: growing texts", (TRUST,), template("{% set n = namespace(a='ab'*1000) %}{% for i in range(10000) %}{% set n.a = n.a ~ n.a %}{% endfor %}")
    yield "template: replace", (TRUST,), template("{% set a='a'*2000000 %}{{ a.replace('a'*1000 ~ 'b', 'x') }}{{ a.replace('a', 'b'*1000) | length }}")
    yield "template: split and join", (TRUST,), template("{% for i in range(1000) %}{{ ('a '*1000000).split() | join(',') | length }}{% endfor %}")
    yield "template: filters of lists", (TRUST,), template("{% for i in range(1000) %}{{ range(100000) | list | reverse | list | sort | unique | list | length }}{% endfor %}")
    yield "template of 5 MB", (TRUST,), template("{{ 1 }}" * 700000)
    yield "template: nested expressions", (TRUST,), template("{{ " + "(" * 100000 + "1" + ")" * 100000 + " }}")
    yield "padding of a batch, compressed", (), http(PREPROCESS, gzip.compress(body_of({
        "inputs": bytes_rows(["a " * (5 << 20)] + ["a"] * 31), "outputs": [{"name": "REQUEST_INPUT_LEN"}]})), headers=("Content-Encoding: gzip",))
    yield "padding of a batch", (), http(PREPROCESS, {"inputs": bytes_rows(["a " * (2 << 20)] + ["a"] * 31)})
    yield "a compressed body of spaces", (), http(TEXTS, gzip.compress(b" " * (60 * MIB)), headers=("Content-Encoding: gzip",))
    yield "classification", (), http(PREPROCESS, {"inputs": bytes_rows([words * 40] * 32), "outputs": [
        {"name": name, "parameters": {"classification": 1 << 30}} for name in ("INPUT_ID", "REQUEST_INPUT_LEN")]})
    yield "shapes of 2^48 without numbers", (), http(PREPROCESS, {"inputs": [
        {"name": "QUERY", "datatype": "BYTES", "shape": [1 << 48, 0], "data": []},
        {"name": "REQUEST_OUTPUT_LEN", "datatype": "INT32", "shape": [1 << 48, 0], "data": []}],
        "outputs": [{"name": "INPUT_ID", "parameters": {"classification": 1}}]})
    yield "detokenize, 1 M ids of a long token", (), http("/detokenize", {"model": "quickstart", "tokens": [longest] * MIB})
    yield "tokenize, 5 MB with texts", (), http("/tokenize", {"model": "quickstart", "prompt": words * (5 * MIB // len(words)),
                                                            "return_token_strs": True})
    for name, text in (("words", "a " * (5 * MIB // 2)), ("no blanks", "a" * 5 * MIB), ("numbers", "0123456789" * (MIB // 2)),
                       ("accents", "\u00e9\u0301" * 400000), ("spaces", " " * 5 * MIB)):
        yield f"a prompt of 5 MB, {name}", (), texts(prompt=text)
    yield "100,000 prompts", (), texts(prompt=["a"] * 100000)
    yield "a prompt of 2 M ids", (), texts(prompt=[5] * (2 * MIB))
    yield "200,000 stop texts", (), texts(stop=[f"stop {i}" for i in range(200000)])
    yield "200,000 bad words", (), texts(bad_words=[f"bad {i}" for i in range(200000)])
    yield "bad words of 5 MB", (), texts(bad_words=[words * 1000] * 100)
    yield "300,000 logit biases", (), texts(logit_bias={str(i): 1 for i in range(300000)})
    yield "500,000 allowed ids", (), texts(allowed_token_ids=list(range(500000)))
    yield "5,000 tools", (), chat(tools=tools(5000))
    yield "5,000 tools, one required", (), chat(tools=tools(5000), tool_choice="required")
    yield "n = 128, 400 tokens", (), texts(n=128, max_tokens=400, temperature=1, ignore_eos=True)
    yield "best_of = 128 of long prompts", (), texts(prompt="a " * 1500, best_of=128, n=128, max_tokens=100, temperature=1, ignore_eos=True)
    yield "log-probabilities of a prompt", (), texts(prompt="a " * 1500, prompt_logprobs=20, logprobs=20, echo=True)
    yield "logits of a prompt", (), http(ENGINE, {"input_ids": [5] * 1500, "input_lengths": 1500, "request_output_len": 4,
                                                  "return_context_logits": True})
    # Scores and rankings take the same way, but their models write no tokens for another client.
    yield "2,048 embeddings", (), http("/v1/embeddings", {"model": "quickstart", "input": [words * 50] * 2048})
    yield "prompt embeddings, no file", (), texts(prompt=None, prompt_embeds="A" * 5 * MIB)
    yield "prompt embeddings, 3 MB", (), texts(prompt=None, prompt_embeds=torch_file(6000, 256, zipfile.ZIP_STORED))
    yield "prompt embeddings, deflated", (), texts(prompt=None, prompt_embeds=torch_file(2000000, 256, zipfile.ZIP_DEFLATED))
    yield "gRPC: a stream of refusals", (), grpc_refusals()
    yield "gRPC: compressed messages", (), grpc_compressed()
    yield "gRPC: empty parameters", (), grpc_fields(4)
    yield "gRPC: empty inputs", (), grpc_fields(5)


def ask_http(port, request, limit):
    with socket.create_connection(("127.0.0.1", port), limit) as s:
        try:
            s.sendall(request)
        except TimeoutError:
            raise
        except OSError:
            pass  # it may answer and close before it has read everything
        first, piece, buffer, end = b"", 1, bytearray(1 << 20), time.monotonic() + limit
        while piece:
            s.settimeout(max(end - time.monotonic(), 0.001))
            try:
                piece = s.recv_into(buffer)
            except ConnectionError:
                piece = 0
            if len(first) < 100:
                first += buffer[:min(piece, 100)]
    return str(status_of(first) or "closed")


def ask_grpc(port, request, limit):
    method, headers, messages = request
    return "gRPC " + robustness_grpc.send(port, method, messages, headers, limit)


def attack(server, requests, at_once, limit):
    """Answers and seconds of `at_once` requests, of which each client sends one."""
    answers, begin = collections.Counter(), time.monotonic()
    seconds = []

    def one(i):
        request = requests[i % len(requests)]
        try:
            answer = ask_grpc(server.grpc_port, request, limit) if isinstance(request, tuple) else ask_http(server.port, request, limit)
        except TimeoutError:
            answer = "open"
        except OSError as error:
            answer = type(error).__name__
        answers[answer] += 1
        seconds.append(time.monotonic() - begin)

    threads = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers, max(seconds)


def memory(pid, name):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name + ":"))


def row(binary, name, flags, requests, options):
    """The row's text, and whether it is ok."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(binary, folder, "--client-memory-bytes", str(BUDGET), "--exit-timeout-secs", "2", *flags)
        try:
            server.touch_cache()
            watching = watch.Watch(server.port, server.grpc_port)
            time.sleep(options.alone)
            with open(f"/proc/{server.process.pid}/clear_refs", "w", encoding="utf-8") as file:
                file.write("5")  # VmHWM begins anew
            before = memory(server.process.pid, "VmRSS")
            watching.begin(watch.BESIDE)
            answers, seconds = attack(server, requests, options.at_once, options.limit)
            time.sleep(0.2)
            grown = memory(server.process.pid, "VmHWM") - before
            watching.stop()
        except (AssertionError, OSError, EOFError, StopIteration) as error:
            state = "runs" if server.process.poll() is None else f"ended with code {server.process.poll()}"
            return f"{name:37} no figures, another client: {type(error).__name__} {str(error)[:80]}; the server {state}", False
        finally:
            server.process.terminate()
            try:
                server.process.wait(60)
            except Exception:
                server.process.kill()
    alone, beside = ({what: watch.worst(watching.times(phase, what)) for what in watch.WHATS} for phase in (watch.ALONE, watch.BESIDE))
    live = [max(times["live"], times["grpc"]) for times in (alone, beside)]
    refused = len(watching.times(watch.BESIDE, "refused"))
    faults = [what for what in ("token", "first") if beside[what] > max(alone[what], beside["echo"]) + GOAL]
    faults += ["live"] * (live[1] > max(live[0], beside["echo"]) + GOAL) + ["memory"] * (grown > BUDGET * 1.1)
    said = " ".join(f"{count}x {answer}" for answer, count in sorted(answers.items()))
    text = f"{name:37} {said:18} {seconds:6.1f} "
    for times in ((alone["token"], beside["token"]), (alone["first"], beside["first"])):
        text += f"{times[0] * 1e3:8.0f}{times[1] * 1e3:7.0f}"
    text += f"{refused:6} {live[0] * 1e3:6.0f}{live[1] * 1e3:7.0f}{beside['echo'] * 1e3:7.0f}{grown / MIB:+8.0f}  {' '.join(faults) or 'ok'}"
    return text, not faults


def longest_token():
    with open("models/quickstart/tokenizer.json", encoding="utf-8") as file:
        vocabulary = json.load(file)["model"]["vocab"]
    return vocabulary[max(vocabulary, key=lambda text: len(text.encode()))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--only", default="", help="kinds whose name has this text")
    parser.add_argument("--part", default="0/1", help="I/N: the kinds I, I + N, I + 2N ...; parts may run at once on cores of their own")
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--limit", type=float, default=60, help="seconds that a client waits")
    parser.add_argument("--alone", type=float, default=4, help="seconds before each attack, for comparison")
    options = parser.parse_args()
    binary = os.path.join(os.path.abspath(options.build), "bin", "nereid")
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    print(f"{options.at_once} at once; a budget of {BUDGET / MIB:.0f} MiB; times in ms, each alone and beside the attack")
    print(f"{'kind':37} {'answers':18} {'s':>6} {'token':>15}{'first token':>15} {'refd':>5} {'live':>13}{'echo':>7}{'MiB':>8}")
    failed = []
    part, parts = map(int, options.part.split("/"))
    for i, (name, flags, requests) in enumerate(kinds(longest_token())):
        if options.only not in name or i % parts != part:
            continue
        text, is_ok = row(binary, name, flags, requests, options)
        print(text, flush=True)
        if not is_ok:
            failed.append(name)
    print(f"attacks: {len(failed)} kinds are not ok" + "".join(f"\n   {name}" for name in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
