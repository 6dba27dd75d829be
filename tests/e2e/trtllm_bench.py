"""trtllm-bench and prepare_dataset.py on the quick-start model: data sets, reports, and outputs that do not depend on the run.

usage: trtllm_bench.py BUILD_DIR"""
import json
import os
import subprocess
import sys
import tempfile

BUILD = os.path.abspath(sys.argv[1])
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
MODEL = os.path.join(ROOT, "models", "quickstart")
BENCH = [os.path.join(BUILD, "bin", "trtllm-bench"), "--model", "quickstart", "--model_path", MODEL]
ENVIRONMENT = dict(os.environ, NEREID=os.path.join(BUILD, "bin", "nereid"))
UNIFORM = ["token-unif-dist", "--num-requests", "4", "--input-min", "5", "--input-max", "40", "--output-min", "2",
           "--output-max", "6"]


def run(command, code=0, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True, env=ENVIRONMENT, timeout=600)
    assert done.returncode == code, (command, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout if code == 0 else done.stderr


def report_of(folder, subcommand, *flags, text=None):
    """The report of a run as JSON, and as text."""
    path = os.path.join(folder, "report.json")
    said = run(BENCH + [subcommand, "--report_json", path, *flags], text=text)
    with open(path) as file:
        return json.load(file), said


def check_datasets(folder):
    script = [sys.executable, os.path.join(ROOT, "benchmarks", "cpp", "prepare_dataset.py"), "--tokenizer", MODEL]
    lines = run(script + ["--stdout", *UNIFORM])
    rows = [json.loads(line) for line in lines.splitlines()]
    assert [row["task_id"] for row in rows] == [0, 1, 2, 3], rows
    assert all(5 <= len(row["input_ids"]) <= 40 and 2 <= row["output_tokens"] <= 6 for row in rows), rows
    assert run(script + ["--stdout", *UNIFORM]) == lines != run(script + ["--stdout", "--random-seed", "1", *UNIFORM])
    path = os.path.join(folder, "dataset.jsonl")
    run(BENCH + ["prepare-dataset", "--output", path, *UNIFORM])
    with open(path) as file:
        assert file.read() == lines
    normal = run(script + ["--stdout", "token-norm-dist", "--num-requests", "3", "--input-mean", "9", "--input-stdev", "0",
                           "--output-mean", "2", "--output-stdev", "0"])
    assert [len(json.loads(line)["input_ids"]) for line in normal.splitlines()] == [9, 9, 9]
    return path, rows


def check_throughput(folder, dataset, rows):
    outputs, requests, steps = (os.path.join(folder, name) for name in ("outputs", "requests", "steps"))
    report, said = report_of(folder, "throughput", "--dataset", dataset, "--output_json", outputs, "--request_json", requests,
                             "--iteration_log", steps, "--max_batch_size", "8", "--backend", "tensorrt")
    tokens = sum(row["output_tokens"] for row in rows)
    assert report["request_info"]["num_requests"] == 4 and report["world_info"]["max_batch_size"] == 8, report
    assert abs(4 * report["request_info"]["avg_output_length"] - tokens) < 1e-6, report
    assert report["performance"]["system_output_throughput_tok_s"] > 0 and "streaming_metrics" not in report, report
    assert "= PERFORMANCE OVERVIEW" in said and "TTFT" not in said, said
    with open(outputs) as file, open(requests) as met, open(steps) as log:
        texts, met = json.load(file), json.load(met)
        assert json.loads(log.readline())["iter"] >= 0
    assert sorted(texts) == ["0", "1", "2", "3"] and [m["output"] for m in met] == [texts[str(i)] for i in range(4)]
    assert [m["num_output_tokens"] for m in met] == [row["output_tokens"] for row in rows], met

    # The outputs are the same one by one and streamed, from standard input.
    with open(dataset) as file:
        streamed, said = report_of(folder, "throughput", "--streaming", "--concurrency", "1", "--output_json", outputs,
                                   text=file.read())
    with open(outputs) as file:
        assert json.load(file) == texts
    assert streamed["streaming_metrics"]["avg_ttft_ms"] > 0 and "[TTFT] P50    :" in said, said
    assert streamed["request_info"]["avg_num_concurrent_requests"] <= 1.001, streamed


def main():
    with tempfile.TemporaryDirectory() as folder:
        dataset, rows = check_datasets(folder)
        check_throughput(folder, dataset, rows)
        report, _ = report_of(folder, "latency", "--dataset", dataset, "--num_requests", "2", "--warmup", "0")
        assert report["request_info"]["num_requests"] == 2 and "streaming_metrics" in report, report
        prompts = '{"task_id": 0, "prompt": "What is the capital of France?", "output_tokens": 3}\n'
        report, _ = report_of(folder, "throughput", "--beam_width", "2", text=prompts)
        assert report["request_info"]["avg_output_length"] == 3, report
        report, _ = report_of(folder, "latency", "--dataset", dataset, "--num_requests", "2", "--warmup", "0", "--tp", "2")
        assert report["world_info"]["tp_size"] == 2 and report["world_info"]["world_size"] == 2, report
        assert "--tp" in run(BENCH + ["throughput", "--tp", "0"], code=2)
        assert "standard input: line 1" in run(BENCH + ["throughput"], code=1, text="{}\n")
        assert "at most" in run(BENCH + ["throughput", "--max_seq_len", "16", "--dataset", dataset], code=1)
    print("trtllm-bench: data sets, reports and outputs as asked for")


if __name__ == "__main__":
    main()
