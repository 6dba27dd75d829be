#!/usr/bin/env python3
"""Speculative decoding by the client: a draft model guesses, a target model tests the guesses, step by step, over gRPC."""
import argparse
import sys

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from triton_io import ServerError, Stream, scalar, strings, tensor

SAMPLING = ("repetition_penalty", "presence_penalty", "frequency_penalty")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("-v", "--verbose", action="store_true", help="print the tokens of each step, and why it was the last")
    add("--url-target", required=True, help="server of the target model and of postprocessing")
    add("--url-draft", help="server of the draft model and of preprocessing [that of the target]")
    add("--preprocessor-model-name", default="preprocessing")
    add("--postprocessor-model-name", default="postprocessing")
    add("--draft-tensorrt-llm-model-name", default="tensorrt_llm")
    add("--target-tensorrt-llm-model-name", default="tensorrt_llm")
    add("-p", "--prompt", required=True)
    add("-b", "--beam-width", type=int, default=1)
    add("--temperature", type=float, default=1.0)
    for name in SAMPLING:
        add("--" + name.replace("_", "-"), type=float)
    add("-o", "--output-len", type=int, default=100)
    add("--num-draft-tokens", type=int, default=5)
    add("--end-id", type=int)
    add("--pad-id", type=int)
    add("--request-id", default="1")
    add("--stop-words", nargs="+", default=[])
    add("--bad-words", nargs="+", default=[])
    add("--return-draft-model-draft-logits", action="store_true", help="guesses are tested by their probabilities")
    add("--return-target-model-accepted-token-logits", action="store_true", help="print their shape, with -v")
    flags = parser.parse_args()
    if flags.beam_width != 1:
        parser.error("--beam-width: %d is not allowed, only 1" % flags.beam_width)
    for name in ("output_len", "num_draft_tokens"):
        if getattr(flags, name) < (name == "output_len"):
            parser.error("--%s: %d is not allowed" % (name.replace("_", "-"), getattr(flags, name)))
    return flags


def preprocess(client, flags):
    """The ids of the prompt, and the other inputs that both models get with it."""
    inputs = [tensor(grpcclient, "QUERY", strings([flags.prompt])),
              scalar(grpcclient, "REQUEST_OUTPUT_LEN", flags.output_len, np.int32),
              tensor(grpcclient, "STOP_WORDS_DICT", strings(flags.stop_words or [""])),
              tensor(grpcclient, "BAD_WORDS_DICT", strings(flags.bad_words or [""]))]
    inputs += [scalar(grpcclient, name.upper(), getattr(flags, name), np.int32) for name in ("end_id", "pad_id")
               if getattr(flags, name) is not None]
    reply = client.infer(flags.preprocessor_model_name, inputs, request_id=flags.request_id)
    common = {"temperature": np.float32([[flags.temperature]]), "beam_width": np.int32([[1]]),
              "exclude_input_in_output": np.array([[False]])}
    for name, output in (("stop_words_list", "STOP_WORDS_IDS"), ("bad_words_list", "BAD_WORDS_IDS"),
                         ("end_id", "OUT_END_ID"), ("pad_id", "OUT_PAD_ID")):
        if reply.as_numpy(output) is not None:
            common[name] = reply.as_numpy(output)
    for name in SAMPLING:
        if getattr(flags, name) is not None:
            common[name] = np.float32([[getattr(flags, name)]])
    return reply.as_numpy("INPUT_ID")[0].tolist(), common


def generate(stream, model, flags, ids, num_tokens, inputs, outputs=()):
    """The reply of a model, decoupled or not, to these ids, and all ids that there are then."""
    tensors = {"input_ids": np.int32([ids]), "input_lengths": np.int32([[len(ids)]]),
               "request_output_len": np.int32([[num_tokens]]), **inputs}
    names = ("output_ids", "sequence_length", *outputs)
    stream.send(model, [tensor(grpcclient, name, value) for name, value in tensors.items()],
                outputs=[grpcclient.InferRequestedOutput(name) for name in names], request_id=flags.request_id)
    reply = None
    for result, is_final in stream.replies():
        reply = reply or result  # a final one behind it is empty
        if is_final:
            break
    length = reply.as_numpy("sequence_length")[0, 0]
    return reply, reply.as_numpy("output_ids")[0, 0, :length].tolist()


