#!/usr/bin/env python3
"""Encoder-decoder models beside CTranslate2 (which faster-whisper runs on), in one run and by turns: random weights of
published dimensions, random inputs, outputs of a fixed length.

    python3 -m venv build/encdec-venv
    build/encdec-venv/bin/pip install torch
    build/encdec-venv/bin/pip install ctranslate2 transformers safetensors numpy
    build/encdec-venv/bin/python bench/encdec_peers.py build/release/bin/nereid [--models t5-base nllb-200-600m whisper-small]

Texts: requests to `nereid serve` (HTTP), at once as many as the batch; CTranslate2 gets them as one batch. Sound:
`nereid bench` and CTranslate2's Whisper, 30 s of features each; the real-time factor is 30 s over the time of a window.
Prints output tokens/s; more is better. `--weights` int8 is CTranslate2's int8 and nereid's `--weights int8`.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import types
import urllib.request

import numpy
import torch
import transformers

import ctranslate2
from ctranslate2.converters.transformers import TransformersConverter

SOUND_SECONDS, SOUND_POSITIONS = 30, 1500
# Sizes of --small, by the names of each family.
SMALL = dict(d_model=64, d_kv=16, d_ff=128, num_layers=2, num_decoder_layers=2, num_heads=4, encoder_layers=2,
             decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128)


def config_of(nereid, name, cache, small):
    """The published dimensions, as `nereid bench --random-weights NAME` leaves them in its cache."""
    subprocess.run([nereid, "inspect", name, "--random-weights", "--device", "cpu"], check=True, stdout=subprocess.DEVNULL,
                   env=os.environ | {"NEREID_CACHE_DIR": str(cache)})
    config = json.loads((cache / "random_models" / name / "config.json").read_text())
    return config | {key: value for key, value in SMALL.items() if small and key in config}


class Words:
    """A tokenizer for CTranslate2's converter: token i is "i", but for those that its Whisper looks for by name."""
    unk_token, bos_token, eos_token, pad_token = "3", "0", "1", "0"
    unk_token_id, bos_token_id, eos_token_id, pad_token_id = 3, 0, 1, 0
    added_tokens_encoder, additional_special_tokens, special_tokens_map = {}, [], {}

    def __init__(self, config):
        self.names = {i: str(i) for i in range(config["vocab_size"])}
        if config["model_type"] == "whisper":
            start = config["decoder_start_token_id"]
            self.names |= {start - 1: "<|endoftext|>", start: "<|startoftranscript|>",
                           config["vocab_size"] - 1502: "<|notimestamps|>"}
            self.eos_token = "<|endoftext|>"
        self.ids = {name: i for i, name in self.names.items()}

    def get_vocab(self):
        return self.ids

    def convert_ids_to_tokens(self, ids):
        return self.names[ids] if isinstance(ids, int) else [self.names[i] for i in ids]

    def convert_tokens_to_ids(self, token):
        return self.ids.get(str(token), 1)


def make_model(config, folder):
    torch.manual_seed(0)
    kind = transformers.AutoModelForSpeechSeq2Seq if config["model_type"] == "whisper" else transformers.AutoModelForSeq2SeqLM
    settings = transformers.AutoConfig.for_model(**config)
    net = kind.from_config(settings, torch_dtype=torch.bfloat16)
    net.save_pretrained(folder)


def convert(config, folder, to, weights):
    transformers.AutoTokenizer.from_pretrained = lambda *_, **__: Words(config)
    if config["model_type"] == "whisper":
        transformers.AutoProcessor.from_pretrained = lambda *_, **__: types.SimpleNamespace(
            tokenizer=Words(config), feature_extractor=None)
    TransformersConverter(str(folder)).convert(str(to), quantization={"bf16": "bfloat16"}.get(weights, weights), force=True)


