"""What the gRPC and HTTP clients of this folder share: tensors, tokenizers, streams, printing."""
import json
import os
import queue

import numpy as np
from tritonclient.utils import InferenceServerException

TYPES = {
    np.dtype(np.int32): "INT32", np.dtype(np.int64): "INT64", np.dtype(np.uint64): "UINT64",
    np.dtype(np.float32): "FP32", np.dtype(np.float16): "FP16", np.dtype(np.bool_): "BOOL",
    np.dtype(np.object_): "BYTES",
}
PERF_KEYS = (
    "kv_cache_alloc_new_blocks", "kv_cache_reused_blocks", "kv_cache_alloc_total_blocks", "arrival_time_ns",
    "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns", "acceptance_rate",
    "total_accepted_draft_tokens", "total_draft_tokens",
)


class ServerError(Exception):
    """An error that the server answered with."""


def tensor(client, name, data, datatype=None):
    """An input of the client module (tritonclient.grpc or .http) from an array; `datatype` where numpy has none: "BF16"
    from float32."""
    data = np.asarray(data)
    infer_input = client.InferInput(name, list(data.shape), datatype or TYPES[data.dtype])
    infer_input.set_data_from_numpy(data)
    return infer_input


def scalar(client, name, value, dtype):
    """The [1, 1] tensor that Triton models take for one number."""
    return tensor(client, name, np.array([[value]], dtype=dtype))


def strings(values):
    return np.array([[value.encode("utf-8") for value in values]], dtype=np.object_)


class Tokenizer:
    """encode and decode by tokenizer.json, through whichever Hugging Face package is installed."""

    def __init__(self, directory):
        try:
            from tokenizers import Tokenizer as Fast
            self._fast = Fast.from_file(os.path.join(directory, "tokenizer.json"))
        except ImportError as error:
            raise SystemExit("--tokenizer-dir needs the Python package 'tokenizers': %s" % error)
        self.vocab_size = self._fast.get_vocab_size()
        self.eos_id = self._special(directory, "eos_token")
        pad = self._special(directory, "pad_token")
        self.pad_id = self.eos_id if pad is None else pad

    def _special(self, directory, key):
        path = os.path.join(directory, "tokenizer_config.json")
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as file:
            value = json.load(file).get(key)
        text = value.get("content") if isinstance(value, dict) else value
        return None if text is None else self._fast.token_to_id(text)

    def encode(self, text):
        return self._fast.encode(text).ids

    def decode(self, ids):
        return self._fast.decode(list(ids))


class Stream:
    """One ModelStreamInfer stream: responses come out of a queue, in order."""

    def __init__(self, client, timeout=None, compression=None):
        self._client = client
        self._replies = queue.Queue()
        client.start_stream(callback=lambda result, error: self._replies.put((result, error)), stream_timeout=timeout,
                            compression_algorithm=compression)

    def send(self, model, inputs, **options):
        try:
            self._client.async_stream_infer(model, inputs, enable_empty_final_response=True, **options)
        except InferenceServerException as error:
            # The stream has broken; the reason is what came back first.
            raise ServerError(error if self._replies.empty() else self._replies.get()[1] or error)

    def close(self, cancel=False):
        """Half-closes and waits for what is under way; or cancels it."""
        self._client.stop_stream(cancel_requests=cancel)

    def replies(self):
        """(result, is_final) until closed by the caller; raises ServerError."""
        while True:
            result, error = self._replies.get()
            if error is not None:
                raise ServerError(error)
            final = result.get_response().parameters.get("triton_final_response")
            yield result, bool(final and final.bool_param)


def print_perf(result):
    """`key: value` for each performance output that came."""
    for key in PERF_KEYS:
        value = result.as_numpy(key)
        if value is not None:
            print("%s: %s" % (key, value.flatten()[0]))


def add_connection_flags(parser, url):
    parser.add_argument("-v", "--verbose", action="store_true", help="print requests and replies")
    parser.add_argument("-u", "--url", default=url, help="server's address [%(default)s]")