def draft(stream, flags, ids, count, common):
    """Guesses of what comes behind the ids, as inputs of the target model."""
    wants_logits = flags.return_draft_model_draft_logits
    more = {"min_length": np.int32([[count]]), "return_generation_logits": np.array([[wants_logits]])}
    reply, known = generate(stream, flags.draft_tensorrt_llm_model_name, flags, ids, count, {**common, **more},
                            ("generation_logits",) if wants_logits else ())
    guesses = known[len(ids):]
    if not guesses:
        return [], {}
    inputs = {"draft_input_ids": np.int32([guesses])}
    if wants_logits:
        inputs["draft_logits"] = reply.as_numpy("generation_logits")[0, :1, -len(guesses):]
    return guesses, inputs


def stop_words(common):
    """The lists of ids of a [1, 2, n] tensor: tokens, then the end of each word; -1 pads."""
    tokens, ends = common.get("stop_words_list", np.full((1, 2, 1), -1))[0].tolist()
    starts = [0] + ends[:-1]
    return [tokens[start:end] for start, end in zip(starts, ends) if 0 <= start < end]


def why_last(before, guessed, ids, most, words):
    """Why there is no further step; None: there is one."""
    if len(ids) >= most:
        return "the output is as long as it may be"
    if ids == before:
        return "the target model says nothing more"
    if guessed == ids:
        return "the draft model's output is the target's"
    if any(ids[-len(word):] == word for word in words):
        return "a stop word"
    return None


def speculate(draft_client, target_client, flags):
    """The ids of the prompt and of what the target model says behind it."""
    ids, common = preprocess(draft_client, flags)
    drafts, targets = Stream(draft_client), Stream(target_client)
    most = len(ids) + flags.output_len
    logits = ("generation_logits",) if flags.return_target_model_accepted_token_logits else ()
    while True:
        count = min(flags.num_draft_tokens, most - len(ids) - 1)
        guesses, inputs = draft(drafts, flags, ids, count, common) if count > 0 else ([], {})
        before = ids
        if logits:
            inputs["return_generation_logits"] = np.array([[True]])
        reply, ids = generate(targets, flags.target_tensorrt_llm_model_name, flags, ids, len(guesses) + 1,
                              {**common, **inputs}, logits)
        reason = why_last(before, before + guesses, ids, most, stop_words(common))
        if flags.verbose:
            print("draft: %s, target: %s" % (guesses, ids[len(before):]))
            for name in logits:
                print("%s.shape: %s" % (name, reply.as_numpy(name).shape))
        if reason:
            if flags.verbose:
                print("stop: " + reason)
            drafts.close()
            targets.close()
            return ids


def main():
    flags = parse_arguments()
    with grpcclient.InferenceServerClient(url=flags.url_target) as target_client, \
            grpcclient.InferenceServerClient(url=flags.url_draft or flags.url_target) as draft_client:
        try:
            ids = speculate(draft_client, target_client, flags)
            inputs = [tensor(grpcclient, "TOKENS_BATCH", np.int32([[ids]])),
                      tensor(grpcclient, "SEQUENCE_LENGTH", np.int32([[len(ids)]]))]
            reply = target_client.infer(flags.postprocessor_model_name, inputs, request_id=flags.request_id)
        except (InferenceServerException, ServerError) as error:
            sys.exit("Received an error from server:\n%s" % error)
    print("Final text:\n" + reply.as_numpy("OUTPUT").flatten()[0].decode("utf-8", errors="replace"))


if __name__ == "__main__":
    main()
