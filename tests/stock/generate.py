"""Seeded requests for the differential test and the mutations: valid ones for the corpus's models, and damaged ones."""
import base64
import copy
import json
import random
import struct

# datatype -> (struct code, values that fit, contents field of gRPC)
TYPES = {
    "BOOL": ("?", [True, False], "bool_contents"),
    "UINT8": ("B", [0, 1, 255], "uint_contents"),
    "UINT16": ("H", [0, 7, 65535], "uint_contents"),
    "UINT32": ("I", [0, 9, 4294967295], "uint_contents"),
    "UINT64": ("Q", [0, 1 << 40], "uint64_contents"),
    "INT8": ("b", [0, -128, 127], "int_contents"),
    "INT16": ("h", [0, -32768, 32767], "int_contents"),
    "INT32": ("i", [0, -5, 2147483647], "int_contents"),
    "INT64": ("q", [0, -(1 << 50)], "int64_contents"),
    "FP32": ("f", [0.0, 1.5, -2.25], "fp32_contents"),
    "FP64": ("d", [0.0, 0.1, -1e300], "fp64_contents"),
    "BYTES": (None, ["", "a", "hello \u00e9", "x" * 40], "bytes_contents"),
}
INFER_MODELS = {  # model -> (inputs: name, datatype, shape of a batch of n)
    "types": [("IN_" + ("STRING" if t == "BYTES" else t), t, lambda n: [n]) for t in TYPES],
    "one": [("IN", "INT32", lambda n: [1, n])],
    "core": [("input_ids", "INT32", lambda n: [1, n]), ("request_output_len", "INT32", lambda n: [1, 1])],
    "failing": [("CODE", "INT32", lambda n: [1])],
    "params": [("IN", "BYTES", lambda n: [1])],
}
GENERATE_BODIES = [
    ("llm", {"text_input": "hi", "max_tokens": 2}),
    ("llm", {"text_input": ["a", "b"], "max_tokens": [1, 2], "temperature": [0.5, 1], "id": "r1"}),
    ("llm_stream", {"text_input": "hi", "max_tokens": 3, "stream": True}),
    ("llm_stream", {"text_input": "hi", "max_tokens": 1, "parameters": {"top_k": 3, "x": "y"}}),
    ("repeat", {"IN": [1, 2, 3]}),
    ("failing", {"CODE": 5}),
    ("failing_stream", {"CODE": 103}),
    ("types", {"IN_INT32": [1, 2], "IN_BOOL": True, "IN_FP32": [0.5], "IN_STRING": ["a"]}),
    ("ensemble_plain", {"text_input": "abc", "max_tokens": 2}),
    ("ensemble", {"text_input": "abc", "max_tokens": 2}),
]
ODD = [None, True, -1, 0, 1, 1.5, 1 << 70, -(1 << 70), "", "x", "12", [], {}, [[]], [1, "a"], {"a": 1}, "\u0000", "IN"]
NAMES = ["types", "one", "llm", "nope", "", "a b", "..", "types/versions/1", "core"]


def element_bytes(datatype, values):
    code = TYPES[datatype][0]
    if code:
        return b"".join(struct.pack("<" + code, v) for v in values)
    texts = [v.encode() for v in values]
    return b"".join(struct.pack("<I", len(t)) + t for t in texts)


