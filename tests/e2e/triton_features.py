"""Uses of the TensorRT-LLM backend's adapters and speculation, on the quick-start model's adapters, Medusa heads
and draft model: the answers are those without, or Hugging Face's."""
import base64
import json
import os
import shutil
import subprocess

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from triton_server import CLIENTS, MODEL, PROMPT, ROOT, WORK, Server, client, copy_model, fill, repository


def infer(server, ids, tokens, **more):
    """The outputs of a request to tensorrt_llm, by name."""
    tensors = {"input_ids": np.int32([ids]), "input_lengths": np.int32([[len(ids)]]),
               "request_output_len": np.int32([[tokens]]), "end_id": np.int32([[-1]]),
               "exclude_input_in_output": np.array([[True]]), **more}
    inputs = []
    for name, value in tensors.items():
        inputs.append(grpcclient.InferInput(name, value.shape, np_to_triton_dtype(value.dtype)))
        inputs[-1].set_data_from_numpy(value)
    with grpcclient.InferenceServerClient(server.grpc) as triton:
        return triton.infer("tensorrt_llm", inputs)


def tokens_of(reply):
    return reply.as_numpy("output_ids")[0, 0].tolist()


def refusal(*words, **more):
    try:
        infer(*words, **more)
    except InferenceServerException as error:
        return str(error)
    raise AssertionError("nothing was refused")


def adapters():
    """LoRA: hf_lora_convert.py's tensors come once, later requests name them; a request whose adapter is unknown or has
    other weights fails alone."""
    with open(os.path.join(ROOT, "tests", "golden", "lora.json"), encoding="utf-8") as file:
        case = next(c for c in json.load(file)["cases"] if c["adapter"] == "lora-upper")
    folder = os.path.join(WORK, "lora-upper")
    subprocess.run([os.environ["NEREID"], "hf_lora_convert", "-i", os.path.join(ROOT, "tests", "adapters", "upper"), "-o",
                    folder], check=True)
    weights, config = (np.load(os.path.join(folder, "model.lora_%s.npy" % part)) for part in ("weights", "config"))
    asked = min(case["clear_steps"], 24)
    ids, expected = case["prompt_ids"], case["greedy_ids"][:asked]
    brought = {"lora_task_id": np.uint64([[7]]), "lora_weights": weights, "lora_config": config}
    with Server(repository("adapters", enable_lora="true", bls=False)) as server:
        assert "7" in refusal(server, ids, asked, lora_task_id=np.uint64([[7]]))
        plain = tokens_of(infer(server, ids, asked))
        assert tokens_of(infer(server, ids, asked, **brought)) == expected != plain
        assert tokens_of(infer(server, ids, asked, lora_task_id=np.uint64([[7]]))) == expected
        assert "7" in refusal(server, ids, asked, **{**brought, "lora_weights": weights * 2})
        assert tokens_of(infer(server, ids, asked)) == plain


def medusa():
    """decoding_mode medusa: the tokens of the model alone, in fewer steps."""
    ids = list(range(40, 60))
    with Server(repository("plain", bls=False)) as server:
        expected = tokens_of(infer(server, ids, 40))
    values = {"decoding_mode": "medusa", "draft_model": os.path.join(ROOT, "models", "quickstart-medusa")}
    with Server(repository("medusa", bls=False, **values)) as server:
        reply = infer(server, ids, 40, return_perf_metrics=np.array([[True]]))
        assert tokens_of(reply) == expected
        held, tested = (int(reply.as_numpy("total_%s_tokens" % what).item()) for what in ("accepted_draft", "draft"))
        assert 0 < held <= tested, (held, tested)


