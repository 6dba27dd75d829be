#!/usr/bin/env python3
"""Speech to text by OpenAI's client and by curl, against a server that is up.

    speech.py BASE_URL [MODEL]      BASE_URL: http://localhost:8000/v1

Needs a speech model (nereid serve openai/whisper-tiny), `pip install openai` and curl. Checks shapes, formats and agreement
between routes, not words: a model with random weights will do.
"""
import json
import pathlib
import subprocess
import sys

import openai

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
    good = check(status == 200 and json.loads(body)["text"] == text, "curl has the same text")
    status, body = curl(base, "/audio/transcriptions", sound, "chunking_strategy=auto", "response_format=verbose_json")
    good &= check(status == 200 and json.loads(body)["language"], f"found language: {json.loads(body).get('language')}")
    status, body = curl(base, "/audio/transcriptions", "file=@" + str(pathlib.Path(__file__)))
    good &= check(status == 400 and "no known format" in body, "a file that is no sound")
    status, body = curl(base, "/audio/transcriptions", "language=en")
    good &= check(status == 400 and "'file'" in body, "no file")
    return good


def main():
    base = sys.argv[1].rstrip("/")
    client = openai.OpenAI(base_url=base, api_key="none", max_retries=0)
    model = sys.argv[2] if len(sys.argv) > 2 else client.models.list().data[0].id
    good, texts = by_client(client, model)
    good &= by_curl(base, texts["boats.flac"])
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
