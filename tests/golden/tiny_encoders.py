#!/usr/bin/env python3
"""Makes tiny encoder-decoder models with Hugging Face transformers, and their golden outputs.

    pip install torch transformers safetensors
    tiny_encoders.py NAME...    writes tests/encoder_models/NAME and tests/golden/encoder/NAME.json
    tiny_encoders.py --beams NAME...    adds beam searches of models that are there
    tiny_encoders.py --timestamps NAME...    adds transcripts with time stamps of a Whisper that is there
    tiny_encoders.py --masks NAME...    writes tests/golden/encoder/NAME_masks.safetensors of models that are there
    tiny_encoders.py --alignment NAME...    writes tests/golden/encoder/NAME_alignment.safetensors of a Whisper that is there

As tiny_models.py: random weights, fitted until the greedy token leads clearly, stored as bf16; golden outputs are
computed in f32.
"""
import json
import pathlib
import sys

import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM

VOCAB, STEPS, PROMPTS = 512, 24, (5, 12, 40, 70)
ROOT = pathlib.Path(__file__).resolve().parents[1]


def bart_like(architecture, kind, **fields):
    sizes = dict(vocab_size=VOCAB, bos_token_id=0, pad_token_id=1, eos_token_id=3, torch_dtype="bfloat16", d_model=48,
                 encoder_layers=3, decoder_layers=2, encoder_attention_heads=3, decoder_attention_heads=2,
                 encoder_ffn_dim=96, decoder_ffn_dim=64, max_position_embeddings=128, dropout=0.0,
                 attention_dropout=0.0, activation_dropout=0.0, encoder_layerdrop=0.0, decoder_layerdrop=0.0,
                 is_encoder_decoder=True, decoder_start_token_id=3, tie_word_embeddings=True, scale_embedding=True,
                 forced_eos_token_id=None, forced_bos_token_id=None)
    return dict(architectures=[architecture], model_type=kind) | sizes | fields


MODELS = {
    "mbart": bart_like("MBartForConditionalGeneration", "mbart", activation_function="gelu"),
    "marian": bart_like("MarianMTModel", "marian", activation_function="swish", static_position_embeddings=True,
                        decoder_start_token_id=1, share_encoder_decoder_embeddings=True),
    "pegasus": bart_like("PegasusForConditionalGeneration", "pegasus", activation_function="relu",
                         static_position_embeddings=True, decoder_start_token_id=1),
    "m2m100": bart_like("M2M100ForConditionalGeneration", "m2m_100", activation_function="relu"),
}


def randomise(net):
    with torch.no_grad():
        for name, p in net.named_parameters():
            if not p.requires_grad:
                continue
            noise = torch.randn(p.shape)
            if p.dim() < 2:
                p.add_(0.15 * noise)
            elif "shared" in name or "embed" in name:
                p.copy_(0.2 * noise)
            else:
                p.copy_(1.6 * noise / p.shape[-1] ** 0.5)


def logits_of(net, prompt, ids):
    return net(input_ids=torch.tensor([prompt]), decoder_input_ids=torch.tensor([ids])).logits[0]


def lead(logits, wanted):
    index = torch.tensor(wanted)[:, None]
    others = logits.scatter(1, index, float("-inf")).max(1, keepdim=True).values
    return float((logits.gather(1, index) - others).min())


def fit(net, start, prompts, wanted):
    trained = [p for p in net.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=4e-3, weight_decay=0.0)
    for _ in range(400):
        loss, worst = 0.0, float("inf")
        for prompt, tokens in zip(prompts, wanted):
            logits = logits_of(net, prompt, [start] + tokens[:-1])
            loss = loss + torch.nn.functional.cross_entropy(logits, torch.tensor(tokens))
            worst = min(worst, lead(logits.detach(), tokens))
        if worst > 4.5:
            return
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 5.0)
        optimiser.step()


def load(name):
    folder = ROOT / "encoder_models" / name
    return AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def make(name, config):
    folder = ROOT / "encoder_models" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    torch.manual_seed(0)
    own = AutoConfig.from_pretrained(folder)
    net = AutoModelForSeq2SeqLM.from_config(own, attn_implementation="eager").float().eval()
    randomise(net)
    ids = iter((torch.randperm(VOCAB - 16)[:sum(PROMPTS) + len(PROMPTS) * STEPS] + 8).tolist())
    prompts = [[next(ids) for _ in range(length)] for length in PROMPTS]
    wanted = [[next(ids) for _ in range(STEPS)] for _ in PROMPTS]
    start = config["decoder_start_token_id"]
    fit(net, start, prompts, wanted)
    net.to(torch.bfloat16).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config, indent=2))  # as it was, not as saved
    (folder / "generation_config.json").unlink(missing_ok=True)
    net = load(name)
    cases = []
    for i, prompt in enumerate(prompts):
        greedy, leads = [], []
        for _ in range(STEPS):
            with torch.no_grad():
                best = logits_of(net, prompt, [start] + greedy)[-1].topk(2)
            greedy.append(int(best.indices[0]))
            leads.append(float(best.values[0] - best.values[1]))
        cases.append(dict(prompt_ids=prompt, greedy_ids=greedy, min_lead=round(min(leads), 3)))
        print(name, i, "as fitted" if greedy == wanted[i] else "not as fitted", cases[-1]["min_lead"])
    golden = dict(model=name, decoder_start_token_id=start, cases=cases)
    (ROOT / "golden" / "encoder" / f"{name}.json").write_text(json.dumps(golden))


