#!/usr/bin/env python3
"""Text in, text out: talks to the ensemble or the tensorrt_llm_bls model over a gRPC stream."""
import argparse
import json
import sys

import numpy as np
import tritonclient.grpc as grpcclient

import triton_io
from triton_io import tensor


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    triton_io.add_connection_flags(parser, "localhost:8001")
    add = parser.add_argument
    add("--expected-outputs", type=json.loads, default=[])
    add("--check-outputs", action="store_true")
    add("-p", "--prompt", required=True, help="a text, or a JSON list of texts")
    add("--model-name", default="ensemble", choices=["ensemble", "tensorrt_llm_bls"])
    add("-S", "--streaming", action="store_true")
    add("-n", "--num-return-sequences", type=int)
    add("-b", "--beam-width", type=int, default=1)
    add("--temperature", type=float, default=1.0)
    add("--repetition-penalty", type=float)
    add("--presence-penalty", type=float)
    add("--frequency-penalty", type=float)
    add("-o", "--output-len", type=int, default=100)
    add("--request-id", default="")
    add("--stop-words", nargs="+", default=[])
    add("--bad-words", nargs="+", default=[])
    add("--embedding-bias-words", nargs="+", default=[])
    add("--embedding-bias-weights", nargs="+", type=float, default=[])
    add("--overwrite-output-text", action="store_true", help="each text replaces the one before")
    add("--return-log-probs", action="store_true")
    add("--return-context-logits", action="store_true")
    add("--return-generation-logits", action="store_true")
    add("--return-perf-metrics", action="store_true")
    add("--batch-inputs", action="store_true", help="all prompts in one request")
    add("--end-id", type=int)
    add("--pad-id", type=int)
    add("--lora-path", default="")
    add("--lora-task-id", type=int)
    add("--exclude-input-in-output", action="store_true")
    add("--guided-decoding-guide-type")
    add("--guided-decoding-guide")
    return parser.parse_args()


def read_prompts(text):
    try:
        prompts = json.loads(text)
    except ValueError:
        return [text]
    return [str(prompt) for prompt in prompts] if isinstance(prompts, list) else [text]


def make_inputs(flags, prompts):
    """The tensors of one request for these prompts, one row each."""
    rows = len(prompts)
    inputs = []

    def add(name, value, dtype):
        if value is not None:
            inputs.append(tensor(grpcclient, name, np.array([[value]] * rows, dtype=dtype)))

    def add_list(name, values, dtype):
        if values:
            inputs.append(tensor(grpcclient, name, np.array([values] * rows, dtype=dtype)))

    texts = np.array([[prompt.encode("utf-8")] for prompt in prompts], dtype=np.object_)
    inputs.append(tensor(grpcclient, "text_input", texts))
    add("max_tokens", flags.output_len, np.int32)
    add("stream", flags.streaming, np.bool_)
    add("beam_width", flags.beam_width, np.int32)
    add("temperature", flags.temperature, np.float32)
    add("exclude_input_in_output", flags.exclude_input_in_output, np.bool_)
    for name in ("repetition_penalty", "presence_penalty", "frequency_penalty"):
        add(name, getattr(flags, name), np.float32)
    for name in ("return_log_probs", "return_context_logits", "return_generation_logits", "return_perf_metrics"):
        add(name, getattr(flags, name) or None, np.bool_)
    for name in ("num_return_sequences", "end_id", "pad_id"):
        add(name, getattr(flags, name), np.int32)
    add("lora_task_id", flags.lora_task_id, np.uint64)
    for name, words in (("stop_words", flags.stop_words), ("bad_words", flags.bad_words),
                        ("embedding_bias_words", flags.embedding_bias_words)):
        add_list(name, [word.encode("utf-8") for word in words], np.object_)
    add_list("embedding_bias_weights", flags.embedding_bias_weights, np.float32)
    for name in ("guided_decoding_guide_type", "guided_decoding_guide"):
        text = getattr(flags, name)
        add_list(name, [text.encode("utf-8")] if text else [], np.object_)
    if flags.lora_path:
        for name, file, dtype in (("lora_weights", "model.lora_weights.npy", np.float16),
                                  ("lora_config", "model.lora_config.npy", np.int32)):
            inputs.append(tensor(grpcclient, name, np.load(flags.lora_path + "/" + file).astype(dtype)))
    return inputs


