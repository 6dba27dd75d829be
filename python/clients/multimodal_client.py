#!/usr/bin/env python3
"""A text and a picture in, text out: talks to the ensemble or the tensorrt_llm_bls model over a gRPC stream."""
import argparse
import base64
import sys
import time
import urllib.request

import numpy as np
import tritonclient.grpc as grpcclient

import triton_io
from triton_io import tensor

MODELS = ["blip2", "llava", "vila", "mllama", "llava_onevision", "qwen2_vl"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    triton_io.add_connection_flags(parser, "localhost:8001")
    add = parser.add_argument
    add("--text", default="Question: What is in the picture? Answer:")
    add("--image", required=True, help="a URL, a path, or a data URL")
    add("--video", help="refused: the server takes no videos")
    add("--end-id", type=int, default=-1)
    add("--pad-id", type=int, default=1)
    add("-b", "--beam-width", type=int, default=1)
    add("--temperature", type=float, default=1.0)
    add("--repetition-penalty", type=float, default=1.0)
    add("--presence-penalty", type=float)
    add("--request-output-len", type=int, default=16)
    add("--top-k", type=int, default=1)
    add("--top-p", type=float, default=0.0)
    add("--streaming", action="store_true")
    add("--use_bls", action="store_true")
    add("--model_type", required=True, choices=MODELS, help="has no effect: the server knows its model")
    add("--hf_model_dir", help="has no effect: the server prepares the picture")
    return parser.parse_args()


def data_url(image):
    """The picture as a data URL; the server fetches nothing for this protocol."""
    if image.startswith("data:"):
        return image
    if image.startswith(("http:", "https:")):
        with urllib.request.urlopen(image, timeout=30) as reply:
            data = reply.read()
    else:
        with open(image, "rb") as file:
            data = file.read()
    return "data:;base64," + base64.b64encode(data).decode()


def make_inputs(flags):
    values = [("text_input", flags.text.encode("utf-8"), np.object_),
              ("image_url_input", data_url(flags.image).encode(), np.object_),
              ("max_tokens", flags.request_output_len, np.int32), ("end_id", flags.end_id, np.int32),
              ("pad_id", flags.pad_id, np.int32), ("beam_width", flags.beam_width, np.int32),
              ("top_k", flags.top_k, np.int32), ("temperature", flags.temperature, np.float32),
              ("repetition_penalty", flags.repetition_penalty, np.float32), ("stream", flags.streaming, np.bool_)]
    if flags.top_p > 0:
        values.append(("top_p", flags.top_p, np.float32))
    if flags.presence_penalty is not None:
        values.append(("presence_penalty", flags.presence_penalty, np.float32))
    return [tensor(grpcclient, name, np.array([[value]], dtype=dtype)) for name, value, dtype in values]


def run(client, flags):
    """The texts of the beams, or in a stream the text so far."""
    begin = time.monotonic()
    texts = []
    stream = triton_io.Stream(client)
    stream.send("tensorrt_llm_bls" if flags.use_bls else "ensemble", make_inputs(flags), request_id="1",
                outputs=[grpcclient.InferRequestedOutput("text_output")], parameters={})
    for result, final in stream.replies():
        output = result.as_numpy("text_output")
        if output is not None:
            new = [text.decode("utf-8", errors="replace") for text in output.flatten()]
            texts = ["".join(texts) + new[0]] if flags.streaming and flags.beam_width == 1 else new
            if flags.streaming:
                print(new)
        if final:
            break
    stream.close()
    for number, text in enumerate(texts):
        print("[beam %d ]:\n%s" % (number, text))
    print("[INFO] Latency: %.3f ms" % ((time.monotonic() - begin) * 1000))


def main():
    flags = parse_arguments()
    if flags.video:
        sys.exit("--video: the server takes no videos")
    with grpcclient.InferenceServerClient(url=flags.url, verbose=flags.verbose) as client:
        try:
            run(client, flags)
        except triton_io.ServerError as error:
            print("Received an error from server:")
            print(error)
            sys.exit(1)


if __name__ == "__main__":
    main()