def search(net, prompt, start, penalty, early):
    with torch.no_grad():
        out = net.generate(torch.tensor([prompt]), num_beams=4, num_return_sequences=4, max_new_tokens=12,
                           length_penalty=penalty, early_stopping=early, do_sample=False,
                           decoder_start_token_id=start, eos_token_id=3, pad_token_id=1, forced_eos_token_id=None,
                           output_scores=True, return_dict_in_generate=True)
    rows = [row[1:].tolist() for row in out.sequences]  # without the first token
    for row in rows:
        if 3 in row:
            del row[row.index(3) + 1:]
    return rows, [round(float(s), 5) for s in out.sequences_scores]


def add_beams(name):
    """Beam searches to 12 tokens or the end id, from fitted prompts with other tokens in some places. Kept are four
    whose best hypothesis leads and is the same in bf16 and with weights a little off."""
    path = ROOT / "golden" / "encoder" / f"{name}.json"
    golden = json.loads(path.read_text())
    start = golden["decoder_start_token_id"]
    exact = load(name)
    torch.manual_seed(1)
    others = [load(name).to(torch.bfloat16)]
    for _ in range(4):
        others.append(load(name))
        with torch.no_grad():
            for p in others[-1].parameters():
                p.mul_(1 + 2 ** -8 * torch.randn(p.shape))
    beams = []
    for attempt in range(200):
        prompt = list(golden["cases"][attempt % 3]["prompt_ids"])
        for _ in range(1 + attempt % 4):
            prompt[int(torch.randint(len(prompt), ()))] = int(torch.randint(8, VOCAB - 8, ()))
        penalty, early = ((1.0, False), (0.0, True))[len(beams) % 2]
        rows, scores = search(exact, prompt, start, penalty, early)
        leads = (scores[0] - scores[1]) * (12 if penalty else 1) > 0.3
        if not leads or any(search(net, prompt, start, penalty, early)[0][0] != rows[0] for net in others):
            continue
        beams.append(dict(prompt_ids=prompt, num_beams=4, length_penalty=penalty, early_stopping=early,
                          max_new_tokens=12, sequences=rows, scores=scores))
        if len(beams) == 4:
            break
    golden["beams"] = beams
    path.write_text(json.dumps(golden))
    print(name, len(beams), "beam searches")


def add_timestamps(name):
    """Greedy tokens by the rules of time stamps, from fitted prompts, some with another last token. Kept
    are those that lead at each step."""
    from safetensors.torch import load_file
    from transformers import GenerationConfig, WhisperForConditionalGeneration
    from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor
    path = ROOT / "golden" / "encoder" / f"{name}.json"
    golden = json.loads(path.read_text())
    features = load_file(path.with_suffix(".safetensors"))["input_features"]
    net = WhisperForConditionalGeneration.from_pretrained(ROOT / "encoder_models" / name, dtype=torch.float32).eval()
    torch.manual_seed(2)
    kept = []
    for attempt in range(1500):
        first, text_end, latest = 200 + attempt % 200, 100 + attempt % 100, (None, 20)[attempt % 2]
        prompt = list(golden["cases"][attempt % 4]["prompt_ids"])
        if attempt % 3:
            prompt[-1] = int(torch.randint(8, text_end, ()))
        config = GenerationConfig(eos_token_id=text_end, no_timestamps_token_id=first - 1)
        config.max_initial_timestamp_index = latest
        rules = WhisperTimeStampLogitsProcessor(config, begin_index=len(prompt))
        ids, worst = list(prompt), float("inf")
        for _ in range(12):
            with torch.no_grad():
                logits = net(input_features=features, decoder_input_ids=torch.tensor([ids])).logits[:, -1]
            scores = rules(torch.tensor([ids]), logits)
            best = scores[0].topk(2)
            log_probs = logits.log_softmax(-1)[0]
            allowed = scores[0, first:].isfinite()
            closeness = abs(log_probs[first:][allowed].logsumexp(0) - log_probs[:first - 1].max()) if allowed.any() else 9
            worst = min(worst, float(best.values[0] - best.values[1]), float(closeness))
            ids.append(int(best.indices[0]))
        if worst > 0.12:
            times = sum(i >= first for i in ids)
            kept.append(dict(prompt_ids=prompt, first=first, no_timestamps=first - 1, end_of_text=text_end,
                             max_initial=latest, greedy_ids=ids[len(prompt):]))
            print(name, len(kept), "lead", round(worst, 3), "time stamps", times, ids)
        if len(kept) == 8:
            break
    golden["timestamps"] = kept
    path.write_text(json.dumps(golden))


