#!/usr/bin/env python3
"""Makes heads with random weights, and what they guess, with nothing but numpy.

    pip install numpy
    tiny_heads.py [NAME...]    writes tests/heads/{quickstart-eagle3,deepseek_v3-mtp,quickstart-redrafter} and
                               tests/golden/{eagle3,mtp,redrafter}.json, or those of the names given (also head_adapter)

An EAGLE-3 head for models/quickstart, and a layer that predicts further tokens behind tests/models/deepseek_v3. Weights
are stored as bf16, guesses are computed in f32: greedy chains of four behind prompts. A ReDrafter head for
models/quickstart, fitted to the answers of tests/golden/target.json so that some of its guesses hold: beams of three
guesses, four long. A case is left out where two tokens or beams are nearly tied. And an adapter (LoRA) of models/quickstart
that changes its head, tests/adapters/head, with what the model then says (tests/golden/head_adapter.json).
"""
import json
import pathlib
import struct
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHAIN, LEAD = 4, 0.05  # logits between the first and the second
BEAM_LEAD = 0.1  # of sums of four log-probabilities, with states and activations rounded to bf16


def rounded(x):
    """The nearest bf16 numbers, as f32."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)


def read(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + at for at in entry["data_offsets"])
        raw = data[begin:end]
        if entry["dtype"] == "BF16":
            numbers = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            numbers = np.frombuffer(raw, {"F32": np.float32}[entry["dtype"]])
        out[name] = numbers.reshape(entry["shape"])
    return out


def write(path, tensors, f32=()):
    header, data = {}, b""
    for name, x in sorted(tensors.items()):
        if x.dtype in (np.int64, np.bool_):
            kind, raw = {"int64": "I64", "bool": "BOOL"}[x.dtype.name], x.tobytes()
        elif name.endswith(tuple(f32) or ("?",)):
            kind, raw = "F32", x.astype(np.float32).tobytes()
        else:
            kind, raw = "BF16", (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
        header[name] = {"dtype": kind, "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def rms(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def turned(x, theta, in_pairs):
    """Rotary embedding of [positions, heads, dim]."""
    n, _, dim = x.shape
    angles = np.arange(n)[:, None] * theta ** (-np.arange(0, dim, 2) / dim)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b = (x[..., 0::2], x[..., 1::2]) if in_pairs else (x[..., :dim // 2], x[..., dim // 2:])
    parts = (a * cos - b * sin, b * cos + a * sin)
    return np.stack(parts, -1).reshape(x.shape) if in_pairs else np.concatenate(parts, -1)


def causal(q, k, v, scale):
    """[positions, heads, dim] of each; key heads are shared by neighbouring queries."""
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) * scale
    scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
    return np.einsum("hqk,khd->qhd", softmax(scores), v).reshape(len(q), -1)


def heads(x, weight, dim):
    return (x @ weight.T).reshape(len(x), -1, dim)


def gated(w, name, x):
    return (silu(x @ w[name + "gate_proj.weight"].T) * (x @ w[name + "up_proj.weight"].T)) @ w[name + "down_proj.weight"].T


def llama_attention(w, c, at, x):
    dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    q, k, v = (heads(x, w[f"{at}self_attn.{p}_proj.weight"], dim) for p in "qkv")
    q, k = (turned(part, c["rope_theta"], False) for part in (q, k))
    return causal(q, k, v, dim ** -0.5) @ w[at + "self_attn.o_proj.weight"].T


def llama_rest(w, c, at, x):
    return x + gated(w, at + "mlp.", rms(x, w[at + "post_attention_layernorm.weight"], c["rms_norm_eps"]))


def llama_layer(w, c, at, x):
    x = x + llama_attention(w, c, at, rms(x, w[at + "input_layernorm.weight"], c["rms_norm_eps"]))
    return llama_rest(w, c, at, x)


def deepseek_attention(w, c, at, x):
    at += "self_attn."
    still, turning = c["qk_nope_head_dim"], c["qk_rope_head_dim"]
    q = heads(rms(x @ w[at + "q_a_proj.weight"].T, w[at + "q_a_layernorm.weight"], 1e-6), w[at + "q_b_proj.weight"], still + turning)
    latent, key = np.split(x @ w[at + "kv_a_proj_with_mqa.weight"].T, [c["kv_lora_rank"]], -1)
    both = heads(rms(latent, w[at + "kv_a_layernorm.weight"], 1e-6), w[at + "kv_b_proj.weight"], still + c["v_head_dim"])
    turned_key = np.repeat(turned(key[:, None], c["rope_theta"], True), q.shape[1], 1)
    k = np.concatenate([both[..., :still], turned_key], -1)
    q = np.concatenate([q[..., :still], turned(q[..., still:], c["rope_theta"], True)], -1)
    return causal(q, k, both[..., still:], (still + turning) ** -0.5) @ w[at + "o_proj.weight"].T


def mixture(w, c, at, x):
    scores = 1 / (1 + np.exp(-(x @ w[at + "gate.weight"].T)))
    out = gated(w, at + "shared_experts.", x)
    groups = c["n_group"]
    for i, row in enumerate(scores):
        choice = (row + w[at + "gate.e_score_correction_bias"]).reshape(groups, -1)
        best = np.argsort(-np.sort(choice, -1)[:, -2:].sum(-1), kind="stable")[:c["topk_group"]]
        allowed = np.full(choice.shape, -np.inf)
        allowed[best] = choice[best]
        picked = np.argsort(-allowed.ravel(), kind="stable")[:c["num_experts_per_tok"]]
        weights = row[picked] / row[picked].sum() * c["routed_scaling_factor"]
        out[i] += sum(p * gated(w, f"{at}experts.{e}.", x[i]) for p, e in zip(weights, picked))
    return out


def deepseek_layer(w, c, at, x):
    x = x + deepseek_attention(w, c, at, rms(x, w[at + "input_layernorm.weight"], c["rms_norm_eps"]))
    h = rms(x, w[at + "post_attention_layernorm.weight"], c["rms_norm_eps"])
    has_experts = at + "mlp.gate.weight" in w
    return x + (mixture(w, c, at + "mlp.", h) if has_experts else gated(w, at + "mlp.", h))


def run(w, c, layer, ids):
    """The input of each layer at all positions, then the head's input."""
    x = w["model.embed_tokens.weight"][ids]
    states = []
    for i in range(c["num_hidden_layers"]):
        states.append(x)
        x = layer(w, c, f"model.layers.{i}.", x)
    return states + [rms(x, w["model.norm.weight"], c["rms_norm_eps"])]


