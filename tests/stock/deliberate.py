"""The differences from the stock server that are meant, each with its reason; src/front/README.md has the same list.

A rule explains some parts of an answer ("status", "body", ...) when its predicate holds for (case, stock answer, ours).
"""
import base64
import json
import re

# Texts by which the stock server says that the client's body is wrong; their status there is 500.
CLIENT_MISTAKE = re.compile(
    r"attempt to (access|get)|failed to parse the request JSON buffer|Shape does not match true shape|"
    r"unexpected error on creating Triton parameter|Unable to parse|Invalid shared memory region|"
    r"Unable to decompress|Expected JSON object")
# Messages of one class: a request may have several faults, and each server names one of them.
CLASSES = [
    (re.compile(r".*(batch-size must be <=|batch size does not match|input byte size mismatch|string elements|"
                r"unexpected shape for input|Shape does not match true shape|to tensor with proper shape|"
                r"All input dimensions should be specified|has a negative dimension|has no shape but model|data-type is|invalid datatype for input|"
                r"incomplete string data).*", re.S), "a tensor's type, shape and data do not agree"),
    (re.compile(r"expected datatype '[^']*'"), "expected another datatype"),
    (re.compile(r"unexpected inference input '[^']*'"), "unexpected inference input"),
]
NOT_ONE = "generate expects model to produce exactly 1 response"
RANGE = re.compile(r"is not in \[|is out of range for FP")
FRAMING = ("headers", "chunks")


def body_error(form):
    body = form.get("body")
    return body.get("error", "") if isinstance(body, dict) and isinstance(body.get("error", ""), str) else ""


def path(case):
    return case.get("path", "")


def request_bytes(case):
    if "body_b64" in case:
        return base64.b64decode(case["body_b64"])
    return case.get("body", "").encode("utf-8", "surrogateescape")


def is_generate(case):
    return re.search(r"/generate(_stream)?$", path(case)) is not None


def named(*names):
    return lambda case, want, got: case.get("name") in names


def client_mistake(case, want, got):
    return want.get("status") == 500 and got.get("status") == 400 and bool(CLIENT_MISTAKE.search(body_error(want)))


def error_type(case, want, got):
    return (want["headers"].get("content-type", "").startswith("text/plain") and want["status"] >= 400 and
            got["headers"].get("content-type") == "application/json")


def error_status(case, want, got):
    return is_generate(case) and want["status"] == 400 and got["status"] in (404, 409, 499, 500, 501, 503)


def not_one_response(case, want, got):
    return want["status"] == 200 and got["status"] == 400 and NOT_ONE in body_error(want) and NOT_ONE in body_error(got)


def out_of_range(case, want, got):
    return got.get("status") == 400 and want.get("status") in (200, 400) and bool(RANGE.search(body_error(got)))


def grpc_out_of_range(case, want, got):
    return want.get("code") == "OK" and got.get("code") == "INVALID_ARGUMENT" and bool(RANGE.search(got["message"]))


def not_json(case, want, got):
    body = request_bytes(case)
    return (got.get("status") == 400 and "syntax error" in body_error(got) and
            (re.search(rb"\bInf\b", body) is not None or body.startswith(b"\xef\xbb\xbf") or
             not valid_utf8(body)))


def valid_utf8(body):
    try:
        body.decode("utf-8")
        return True
    except UnicodeDecodeError:
        return False


def empty_or_broken(case, want, got):
    return want.get("status") in (200, 400) and got.get("status") == 400 and re.search(
        r"The document is empty|not valid gzip or zlib", body_error(got)) is not None


def unparsable(case, want, got):
    return want.get("status") == 0 and got.get("status") in (400, 405, 408, 413, 431)


def allow_header(case, want, got):
    headers = {k: v for k, v in got["headers"].items() if k != "allow"}
    return got["status"] == 405 and headers == dict(want["headers"], **{"content-type": "application/json"})


