#!/usr/bin/env python3
"""Makes a tiny Whisper that has learnt what tests/speech says, and what openai-whisper hears by it.

    pip install openai-whisper torch safetensors soundfile
    tiny_whisper.py    writes tests/encoder_models/whisper-speech, boats_again.flac and boats.wav of
                       tests/speech, and tests/golden/speech.json

The vocabulary has the 256 bytes, and behind them openai-whisper's special tokens with 100 languages. The weights are trained until the
texts lead clearly, and stored as bf16; the transcripts are computed in f32, and must be the same with weights a little
off. The recording of several windows has boats.flac and pauses.
"""
import contextlib
import json
import pathlib
import sys

import numpy as np
import soundfile
import tiktoken
import torch
import whisper
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODEL = ROOT / "encoder_models" / "whisper-speech"
LANGUAGES = list(whisper.tokenizer.LANGUAGES)
SPECIAL = ["endoftext", "startoftranscript", *LANGUAGES, "translate", "transcribe", "startoflm", "startofprev",
           "nospeech", "notimestamps"] + ["%.2f" % (i * 0.02) for i in range(1501)]
VOCAB = 256 + len(SPECIAL)
SIZES = dict(n_mels=80, n_audio_ctx=1500, n_audio_state=32, n_audio_head=2, n_audio_layer=2, n_vocab=VOCAB,
             n_text_ctx=448, n_text_state=32, n_text_head=2, n_text_layer=2)
HEADS = [[0, 1], [1, 0], [1, 1]]
TASK = {name: 256 + SPECIAL.index(name) for name in SPECIAL}


class Model(whisper.model.Whisper):
    is_multilingual = property(lambda self: True)
    num_languages = property(lambda self: len(LANGUAGES))


def encoding():
    return tiktoken.Encoding("bytes", pat_str=r"[\s\S]+", mergeable_ranks={bytes([b]): b for b in range(256)},
                             special_tokens={f"<|{name}|>": 256 + i for i, name in enumerate(SPECIAL)})


@contextlib.contextmanager
def patched(module, name, value):
    old = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, old)


def tokenizer(multilingual=True, *, num_languages=100, language=None, task=None):
    return whisper.tokenizer.Tokenizer(encoding=encoding(), num_languages=num_languages, language=language or "en",
                                       task=task or "transcribe")


def read(name):
    sound, rate = soundfile.read(ROOT / "speech" / name, dtype="float32")
    assert rate == 16000 and sound.ndim == 1, (name, rate, sound.shape)
    return sound


def write_again():
    """40 s: the sentence at 0, 8 and 34 s, the second time half as loud and backwards."""
    one = read("boats.flac")
    out = np.zeros(40 * 16000, np.float32)
    for at, sound in ((0, one), (8, 0.5 * one[::-1]), (34, one)):
        out[at * 16000:at * 16000 + len(sound)] += sound
    soundfile.write(ROOT / "speech" / "boats_again.flac", out, 16000, subtype="PCM_16")
    soundfile.write(ROOT / "speech" / "boats.wav", one, 16000, subtype="PCM_16")


# (sound, seek in frames, what was said before, what is said: time stamps and texts)
def lessons():
    one, long = read("boats.flac"), read("boats_again.flac")
    first = [0.0, " The boats, they sail.", 2.3]
    before = [0.0, " The boats, they sail.", 2.4, 8.0, " Stop it now!", 10.4]
    windows = [(long, 0, [], before + [10.4]),
               (long, 1040, before, [0.0, " The boats come back.", 25.9])]
    return [(one, 0, [], first)] + windows


def ids_of(parts):
    out = []
    for part in parts:
        out += list(part.encode()) if isinstance(part, str) else [TASK["%.2f" % part]]
    return out


def features(sound, seek):
    mel = whisper.log_mel_spectrogram(np.concatenate([sound, np.zeros(480000, np.float32)]), 80)
    size = len(sound) // 160
    return whisper.pad_or_trim(mel[:, seek:min(seek + 3000, size)], 3000)


def places_of(said):
    """The encoder's positions that the alignment's inputs attend to: evenly from a segment's begin to its end."""
    out = [0] * 4
    for start, text, end in zip(said, said[1:], said[2:]):
        if isinstance(text, str):
            size = len(text.encode())
            out += [int(50 * (start + (end - start) * (i + 0.5) / size)) for i in range(size)]
    return out