def likeliest(logits):
    second, first = np.argsort(logits)[-2:]
    return int(first) if logits[first] - logits[second] > LEAD else None


def chain(embedding, states, ids, next_token, step):
    """`step` makes of embeddings and states [positions, ...] logits and its own state of the last position."""
    tokens = list(ids[1:]) + [next_token]
    states = [states[i] for i in range(len(states))]
    guesses = []
    for _ in range(CHAIN):
        logits, own, to_id = step(embedding[tokens], states)
        guess = likeliest(logits)
        if guess is None:
            return None
        guesses.append(to_id(guess))
        tokens.append(guesses[-1])
        states.append(own)
    return guesses


def random_weights(rng, shapes):
    return {name: rounded(rng.normal(1, 0.1, shape) if len(shape) == 1 else rng.normal(0, 1.2 * shape[1] ** -0.5, shape))
            for name, shape in shapes.items()}


def save(name, cases):
    print(name, len(cases), "cases")
    (ROOT / f"tests/golden/{name}.json").write_text(json.dumps({"cases": cases}) + "\n")


def eagle3(rng):
    folder = ROOT / "models/quickstart"
    c, w = json.loads((folder / "config.json").read_text()), read(folder / "model.safetensors")
    width, inner, dim, vocab = c["hidden_size"], 128, 64, 192
    layers = [1, 3, 5]
    own = dict(architectures=["LlamaForCausalLMEagle3"], model_type="llama", hidden_size=width, intermediate_size=inner,
               num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=dim, hidden_act="silu",
               rms_norm_eps=1e-5, rope_theta=10000.0, max_position_embeddings=2048, tie_word_embeddings=False,
               torch_dtype="bfloat16", vocab_size=c["vocab_size"], draft_vocab_size=vocab,
               eagle_aux_hidden_state_layer_ids=layers)
    at = "midlayer."
    h = random_weights(rng, {
        "fc.weight": (width, 3 * width), "norm.weight": (width,), "lm_head.weight": (vocab, width),
        at + "input_layernorm.weight": (width,), at + "hidden_norm.weight": (width,),
        at + "post_attention_layernorm.weight": (width,), at + "self_attn.q_proj.weight": (2 * dim, 2 * width),
        at + "self_attn.k_proj.weight": (dim, 2 * width), at + "self_attn.v_proj.weight": (dim, 2 * width),
        at + "self_attn.o_proj.weight": (width, 2 * dim), at + "mlp.gate_proj.weight": (inner, width),
        at + "mlp.up_proj.weight": (inner, width), at + "mlp.down_proj.weight": (width, inner)})
    golden = json.loads((ROOT / "tests/golden/heads.json").read_text())["cases"]
    # The tokens that answers have most often, so that some draft tokens are accepted.
    text = [t for one in json.loads((ROOT / "tests/golden/target.json").read_text())["cases"] for t in one["greedy_ids"]]
    ids, counts = np.unique([t for t in text if t > 5], return_counts=True)
    kept = list(ids[np.argsort(-counts, kind="stable")][:vocab])
    kept = np.array(sorted(kept + [t for t in range(6, c["vocab_size"]) if t not in set(kept)][:vocab - len(kept)]))
    known = np.isin(np.arange(c["vocab_size"]), kept)
    out = ROOT / "tests/heads/quickstart-eagle3"
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(own, indent=2) + "\n")
    write(out / "model.safetensors", {**h, "d2t": kept.astype(np.int64) - np.arange(vocab), "t2d": known})
    embedding, eps = w["model.embed_tokens.weight"], own["rms_norm_eps"]

    def step(embeddings, states):
        x = np.stack([s if s.shape == (width,) else s @ h["fc.weight"].T for s in states])
        both = np.concatenate([rms(embeddings, h[at + "input_layernorm.weight"], eps), rms(x, h[at + "hidden_norm.weight"], eps)], -1)
        x = llama_rest(h, own, at, x + llama_attention(h, own, at, both))
        return rms(x[-1], h["norm.weight"], eps) @ h["lm_head.weight"].T, x[-1], lambda i: int(kept[i])

    cases = []
    for one in golden:
        states = run(w, c, llama_layer, one["prompt_ids"])
        guesses = chain(embedding, np.concatenate([states[i] for i in layers], -1), one["prompt_ids"], one["next_token"], step)
        if guesses:
            cases.append(dict(prompt_ids=one["prompt_ids"], next_token=one["next_token"], chain=guesses))
    save("eagle3", cases)


