"""Scores of pairs of texts and reranking, by a model for scoring that is made here of models/quickstart: its states come
from the same weights, so that what a score must be is computed from /v1/embeddings.  usage: scores.py NEREID"""
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import own_server

DOCUMENTS = ["A cat sat.", "The sea is deep and blue.", "Once upon a time there was a mill by the river.", "No."]
QUERY = "What is deep?"


def post(url, path, **body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]["message"]


def make_model(folder, labels):
    """A copy with score.weight beside the other tensors. Returns its rows."""
    shutil.copytree(own_server.MODEL, folder)
    path = os.path.join(folder, "model.safetensors")
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(size)), file.read()
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    width = config["hidden_size"]
    rows = [[math.sin(i * 0.7 + 3 * label) for i in range(width)] for label in range(labels)]
    packed = b"".join(struct.pack("<%df" % width, *row) for row in rows)
    rows = [list(struct.unpack("<%df" % width, packed[4 * width * i:4 * width * (i + 1)])) for i in range(labels)]
    header.pop("lm_head.weight", None) if config.get("tie_word_embeddings") else None
    header["score.weight"] = {"dtype": "F32", "shape": [labels, width], "data_offsets": [len(data), len(data) + len(packed)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data + packed)
    config["architectures"] = ["LlamaForSequenceClassification"]
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    return rows


def check_health(url):
    with urllib.request.urlopen(url + "/health_generate") as reply:
        assert reply.status == 200 and reply.read() == b"Generation health check OK"


def check_scores(url, row, embeddings):
    wanted = [sum(w * x for w, x in zip(row, embedding)) for embedding in embeddings]
    assert len(set(wanted)) == len(wanted), wanted
    plain = post(url, "/v1/score", text_1=QUERY, text_2=DOCUMENTS, use_activation=False)
    for got, value in zip(plain["data"], wanted):
        assert abs(got["score"] - value) <= 1e-3 * max(1, abs(value)), (plain, wanted)
    usual = post(url, "/score", queries=[QUERY] * len(DOCUMENTS), documents=DOCUMENTS)
    for got, value in zip(usual["data"], plain["data"]):
        assert abs(got["score"] - 1 / (1 + math.exp(-value["score"]))) < 1e-6, (usual, plain)
    assert usual["usage"]["prompt_tokens"] > 0 and usual["object"] == "list", usual
    order = sorted(range(len(wanted)), key=lambda i: -wanted[i])
    for path in ("/v1/rerank", "/v2/rerank", "/rerank"):
        best = post(url, path, query=QUERY, documents=DOCUMENTS, top_n=2)["results"]
        assert [result["index"] for result in best] == order[:2], (best, wanted)
        assert [result["document"]["text"] for result in best] == [DOCUMENTS[i] for i in order[:2]], best
        assert best[0]["relevance_score"] == usual["data"][order[0]]["score"], best
    code, text = post(url, "/v1/completions", prompt="x", max_tokens=2)
    assert code == 400 and "has no language head" in text, (code, text)


def main():
    texts = [QUERY + document for document in DOCUMENTS]
    with own_server.serving(sys.argv[1]) as url:
        embeddings = [entry["embedding"] for entry in post(url, "/v1/embeddings", input=texts, normalize=False)["data"]]
        code, text = post(url, "/v1/score", text_1=QUERY, text_2="x")
        assert code == 501 and "0 labels" in text, (code, text)
    with tempfile.TemporaryDirectory() as folder:
        one, two = os.path.join(folder, "one"), os.path.join(folder, "two")
        row = make_model(one, 1)[0]
        with own_server.serving(sys.argv[1], model=one) as url:
            check_scores(url, row, embeddings)
            check_health(url)
        make_model(two, 2)
        with own_server.serving(sys.argv[1], model=two) as url:
            check_health(url)
            code, text = post(url, "/v1/rerank", query=QUERY, documents=DOCUMENTS)
            assert code == 501 and "2 labels" in text, (code, text)
        built = subprocess.run([sys.argv[1], "build", "--checkpoint_dir", one, "--output_dir", os.path.join(folder, "engine")], capture_output=True, text=True,
                               check=False)
        assert built.returncode == 1 and "a model that scores texts" in built.stderr, built
    print("scores: as the states of the same texts say")


if __name__ == "__main__":
    main()
