"""The compared part of an answer: one form for recorded and fresh answers, with all that varies from run to run taken out."""
import base64
import json
import re
import zlib


def normal_text(text):
    text = re.sub(r"\n\nAt:\n.*", " $TRACEBACK", text, flags=re.S)
    text = re.sub(r"Got input\(s\) \[([^\]]*)\]", lambda m: "Got input(s) [%s]" % ",".join(sorted(m[1].split(","))), text)
    text = re.sub(r"/tmp/folder\w+", "$FOLDER", text)
    text = re.sub(r"[^\s'\"]*?/?([a-z_]+/warmup/)", r"$REPO/\1", text)
    text = re.sub(r"(?:\$REPO|(?:/[^\s/:'\"]+)*?)/?([A-Za-z0-9_]+/\d+/model\.py)", r"$REPO/\1", text)
    return re.sub(r"(?:127\.0\.0\.1|localhost|0\.0\.0\.0|\[?::1?\]?):\d+", "ADDRESS", text)


def is_index(values):
    return bool(values) and all(isinstance(v, dict) and "state" in v for v in values)


def normal(value, key=""):
    """Times, paths, addresses, versions, traces and the order of unordered lists are replaced."""
    if isinstance(value, dict):
        if key != "response_stats" and "name" in value and "extensions" in value:
            value = dict(value, version="$VERSION")
        return {k: normal(v, k) for k, v in value.items()}
    if isinstance(value, list):
        value = [normal(v, key) for v in value]
        if key in ("model_stats", "models", "index") or is_index(value):
            value.sort(key=lambda v: json.dumps([v.get("name"), v.get("version")]))
        return value
    if key in ("ns", "last_inference"):
        return "$TIME"
    return normal_text(value) if isinstance(value, str) else value


def as_json(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def http_form(answer):
    headers = dict(answer.get("response_headers", {}))
    if "response_b64" in answer:
        body = base64.b64decode(answer["response_b64"])
    else:
        body = answer.get("response_body", "").encode()
    if headers.get("content-encoding") in ("gzip", "deflate"):
        try:
            body = zlib.decompress(body, 47)
        except zlib.error:
            pass
    out = {"status": answer.get("status"), "chunks": answer.get("chunks")}
    split = headers.pop("inference-header-content-length", None)
    if split is not None:
        out["binary"] = base64.b64encode(body[int(split):]).decode()
        body = body[:int(split)]
    text = body.decode("utf-8", "backslashreplace")
    if headers.get("content-type", "").startswith("text/event-stream"):
        out["body"] = [as_json(e[6:]) if e.startswith("data: ") else e for e in text.split("\n\n")]
    else:
        out["body"] = as_json(text)
    out["headers"] = headers
    return normal(out)


def grpc_form(case, answer):
    out = {k: answer[k] for k in ("code", "message", "reply", "replies") if k in answer}
    if out.get("code") == "DEADLINE_EXCEEDED" or out.get("message", "").startswith("Locally cancelled"):
        out["message"] = ""  # a text of the client
    if "first_replies" in case:  # the client leaves early; what still comes is a matter of timing
        out["replies"] = out["replies"][:case["first_replies"]]
    if case.get("final_any"):  # the final flag may come with the last response or alone
        replies = json.loads(json.dumps(out["replies"]))
        for reply in replies:
            reply.get("infer_response", {}).get("parameters", {}).pop("triton_final_response", None)
        out["replies"] = [r for r in replies if "error_message" in r or "outputs" in r.get("infer_response", {})]
    return normal(out)


def form(case, answer):
    """The comparable form of `answer` to `case`."""
    return grpc_form(case, answer) if "rpc" in case else http_form(answer)


def differences(want, got):
    """Names of the parts that differ."""
    return sorted(k for k in set(want) | set(got) if want.get(k) != got.get(k))