def mtp(rng):
    folder = ROOT / "tests/models/deepseek_v3"
    c, w = json.loads((folder / "config.json").read_text()), read(folder / "model.safetensors")
    n, width, eps = c["num_hidden_layers"], c["hidden_size"], c["rms_norm_eps"]
    at = f"model.layers.{n}."
    shapes = {at + name[len(f"model.layers.{n - 1}."):]: x.shape for name, x in w.items()
              if name.startswith(f"model.layers.{n - 1}.")}
    shapes |= {at + name: (width,) for name in ("enorm.weight", "hnorm.weight", "shared_head.norm.weight")}
    h = random_weights(rng, shapes | {at + "eh_proj.weight": (width, 2 * width)})
    h[at + "mlp.gate.e_score_correction_bias"] = rng.normal(0, 0.1, c["n_routed_experts"]).astype(np.float32)
    out = ROOT / "tests/heads/deepseek_v3-mtp"
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(c | {"num_nextn_predict_layers": 1}, indent=2) + "\n")
    copies = {at + "embed_tokens.weight": w["model.embed_tokens.weight"], at + "shared_head.head.weight": w["lm_head.weight"]}
    write(out / "model.safetensors", w | h | copies, f32=["e_score_correction_bias"])

    def step(embeddings, states):
        x = np.concatenate([rms(embeddings, h[at + "enorm.weight"], eps), rms(np.stack(states), h[at + "hnorm.weight"], eps)], -1)
        x = deepseek_layer(h, c, at, x @ h[at + "eh_proj.weight"].T)
        own = rms(x[-1], h[at + "shared_head.norm.weight"], eps)
        return own @ w["lm_head.weight"].T, own, lambda i: i

    cases = []
    for one in json.loads((ROOT / "tests/golden/arch/deepseek_v3.json").read_text())["cases"]:
        prompt = one["prompt_ids"]
        state = run(w, c, deepseek_layer, prompt)[-1]
        next_token = int(np.argmax(state[-1] @ w["lm_head.weight"].T))
        assert next_token == one["greedy_ids"][0], "the model is another one than transformers' own"
        guesses = chain(w["model.embed_tokens.weight"], state, prompt, next_token, step)
        if guesses:
            cases.append(dict(prompt_ids=prompt, next_token=next_token, chain=guesses))
    save("mtp", cases)


