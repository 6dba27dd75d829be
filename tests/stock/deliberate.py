"""The differences from the stock server that are meant, each with its reason; src/front/README.md has the same list.

A rule explains some parts of an answer ("status", "body", ...) when its predicate holds for (case, stock answer, ours).
"""
import base64
import json
import re

# Texts by which the stock server refuses a client's body (their status there is 500), and this server's
# text. {1} is the first group of the stock server's text.
PARSED = r"failed to parse the request JSON buffer: "
WHERE = r"(Converting keyword: 'parameters': )?(?:Unable to (?:parse|set) ('\w+'|JSON bytes array): )?"
CLIENT_MISTAKES = [(re.compile(theirs, re.S), ours) for theirs, ours in (
    (PARSED + r"The document is empty\. at 0", PARSED + r"(The document is empty\.|incomplete JSON at line 1, column 1)"),
    (r"unexpected error on creating Triton parameter", r"unknown load parameter '.*': .*"),
    (PARSED + r".* at (\d+)", PARSED + r"(syntax error|incomplete JSON|extra data|[a-z ]+) at line \d+, column \d+"),
    (WHERE + r"attempt to access non-existing object member '\w+'",
     r"{1}Unable to parse {2}: the member is missing|the request must be a JSON object, got .*"),
    (WHERE + r"attempt to access JSON non-(?:un)?signed-integer as (?:un)?signed-integer",
     r"{1}Unable to parse {2}: .*(integers?\b.*, got .*|is not in \[.*)"),
    (WHERE + r"attempt to access JSON non-number as double", r"{1}Unable to parse {2}: .*input '.*' takes numbers .*, got .*"),
    (WHERE + r"attempt to access JSON non-(string|array|object) as \3", r"{1}Unable to parse {2}: .*\b{3}s?\b.*, got .*"),
    (WHERE + r"attempt to access JSON non-boolean as boolean", r"{1}Unable to parse {2}: .*(a boolean|true or false).*, got .*"),
    (r"(failed to get request params\.: )?attempt to get members for non-object",
     r"(the request must be a JSON object|Unable to parse 'parameters': expected an object), got .*"),
    (r"Unable to parse 'data': Shape does not match true shape of 'data' field",
     r"Unable to parse 'data': (Shape does not match true shape of 'data' field|.*input '.*' takes ).*"),
    (r"Expected JSON object for keyword: 'parameters': .*", r"Expected JSON object for keyword: 'parameters': it takes an object, got .*"),
)]
# One request may have several faults of this kind, and each server names one of them.
FAULTS = [re.compile(text) for text in (
    "batch-size must be <=", "batch size does not match", "input byte size mismatch", "string elements",
    "unexpected shape for input", "Shape does not match true shape", "to tensor with proper shape",
    "All input dimensions should be specified", "has a negative dimension", "has no shape but model", "data-type is",
    "invalid datatype for input", "incomplete string data")]
ANY_INPUT = FAULTS[1]  # whose batch size it is that differs is a matter of order
REQUEST_ID, MODEL = re.compile(r"\[request id: ([^\]]*)\]"), re.compile(r"for (?:model )?'([^']*)'")
UNNAMED = [
    (re.compile(r"expected datatype '[^']*'"), "expected another datatype"),
    (re.compile(r"unexpected inference input '[^']*'"), "unexpected inference input"),
]
# Error texts of the repository's failing models, and the status of their codes.
STATUS_OF_FAILURE = [(re.compile(text), status) for text, status in (
    (r"core failed", 503), (r"Exceeds maximum queue size|Request timeout expired", 503),
    (r"asked to fail|post failed|no code|negative element|Failed to process the request\(s\)", 500))]
# Statuses of the codes that the models `failing` and `failing_stream` answer with.
STATUS_OF_CODE = {1: 500, 2: 500, 3: 404, 4: 400, 5: 503, 6: 501, 7: 409, 8: 499}
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
    if want.get("status") != 500 or got.get("status") != 400:
        return False
    theirs, ours = body_error(want), body_error(got)
    for pattern, expected in CLIENT_MISTAKES:
        match = pattern.fullmatch(theirs)
        if match is None:
            continue
        for i, group in enumerate(match.groups(), 1):
            group = "'data'" if group == "JSON bytes array" else group
            # Outside of requests for inference the stock server does not say which member it is.
            unknown = r"'\w+'" if "{2}" in expected and i == 2 else ""
            expected = expected.replace("{%d}" % i, unknown if group is None else re.escape(group))
        return re.fullmatch(expected, ours, re.S) is not None and same_place(theirs, ours)
    return False


def same_place(theirs, ours):
    """Whether both find the end of the JSON at about the same byte of its first line; true when they do not say."""
    end, column = re.search(r" at (\d+)$", theirs), re.search(r"at line 1, column (\d+)$", ours)
    return end is None or column is None or -1 <= int(column[1]) - int(end[1]) - 1 <= 8


def error_type(case, want, got):
    return (want["headers"].get("content-type", "").startswith("text/plain") and want["status"] >= 400 and
            got["headers"].get("content-type") == "application/json")


def error_status(case, want, got):
    if not is_generate(case) or want["status"] != 400:
        return False
    text = json.dumps(got.get("body"))
    code = re.search(r"\bcode (\d+)\b", text)
    if code is not None:
        return got["status"] == STATUS_OF_CODE.get(int(code[1]) % 100)
    return got["status"] == next((status for pattern, status in STATUS_OF_FAILURE if pattern.search(text)), None)


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


def kind_of(text):
    return next((i for i, fault in enumerate(FAULTS) if fault.search(text)), None)


def same_fault(want, got):
    """Whether two texts are faults of one request: of its id and its model; of one kind, the same text."""
    for pattern, name in UNNAMED:
        want, got = pattern.sub(name, want), pattern.sub(name, got)
    if want == got:
        return True
    kinds = kind_of(want), kind_of(got)
    if None in kinds:
        return False
    for pattern in (REQUEST_ID, MODEL):
        names = pattern.findall(want), pattern.findall(got)
        if all(names) and names[0] != names[1]:
            return False
    return kinds[0] != kinds[1] or FAULTS[kinds[0]] is ANY_INPUT


def agree(want, got):
    if isinstance(want, dict) and isinstance(got, dict):
        return want.keys() == got.keys() and all(agree(want[key], got[key]) for key in want)
    if isinstance(want, list) and isinstance(got, list):
        return len(want) == len(got) and all(agree(*pair) for pair in zip(want, got))
    if isinstance(want, str) and isinstance(got, str):
        return same_fault(want, got)
    return want == got


def in_order(replies):
    """Replies of a stream by what they are, whatever fault they name."""
    def key(value):
        text = json.dumps(value, sort_keys=True)
        return "fault" if kind_of(text) is not None else text
    return sorted(replies or [], key=key)


def first_fault(case, want, got):
    return (all(agree(want.get(part), got.get(part)) for part in ("body", "message")) and
            agree(in_order(want.get("replies")), in_order(got.get("replies"))))


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