def output_order(case, want, got):
    def ordered(form):
        answer = form.get("body") or form["reply"]
        outputs = answer["outputs"]
        pairs = list(zip(outputs, answer.get("raw_output_contents", [""] * len(outputs))))
        return dict(answer, outputs=sorted(pairs, key=lambda p: p[0]["name"]), raw_output_contents=[])
    return "binary" not in want and ordered(want) == ordered(got)


def inflight_field(case, want, got):
    def without(form):
        text = json.dumps(form.get("body", form.get("reply")), sort_keys=True)
        return re.sub(r'"max_inflight_requests": 0, |, "max_inflight_requests": 0', "", text)
    return without(want) == without(got)


def classes(value):
    if isinstance(value, dict):
        return {k: classes(v) for k, v in value.items()}
    if isinstance(value, list):
        return [classes(v) for v in value]
    if isinstance(value, str):
        for pattern, name in CLASSES:
            value = pattern.sub(name, value)
    return value


def sorted_classes(form, part):
    value = classes(form.get(part))
    if part == "replies" and value:
        value = sorted(value, key=lambda v: json.dumps(v, sort_keys=True))
    return value


def first_fault(case, want, got):
    return all(sorted_classes(want, part) == sorted_classes(got, part) for part in ("body", "message", "replies"))


def missing_list(case, want, got):
    """An input too many: stock's message ends its empty list of missing inputs with half a bracket."""
    texts = [body_error(form) + form.get("message", "") for form in (want, got)]
    return texts[0].replace("input(s) ]", "input(s) []") == texts[1] != ""


def optional_counted(case, want, got):
    return got.get("status") == 400 and want.get("status") in (200, 400, 500) and (
        "but missing required input(s) ['" in body_error(got)) and "missing required" not in body_error(want)


NO_NUMBER = re.compile(r"the correlation ID must be a number in range .*, because control 'CORRID' has data type")


def correlation_text(case, want, got):
    replies = got.get("replies")
    if replies is None:
        return got.get("status") == 400 and bool(NO_NUMBER.search(body_error(got)))
    return bool(replies) and all(NO_NUMBER.search(reply.get("error_message", "")) for reply in replies)


def extension_list(case, want, got):
    def others(form):
        return set((form.get("body") or form.get("reply") or {}).get("extensions", []))
    return others(want) - others(got) == {"cuda_shared_memory"} and others(got) <= others(want)