def fitted(rng, inputs, targets, weights, rounds=60, batch=256, rate=2e-3):
    """Adam on the sum of -log p(target) of a projection, a block and a head."""
    names = list(weights)
    mean, square = ({n: np.zeros_like(w) for n, w in weights.items()} for _ in range(2))
    step = 0
    for _ in range(rounds):
        order = rng.permutation(len(inputs))
        for at in range(0, len(order), batch):
            x, y = inputs[order[at:at + batch]], targets[order[at:at + batch]]
            p, pb, w, wb, head = (weights[n] for n in names)
            a = x @ p.T + pb
            u = a @ w.T + wb
            b = a + silu(u)
            d = softmax(b @ head.T)
            d[np.arange(len(y)), y] -= 1
            d /= len(y)
            db = d @ head
            gate = 1 / (1 + np.exp(-u))
            du = db * gate * (1 + u * (1 - gate))
            da = db + du @ w
            slopes = dict(zip(names, (da.T @ x, da.sum(0), du.T @ a, du.sum(0), d.T @ b)))
            step += 1
            for n in names:
                mean[n] += 0.1 * (slopes[n] - mean[n])
                square[n] += 0.01 * (slopes[n] ** 2 - square[n])
                weights[n] -= rate * (mean[n] / (1 - 0.9 ** step)) / (np.sqrt(square[n] / (1 - 0.99 ** step)) + 1e-8)
    return {n: rounded(w) for n, w in weights.items()}


def redrafter(rng):
    folder = ROOT / "models/quickstart"
    c, w = json.loads((folder / "config.json").read_text()), read(folder / "model.safetensors")
    width, inner, beams, length = c["hidden_size"], 64, 3, 4
    embedding = w["model.embed_tokens.weight"]
    h = {"rnn_w.weight": rounded(rng.normal(0, width ** -0.5, (width, width)) / np.std(embedding)),
         "rnn_u.weight": rounded(rng.normal(0, width ** -0.5, (width, width))),
         "rnn_u.bias": rounded(rng.normal(0, 0.1, width))}

    def own_next(own, token):
        return silu(embedding[token] @ h["rnn_w.weight"].T + own @ h["rnn_u.weight"].T + h["rnn_u.bias"])

    inputs, targets = [], []
    for one in json.loads((ROOT / "tests/golden/target.json").read_text())["cases"]:
        begin, text = len(one["prompt_ids"]), one["prompt_ids"] + one["greedy_ids"]
        if len(text) > 300:
            continue
        states = run(w, c, llama_layer, text)[-1]
        for i in range(begin, len(text) - 1):
            own = np.zeros(width)
            for j in range(i, min(i + length, len(text) - 1)):
                own = own_next(own, text[j])
                inputs.append(np.concatenate([states[i - 1], own]))
                targets.append(text[j + 1])
    names = ["input_proj.weight", "input_proj.bias", "lm_head.0.linear.weight", "lm_head.0.linear.bias", "lm_head.1.weight"]
    start = [(inner, 2 * width), (inner,), (inner, inner), (inner,), (c["vocab_size"], inner)]
    weights = {n: rng.normal(0, 0.5 * shape[-1] ** -0.5, shape).astype(np.float32) for n, shape in zip(names, start)}
    h |= fitted(rng, np.array(inputs, np.float32), np.array(targets), weights)
    out = ROOT / "tests/heads/quickstart-redrafter"
    out.mkdir(parents=True, exist_ok=True)
    own_config = dict(architectures=["Drafter"], model_type="recurrent_drafting_drafter", vocab_size=c["vocab_size"], hidden_size=width,
                      exit_dim=inner, num_draft_layers=1, num_lookback_tokens=0, rnn=True, torch_dtype="bfloat16",
                      redrafter_num_beams=beams, redrafter_draft_len_per_beam=length)
    (out / "config.json").write_text(json.dumps(own_config, indent=2) + "\n")
    write(out / "model.safetensors", h)

    def log_probs(state, own):
        x = np.concatenate([state, own]) @ h["input_proj.weight"].T + h["input_proj.bias"]
        x = x + silu(x @ h["lm_head.0.linear.weight"].T + h["lm_head.0.linear.bias"])
        logits = x @ h["lm_head.1.weight"].T
        return logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())

    def search(state, token):
        """Beams, the likeliest first; None where the order is nearly a tie."""
        found = [(0.0, [token], np.zeros(width))]
        for _ in range(length):
            more = []
            for score, tokens, own in found:
                own = own_next(own, tokens[-1])
                p = log_probs(state, own)
                more += [(score + p[t], tokens + [int(t)], own) for t in np.argsort(-p)[:beams + 1]]
            more.sort(key=lambda beam: -beam[0])
            if min(a[0] - b[0] for a, b in zip(more[:beams], more[1:])) < BEAM_LEAD:
                return None
            found = more[:beams]
        return [tokens[1:] for _, tokens, _ in found]

    cases = []
    for one in json.loads((ROOT / "tests/golden/heads.json").read_text())["cases"]:
        text, token = list(one["prompt_ids"]), one["next_token"]
        for _ in range(2):
            found = search(run(w, c, llama_layer, text)[-1][-1], token)
            if found:
                cases.append(dict(prompt_ids=list(text), next_token=token, beams=found))
            text.append(token)
            logits = run(w, c, llama_layer, text)[-1][-1] @ embedding.T
            second, first = np.sort(logits)[-2:]
            if first - second < 0.3:
                break
            token = int(np.argmax(logits))
    save("redrafter", cases)


