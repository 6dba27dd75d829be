#!/usr/bin/env python3
"""Token ids in, token ids out: talks to the tensorrt_llm model over gRPC, streaming or not, with stop and cancel."""
import argparse
import csv
import sys
import threading
import time

import numpy as np
import tritonclient.grpc as grpcclient

import triton_io
from triton_io import scalar, tensor

GPT2_PROMPT = [28524, 287, 5093, 12, 23316, 4881, 11, 30022, 263, 8776, 355, 257]
GPT2_EXPECTED = [21221, 290, 373, 257, 2888, 286, 262, 4141, 2351, 10006, 13, 679, 373, 7018, 284, 262]
LOGITS = ("context_logits", "generation_logits")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    triton_io.add_connection_flags(parser, "localhost:8001")
    add = parser.add_argument
    add("--text", default="Born in north-east France, Soyer trained as a")
    add("--input-tokens-csv", default="")
    add("--draft-tokens-csv", default="")
    add("--output-tokens-csv", default="")
    add("--end-id", type=int, default=-1)
    add("--pad-id", type=int, default=50256)
    add("-s", "--ssl", action="store_true")
    add("-r", "--root-certificates")
    add("-p", "--private-key")
    add("-x", "--certificate-chain")
    add("-t", "--stream-timeout", type=float)
    add("-C", "--grpc-compression-algorithm", help="gzip or deflate")
    add("-S", "--streaming", action="store_true")
    add("-c", "--check-output", action="store_true")
    add("--correctness-threshold", type=float, default=1.0)
    add("-n", "--num-return-sequences", type=int)
    add("-b", "--beam-width", type=int, default=1)
    add("--temperature", type=float, default=1.0)
    add("--repetition-penalty", type=float)
    add("--presence-penalty", type=float)
    add("--frequency-penalty", type=float)
    add("--request-output-len", type=int, default=16)
    add("--stop-after-ms", type=int, default=0)
    add("--stop-via-request-cancel", action="store_true")
    add("--tokenizer-dir", default="")
    add("--tokenizer-type", default="auto", choices=["auto", "t5", "llama"],
        help="accepted; tokenizer.json says what it is")
    add("--request-id", default="")
    add("--prompt-embedding-table-path", default="")
    add("--prompt-task-id", type=int, default=0, help="row of the prompt embedding table")
    add("--prompt_table_extra_id", type=int)
    add("--lora-path", default="")
    add("--lora-task-id", type=int)
    add("--exclude-input-in-output", action="store_true")
    add("--dtype", default="float16", choices=["float16", "float32", "bfloat16"], help="of the prompt embedding table")
    add("--return-log-probs", action="store_true")
    add("--return-context-logits", action="store_true")
    add("--return-generation-logits", action="store_true")
    add("--return-perf-metrics", action="store_true")
    add("--return-num-input-tokens", action="store_true")
    add("--return-num-output-tokens", action="store_true")
    add("--top-k", type=int, default=1)
    add("--top-p", type=float, default=0.0)
    add("--requested-outputs", nargs="+", default=[])
    add("--model-name", default="tensorrt_llm")
    add("--vocab_size", type=int)
    add("--lookahead_config", type=lambda text: [int(n) for n in text.strip("[]").split(",")])
    return parser.parse_args()


def read_csv(path):
    with open(path, encoding="utf-8") as file:
        return [int(value) for row in csv.reader(file) for value in row if value.strip()]