def examples():
    """(features, decoder's input, number of inputs that are given, positions that inputs attend to)."""
    out = []
    for sound, seek, before, said in lessons():
        mel = features(sound, seek)
        given = ([TASK["startofprev"]] + ids_of(before) if before else [])
        start = [TASK["startoftranscript"], TASK["en"], TASK["transcribe"]]
        out.append((mel, given + start + ids_of(said) + [TASK["endoftext"]], len(given) + 3, []))
        texts = [part for part in said if isinstance(part, str)]
        # As the alignment reads it, and as the language is found.
        out.append((mel, start + [TASK["notimestamps"]] + ids_of(texts) + [TASK["endoftext"]], 4, places_of(said)))
        out.append((mel, [TASK["startoftranscript"], TASK["en"]], 1, []))
    return out


def train(model):
    """The decoder alone: the encoder's random features tell sounds and places apart."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1:
                p.copy_(torch.randn(p.shape) / p[0].numel() ** 0.5)
        for p in model.encoder.parameters():
            p.copy_(p.to(torch.bfloat16).float())
        data = examples()
        sounds = torch.cat([model.encoder(mel[None]) for mel, _, _, _ in data])
    longest = max(len(ids) for _, ids, _, _ in data) - 1
    inputs = torch.full((len(data), longest), TASK["endoftext"])
    wanted, places = torch.full((len(data), longest), -100), torch.full((len(data), longest), -100)
    for row, (_, ids, given, attended) in enumerate(data):
        inputs[row, :len(ids) - 1] = torch.tensor(ids[:-1])
        wanted[row, given - 1:len(ids) - 1] = torch.tensor(ids[given:])
        places[row, :len(attended)] = torch.tensor(attended, dtype=torch.long)
    counts, aligned = wanted >= 0, (places >= 0).any(1)
    made = {}
    for layer, block in enumerate(model.decoder.blocks):
        for name in ("query", "key"):
            module = getattr(block.cross_attn, name)
            module.register_forward_hook(lambda _, given, out, at=(layer, name): made.update({at: out}))
    width = SIZES["n_text_state"] // SIZES["n_text_head"]

    def scores_of(layer, head):
        columns = slice(head * width, (head + 1) * width)
        query, key = (made[layer, name][aligned][..., columns] for name in ("query", "key"))
        return query @ key.transpose(1, 2) / width ** 0.5

    optimiser = torch.optim.AdamW(model.decoder.parameters(), lr=3e-3, weight_decay=0.0)
    for step in range(1600):
        logits = model.decoder(inputs, sounds + 0.02 * torch.randn(sounds.shape))[counts]
        loss = torch.nn.functional.cross_entropy(logits, wanted[counts])
        astray = sum(torch.nn.functional.cross_entropy(scores_of(*at).transpose(1, 2), places[aligned]) for at in HEADS)
        index = wanted[counts][:, None]
        others = logits.detach().scatter(1, index, float("-inf")).max(1, keepdim=True).values
        worst = float((logits.detach().gather(1, index) - others).min())
        if step % 20 == 0:
            print(step, float(loss.detach()), float(astray.detach()) / len(HEADS), worst, flush=True)
        if worst > 4 and float(astray.detach()) / len(HEADS) < 3:
            break
        optimiser.zero_grad()
        (loss + 0.3 * astray).backward()
        torch.nn.utils.clip_grad_norm_(model.decoder.parameters(), 1.0)
        optimiser.step()
        for group in optimiser.param_groups:
            group["lr"] = 3e-3 * 0.997 ** step + 2e-4
    print("steps", step, "least lead", worst)


NAMES = [("blocks", "layers"), ("cross_attn_ln", "encoder_attn_layer_norm"), ("cross_attn", "encoder_attn"),
         ("attn_ln", "self_attn_layer_norm"), (".attn.", ".self_attn."), (".query.", ".q_proj."), (".key.", ".k_proj."),
         (".value.", ".v_proj."), (".out.", ".out_proj."), ("mlp_ln", "final_layer_norm"), ("mlp.0", "fc1"),
         ("mlp.2", "fc2"), ("ln_post", "layer_norm"), ("token_embedding", "embed_tokens"),
         ("decoder.ln.", "decoder.layer_norm.")]


def export(model):
    """As transformers stores it."""
    tensors = {}
    for name, value in model.state_dict().items():
        if name.endswith("positional_embedding"):
            name = name.replace("positional_embedding", "embed_positions.weight")
        for old, new in NAMES:
            name = name.replace(old, new)
        tensors["model." + name] = value.to(torch.bfloat16).contiguous()
    MODEL.mkdir(parents=True, exist_ok=True)
    save_file(tensors, MODEL / "model.safetensors", metadata=dict(format="pt"))
    config = dict(bos_token_id=256, pad_token_id=256, eos_token_id=256, torch_dtype="bfloat16",
                  architectures=["WhisperForConditionalGeneration"], model_type="whisper", vocab_size=VOCAB,
                  num_mel_bins=80, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
                  decoder_attention_heads=2, encoder_ffn_dim=128, decoder_ffn_dim=128, max_source_positions=1500,
                  max_target_positions=448, activation_function="gelu", dropout=0.0, attention_dropout=0.0,
                  activation_dropout=0.0, encoder_layerdrop=0.0, decoder_layerdrop=0.0, scale_embedding=False,
                  is_encoder_decoder=True, decoder_start_token_id=257, tie_word_embeddings=True, use_cache=True)
    (MODEL / "config.json").write_text(json.dumps(config, indent=2))


def hear(model, sound, **options):
    """The transcript by the reference's loop over windows, with its tokenizer replaced by that of the tiny model."""
    transcribe, decoding = sys.modules["whisper.transcribe"], sys.modules["whisper.decoding"]
    with patched(transcribe, "get_tokenizer", tokenizer), patched(decoding, "get_tokenizer", tokenizer):
        out = transcribe.transcribe(model, sound, language="en", temperature=0.0, suppress_tokens="", fp16=False,
                                    **options)
    segments = []
    for s in out["segments"]:
        segment = {key: s[key] for key in ("seek", "text", "tokens")}
        segment |= {key: round(float(s[key]), 4) for key in ("start", "end", "avg_logprob", "compression_ratio")}
        if "words" in s:
            segment["words"] = [dict(word=w["word"], start=round(float(w["start"]), 3), end=round(float(w["end"]), 3))
                                for w in s["words"]]
        segments.append(segment)
    return dict(text=out["text"], segments=segments)