def head_adapter(rng):
    folder = ROOT / "models/quickstart"
    c, w = json.loads((folder / "config.json").read_text()), read(folder / "model.safetensors")
    width, vocab, rank, alpha, steps = c["hidden_size"], c["vocab_size"], 4, 8, 6
    last = f"model.layers.{c['num_hidden_layers'] - 1}.self_attn.o_proj"
    golden = json.loads((ROOT / "tests/golden/heads.json").read_text())["cases"]
    h = {}
    for module, n, k, size in (("lm_head", vocab, width, 4), (last, width, w[last + ".weight"].shape[1], 0.5)):
        a, b = rng.normal(0, k ** -0.5, (rank, k)), rng.normal(0, 1, (n, rank))
        if module == "lm_head":  # logits change by about `size`
            x = run(w, c, llama_layer, golden[0]["prompt_ids"])[-1]
            b /= np.std(x @ a.T @ b.T * alpha / rank)
        h[module + ".lora_A.weight"], h[module + ".lora_B.weight"] = rounded(a), rounded(b * size)
    out = ROOT / "tests/adapters/head"
    out.mkdir(parents=True, exist_ok=True)
    config = dict(peft_type="LORA", task_type="CAUSAL_LM", r=rank, lora_alpha=alpha, bias="none", target_modules=["lm_head", "o_proj"],
                  base_model_name_or_path="quickstart")
    (out / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
    write(out / "adapter_model.safetensors", {"base_model.model." + name: x for name, x in h.items()})

    def changed(module, weight):
        return weight + alpha / rank * h[module + ".lora_B.weight"] @ h[module + ".lora_A.weight"]

    head, own = changed("lm_head", w["model.embed_tokens.weight"]), w | {last + ".weight": changed(last, w[last + ".weight"])}
    cases = []
    for one in golden:
        text, clear = list(one["prompt_ids"]), True
        for _ in range(steps):
            logits = run(own, c, llama_layer, text)[-1][-1] @ head.T
            second, first = np.sort(logits)[-2:]
            clear &= first - second > 0.3
            text.append(int(np.argmax(logits)))
        if clear:
            cases.append(dict(prompt_ids=one["prompt_ids"], greedy_ids=text[-steps:]))
    save("head_adapter", cases)


for name, make, seed in (("eagle3", eagle3, 3), ("mtp", mtp, 4), ("redrafter", redrafter, 5), ("head_adapter", head_adapter, 6)):
    if name in sys.argv[1:] or len(sys.argv) == 1:
        make(np.random.default_rng(seed))