class Maker:
    """Cases in the form of the recorded corpus, the same for the same seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.count = 0

    def pick(self, values):
        return self.random.choice(list(values))

    def named(self, kind, case):
        self.count += 1
        return dict(case, name="%s %d" % (kind, self.count))

    # Valid requests

    def tensors(self):
        """(model, [(name, datatype, shape, flat values)])."""
        model = self.pick(INFER_MODELS)
        declared = INFER_MODELS[model]
        if model == "types":
            declared = self.random.sample(declared, self.random.randint(1, 3))
        out = []
        for name, datatype, shape_of in declared:
            shape = shape_of(self.random.randint(1, 4))
            size = 1
            for dim in shape:
                size *= dim
            values = [self.pick(TYPES[datatype][1]) for _ in range(size)]
            if name == "request_output_len":
                values = [self.random.randint(1, 3)]
            if name == "input_ids":
                values = [self.pick([0, 97, 255]) for _ in values]
            if name == "CODE":
                values = [self.random.randint(0, 9)]
            out.append((name, datatype, shape, values))
        return model, out

    def outputs(self, model, tensors, binary):
        if model != "types" or self.random.random() < 0.5:
            return []
        return [{"name": "OUT" + name[2:], "parameters": {"binary_data": binary}} for name, *_ in tensors]

    def infer_json(self):
        model, tensors = self.tensors()
        body = {"inputs": [{"name": n, "datatype": t, "shape": s, "data": v} for n, t, s, v in tensors]}
        if self.random.random() < 0.4:
            body["id"] = self.pick(["1", "a-b", ""])
        if self.random.random() < 0.3:
            body["parameters"] = self.pick([{"x": 1}, {"y": "z", "b": True}, {"priority": 0}])
        if len(tensors) == 1 and (outputs := self.outputs(model, tensors, False)):
            body["outputs"] = outputs
        elif len(tensors) > 1:  # in stock, several outputs come in the order of a hash table
            body["inputs"] = body["inputs"][:1] if model == "types" else body["inputs"]
        return model, body

    def infer_binary(self):
        model, tensors = self.tensors()
        tensors = tensors[:1] if model == "types" else tensors
        inputs, blob = [], b""
        for name, datatype, shape, values in tensors:
            data = element_bytes(datatype, values)
            inputs.append({"name": name, "datatype": datatype, "shape": shape,
                           "parameters": {"binary_data_size": len(data)}})
            blob += data
        body = {"inputs": inputs}
        if outputs := self.outputs(model, tensors, True):
            body["outputs"] = outputs
        return model, body, blob

    def http(self, model, verb, text, headers=None):
        return {"method": "POST", "path": "/v2/models/%s/%s" % (model, verb), "headers": headers or {},
                "body_b64": base64.b64encode(text).decode()}

    def binary_case(self, model, body, blob, change=0):
        text = json.dumps(body).encode()
        return self.http(model, "infer", text + blob, {"Inference-Header-Content-Length": str(len(text) + change)})

    def grpc_infer(self):
        model, tensors = self.tensors()
        raw = self.random.random() < 0.5
        request = {"model_name": model, "inputs": []}
        for name, datatype, shape, values in tensors:
            item = {"name": name, "datatype": datatype, "shape": shape}
            if raw:
                data = element_bytes(datatype, values)
                request.setdefault("raw_input_contents", []).append(base64.b64encode(data).decode())
            else:
                if datatype == "BYTES":
                    values = [base64.b64encode(v.encode()).decode() for v in values]
                item["contents"] = {TYPES[datatype][2]: values}
            request["inputs"].append(item)
        if self.random.random() < 0.4:
            request["id"] = self.pick(["7", "x y"])
        if model == "types" and len(tensors) == 1 and self.random.random() < 0.5:
            request["outputs"] = [{"name": "OUT" + tensors[0][0][2:]}]
        elif model == "types":
            request["inputs"] = request["inputs"][:1]
            if raw:
                request["raw_input_contents"] = request["raw_input_contents"][:1]
        return request

    def stream_requests(self, count):
        """For one stream: of one kind, since stock aborts when one-response models share a stream with others."""
        kind = self.random.randrange(4)
        return [self.stream_request(kind) for _ in range(1 if kind == 3 else count)]

    def stream_request(self, kind):
        if kind == 0:
            values = [self.random.randint(-1, 5) for _ in range(self.random.randint(0, 4))]
            return {"model_name": "repeat", "id": "s", "inputs": [
                {"name": "IN", "datatype": "INT32", "shape": [len(values)], "contents": {"int_contents": values}}]}
        if kind == 1:
            code = self.pick([0, 1, 3, 5, 50, 102, 105])
            return {"model_name": "failing_stream", "inputs": [
                {"name": "CODE", "datatype": "INT32", "shape": [1], "contents": {"int_contents": [code]}}]}
        if kind == 2:
            return {"model_name": "llm_stream", "inputs": [
                {"name": "text_input", "datatype": "BYTES", "shape": [1, 1], "contents": {"bytes_contents": ["aGk="]}},
                {"name": "max_tokens", "datatype": "INT32", "shape": [1, 1],
                 "contents": {"int_contents": [self.random.randint(0, 3)]}},
                {"name": "stream", "datatype": "BOOL", "shape": [1, 1],
                 "contents": {"bool_contents": [self.random.random() < 0.7]}}]}
        return self.grpc_infer()

    # Sequences: an id of its own for each case, and flags in any order

    def sequence_flags(self):
        return {name: True for name in ("sequence_start", "sequence_end") if self.random.random() < 0.5}

    def sequence_id(self):
        number = 1000 + self.count
        return self.pick([number] * 8 + ["c%d" % number, 0, -1, "", "x" * 130])

    def sequence_http(self):
        model = self.pick(["seq", "seq_oldest"])
        body = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [self.random.randint(0, 9)]}],
                "parameters": self.sequence_flags()}
        if self.random.random() < 0.9:
            body["parameters"]["sequence_id"] = self.sequence_id()
        return self.http(model, "infer", json.dumps(body).encode())

    def sequence_requests(self):
        """Requests of one sequence, mostly in the right order, for one stream."""
        model = self.pick(["seq", "seq_oldest"])
        who = self.sequence_id()
        count = self.random.randint(1, 4)
        out = []
        for i in range(count):
            flags = self.sequence_flags() if self.random.random() < 0.2 else {
                name: True for name, at in (("sequence_start", 0), ("sequence_end", count - 1)) if i == at}
            parameters = {name: {"bool_param": True} for name in flags}
            parameters["sequence_id"] = {"int64_param": who} if isinstance(who, int) else {"string_param": who}
            out.append({"model_name": model, "parameters": parameters, "inputs": [
                {"name": "IN", "datatype": "INT32", "shape": [1], "contents": {"int_contents": [i + 1]}}]})
        return out

    # Damage

    def spots(self, value, path=()):
        yield path
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            yield from self.spots(inner, path + (key,))

    def damaged(self, tree):
        """A copy with one member removed, replaced or added."""
        tree = copy.deepcopy(tree)
        path = self.pick([p for p in self.spots(tree) if p])
        parent = tree
        for key in path[:-1]:
            parent = parent[key]
        action = self.random.randrange(4)
        if action == 0:
            del parent[path[-1]]
        elif action == 1 and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[path[-1]]))
        elif action == 2 and isinstance(parent, dict):
            parent[self.pick(["X", "shape", "data", "name", "parameters", "inputs"])] = self.pick(ODD)
        else:
            parent[path[-1]] = self.pick(ODD)
        return tree

    def garbled(self, text):
        """Bytes cut, repeated, or overwritten."""
        at = self.random.randrange(len(text) + 1)
        action = self.random.randrange(3)
        if action == 0:
            return text[:at]
        if action == 1:
            return text[:at] + self.pick([b"{", b"}", b"]", b",", b"\"", b"\\", b"0", b"-", b"\x00", b"\xff"]) + text[at:]
        return text[:at] + text[at:at + self.random.randint(1, 8)] + text[at:]