def texts_of(result):
    return [(s["text"], s["tokens"], [w["word"] for w in s.get("words", [])]) for s in result["segments"]]


def times_of(result):
    return [time for s in result["segments"] for part in [s] + s.get("words", []) for time in (part["start"], part["end"])]


def are_same(a, b, has_words):
    """Times of words follow attention, whose rounding moves them by up to three positions."""
    slack = 0.061 if has_words else 0
    return texts_of(a) == texts_of(b) and all(abs(s - t) <= slack for s, t in zip(times_of(a), times_of(b)))


def is_robust(model, sound, options, wanted):
    """Whether the transcript is the same with weights a little off."""
    exact = {name: p.clone() for name, p in model.named_parameters()}
    same = True
    for attempt in range(3):
        torch.manual_seed(attempt)
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(exact[name] * (1 + 2 ** -9 * torch.randn(p.shape)))
        same &= are_same(hear(model, sound, **options), wanted, "word_timestamps" in options)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(exact[name])
    return same


def main():
    model = Model(whisper.model.ModelDimensions(**SIZES)).eval()
    mask = torch.zeros(SIZES["n_text_layer"], SIZES["n_text_head"], dtype=torch.bool)
    for layer, head in HEADS:
        mask[layer, head] = True
    model.register_buffer("alignment_heads", mask.to_sparse(), persistent=False)
    write_again()
    train(model)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.to(torch.bfloat16).float())
    export(model)
    cases = []
    for name in ("boats.flac", "boats_again.flac"):
        sound = read(name)
        for options in (dict(), dict(word_timestamps=True), dict(beam_size=5), dict(beam_size=3, word_timestamps=True)):
            result = hear(model, sound, **options)
            is_kept = is_robust(model, sound, options, result)
            print(name, options, "kept" if is_kept else "not kept", texts_of(result), times_of(result), flush=True)
            if is_kept:
                cases.append(dict(sound=name, options=options, result=result))
    (ROOT / "golden" / "speech.json").write_text(json.dumps(dict(languages=LANGUAGES, alignment_heads=HEADS, cases=cases)))


if __name__ == "__main__":
    main()
