#!/usr/bin/env python3
"""The commands with more than one rank of TensorRT-LLM's and the backend's guides, as they stand there but for paths, with the
stop commands that the guides name: each is started, asked by the backend's own client scripts and stopped; prints a table.
`srun` commands are in slurm.sh.

The commands use Triton's ports and stop servers by name, so triton.sh runs this in namespaces of its own; elsewhere:
    unshare -n -p -f --mount-proc --kill-child bash -c 'ip link set lo up; "$0" "$@"; exit $?' PYTHON seed_commands.py BUILD_DIR

usage: seed_commands.py BUILD_DIR [PART_OF_A_COMMAND ...]"""
import json
import os
import shutil
import signal
import subprocess
import sys
import time

from launched import LAUNCHER, MODEL, QUESTION, ROOT, Bench, answer, ask, one_process, processes, wait_for
from skips import skip

CLIENTS = os.path.join(ROOT, "inflight_batcher_llm", "client")
FRONTEND = os.path.join(ROOT, "python", "openai", "openai_frontend", "main.py")
HTTP, OPENAI = 8000, 9000
# More ranks than cores, as root: settings of Open MPI's, so that the commands stay as they are.
OPEN_MPI = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
STOPS = ("pkill tritonserver", "pgrep tritonserver | xargs kill -SIGINT", "pgrep tritonserver | head -n 1 | xargs kill",
         "pgrep mpirun | xargs kill")
STOP_MPIRUN = STOPS[3]


class Case:
    """A command that serves. `check`: of its answers; `servers`: how many processes of that name must run."""

    def __init__(self, command, check, servers=None, stop=STOPS[0], ready=(HTTP, "/v2/health/ready"), name="tritonserver", **environment):
        self.command, self.check, self.servers, self.stop, self.ready = command, check, servers, stop, ready
        self.name, self.environment = name, environment


def client(script, *words):
    done = subprocess.run([sys.executable, os.path.join(CLIENTS, script), *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=240, check=False)
    assert done.returncode == 0, "%s %s:\n%s" % (script, words, done.stdout)
    return done.stdout


def by_clients(*models, decoupled=True):
    """Both client scripts: text to the ensemble, tokens to each model of the engine."""
    def check(bench):
        got = answer(HTTP)
        assert got.endswith(bench.expected) or bench.expected.endswith(got), (got, bench.expected)
        out = client("end_to_end_grpc_client.py", "-u", "localhost:8001", "-p", QUESTION["text_input"], "-o", "24",
                     *(("-S",) if decoupled else ()))
        text = out.strip().splitlines()[-1].strip()
        assert len(text) > 20 and text in bench.expected, (out, bench.expected)
        found = set()
        for model in models:
            out = client("inflight_batcher_llm_client.py", "-u", "localhost:8001", "--model-name", model, "--tokenizer-dir", MODEL,
                         "--text", QUESTION["text_input"], *(("-S",) if decoupled else ()))
            found.add(next(line for line in out.splitlines() if line.startswith("Output sequence:")))
        assert len(found) == 1, found
        return "ensemble, %s" % ", ".join(models)
    return check


def by_completions(port):
    def check(bench):
        name = json.loads(ask(port, "/v1/models")[1])["data"][0]["id"]
        status, text = ask(port, "/v1/completions", {"model": name, "prompt": QUESTION["text_input"], "max_tokens": 24, "temperature": 0})
        assert status == 200, text
        got = json.loads(text)["choices"][0]["text"]
        assert got.strip() in bench.expected or bench.expected in got, (got, bench.expected)
        return "/v1/completions"
    return check


def copy_models(bench, name, engine, models, **changes):
    """A repository whose engine models have these names, {name: placeholders}; the ensemble asks the first one."""
    from triton_server import make_repository
    folder = os.path.join(bench.work, name)
    first = next(iter(models))
    make_repository(folder, bls=False, decoupled_mode="true", engine_dir=engine, **models[first], **changes)
    for model, values in list(models.items())[1:]:
        other = os.path.join(bench.work, name + "_" + model)
        make_repository(other, bls=False, decoupled_mode="true", engine_dir=engine, **values, **changes)
        shutil.copytree(os.path.join(other, "tensorrt_llm"), os.path.join(folder, model))
        shutil.rmtree(other)
    for model in models:
        if model == "tensorrt_llm":
            continue
        if model == first:
            os.rename(os.path.join(folder, "tensorrt_llm"), os.path.join(folder, model))
        for path in (os.path.join(folder, model, "config.pbtxt"), *([os.path.join(folder, "ensemble", "config.pbtxt")] if model == first else [])):
            with open(path, encoding="utf-8") as file:
                text = file.read()
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace('name: "tensorrt_llm"', 'name: "%s"' % model))
    return folder