class Run:
    """One request and what came back of it."""

    def __init__(self, flags):
        self.flags = flags
        self.tokenizer = triton_io.Tokenizer(flags.tokenizer_dir) if flags.tokenizer_dir else None
        self.prompt = self.read_prompt()
        self.sequences = {}  # sequence index -> list of beams' new tokens
        self.last = {}  # sequence index -> its last result with tokens
        self.cancelled = False

    def read_prompt(self):
        flags = self.flags
        if flags.input_tokens_csv:
            return read_csv(flags.input_tokens_csv)
        return self.tokenizer.encode(flags.text) if self.tokenizer else list(GPT2_PROMPT)

    def ids(self):
        """(pad, end): the tokenizer's where there is one."""
        if self.tokenizer is None or self.tokenizer.eos_id is None:
            return self.flags.pad_id, self.flags.end_id
        return self.tokenizer.pad_id, self.tokenizer.eos_id

    def inputs(self):
        flags = self.flags
        pad_id, end_id = self.ids()
        print("=========")
        print("Using pad_id: ", pad_id)
        print("Using end_id: ", end_id)
        where = "Input sequence: " if len(self.prompt) <= 256 else "Input sequence starts with: "
        print(where, self.prompt[:256])
        out = [tensor(grpcclient, "input_ids", np.array([self.prompt], dtype=np.int32))]

        def add(name, value, dtype):
            if value is not None:
                out.append(scalar(grpcclient, name, value, dtype))

        add("input_lengths", len(self.prompt), np.int32)
        add("request_output_len", flags.request_output_len, np.int32)
        add("beam_width", flags.beam_width, np.int32)
        add("temperature", flags.temperature, np.float32)
        add("streaming", flags.streaming, np.bool_)
        add("end_id", end_id, np.int32)
        add("pad_id", pad_id, np.int32)
        add("runtime_top_k", flags.top_k, np.int32)
        add("runtime_top_p", flags.top_p, np.float32)
        for name in ("repetition_penalty", "presence_penalty", "frequency_penalty"):
            add(name, getattr(flags, name), np.float32)
        add("num_return_sequences", flags.num_return_sequences, np.int32)
        for name in ("return_log_probs", "return_context_logits", "return_generation_logits", "return_perf_metrics",
                     "return_num_input_tokens", "return_num_output_tokens", "exclude_input_in_output"):
            add(name, getattr(flags, name) or None, np.bool_)
        add("lora_task_id", flags.lora_task_id, np.uint64)
        if flags.lookahead_config:
            names = ("lookahead_window_size", "lookahead_ngram_size", "lookahead_verification_set_size")
            for name, value in zip(names, flags.lookahead_config):
                add(name, value, np.int32)
        if flags.draft_tokens_csv:
            out.append(tensor(grpcclient, "draft_input_ids", np.array([read_csv(flags.draft_tokens_csv)], np.int32)))
        out.extend(self.tables())
        return out

    def tables(self):
        flags = self.flags
        if flags.prompt_embedding_table_path:
            # [tasks, virtual tokens, hidden size]
            table = np.load(flags.prompt_embedding_table_path)[[flags.prompt_task_id]]
            is_bf16 = flags.dtype == "bfloat16"
            table = table.astype(np.float32 if is_bf16 else flags.dtype)
            yield tensor(grpcclient, "prompt_embedding_table", table, "BF16" if is_bf16 else None)
            yield scalar(grpcclient, "prompt_vocab_size", table.shape[1], np.int32)
        if flags.prompt_table_extra_id is not None:
            vocab = flags.vocab_size or (self.tokenizer.vocab_size if self.tokenizer else 50257)
            extra = [flags.prompt_table_extra_id if token >= vocab else 0 for token in self.prompt]
            yield tensor(grpcclient, "prompt_table_extra_ids", np.array([extra], dtype=np.uint64))
        if flags.lora_path:
            for name, file, dtype in (("lora_weights", "model.lora_weights.npy", np.float16),
                                      ("lora_config", "model.lora_config.npy", np.int32)):
                yield tensor(grpcclient, name, np.load(flags.lora_path + "/" + file).astype(dtype))

    def stop_inputs(self):
        return [tensor(grpcclient, "input_ids", np.zeros([1, 1], np.int32)),
                scalar(grpcclient, "input_lengths", 0, np.int32),
                scalar(grpcclient, "request_output_len", 0, np.int32),
                scalar(grpcclient, "stop", True, np.bool_),
                scalar(grpcclient, "streaming", self.flags.streaming, np.bool_)]

    def outputs(self):
        names = self.flags.requested_outputs
        return [grpcclient.InferRequestedOutput(name) for name in names] if names else None

    def take(self, result):
        """Books one response."""
        ids, lengths = result.as_numpy("output_ids"), result.as_numpy("sequence_length")
        if ids is None or lengths is None:
            print("Got cancellation response from server")
            return
        names = {output.name for output in result.get_response().outputs}
        if self.flags.requested_outputs and names != set(self.flags.requested_outputs):
            raise AssertionError("outputs %s, requested %s" % (sorted(names), self.flags.requested_outputs))
        index = result.as_numpy("sequence_index")
        sequence = int(index.flatten()[0]) if index is not None else 0
        rows = [ids[0][beam][:lengths[0][beam]].tolist() for beam in range(ids.shape[1])]
        if self.flags.streaming and self.flags.beam_width == 1:
            if rows[0] and sequence == 0:
                print(rows[0])
            rows = [self.sequences.get(sequence, [[]])[0] + rows[0]]
        elif not self.flags.streaming and not self.flags.exclude_input_in_output:
            rows = [row[len(self.prompt):] for row in rows]
        self.sequences[sequence] = rows
        self.last[sequence] = result

    def show(self):
        for sequence, beams in sorted(self.sequences.items()):
            if self.tokenizer:
                print("Input:", self.tokenizer.decode(self.prompt))
            for beam, row in enumerate(beams):
                if self.tokenizer:
                    text = self.tokenizer.decode(row)
                    print("Output beam %d: %s" % (beam, text))
                    print("Output beam %d: %s" % (beam, text))
                print("Output sequence: ", row)
            result = self.last[sequence]
            for name in ("cum_log_probs", "output_log_probs"):
                value = result.as_numpy(name)
                if self.flags.return_log_probs and value is not None:
                    print("%s: %s" % (name, value))
            for name in LOGITS:
                value = result.as_numpy(name)
                if value is not None and getattr(self.flags, "return_" + name):
                    print("%s.shape: %s" % (name, value.shape))
                    print("%s: %s" % (name, value))
            triton_io.print_perf(result)

    def passed(self):
        flags = self.flags
        if flags.stop_after_ms > 0:
            new = sum(len(row) for beams in self.sequences.values() for row in beams)
            assert new < flags.request_output_len * flags.beam_width, "the request was not stopped: %d tokens" % new
            return True
        if not flags.check_output:
            return True
        expected = read_csv(flags.output_tokens_csv) if flags.output_tokens_csv else GPT2_EXPECTED
        got = self.sequences.get(0, [[]])[0]
        matching = sum(a == b for a, b in zip(got, expected))
        rate = matching / max(len(expected), 1)
        if flags.correctness_threshold < 1:
            print("Output token matching rate: %s" % rate)
            good = rate >= flags.correctness_threshold
        else:
            good = got == expected
        print("=====")
        print("PASS!" if good else "FAIL!")
        print("=====")
        return good


