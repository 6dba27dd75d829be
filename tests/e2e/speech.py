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

WHISPER = pathlib.Path(__file__).resolve().parents[1] / "encoder_models" / "whisper"
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


def tokenizer(size):
    """tokenizer.json of the 256 bytes, and special tokens up to `size`: three languages, time stamps 20 ms apart."""
    visible = [b for b in range(256) if chr(b).isprintable() and b not in (0x20, 0xa0, 0xad)]
    hidden = [b for b in range(256) if b not in visible]
    names = {b: chr(b) for b in visible} | {b: chr(256 + i) for i, b in enumerate(hidden)}
    special = ["endoftext", "startoftranscript", "en", "de", "ja", "translate", "transcribe", "startofprev", "nospeech", "notimestamps"]
    special += ["%.2f" % (i * 0.02) for i in range(size - 256 - len(special))]
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    return dict(version="1.0", added_tokens=[dict(id=256 + i, content=f"<|{name}|>", **flags) for i, name in enumerate(special)],
                normalizer=None, pre_tokenizer=level, post_processor=None, decoder=level,
                model=dict(type="BPE", vocab={names[b]: b for b in range(256)}, merges=[]))


@contextlib.contextmanager
def served(nereid):
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "whisper"
        shutil.copytree(WHISPER, model)
        (model / "tokenizer.json").write_text(json.dumps(tokenizer(512)))
        (model / "generation_config.json").write_text(json.dumps(dict(suppress_tokens=[], begin_suppress_tokens=[256])))
        with own_server.serving(nereid, model=str(model)) as url:
            yield url + "/v1"


def main():
    if "://" not in sys.argv[1]:
        with served(sys.argv[1]) as base:
            check_all(base)
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