def two_instances(folder):
    path = os.path.join(folder, "tensorrt_llm", "config.pbtxt")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert "count: 1" in text, text
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace("count: 1", "count: 2"))
    return folder


def cases(bench):
    launch = "python3 %s" % os.path.relpath(LAUNCHER, ROOT)
    flags = "--disable-auto-complete-config --backend-config=python,shm-region-prefix-name=prefix%d_"
    two, four = bench.repository(2), bench.repository(4)
    models = copy_models(bench, "two_models", MODEL, {"tensorrt_llm": {}, "tensorrt_llm_2": {}})
    instances = two_instances(copy_models(bench, "two_instances", MODEL, {"tensorrt_llm": {}}))
    disaggregated = copy_models(bench, "disaggregated", MODEL, {"context": {"participant_ids": "1"}, "generation": {"participant_ids": "2"}})
    participants = two_instances(copy_models(bench, "participants", bench.engine(2), {"tensorrt_llm": {"participant_ids": "1,2;3,4"}}))
    serve = "--tp_size 2 --pp_size 1 --ep_size 1 --gpus_per_node 2"
    return [
        Case("%s --world_size=2 --model_repo=%s" % (launch, two), by_clients("tensorrt_llm"), 2, STOPS[0]),
        Case("%s --world_size 4 --model_repo %s" % (launch, four), by_clients("tensorrt_llm"), 4, STOPS[1]),
        Case("%s --world_size=4 --model_repo=%s --force --oversubscribe --tensorrt_llm_model_name tensorrt_llm --exit_timeout 20" % (launch, four),
             by_clients("tensorrt_llm"), 4, STOPS[2]),
        Case("%s --world_size=2 --trtllm_llmapi_launch --oversubscribe --exit_timeout 2 --model_repo=%s" % (launch, two), by_clients("tensorrt_llm"), None, STOPS[3]),
        Case("%s --no-mpi --model_repo=%s" % (launch, models), by_clients("tensorrt_llm", "tensorrt_llm_2"), 1, STOPS[0]),
        Case("CUDA_VISIBLE_DEVICES=0,1 mpirun --allow-run-as-root -n 2 tritonserver --model-repository=%s %s :" % (two, flags % 0),
             by_clients("tensorrt_llm"), 2, STOPS[3]),
        Case("mpirun --allow-run-as-root -n 1 tritonserver --model-repository=%s --grpc-port=8001 --http-port=8000 --metrics-port=8002 %s : "
             "-n 1 tritonserver --model-repository=%s --grpc-port=8001 --http-port=8000 --metrics-port=8002 --model-control-mode=explicit "
             "--load-model=tensorrt_llm --grpc-port=8001 --http-port=8000 --metrics-port=8002 %s :" % (two, flags % 0, two, flags % 1),
             by_clients("tensorrt_llm"), 2, STOPS[0]),
        Case("%s --model_repo=%s --multi-model" % (launch, models), by_clients("tensorrt_llm", "tensorrt_llm_2"), 1, STOPS[0]),
        Case("%s --model_repo=%s --multi-model" % (launch, instances), by_clients("tensorrt_llm"), 1, STOPS[1]),
        Case("TRTLLM_ORCHESTRATOR=1 tritonserver --model-repository=%s" % models, by_clients("tensorrt_llm", "tensorrt_llm_2"), 1, STOPS[0]),
        Case("%s --world_size 3 --tensorrt_llm_model_name context,generation --multi-model --disable-spawn-processes --model_repo=%s"
             % (launch, disaggregated), by_clients("context", "generation"), 3, STOPS[0]),
        Case("%s --world_size 5 --multi-model --disable-spawn-processes --model_repo=%s" % (launch, participants), by_clients("tensorrt_llm"),
             5, STOPS[1]),
        Case("mpirun -n 2 --allow-run-as-root trtllm-llmapi-launch trtllm-serve %s %s" % (MODEL, serve), by_completions(HTTP), 1, STOP_MPIRUN,
             (HTTP, "/health"), "trtllm-serve"),
        Case("trtllm-serve %s --tp_size 4 --pp_size 1 --cluster_size 1" % MODEL, by_completions(HTTP), 1, "pkill trtllm-serve", (HTTP, "/health"),
             "trtllm-serve"),
        Case("trtllm-serve serve %s --tp_size 2" % bench.engine(2), by_completions(HTTP), 1, "pkill trtllm-serve", (HTTP, "/health"), "trtllm-serve"),
        Case("mpirun --allow-run-as-root -n 2 python3 %s --model-repository %s --tokenizer %s" % (os.path.relpath(FRONTEND, ROOT), two, MODEL),
             by_completions(OPENAI), None, STOP_MPIRUN, (OPENAI, "/health/ready"), "openai_frontend"),
        Case("TRTLLM_ORCHESTRATOR=1 python3 %s --model-repository %s --tokenizer %s" % (os.path.relpath(FRONTEND, ROOT), models, MODEL),
             by_completions(OPENAI), None, "pkill -f openai_frontend", (OPENAI, "/health/ready"), "openai_frontend")]


