#!/usr/bin/env python3
"""Speech to text by OpenAI's client and by curl.

    speech.py NEREID                serves a tiny Whisper with random weights
    speech.py BASE_URL [MODEL]      a server that is up (http://localhost:8000/v1) with a speech model

Needs `pip install openai` and curl. Checks shapes, formats and agreement between routes, not words.
"""
import contextlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import openai

import own_server

MODELS = pathlib.Path(__file__).resolve().parents[1] / "encoder_models"
SOUNDS = pathlib.Path(__file__).resolve().parents[1] / "speech"


def check(condition, what):
    print(("ok    " if condition else "FAILED"), what)
    return bool(condition)


def curl(base, path, *fields):
    """(status, body) of a form."""
    command = ["curl", "-s", "-w", "\n%{http_code}", base + path]
    for field in fields:
        command += ["-F", field]
    body, status = subprocess.run(command, capture_output=True, text=True, check=True).stdout.rsplit("\n", 1)
    return int(status), body


def by_client(client, model):
    good = True
    texts = {}
    for name in ("boats.flac", "boats.mp3", "boats.ogg", "boats.opus", "boats_ulaw.wav"):
        with open(SOUNDS / name, "rb") as file:
            answer = client.audio.transcriptions.create(file=file, model=model, language="en")
        texts[name] = answer.text
        good &= check(isinstance(answer.text, str), f"{name}: {answer.text[:60]!r}")
    with open(SOUNDS / "boats.flac", "rb") as file:
        verbose = client.audio.transcriptions.create(file=file, model=model, language="en", response_format="verbose_json")
    good &= check(verbose.text == texts["boats.flac"], "verbose_json has the same text")
    good &= check(verbose.language == "english" and abs(float(verbose.duration) - 2.33) < 0.05, "language and duration")
    good &= check(any(segment.avg_logprob < 0 for segment in verbose.segments or []), "log-probabilities are not all 0")
    for segment in verbose.segments or []:
        good &= check(0 <= segment.start <= segment.end <= 30, f"segment {segment.id}: {segment.start} to {segment.end}")
    for kind in ("text", "srt", "vtt"):
        with open(SOUNDS / "boats.flac", "rb") as file:
            answer = client.audio.transcriptions.create(file=file, model=model, language="en", response_format=kind)
        good &= check(isinstance(answer, str) and (kind != "vtt" or answer.startswith("WEBVTT")), kind)
    with open(SOUNDS / "boats.flac", "rb") as file:
        events = list(client.audio.transcriptions.create(file=file, model=model, language="en", stream=True))
    deltas = "".join(event.delta for event in events if event.type == "transcript.text.delta")
    good &= check(events[-1].type == "transcript.text.done", "the stream ends with all of it")
    good &= check(events[-1].text == deltas.strip() == texts["boats.flac"], "the stream has the same text")
    with open(SOUNDS / "boats.flac", "rb") as file:
        answer = client.audio.translations.create(file=file, model=model)
    good &= check(isinstance(answer.text, str), "translation")
    try:
        with open(SOUNDS / "boats.flac", "rb") as file:
            client.audio.transcriptions.create(file=file, model=model, language="klingon")
        good &= check(False, "an unknown language is refused")
    except openai.BadRequestError as error:
        good &= check("klingon" in str(error), "an unknown language is refused by name")
    return good, texts


def by_curl(base, text):
    sound = f"file=@{SOUNDS / 'boats.flac'}"
    status, body = curl(base, "/audio/transcriptions", sound, "language=en")
    good = check(status == 200 and json.loads(body)["text"] == text, f"curl has the same text: {json.loads(body).get('text')!r}")
    status, body = curl(base, "/audio/transcriptions", sound, "chunking_strategy=auto", "response_format=verbose_json")
    good &= check(status == 200 and json.loads(body)["language"], f"found language: {json.loads(body).get('language')}")
    status, body = curl(base, "/audio/transcriptions", "file=@" + str(pathlib.Path(__file__)))
    good &= check(status == 400 and "no known format" in body, "a file that is no sound")
    status, body = curl(base, "/audio/transcriptions", "language=en")
    good &= check(status == 400 and "'file'" in body, "no file")
    return good


