"""The flags of the client programs that guides use and no other scenario does: what each changes in the answer."""
import ast
import csv
import json
import os
import re

import numpy as np

from triton_server import CLIENTS, MODEL, PROMPT, TOOLS, WORK, Server, client, repository

PROMPT_TOKENS = [11, 12, 13, 14]


def file_of(name, text):
    path = os.path.join(WORK, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def sequences(printed):
    return [json.loads(row) for row in re.findall(r"^Output sequence:  (\[.*\])$", printed, re.M)]


def inflight_unary(server):
    """inflight_batcher_llm_client.py with one answer to each request."""
    prompt = file_of("flags_prompt.csv", ",".join(map(str, PROMPT_TOKENS)))

    def ask(*words, status=0):
        return client(CLIENTS, "inflight_batcher_llm_client.py", "-u", server.grpc, "--input-tokens-csv", prompt,
                      "--request-output-len", "8", *words, status=status)

    tokens = sequences(ask())[0]
    assert len(tokens) == 8, tokens
    right = file_of("flags_right.csv", ",".join(map(str, tokens)))
    half = file_of("flags_half.csv", ",".join(str(token if i < 4 else token + 1) for i, token in enumerate(tokens)))
    assert "PASS!" in ask("-c", "--output-tokens-csv", right, "-C", "gzip")
    assert "FAIL!" in ask("-c", "--output-tokens-csv", half, status=1)
    out = ask("-c", "--output-tokens-csv", half, "--correctness-threshold", "0.5", "--exclude-input-in-output")
    assert "PASS!" in out and "Output token matching rate: 0.5" in out, out
    assert "FAIL!" in ask("-c", status=1)  # the output for GPT-2
    beams = sequences(ask("-b", "2"))
    assert len(beams) == 2 and [len(beam) for beam in beams] == [8, 8] and beams[0] != beams[1], beams
    out = ask("--requested-outputs", "output_ids", "sequence_length", "--return-log-probs")
    assert sequences(out) == [tokens] and "log_probs" not in out.replace("--return-log-probs", ""), out
    out = ask("--return-log-probs", "--return-context-logits", "--return-generation-logits")
    for wanted in (r"^cum_log_probs: \[", r"^output_log_probs: \[", r"^context_logits\.shape: \(1, 4, \d+\)$",
                   r"^generation_logits\.shape: \(1, 1, 8, \d+\)$"):
        assert re.search(wanted, out, re.M), (wanted, out)
    out = ask("--temperature", "0.7", "--top-k", "5", "--top-p", "0.9", "--repetition-penalty", "1.5",
              "--presence-penalty", "0.1", "--frequency-penalty", "0.1", "--tokenizer-dir", MODEL, "--tokenizer-type", "llama")
    assert out.count("Output beam 0: ") == 2, out
    def table(width):  # tasks, virtual tokens, hidden size
        path = os.path.join(WORK, f"flags_table_{width}.npy")
        np.save(path, np.zeros((2, 3, width)))
        return "--prompt-embedding-table-path", path, "--prompt-task-id", "1"

    assert sequences(ask(*table(256), "--dtype", "float16"))[0] == tokens  # no token asks for its rows
    for width, dtype, wanted in ((64, "float16", "prompt_table.width: 64 is not 256"), (256, "float32", "FP32"),
                                 (256, "bfloat16", "BF16")):
        out = ask(*table(width), "--dtype", dtype, status=1)
        assert wanted in out.partition("Received an error from server:")[2], (dtype, out)


def inflight_streams(server):
    """The same program on streams."""
    def ask(*words):
        return client(CLIENTS, "inflight_batcher_llm_client.py", "-u", server.grpc, "--request-output-len", "8", "-S", *words)

    plain = sequences(ask())
    assert [len(row) for row in plain] == [8], plain
    for algorithm in ("gzip", "deflate"):
        assert sequences(ask("-C", algorithm)) == plain
    assert "algorithm is not supported" in ask("-C", "zip")  # the client library heard of it
    assert [len(row) for row in sequences(ask("-n", "2", "--top-k", "0", "--top-p", "0.9"))] == [8, 8]
    assert [len(row) for row in sequences(ask("-b", "2"))] == [8, 8]


def end_to_end(server):
    """end_to_end_grpc_client.py: words, checks, and what it prints for several texts."""
    def ask(*words, status=0, prompt=PROMPT):
        return client(CLIENTS, "end_to_end_grpc_client.py", "-u", server.grpc, "-o", "8", "--end-id", "-1", "-p", prompt,
                      "--exclude-input-in-output", *words, status=status)

    def text(*words):
        return re.search(r"^0: (.*)\Z", ask(*words), re.M | re.S)[1].rstrip("\n")

    plain = text()
    first = plain.split()[1]
    assert text("--stop-words", first, "nothing").endswith(first) and text("--stop-words", first) != plain
    assert first not in text("--bad-words", first, " " + first)
    assert "zebra" in text("--embedding-bias-words", "zebra", "--embedding-bias-weights", "1000").replace(" ", "")
    for more in ([], ["-S"], ["-S", "--model-name", "tensorrt_llm_bls"]):
        ask("--check-outputs", "--expected-outputs", json.dumps([plain]), *more)
        assert "FAIL" in ask("--check-outputs", "--expected-outputs", json.dumps([plain + "x"]), *more, status=1)
    streamed = ask("-S")
    pieces = [ast.literal_eval(piece) for piece in re.findall(r"^0 \[(b['\"].*['\"])\]$", streamed, re.M)]
    assert len(pieces) == 8 and b"".join(pieces).decode() == plain and streamed.endswith("\n" + plain + "\n"), streamed
    assert ask("-S", "--overwrite-output-text").endswith("\n" + pieces[-1].decode() + "\n")
    many = ask("-n", "2")
    assert "0 [0]: " in many and "0 [1]: " in many, many
    assert text("-b", "2") and ask("-b", "2", "-S").rstrip().startswith("0: ")
    prompts = json.dumps([PROMPT, "The sea"])
    for more in (["--batch-inputs"], []):
        out = ask("--check-outputs", "--expected-outputs", json.dumps([plain, "?"]), *more, prompt=prompts, status=1)
        assert "FAIL: prompt 1: " in out, out


def benchmark(server):
    """benchmark_core_model.py: other workloads, old spellings, rates, and the files that it writes."""
    rows, trace = os.path.join(WORK, "flags_rows.csv"), os.path.join(WORK, "prfetto_dump.json")
    expected = file_of("flags_expected.json", json.dumps({"low": 0, "high": 1e12}))
    for path in (rows, trace):
        if os.path.exists(path):
            os.remove(path)

    def run(*words, status=0):
        return client(TOOLS, "benchmark_core_model.py", "-i", "grpc", "-u", server.grpc, *words, status=status, cwd=WORK)

    histogram = ["--num_requests", "6", "--op-stats-csv", rows, "token_from_histogram", "--histogram_key", "example"]
    out = run("--check-perf-json", expected, "--check-perf-key", "high", *histogram)
    assert "[INFO] Start benchmarking on 6 prompts." in out and "token-from-histogram" in out, out
    out = run("--check-perf-json", expected, "--check-perf-key", "low", "--check-perf-atol", "0", "--check-perf-rtol", "0",
              *histogram, status=1)
    assert "Total latency" in out.splitlines()[-1], out
    normal = ["token_norm_dist", "--input_mean", "16", "--input_stdev", "0", "--output_mean", "4", "--output_stdev", "0"]
    out = run("--request_rate", "200", "--time_delay_dist", "constant", "--num-requests", "8", "--dump-perfetto-trace",
              "--op-stats-csv", rows, "--exclude-input-in-output", *normal)
    assert re.search(r"Avg. IP tokens per request +\| +16\.00 ", out), out
    assert re.search(r"Avg. OP tokens per request +\| +4\.00 ", out), out
    with open(trace, encoding="utf-8") as file:
        assert len(json.load(file)["traceEvents"]) == 8
    with open(rows, encoding="utf-8", newline="") as file:
        table = list(csv.reader(file))
    assert len(table) == 4 and "Avg. Input tokens per request" in table[0], table
    assert [row[table[0].index("Total requests")] for row in table[1:]] == ["6.00", "6.00", "8.00"], table
    assert "Protocol must be set to 'grpc'" in client(TOOLS, "benchmark_core_model.py", "--decoupled", *normal, status=1)


def client_flags():
    with Server(repository("flags", max_beam_width=2, bls=False)) as server:
        inflight_unary(server)
        benchmark(server)
    with Server(repository("flags_decoupled", max_beam_width=2, decoupled_mode="true")) as server:
        inflight_streams(server)
        end_to_end(server)