class Server:
    def __init__(self, nereid, folder, options):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process = subprocess.Popen(
            [nereid, "serve", str(folder), "--device", "cpu", "--weights", options.weights, "--threads", str(options.threads),
             "--http-port", str(self.port), "--max-batch-size", "128", "--max-beam-width", "4", "--no-kv-cache-reuse"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while self.process.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v2/health/ready")
                return
            except OSError:
                time.sleep(0.5)
        raise SystemExit(f"nereid serve ended with code {self.process.returncode}")

    def generate(self, ids, new_tokens, beams):
        body = {"input_ids": ids, "input_lengths": len(ids), "request_output_len": new_tokens, "beam_width": beams,
                "end_id": -1}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v2/models/tensorrt_llm/generate",
                                         json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            answer.read()

    def run(self, texts, new_tokens, beams):
        begin = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(len(texts)) as pool:
            list(pool.map(lambda ids: self.generate(ids, new_tokens, beams), texts))
        return time.perf_counter() - begin

    def close(self):
        self.process.terminate()
        self.process.wait()


def bench_texts(nereid, name, options, work):
    config = config_of(nereid, name, work / "cache", options.small)
    make_model(config, work / name)
    convert(config, work / name, work / "peer", options.weights)
    peer = ctranslate2.Translator(str(work / "peer"), device="cpu", intra_threads=options.threads,
                                  compute_type={"bf16": "bfloat16"}.get(options.weights, options.weights))
    server = Server(nereid, work / name, options)
    draw = random.Random(1)
    try:
        for beams in options.beams:
            for batch in options.batches:
                figures = {"nereid": [], "CTranslate2": []}
                for _ in range(options.rounds + 1):  # the first one warms up
                    texts = [[draw.randrange(10, config["vocab_size"]) for _ in range(options.prompt_tokens)]
                             for _ in range(batch)]
                    words = [[str(i) for i in ids] for ids in texts]
                    figures["nereid"].append(server.run(texts, options.new_tokens, beams))
                    begin = time.perf_counter()
                    peer.translate_batch(words, beam_size=beams, min_decoding_length=options.new_tokens,
                                         max_decoding_length=options.new_tokens, max_batch_size=0)
                    figures["CTranslate2"].append(time.perf_counter() - begin)
                report(name, batch, beams, options, {
                    who: batch * options.new_tokens / statistics.median(seconds[1:]) for who, seconds in figures.items()})
    finally:
        server.close()


def bench_sound(nereid, name, options, work):
    config = config_of(nereid, name, work / "cache", options.small)
    make_model(config, work / name)
    convert(config, work / name, work / "peer", options.weights)
    peer = ctranslate2.models.Whisper(str(work / "peer"), device="cpu", intra_threads=options.threads,
                                      compute_type={"bf16": "bfloat16"}.get(options.weights, options.weights))
    for batch in options.batches:
        output = subprocess.run(
            [nereid, "bench", str(work / name), "--device", "cpu", "--weights", options.weights, "--threads",
             str(options.threads), "--batch", str(batch), "--prompt-tokens", str(SOUND_POSITIONS), "--new-tokens",
             str(options.new_tokens), "--repeats", str(options.rounds)], check=True, capture_output=True, text=True).stdout
        rate = next(float(line.split()[5]) for line in output.splitlines() if line.split()[:1] == [str(batch)])
        features = numpy.random.default_rng(0).standard_normal((batch, config["num_mel_bins"], 2 * SOUND_POSITIONS))
        seconds = []
        for _ in range(options.rounds + 1):
            begin = time.perf_counter()
            peer.generate(ctranslate2.StorageView.from_array(features.astype(numpy.float32)),
                          [[config["decoder_start_token_id"]]] * batch, beam_size=1, max_length=options.new_tokens,
                          suppress_tokens=[config.get("eos_token_id", 1)], suppress_blank=False)
            seconds.append(time.perf_counter() - begin)
        figures = {"nereid": rate, "CTranslate2": batch * options.new_tokens / statistics.median(seconds[1:])}
        report(name, batch, 1, options, figures)
        for who, per_second in figures.items():
            print(f"    {who}: {SOUND_SECONDS * per_second / options.new_tokens:.1f} s of sound a second")


def report(name, batch, beams, options, figures):
    shown = ", ".join(f"{who} {rate:.1f}" for who, rate in figures.items())
    print(f"{name} {options.weights}, batch {batch}, {beams} beams, {options.new_tokens} tokens: {shown} output tokens/s, "
          f"ratio {figures['nereid'] / figures['CTranslate2']:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nereid")
    parser.add_argument("--models", nargs="+", default=["t5-base", "nllb-200-600m", "whisper-small"])
    parser.add_argument("--weights", default="int8", choices=["int8", "bf16"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="two layers of 64 columns: a test of this script, no figures")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    print(f"CTranslate2 {ctranslate2.__version__}, {options.threads} threads, {' '.join(sys.argv[1:])}")
    for name in options.models:
        with tempfile.TemporaryDirectory() as work:
            (bench_sound if name.startswith("whisper") else bench_texts)(options.nereid, name, options, pathlib.Path(work))


if __name__ == "__main__":
    main()