def tokenizer(size, languages):
    """tokenizer.json of the 256 bytes, and special tokens up to `size`: the languages, time stamps 20 ms apart."""
    visible = [b for b in range(256) if chr(b).isprintable() and b not in (0x20, 0xa0, 0xad)]
    hidden = [b for b in range(256) if b not in visible]
    names = {b: chr(b) for b in visible} | {b: chr(256 + i) for i, b in enumerate(hidden)}
    special = ["endoftext", "startoftranscript", *languages, "translate", "transcribe", "startoflm", "startofprev", "nospeech",
               "notimestamps"]
    special += ["%.2f" % (i * 0.02) for i in range(size - 256 - len(special))]
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    return dict(version="1.0", added_tokens=[dict(id=256 + i, content=f"<|{name}|>", **flags) for i, name in enumerate(special)],
                normalizer=None, pre_tokenizer=level, post_processor=None, decoder=level,
                model=dict(type="BPE", vocab={names[b]: b for b in range(256)}, merges=[]))


@contextlib.contextmanager
def served(nereid, name, languages, *flags, **generation):
    """A model of tests/encoder_models with a tokenizer."""
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "whisper"
        shutil.copytree(MODELS / name, model)
        size = json.loads((model / "config.json").read_text())["vocab_size"]
        (model / "tokenizer.json").write_text(json.dumps(tokenizer(size, languages)))
        generation = dict(suppress_tokens=[], begin_suppress_tokens=[32, 256]) | generation
        (model / "generation_config.json").write_text(json.dumps(generation))
        with own_server.serving(nereid, *flags, model=str(model)) as url:
            yield url + "/v1"


def are_close(got, wanted, slack):
    """Equal but for times, which are floats."""
    return len(got) == len(wanted) and all(
        abs(a - b) <= slack if isinstance(a, float) else a == b for g, w in zip(got, wanted) for a, b in zip(g, w))


def by_reference(nereid):
    """Transcripts, times of words and beams of openai-whisper (tests/golden/tiny_whisper.py)."""
    golden = json.loads((SOUNDS.parent / "golden" / "speech.json").read_text())
    good = True
    with served(nereid, "whisper-speech", golden["languages"], "--max-beam-width", "5",
                alignment_heads=golden["alignment_heads"]) as base:
        client = openai.OpenAI(base_url=base, api_key="none", max_retries=0)
        for case in golden["cases"]:
            options, wanted = case["options"], case["result"]
            granularities = ["word", "segment"] if options.get("word_timestamps") else ["segment"]
            extra = {"beam_size": options["beam_size"]} if "beam_size" in options else {}
            with open(SOUNDS / case["sound"], "rb") as file:
                got = client.audio.transcriptions.create(file=file, model="whisper", language="en", response_format="verbose_json",
                                                         timestamp_granularities=granularities, extra_body=extra)
            what = f"{case['sound']} {options}"
            slack = 0.061 if options.get("word_timestamps") else 0  # three of the encoder's positions: attention is rounded
            shown = [(s.seek, round(s.start, 3), round(s.end, 3), s.text, s.tokens) for s in got.segments]
            expected = [(s["seek"], round(s["start"], 3), round(s["end"], 3), s["text"], s["tokens"]) for s in wanted["segments"]]
            good &= check(are_close(shown, expected, slack), f"{what}: segments {got.text!r}")
            words = [(w.word, round(w.start, 3), round(w.end, 3)) for w in got.words or []]
            expected = [(w["word"].strip(), w["start"], w["end"]) for s in wanted["segments"] for w in s.get("words", [])]
            good &= check(are_close(words, expected, slack), f"{what}: words {words} {'' if words == expected else expected}")
            far = max(abs(s.avg_logprob - t["avg_logprob"]) for s, t in zip(got.segments, wanted["segments"]))
            good &= check(far < 0.02, f"{what}: mean log-probabilities differ by {far:.4f}")
            for kind in ("srt", "vtt"):
                with open(SOUNDS / case["sound"], "rb") as file:
                    lines = client.audio.transcriptions.create(file=file, model="whisper", language="en", response_format=kind,
                                                               extra_body=extra)
                good &= check(wanted["segments"][0]["text"].strip() in lines, f"{what}: {kind}")
    return good


def main():
    if "://" not in sys.argv[1]:
        with served(sys.argv[1], "whisper", ["en", "de", "ja"], begin_suppress_tokens=[256]) as base:
            check_all(base)
        assert by_reference(sys.argv[1]), "see the lines that begin with FAILED"
    else:
        check_all(sys.argv[1].rstrip("/"))


def check_all(base):
    client = openai.OpenAI(base_url=base, api_key="none", max_retries=0)
    model = sys.argv[2] if len(sys.argv) > 2 else client.models.list().data[0].id
    good, texts = by_client(client, model)
    good &= by_curl(base, texts["boats.flac"])
    assert good, "see the lines that begin with FAILED"


if __name__ == "__main__":
    main()