# (name, reason, parts explained, predicate)
RULES = [
    ("client-mistake", "malformed JSON or wrong types are the client's mistake: 400 that names what and where",
     ("status", "body"), client_mistake),
    ("error-type", "error bodies are JSON and say so", ("headers",), error_type),
    ("error-status", "the first response of a generate decides by its code, so that clients know when to try again",
     ("status",), error_status),
    ("not-one-response", "a failure must not look like success", ("status",), not_one_response),
    ("range", "numbers beyond the input's type are refused instead of silently wrapped",
     ("status", "body") + FRAMING, out_of_range),
    ("grpc-range", "the same over gRPC", ("code", "message", "reply"), grpc_out_of_range),
    ("reflection", "served, stock has none", ("code", "message", "reply"),
     lambda case, want, got: "grpc.reflection" in case.get("rpc", "") and got["code"] == "OK"),
    ("not-json", "Inf, byte order marks and broken UTF-8 are not JSON", ("status", "body") + FRAMING, not_json),
    ("empty-body", "an empty or broken body must not pass for a request of size zero",
     ("status", "body", "binary") + FRAMING, empty_or_broken),
    ("unparsable-http", "says what was wrong before it closes", ("status", "body", "headers"), unparsable),
    ("head-options", "RFC 9110", ("status", "body", "headers"),
     lambda case, want, got: case.get("method") in ("HEAD", "OPTIONS") and want["status"] == 405),
    ("allow", "a 405 says what is allowed (RFC 9110)", ("headers",), allow_header),
    ("openai-routes", "ours has /v1 on the same port", ("status", "body", "headers"),
     lambda case, want, got: path(case).startswith("/v1/") and want["status"] == 404),
    ("output-order", "inputs reach a model in the order given, in stock in that of a hash table", ("body", "reply"),
     output_order),
    ("inflight-field", "ensembles have one field more", ("body", "reply"), inflight_field),
    ("first-fault", "of several faults of a request, or several unexpected inputs, another one is named; an unknown datatype "
     "is named as given", ("body", "message", "replies"), first_fault),
    ("missing-list", "half a bracket", ("body", "message"), missing_list),
    ("required-inputs", "a required input is not made up for by an optional one", ("status", "body") + FRAMING,
     optional_counted),
    ("extensions", "only what is served: no cuda_shared_memory without a GPU, where stock offers it and refuses every use",
     ("body", "reply"), extension_list),
    ("correlation-text", "a text as correlation ID of a model that wants a number: in stock some bytes of the text, so that "
     "sequences mix", ("status", "body", "replies") + FRAMING, correlation_text),
    ("long-correlation-text", "too long is the client's mistake", ("status",),
     lambda case, want, got: want["status"] == 501 and got["status"] == 400 and "cannot be longer than" in body_error(got)),
    ("no-elements", "data for a shape without elements is refused, not dropped or given another shape", ("status", "body") + FRAMING,
     lambda case, want, got: want.get("status") == 200 and got.get("status") == 400 and
     re.search(r"Shape does not match true shape|batch-size must be", body_error(got)) is not None),
    ("header-length", "an Inference-Header-Content-Length that is no number is refused", ("status", "body"),
     lambda case, want, got: got.get("status") == 400 and
     body_error(got).startswith("Unable to parse Inference-Header-Content-Length")),
    ("nesting", "JSON nests 100 deep at most", ("status", "body"),
     lambda case, want, got: got.get("status") == 400 and "too deep" in body_error(got)),
    ("given-twice", "a member given twice is refused, not one of the two chosen", ("status", "body") + FRAMING,
     lambda case, want, got: got.get("status") == 400 and "is given twice" in body_error(got)),
    ("fp16-name", "the message also names the output", ("body",),
     lambda case, want, got: body_error(got).startswith(body_error(want)) and "OUT_FP16" in body_error(got)),
    ("cache-key", "other shapes and requested outputs are other questions to the response cache", ("body",),
     named("stats cached", "stats cached again")),
    ("override", "a plain load goes back to the files", ("body",),
     named("config after plain load", "config after scratch back")),
    ("path-tricks", "no model name leaves the repository", ("status", "body"), named("load name with dots")),
    ("base64", "a file that is not base64 is refused", ("body",), named("load file bad base64")),
    ("python-backend-memory", "the python backend's memory is not the clients' to map, as in later releases", ("status", "body"),
     named("shm register python backend key")),
    ("warmup-name", "names the unknown input, not the missing one", ("body",),
     named("load scratch config: warm-up wrong input")),
]


# Rules that only the generated requests of differential.py meet; each of the others has a case in the corpus.
GENERATED = ("correlation-text", "long-correlation-text", "no-elements")


class Table:
    def __init__(self):
        self.uses = {rule[0]: 0 for rule in RULES}

    def unexplained(self, case, want, got, differing):
        left = set(differing)
        for name, _, parts, holds in RULES:
            explained = left & set(parts)
            if not explained:
                continue
            try:
                hit = holds(case, want, got)
            except (AttributeError, KeyError, TypeError):  # a part that this kind of answer does not have
                hit = False
            if hit:
                self.uses[name] += 1
                left -= explained
        return sorted(left)

    def unused(self, but=()):
        """Rules that explained nothing, without those in `but`."""
        return [name for name, uses in self.uses.items() if uses == 0 and name not in but]
