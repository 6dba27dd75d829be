"""The commands that people have for GPT-2 and Qwen2.5: convert, build, prune, refit, serve, on tiny models; what is served gives the
golden ids at every stage.  usage: conversion.py BUILD_DIR"""
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(sys.argv[1]).resolve() / "bin"

# (model, commands, what can be served then)
FLOWS = [
    ("gpt2", """
        convert_checkpoint --model_dir gpt2 --dtype bfloat16 --output_dir gpt2/trt_ckpt/bf16/1-gpu
        trtllm-build --checkpoint_dir gpt2/trt_ckpt/bf16/1-gpu --gpt_attention_plugin float16 --remove_input_padding enable --context_fmha enable --output_dir gpt2/trt_engines/bf16/1-gpu
        """, ["gpt2/trt_ckpt/bf16/1-gpu", "gpt2/trt_engines/bf16/1-gpu"]),
    ("qwen2", """
        convert_checkpoint --model_dir qwen2 --output_dir tllm_checkpoint_2gpu_tp2 --dtype bfloat16 --tp_size 2
        trtllm-build --checkpoint_dir tllm_checkpoint_2gpu_tp2 --output_dir qwen2/trt_engines/2-gpu --gemm_plugin bfloat16 --max_batch_size 4
        trtllm-prune --checkpoint_dir tllm_checkpoint_2gpu_tp2 --out_dir pruned --prune_all
        trtllm-build --checkpoint_dir pruned --output_dir stripped --gemm_plugin bfloat16
        trtllm-refit --checkpoint_dir tllm_checkpoint_2gpu_tp2 --engine_dir stripped --output_dir refitted
        trtllm-build --checkpoint_dir tllm_checkpoint_2gpu_tp2 --output_dir filled_at_load --strip_plan --fast_build
        """, ["qwen2", "tllm_checkpoint_2gpu_tp2", "qwen2/trt_engines/2-gpu", "refitted", "filled_at_load"]),
]


@contextlib.contextmanager
def server(directory, folder):
    ports = folder / "ports"
    ports.unlink(missing_ok=True)
    with open(folder / "server.log", "w+") as log:
        process = subprocess.Popen([BIN / "nereid", "serve", directory, "--host", "127.0.0.1", "--http-port", "0", "--grpc-port", "0",
                                    "--metrics-port", "0", "--port-file", ports], stdout=log, stderr=log)
        try:
            for _ in range(600):
                if ports.exists() and ports.read_text():
                    break
                assert process.poll() is None, (folder / "server.log").read_text()[-2000:]
                time.sleep(0.1)
            found = dict(line.split("=") for line in ports.read_text().split())
            yield f"http://127.0.0.1:{found['http']}"
        finally:
            process.terminate()
            assert process.wait(60) == 0, (folder / "server.log").read_text()[-2000:]


def generate(url, prompt, length):
    body = {"input_ids": prompt, "input_lengths": len(prompt), "request_output_len": length, "end_id": -1}
    request = urllib.request.Request(url + "/v2/models/tensorrt_llm/generate", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["output_ids"]


def main():
    served = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for model, commands, directories in FLOWS:
            subprocess.run(["cp", "-r", ROOT / "tests/models" / model, folder / model], check=True)
            for command in commands.strip().splitlines():
                words = command.split()
                done = subprocess.run([BIN / words[0], *words[1:]], cwd=folder, capture_output=True, text=True)
                assert done.returncode == 0, (command, done.stderr)
                assert "Total time of" in done.stdout, (command, done.stdout)
            golden = json.loads((ROOT / f"tests/golden/arch/{model}.json").read_text())
            for directory in directories:
                with server(folder / directory, folder) as url:
                    for case in golden["cases"]:
                        wanted = case["greedy_ids"]
                        found = generate(url, case["prompt_ids"], len(wanted))
                        assert found[-len(wanted):] == wanted, (directory, wanted, found)
                served += 1
    print(f"conversion: {served} directories served the golden ids")


if __name__ == "__main__":
    main()