def add_alignment(name):
    """Weights of cross attention [layers * heads, prompt, positions] and log-probabilities of the prompt but its first
    token, where the prompt is a case's with its greedy tokens behind it."""
    from safetensors.torch import load_file, save_file
    from transformers import WhisperForConditionalGeneration
    path = ROOT / "golden" / "encoder" / f"{name}.json"
    features = load_file(path.with_suffix(".safetensors"))["input_features"]
    net = WhisperForConditionalGeneration.from_pretrained(ROOT / "encoder_models" / name, dtype=torch.float32,
                                                          attn_implementation="eager").eval()
    tensors = {}
    for i, case in enumerate(json.loads(path.read_text())["cases"]):
        ids = torch.tensor([case["prompt_ids"] + case["greedy_ids"]])
        with torch.no_grad():
            out = net(input_features=features, decoder_input_ids=ids, output_attentions=True)
        tensors[f"weights.{i}"] = torch.cat([layer[0] for layer in out.cross_attentions])
        log_probs = out.logits[0, :-1].log_softmax(-1)
        tensors[f"log_probs.{i}"] = log_probs.gather(1, ids[0, 1:, None])[:, 0].contiguous()
    save_file(tensors, path.with_name(f"{name}_alignment.safetensors"))


def add_masks(name):
    """Of each case: the encoder's output [positions, width], a mask of cross attention [rows, positions], and with it the
    log-probabilities of the greedy tokens behind their prompt. Later positions have the mask's last row."""
    from safetensors.torch import load_file, save_file
    path = ROOT / "golden" / "encoder" / f"{name}.json"
    golden = json.loads(path.read_text())
    tensors = {}
    torch.manual_seed(3)
    if name == "whisper":
        from transformers import WhisperForConditionalGeneration
        net = WhisperForConditionalGeneration.from_pretrained(ROOT / "encoder_models" / name, dtype=torch.float32,
                                                              attn_implementation="eager").eval()
        features = load_file(path.with_suffix(".safetensors"))["input_features"]
    else:
        net = load(name)
    for i, case in enumerate(golden["cases"]):
        start = case["prompt_ids"] if name == "whisper" else [golden["decoder_start_token_id"]]
        ids = torch.tensor([start + case["greedy_ids"]])
        with torch.no_grad():
            encoder = net.model.encoder if name == "whisper" else net.get_encoder()
            output = encoder(features if name == "whisper" else torch.tensor([case["prompt_ids"]])).last_hidden_state
            rows = 1 if i == 3 else ids.shape[1] - 5
            mask = torch.rand(rows, output.shape[1]) < 0.5
            mask[:, i] = True  # none hides all
            whole = mask[torch.arange(ids.shape[1]).clamp(max=rows - 1)]
            bias = torch.zeros(whole.shape).masked_fill(~whole, torch.finfo(torch.float32).min)[None, None]
            logits = masked_logits(net, output, ids, bias)
        log_probs = logits[0, len(start) - 1:-1].log_softmax(-1)
        tensors[f"output.{i}"] = output[0].contiguous()
        tensors[f"mask.{i}"] = mask.to(torch.uint8)
        tensors[f"log_probs.{i}"] = log_probs.gather(1, ids[0, len(start):, None])[:, 0].contiguous()
        print(name, i, tensors[f"log_probs.{i}"][:4])
    save_file(tensors, path.with_name(f"{name}_masks.safetensors"))


def masked_logits(net, output, ids, bias):
    """Every cross attention gets the bias in place of its mask."""
    hooks = []
    for module in net.modules():
        is_cross = type(module).__name__ == "T5LayerCrossAttention"
        if is_cross or type(module).__name__.endswith("DecoderLayer"):
            attention = module.EncDecAttention if is_cross else module.encoder_attn
            key = "mask" if is_cross else "attention_mask"
            hooks.append(attention.register_forward_pre_hook(
                lambda _, args, kwargs, key=key: (args, kwargs | {key: bias}), with_kwargs=True))
    logits = net(encoder_outputs=(output,), decoder_input_ids=ids, use_cache=False).logits
    for hook in hooks:
        hook.remove()
    assert hooks
    return logits


if __name__ == "__main__":
    torch.set_num_threads(1)
    additions = {"--beams": add_beams, "--timestamps": add_timestamps, "--alignment": add_alignment, "--masks": add_masks}
    if sys.argv[1:] and sys.argv[1] in additions:
        for chosen in sys.argv[2:]:
            additions[sys.argv[1]](chosen)
    else:
        for chosen in sys.argv[1:] or MODELS:
            make(chosen, MODELS[chosen])