def finished(bench):
    """Commands that end by themselves, and what they must print."""
    data = os.path.join(bench.work, "data.jsonl")
    with open(data, "w", encoding="utf-8") as file:
        for i in range(4):
            file.write(json.dumps({"task_id": i, "input_ids": [5, 6, 7 + i], "output_tokens": 4}) + "\n")
    measure = "trtllm-bench --model quickstart --model_path %s" % MODEL
    return [
        ("%s throughput --dataset %s --tp 2 --pp 1 --ep 1 --backend tensorrt" % (measure, data), "TP Size"),
        ("%s throughput --dataset %s --tp 2 --pp 2 --ep 1 --cluster_size 1" % (measure, data), "PP Size"),
        ("%s latency --dataset %s --tp 1 --pp 2 --ep 1" % (measure, data), "PP Size"),
        ("mpirun --allow-run-as-root -n 2 trtllm-llmapi-launch %s throughput --dataset %s --engine_dir %s --tp 2" % (measure, data, bench.engine(2)),
         "TP Size"),
        ("mpirun --allow-run-as-root -n 2 trtllm-build --checkpoint_dir %s --output_dir %s" % (os.path.join(bench.work, "checkpoint2"), os.path.join(bench.work, "built")),
         "")]


def run(bench, case):
    log_path = os.path.join(bench.work, "seed.log")

    def log():
        with open(log_path, encoding="utf-8", errors="replace") as file:
            return file.read()[-4000:]

    # trtllm-llmapi-launch becomes the command in process 0, and is itself the others.
    names = {"mpirun", "nereid", case.name, "tritonserver", "trtllm-llmapi-launch"[:15]}

    def running():
        return {pid: name for pid, name in processes("").items() if name in names or name.startswith(case.name[:15])}

    assert not running(), running()
    begin = time.monotonic()
    with open(log_path, "w", encoding="utf-8") as output:
        shell = subprocess.Popen(["bash", "-c", case.command], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                 env={**os.environ, **OPEN_MPI, **case.environment}, start_new_session=True)
    try:
        port, path = case.ready
        wait_for(lambda: ask(port, path)[0] == 200 or (shell.poll() or 0) != 0, lambda: "not ready:\n" + log(), 120)
        assert (shell.poll() or 0) == 0, "it ended early:\n" + log()
        ready = time.monotonic() - begin
        if case.servers is not None:
            found = [name for name in running().values() if name == case.name[:15]]
            assert len(found) == case.servers, (found, case.servers, log())
        asked = case.check(bench)
        stop = time.monotonic()
        subprocess.run(["bash", "-c", case.stop], check=True)
        wait_for(lambda: not running(), lambda: "left: %s\n%s" % (running(), log()))
        shell.wait(timeout=60)
        return "ready after %.1f s; answers: %s; `%s`: all ended after %.1f s, exit code %d" % (
            ready, asked, case.stop, time.monotonic() - stop, shell.returncode)
    except BaseException:
        print(log(), file=sys.stderr)
        raise
    finally:
        for pid in running():
            os.kill(pid, signal.SIGKILL)
        if shell.poll() is None:
            os.killpg(shell.pid, signal.SIGKILL)


def finish(command, expected):
    begin = time.monotonic()
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
                          env={**os.environ, **OPEN_MPI}, check=False)
    assert done.returncode == 0 and expected in done.stdout, "%s\nexit code %d\n%s" % (command, done.returncode, done.stdout[-4000:])
    return "ended with 0 after %.1f s" % (time.monotonic() - begin)


def main():
    if not shutil.which("mpirun"):
        skip("seed_commands", "mpirun is not installed (openmpi-bin)")
        return
    build = os.path.abspath(sys.argv[1])
    parts = sys.argv[2:]
    work = os.path.join(build, "e2e", "seeds")
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    bench = Bench(build, work)
    rows = [(case.command, lambda case=case: run(bench, case)) for case in cases(bench)]
    rows += [(command, lambda command=command, text=text: finish(command, text)) for command, text in finished(bench)]
    one_process(bench)  # sets bench.expected
    print("| command | result |\n|---|---|")
    failed = 0
    for command, go in rows:
        if parts and not any(part in command for part in parts):
            continue
        for path, name in ((work + "/", ""), (MODEL, "MODEL"), (ROOT + "/", "")):
            command = command.replace(path, name)
        print("| `%s` | " % command, end="", flush=True)
        try:
            result = go()
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            failed += 1
            result = "FAILED"
            print(error, file=sys.stderr, flush=True)
        print("%s |" % result.replace("|", "\\|"), flush=True)
    if failed:
        sys.exit("seed commands: %d failed" % failed)
    print("seed commands: all passed")


if __name__ == "__main__":
    main()