def make_outputs(flags):
    names = ["text_output"]
    if flags.return_log_probs:
        names += ["cum_log_probs", "output_log_probs"]
    names += [name for name in ("context_logits", "generation_logits") if getattr(flags, "return_" + name)]
    if flags.return_perf_metrics:
        names += triton_io.PERF_KEYS
    if flags.batch_inputs:
        names.append("batch_index")
    if (flags.num_return_sequences or 1) > 1:
        names.append("sequence_index")
    return [grpcclient.InferRequestedOutput(name) for name in names]


def index_of(result, name):
    value = result.as_numpy(name)
    return 0 if value is None else int(value.flatten()[0])


def show_extras(flags, result):
    for name in ("output_log_probs", "cum_log_probs") if flags.return_log_probs else ():
        value = result.as_numpy(name)
        if value is not None:
            print("%s.shape: %s" % (name, value.shape))
            print("%s: %s" % (name, value))
    for name in ("context_logits", "generation_logits"):
        value = result.as_numpy(name)
        if getattr(flags, "return_" + name) and value is not None:
            print("%s.shape: %s" % (name, value.shape))
            print("%s: %s" % (name, value))
    if flags.return_perf_metrics:
        triton_io.print_perf(result)


def run(client, flags, prompts):
    """One request on a stream of its own; returns {(batch, sequence): text}."""
    texts = {}
    stream = triton_io.Stream(client)
    stream.send(flags.model_name, make_inputs(flags, prompts), request_id=flags.request_id,
                outputs=make_outputs(flags), parameters={"Streaming": flags.streaming})
    for result, final in stream.replies():
        output = result.as_numpy("text_output")
        if output is not None:
            key = index_of(result, "batch_index"), index_of(result, "sequence_index")
            text = output.flatten()[0].decode("utf-8", errors="replace")
            if flags.streaming and flags.beam_width == 1:
                if key[1] == 0:
                    print(key[0], output.flatten()[:1])
                text = text if flags.overwrite_output_text else texts.get(key, "") + text
            texts[key] = text
            show_extras(flags, result)
        if final:
            break
    stream.close()
    many = (flags.num_return_sequences or 1) > 1
    for (batch, sequence), text in sorted(texts.items()):
        if flags.streaming and flags.beam_width == 1:
            print(text)
        else:
            print("%d [%d]: %s" % (batch, sequence, text) if many else "%d: %s" % (batch, text))
    return texts


def check(flags, prompts, texts):
    """`texts`: {(prompt, sequence): text}; every sequence of a prompt must have the expected text."""
    if len(flags.expected_outputs) != len(prompts):
        print("FAIL: %d expected outputs for %d prompts" % (len(flags.expected_outputs), len(prompts)))
        return False
    for number, (prompt, expected) in enumerate(zip(prompts, flags.expected_outputs)):
        wanted = expected if flags.streaming or flags.exclude_input_in_output else prompt + expected
        got = [texts.get((number, sequence)) for sequence in range(flags.num_return_sequences or 1)]
        if any(text != wanted for text in got):
            print("FAIL: prompt %d: got %r, expected %r" % (number, got, wanted))
            return False
    return True


def main():
    flags = parse_arguments()
    if flags.beam_width > 1 and flags.check_outputs:
        sys.exit("--check-outputs works with a beam width of 1, not %d" % flags.beam_width)
    prompts = read_prompts(flags.prompt)
    groups = [prompts] if flags.batch_inputs else [[prompt] for prompt in prompts]
    texts = {}
    with grpcclient.InferenceServerClient(url=flags.url, verbose=flags.verbose) as client:
        try:
            for number, group in enumerate(groups):
                for (batch, sequence), text in run(client, flags, group).items():
                    texts[number + batch, sequence] = text
        except triton_io.ServerError as error:
            print("Received an error from server:")
            print(error)
            sys.exit(1)
    if flags.check_outputs and not check(flags, prompts, texts):
        sys.exit(1)


if __name__ == "__main__":
    main()