def stream(client, run, inputs):
    """Responses come on a bidirectional stream; so do those of a stop request."""
    flags = run.flags
    replies = triton_io.Stream(client, flags.stream_timeout, flags.grpc_compression_algorithm)
    options = {"request_id": flags.request_id, "outputs": run.outputs(), "parameters": {"Streaming": True}}
    stopper = None
    expected = 1

    def stop():
        time.sleep(flags.stop_after_ms / 1000)
        if flags.stop_via_request_cancel:
            run.cancelled = True
            replies.close(cancel=True)
        else:
            replies.send(flags.model_name, run.stop_inputs(), request_id=flags.request_id,
                         parameters={"Streaming": True})

    replies.send(flags.model_name, inputs, **options)
    if flags.stop_after_ms > 0:
        expected = 1 if flags.stop_via_request_cancel else 2
        stopper = threading.Thread(target=stop)
        stopper.start()
    try:
        for result, final in replies.replies():
            if result.get_response().outputs:
                run.take(result)
            elif not final or expected == 2 and flags.stop_after_ms > 0:
                print("Got cancellation response from server")
            expected -= final
            if expected == 0:
                break
    except triton_io.ServerError as error:
        if not (run.cancelled and "CANCELLED" in str(error).upper()):
            raise
        print("Request is cancelled")
    if stopper:
        stopper.join()
    if not run.cancelled:
        replies.close()


def unary(client, run, inputs):
    """One response; a stop request is a call of its own."""
    flags = run.flags
    done = threading.Event()
    answer = []

    def take(result, error):
        answer.append((result, error))
        done.set()

    call = client.async_infer(flags.model_name, inputs, take, request_id=flags.request_id, outputs=run.outputs(),
                              compression_algorithm=flags.grpc_compression_algorithm, parameters={"Streaming": False})
    if flags.stop_after_ms > 0:
        time.sleep(flags.stop_after_ms / 1000)
        if flags.stop_via_request_cancel:
            call.cancel()
        else:
            client.infer(flags.model_name, run.stop_inputs(), request_id=flags.request_id,
                         parameters={"Streaming": False})
            print("Got cancellation response from server")
    done.wait()
    result, error = answer[0]
    if error is not None:
        if flags.stop_via_request_cancel and "CANCELLED" in str(error).upper():
            print("Request is cancelled")
            return
        raise triton_io.ServerError(error)
    print("Got completed request")
    print(result.as_numpy("sequence_length"))
    run.take(result)


def main():
    flags = parse_arguments()
    run = Run(flags)
    with grpcclient.InferenceServerClient(
            url=flags.url, verbose=flags.verbose, ssl=flags.ssl, root_certificates=flags.root_certificates,
            private_key=flags.private_key, certificate_chain=flags.certificate_chain) as client:
        talk = stream if flags.streaming or flags.num_return_sequences else unary
        try:
            talk(client, run, run.inputs())
        except triton_io.ServerError as error:
            print("Received an error from server:")
            print(error)
            sys.exit("Encountered error: %s" % error)
    run.show()
    sys.exit(0 if run.passed() else 1)


if __name__ == "__main__":
    main()
