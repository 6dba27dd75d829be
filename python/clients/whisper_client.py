#!/usr/bin/env python3
"""Sound in, its transcript out: talks to the model whisper_bls over gRPC, from several tasks at once."""
import argparse
import concurrent.futures
import time
import wave

import numpy as np
import tritonclient.grpc as grpcclient

import triton_io
from triton_io import scalar, strings, tensor

RATE = 16000
PADDING = 10  # seconds


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--server-addr", default="localhost", help="server's address")
    add("--server-port", type=int, default=8001, help="server's gRPC port")
    add("--audio-path", required=True, help="sound file of 16 kHz")
    add("--whisper-prompt", default="<|startoftranscript|><|en|><|transcribe|><|notimestamps|>",
        help="the decoder's prompt; <|startofprev|> and words in front of it are hot words")
    add("--model-name", default="whisper_bls", choices=["whisper_bls", "whisper_bls_async", "whisper"])
    add("--streaming", action="store_true", help="of a decoupled model: the text so far with each response")
    add("--num-tasks", type=int, default=1, help="requests at once")
    return parser.parse_args()


def read_sound(path):
    """Samples of a mono sound of 16 kHz."""
    try:
        import soundfile
        samples, rate = soundfile.read(path, dtype="float32")
    except ImportError:  # PCM of 16 bits alone
        with wave.open(path) as file:
            assert file.getsampwidth() == 2, "files other than WAV of 16 bits need the Python package 'soundfile'"
            rate = file.getframerate()
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
            samples = samples.reshape(-1, file.getnchannels())[:, 0]
    if rate != RATE:
        raise SystemExit("--audio-path: the sound has %d Hz, only %d are taken" % (rate, RATE))
    return samples


def make_inputs(flags, samples):
    padded = np.zeros((1, PADDING * RATE * (len(samples) // RATE // PADDING + 1)), np.float32)
    padded[0, :len(samples)] = samples
    return [tensor(grpcclient, "WAV", padded), scalar(grpcclient, "WAV_LENS", len(samples), np.int32),
            tensor(grpcclient, "TEXT_PREFIX", strings([flags.whisper_prompt]))]


def text_of(result):
    return result.as_numpy("TRANSCRIPTS").flatten()[0].decode("utf-8")


def transcribe(flags, number, samples):
    """(text, seconds of the request)"""
    with grpcclient.InferenceServerClient("%s:%d" % (flags.server_addr, flags.server_port)) as client:
        inputs = make_inputs(flags, samples)
        start = time.monotonic()
        if not flags.streaming:
            text = text_of(client.infer(flags.model_name, inputs, request_id=str(number)))
            return text, time.monotonic() - start
        stream = triton_io.Stream(client)
        stream.send(flags.model_name, inputs, request_id=str(number))
        text = ""
        for result, is_final in stream.replies():
            if result.as_numpy("TRANSCRIPTS") is not None:
                text = text_of(result)
            if is_final:
                break
        seconds = time.monotonic() - start
        stream.close()
        return text, seconds


def main():
    flags = parse_arguments()
    samples = read_sound(flags.audio_path)
    start = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(flags.num_tasks) as pool:
        answers = list(pool.map(lambda i: transcribe(flags, i, samples), range(flags.num_tasks)))
    elapsed = time.monotonic() - start
    for text, _ in answers:
        print(text)
    total = flags.num_tasks * len(samples) / RATE
    latencies = [seconds * 1000 for _, seconds in answers]
    print("RTF: %.4f" % (elapsed / total))
    print("total_duration: %.3f seconds" % total)
    print("processing time: %.3f seconds" % elapsed)
    for percent in (50, 90, 95, 99):
        print("latency_%d_percentile_ms: %.2f" % (percent, np.percentile(latencies, percent)))
    print("average_latency_ms: %.2f" % np.mean(latencies))


if __name__ == "__main__":
    main()