def lookahead():
    """decoding_mode lookahead: the tokens of the model alone, in fewer steps; a request may have less than the model's
    parameters, and not more."""
    ids = list(range(40, 60))
    names = ("lookahead_window_size", "lookahead_ngram_size", "lookahead_verification_set_size")
    with Server(repository("plain", bls=False)) as server:
        expected = tokens_of(infer(server, ids, 40))
        assert "lookahead parameters are not set" in refusal(server, ids, 4, **{name: np.int32([[2]]) for name in names})
    values = dict(zip(names, ("4", "3", "4")), decoding_mode="lookahead")
    with Server(repository("lookahead", bls=False, **values)) as server:
        for sizes in ((4, 3, 4), (2, 2, 1), (1, 1, 0)):
            own = {name: np.int32([[size]]) for name, size in zip(names, sizes)}
            reply = infer(server, ids, 40, return_perf_metrics=np.array([[True]]), **own)
            assert tokens_of(reply) == expected, sizes
            held, tested = (int(reply.as_numpy("total_%s_tokens" % what).item()) for what in ("accepted_draft", "draft"))
            assert held <= tested and (tested > 0) == (sizes[1] > 1), (sizes, held, tested)
        more = {name: np.int32([[size]]) for name, size in zip(names, (5, 3, 4))}
        assert "lookahead.window_size: 5" in refusal(server, ids, 4, **more)
        assert "Failed to extract" in refusal(server, ids, 4, lookahead_window_size=np.int32([[2]]))
    server = Server(repository("lookahead-incomplete", bls=False, decoding_mode="lookahead"))
    assert server.process.wait(timeout=60) > 0
    assert "lookahead parameters are not specified" in server.log(), server.log()[-2000:]


def draft_and_target():
    """A draft model behind tensorrt_llm_bls: the text of the target alone, and drafts that the target has tested."""
    folder = repository("draft-and-target")
    copy_model(folder, "tensorrt_llm", "tensorrt_llm_draft", (MODEL, os.path.join(ROOT, "models", "quickstart-draft")))
    fill(os.path.join(folder, "tensorrt_llm_bls", "config.pbtxt"),
         {"tensorrt_llm_model_name": "tensorrt_llm", "tensorrt_llm_draft_model_name": "tensorrt_llm_draft"})
    with Server(folder) as server:
        plain = server.generate("tensorrt_llm_bls", PROMPT, 32)
        drafted = server.generate("tensorrt_llm_bls", PROMPT, 32, num_draft_tokens=4)
        assert drafted["text_output"] == plain["text_output"], (plain, drafted)
        weighed = server.generate("tensorrt_llm_bls", PROMPT, 32, num_draft_tokens=4, use_draft_logits=True)
        assert weighed["text_output"] == plain["text_output"], (plain, weighed)
        assert server.total("nv_inference_request_success", model="tensorrt_llm_draft") > 1
        for words in ((), ("--return-draft-model-draft-logits", "--return-target-model-accepted-token-logits", "-v")):
            out = client(CLIENTS, "e2e_grpc_speculative_decoding_client.py", "--url-target", server.grpc, "-p", PROMPT,
                         "--draft-tensorrt-llm-model-name", "tensorrt_llm_draft", "-o", "32", "--num-draft-tokens", "4",
                         *words)
            assert out.endswith("Final text:\n%s\n" % plain["text_output"]), (plain, out)
            assert ("stop: the output is as long as it may be" in out) == ("-v" in words), out


def whisper():
    """The model whisper_bls, with its walk-through's client: the transcript of a tiny Whisper that has learnt it."""
    said = "The boats, they sail."
    speech = os.path.join(ROOT, "tests", "encoder_models", "whisper-speech")
    for decoupled in ("false", "true"):
        folder = repository("whisper-" + decoupled, bls=False, decoupled_mode=decoupled, engine_dir=speech,
                            exclude_input_in_output="true")
        for model in ("ensemble", "preprocessing", "postprocessing"):
            shutil.rmtree(os.path.join(folder, model))
        target = os.path.join(folder, "whisper_bls")
        shutil.copytree(os.path.join(ROOT, "all_models", "whisper", "whisper_bls"), target)
        fill(os.path.join(target, "config.pbtxt"),
             {"triton_max_batch_size": 8, "decoupled_mode": decoupled, "n_mels": 80, "zero_pad": "false", "engine_dir": speech})
        with open(os.path.join(target, "1", "multilingual.tiktoken"), "w", encoding="utf-8") as file:
            for byte in range(256):
                file.write("%s %d\n" % (base64.b64encode(bytes([byte])).decode(), byte))
        with Server(folder) as server:
            host, port = server.grpc.split(":")
            words = ["--server-addr", host, "--server-port", port, "--audio-path", os.path.join(ROOT, "tests", "speech", "boats.wav"),
                     "--num-tasks", "3"] + ["--streaming"] * (decoupled == "true")
            out = client(os.path.join(ROOT, "tools", "whisper"), "client.py", *words)
            assert out.splitlines()[:3] == [said] * 3 and "RTF: " in out and "latency_99_percentile_ms: " in out, out
