#!/usr/bin/env python3
"""Makes tests/golden/log_mel.json: log-mel features of tests/speech/boats.flac, computed with numpy and soundfile alone.

    pip install numpy soundfile
    log_mel.py

The definition is written out with a plain Fourier matrix in 64 bits: frames of 400 samples every 160, mirrored at both
ends of the recording padded to 30 s, a periodic Hann window, triangular filters on Slaney's mel scale of area 1, the base 10
logarithm of at least 1e-10, at most 8 below the largest, (x + 4) / 4. The file has every 23rd frame of the sentence and
some of the silence behind it, for 80 and 128 filters.
"""
import json
import pathlib

import numpy as np
import soundfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZE, HOP, RATE, SECONDS = 400, 160, 16000, 30


def filters(count):
    def mel(hz):
        return hz * 3 / 200 if hz < 1000 else 15 + 27 * np.log(hz / 1000) / np.log(6.4)

    def hertz(mels):
        return np.where(mels < 15, mels * 200 / 3, 1000 * np.exp((mels - 15) * np.log(6.4) / 27))

    edges = hertz(np.linspace(0, mel(RATE / 2), count + 2))
    bins = np.arange(SIZE // 2 + 1) * RATE / SIZE
    out = np.zeros((count, len(bins)))
    for i in range(count):
        low, middle, high = edges[i:i + 3]
        rise, fall = (bins - low) / (middle - low), (high - bins) / (high - middle)
        out[i] = np.maximum(0, np.minimum(rise, fall)) * 2 / (high - low)
    return out


def features(samples, count):
    padded = np.zeros(RATE * SECONDS)
    padded[:len(samples)] = samples
    padded = np.pad(padded, SIZE // 2, mode="reflect")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(SIZE) / SIZE)
    frames = np.stack([padded[t * HOP:t * HOP + SIZE] * window for t in range(SECONDS * RATE // HOP)])
    fourier = np.exp(-2j * np.pi * np.outer(np.arange(SIZE), np.arange(SIZE // 2 + 1)) / SIZE)
    energies = np.abs(frames @ fourier) ** 2 @ filters(count).T
    logs = np.log10(np.maximum(energies, 1e-10))
    return (np.maximum(logs, logs.max() - 8) + 4) / 4


def main():
    samples, rate = soundfile.read(ROOT / "tests/speech/boats.flac", dtype="float64")
    assert rate == RATE
    frames = list(range(0, len(samples) // HOP, 23)) + [len(samples) // HOP, len(samples) // HOP + 1, 1000, 2998]
    out = {"frames": frames}
    for count in (80, 128):
        values = features(samples, count)
        out[str(count)] = [[round(float(x), 7) for x in values[t]] for t in frames]
    path = ROOT / "tests/golden/log_mel.json"
    path.write_text(json.dumps(out, separators=(",", ":")) + "\n")
    print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
