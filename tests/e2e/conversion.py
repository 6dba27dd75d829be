"""The commands that people have for GPT-2 and Qwen2.5: convert, build, prune, refit, serve, on tiny models; what is served gives the
golden ids at every stage.  usage: conversion.py BUILD_DIR"""
import contextlib
import json
import os
import pathlib
import shutil
import socket
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
        python3 convert_checkpoint.py --model_dir gpt2 --dtype bfloat16 --output_dir gpt2/trt_ckpt/bf16/1-gpu
        trtllm-build --checkpoint_dir gpt2/trt_ckpt/bf16/1-gpu --gpt_attention_plugin float16 --remove_input_padding enable --context_fmha enable --output_dir gpt2/trt_engines/bf16/1-gpu
        """, ["gpt2/trt_ckpt/bf16/1-gpu", "gpt2/trt_engines/bf16/1-gpu"]),
    ("qwen2", """
        convert_checkpoint --model_dir qwen2 --output_dir tllm_checkpoint_2gpu_tp2 --dtype bfloat16 --tp_size 2
        trtllm-build --checkpoint_dir tllm_checkpoint_2gpu_tp2 --output_dir qwen2/trt_engines/2-gpu --gemm_plugin bfloat16 --max_batch_size 4 --workers 2
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


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def generate(url, prompt, length):
    body = {"input_ids": prompt, "input_lengths": len(prompt), "request_output_len": length, "end_id": -1}
    return post(url + "/v2/models/tensorrt_llm/generate", body)["output_ids"][-length:]


def complete(url, prompt, length):
    body = {"model": "2-gpu", "prompt": prompt, "max_tokens": length, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    return post(url + "/v1/completions", body)["choices"][0]["token_ids"]


def expect_golden(model, ids_of, where):
    for case in json.loads((ROOT / f"tests/golden/arch/{model}.json").read_text())["cases"]:
        wanted = case["greedy_ids"]
        found = ids_of(case["prompt_ids"], len(wanted))
        assert found == wanted, (where, wanted, found)


def serve_with_trtllm_serve(folder):
    """The engine of two ranks, as the guides serve it; the tiny model has no tokenizer, so that of another one stands in."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["trtllm-serve", "qwen2/trt_engines/2-gpu", "--tokenizer", str(ROOT / "models/quickstart"), "--host", "127.0.0.1", "--port", str(port)]
    with open(folder / "server.log", "w+") as log:
        process = subprocess.Popen([BIN / words[0], *words[1:]], cwd=folder, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            for _ in range(600):
                assert process.poll() is None, (folder / "server.log").read_text()[-2000:]
                with contextlib.suppress(OSError), urllib.request.urlopen(url + "/health", timeout=60):
                    break
                time.sleep(0.1)
            expect_golden("qwen2", lambda prompt, length: complete(url, prompt, length), words)
        finally:
            process.terminate()
            assert process.wait(60) == 0, (folder / "server.log").read_text()[-2000:]


def expect_scripts_in_folders():
    """Folders of families, as guides name them: all lead to one of two scripts."""
    links = [path for path in (ROOT / "examples").rglob("*") if path.is_symlink()]
    assert len(links) > 30 and all((link / "convert_checkpoint.py").is_file() for link in links), links
    for folder in ("opt", "models/core/phi", "models/contrib/mpt"):
        script = ROOT / "examples" / folder / "convert_checkpoint.py"
        done = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True)
        assert done.returncode == 0 and "--model_dir" in done.stdout, (script, done.stderr)


def main():
    served = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        shutil.copy(ROOT / "examples/models/core/gpt/convert_checkpoint.py", folder)
        os.environ["NEREID"] = str(BIN / "nereid")
        expect_scripts_in_folders()
        for model, commands, directories in FLOWS:
            subprocess.run(["cp", "-r", ROOT / "tests/models" / model, folder / model], check=True)
            for command in commands.strip().splitlines():
                words = command.split()
                program = words[0] if words[0] == "python3" else BIN / words[0]
                done = subprocess.run([program, *words[1:]], cwd=folder, capture_output=True, text=True)
                assert done.returncode == 0, (command, done.stderr)
                assert "Total time of" in done.stdout, (command, done.stdout)
            for directory in directories:
                with server(folder / directory, folder) as url:
                    expect_golden(model, lambda prompt, length: generate(url, prompt, length), directory)
                served += 1
        serve_with_trtllm_serve(folder)
        served += 1
    print(f"conversion: {served} directories served the golden ids")


if __name__ == "__main__":
    main()
