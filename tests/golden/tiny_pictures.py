#!/usr/bin/env python3
"""Makes tiny models of text and pictures with Hugging Face transformers, and their golden outputs.

    pip install torch transformers safetensors pillow torchvision
    tiny_pictures.py NAME...    writes tests/picture_models/NAME and tests/golden/pictures/NAME.{json,safetensors}
    tiny_pictures.py --log-probs NAME...    adds to the latter the log-probabilities of the prompts' tokens behind the
                                            picture, which are not fitted and follow from all of it

As tiny_models.py: random weights, fitted until the greedy token leads clearly, stored as bf16; golden outputs are
computed in f32. The golden tensors are what the engine takes: `pixel_values`, a row of pixel values for each patch
(row by row, but block by block for Qwen), and `image_grid_thw`, the grid of patches (or of each tile). `image_tiles`:
rows and columns of tiles behind the whole picture, and rows and columns of tokens cut off at each of their ends.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText

VOCAB, STEPS, PROMPTS, PLACEHOLDER, BREAK, END = 512, 24, (5, 12, 40, 70), 500, 501, 502
ROOT = pathlib.Path(__file__).resolve().parents[1]
TEXT = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, max_position_embeddings=512, rms_norm_eps=1e-5, rope_theta=10000.0,
            hidden_act="silu", bos_token_id=None, pad_token_id=1, eos_token_id=3, tie_word_embeddings=False,
            torch_dtype="bfloat16")
VISION = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_channels=3)


def patches_of(pixels, size):
    """[frames, channels, height, width] as rows of patches, row by row."""
    frames, channels, height, width = pixels.shape
    rows = pixels.reshape(frames, channels, height // size, size, width // size, size)
    return rows.permute(0, 2, 4, 1, 3, 5).reshape(-1, channels * size * size).contiguous()


def pixels_of(rows, like):
    """The reverse of patches_of()."""
    frames, channels, height, width = like.shape
    size = int((rows.shape[1] // channels) ** 0.5)
    grid = rows.reshape(frames, height // size, width // size, channels, size, size)
    pixels = grid.permute(0, 3, 1, 4, 2, 5).reshape(frames, channels, height // size * size, width // size * size)
    return torch.nn.functional.pad(pixels, (0, width % size, 0, height % size))


class Fixed:
    """Square pictures or tiles of one size."""

    def __init__(self, config, side, patch, merge, tiles=1, wraps=False):
        self.config, self.tiles, self.wraps = config, tiles, wraps
        self.pixels = torch.randn(tiles, 3, side, side)
        whole = side // patch * patch
        self.rows = patches_of(self.pixels[..., :whole, :whole], patch)
        self.grid = [tiles, side // patch, side // patch]
        self.tokens = [PLACEHOLDER] * (tiles * (side // patch // merge) ** 2)

    def inputs(self, ids):
        return dict(pixel_values=self.pixels[None] if self.wraps else self.pixels)


class Next(Fixed):
    """A picture of 48 x 10 pixels: in one square, then in 1 x 2 squares, of whose 4 rows of tokens 2 show it; a learned
    row ends each of these."""

    def __init__(self, config):
        super().__init__(config, 16, 4, 1, tiles=3)
        self.tokens = [PLACEHOLDER] * (4 * 4 + 2 * (8 + 1))
        self.layout = [1, 2, 1, 0]

    def inputs(self, ids):
        return dict(pixel_values=self.pixels[None], image_sizes=torch.tensor([[10, 48]]))


class OneVision(Fixed):
    """A picture of 54 x 27 pixels: in one square of 18, whose last 2 pixels are in no patch, then in 2 x 3 squares. 6 of
    their 8 rows of 12 features show it; these become 4 rows of 8 tokens, 2 squares at most. A learned row ends each."""

    def __init__(self, config):
        super().__init__(config, 18, 4, 1, tiles=7)
        self.tokens = [PLACEHOLDER] * (4 * 4 + 4 * (8 + 1))
        self.layout = [2, 3, 1, 0]

    def inputs(self, ids):
        return dict(pixel_values=self.pixels[None], image_sizes=torch.tensor([[27, 54]]))


class OneVisionVideo(Fixed):
    """4 frames of 3 x 3 features, each of which become 2 x 2 tokens; one learned row behind all."""

    def __init__(self, config):
        super().__init__(config, 12, 4, 1, tiles=4)
        self.tokens = [PLACEHOLDER] * (4 * 2 * 2 + 1)
        self.layout = [0, 0, 0, 0]

    def inputs(self, ids):
        return dict(pixel_values_videos=self.pixels[None])


class Gemma3(Fixed):
    """`causal`: as if the picture's tokens did not attend to one another."""
    causal = False

    def inputs(self, ids):
        return dict(pixel_values=self.pixels, token_type_ids=(ids == PLACEHOLDER).int() * (not self.causal))


class PaliGemma(Fixed):
    """Tokens of the prompt, as many as `num_prompt`, are of type 0; not with `causal`."""
    causal = False

    def inputs(self, ids):
        types = torch.arange(ids.shape[1]) >= (0 if self.causal else self.num_prompt)
        return dict(pixel_values=self.pixels, token_type_ids=types[None].int())


class Pixtral:
    """A picture of 24 x 16 pixels; a break behind each row of tokens, another id behind the last."""

    def __init__(self, config, merge):
        self.config = config
        self.pixels = torch.randn(1, 3, 16, 24)
        self.rows = patches_of(self.pixels, 4)
        self.grid = [1, 4, 6]
        row = [PLACEHOLDER] * (6 // merge) + [BREAK]
        self.tokens = row * (4 // merge)
        self.tokens[-1] = END

    def inputs(self, ids):
        return dict(pixel_values=self.pixels, image_sizes=torch.tensor([[16, 24]]))


class Qwen:
    """A picture of 12 x 20 patches: whole windows of 8 x 8 patches, and parts at two sides."""

    def __init__(self, config, height=12, width=20):
        self.config = config
        self.grid = [1, height, width]
        self.rows = torch.randn(height * width, 3 * 2 * 4 * 4)
        self.tokens = [PLACEHOLDER] * (height * width // 4)

    def inputs(self, ids):
        return dict(pixel_values=self.rows, image_grid_thw=torch.tensor([self.grid]),
                    mm_token_type_ids=(ids == PLACEHOLDER).int())


class Mllama(Fixed):
    """A picture of 1 x 2 tiles, of 4 at most, which a token beyond the vocabulary stands for. As in the published
    reference implementation, tokens in front of it have nothing from cross attention; transformers lets these attend to
    all keys, padding included, and masks their feed-forward networks alone."""

    def __init__(self, config, side, patch):
        super().__init__(config, side, patch, 1, tiles=2)
        self.tokens = [VOCAB]
        self.layout = [1, 2, 0, 0]
        self.seen = None

    def inputs(self, ids):
        pixels = torch.zeros(1, 1, 4, *self.pixels.shape[1:])
        pixels[0, 0, :2] = self.pixels
        self.seen = (ids[0] == VOCAB).cumsum(0) > 0
        mask = torch.zeros(1, ids.shape[1], 1, 4, dtype=torch.long)
        mask[0, self.seen, 0, :2] = 1
        return dict(pixel_values=pixels, aspect_ratio_ids=torch.tensor([[2]]),
                    aspect_ratio_mask=torch.tensor([[[1, 1, 0, 0]]]), cross_attention_mask=mask)

    def prepare(self, net):
        for layer in net.model.language_model.layers:
            if hasattr(layer, "cross_attn"):
                layer.cross_attn.register_forward_hook(lambda _, __, out: (out[0] * self.seen[None, :, None], *out[1:]))


def config_of(architecture, kind, text, vision, **fields):
    return dict(architectures=[architecture], model_type=kind, tie_word_embeddings=False, torch_dtype="bfloat16",
                text_config=TEXT | text, vision_config=VISION | vision) | fields


def models():
    torch.manual_seed(1)
    pixtral = dict(model_type="pixtral", image_size=64, patch_size=4, hidden_act="silu", head_dim=16, rope_theta=10000.0)
    return {
        "mistral3": lambda: Pixtral(config_of(
            "Mistral3ForConditionalGeneration", "mistral3",
            dict(architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=None), pixtral,
            image_token_index=PLACEHOLDER, spatial_merge_size=2, vision_feature_layer=-1, projector_hidden_act="gelu",
            multimodal_projector_bias=False), 2),
        "pixtral": lambda: Pixtral(config_of(
            "LlavaForConditionalGeneration", "llava",
            dict(architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=None), pixtral,
            image_token_index=PLACEHOLDER, vision_feature_layer=-1, vision_feature_select_strategy="full",
            projector_hidden_act="gelu", image_seq_length=1), 1),
        "llava_next": lambda: Next(config_of(
            "LlavaNextForConditionalGeneration", "llava_next",
            dict(architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=None),
            dict(model_type="clip_vision_model", image_size=16, patch_size=4, hidden_act="quick_gelu", projection_dim=32,
                 num_hidden_layers=3),
            image_token_index=PLACEHOLDER, vision_feature_layer=-2, vision_feature_select_strategy="default",
            projector_hidden_act="gelu", image_grid_pinpoints=[[16, 32], [32, 16], [32, 32]],
            use_image_newline_parameter=True)),
        "llava_onevision": lambda: OneVision(one_vision(
            18, image_token_index=PLACEHOLDER, video_token_index=503,
            image_grid_pinpoints=[[18, 36], [36, 18], [36, 36], [36, 54]])),
        "llava_onevision_video": lambda: OneVisionVideo(one_vision(
            12, image_token_index=503, video_token_index=PLACEHOLDER, image_grid_pinpoints=[[12, 12], [12, 24], [24, 24]])),
        "idefics3": lambda: Fixed(config_of(
            "Idefics3ForConditionalGeneration", "idefics3",
            dict(architectures=["LlamaForCausalLM"], model_type="llama"),
            dict(model_type="idefics3_vision", image_size=32, patch_size=4, hidden_act="gelu_pytorch_tanh"),
            image_token_id=PLACEHOLDER, scale_factor=4), 32, 4, 4, wraps=True),
        "gemma3": lambda: Gemma3(config_of(
            "Gemma3ForConditionalGeneration", "gemma3",
            dict(model_type="gemma3_text", tie_word_embeddings=True, num_hidden_layers=3, query_pre_attn_scalar=24,
                 sliding_window=12, sliding_window_pattern=3, rope_local_base_freq=10000.0, rope_theta=1000000.0,
                 rms_norm_eps=1e-6, hidden_activation="gelu_pytorch_tanh", attention_bias=False,
                 layer_types=["sliding_attention", "sliding_attention", "full_attention"]),
            dict(model_type="siglip_vision_model", image_size=32, patch_size=4, vision_use_head=False),
            boi_token_index=508, eoi_token_index=509, image_token_index=PLACEHOLDER, mm_tokens_per_image=16,
            tie_word_embeddings=True), 32, 4, 2),
        "paligemma": lambda: PaliGemma(config_of(
            "PaliGemmaForConditionalGeneration", "paligemma",
            dict(model_type="gemma", tie_word_embeddings=True, rms_norm_eps=1e-6, hidden_activation="gelu_pytorch_tanh",
                 hidden_act="gelu_pytorch_tanh", attention_bias=False),
            dict(model_type="siglip_vision_model", image_size=16, patch_size=4, vision_use_head=False, projection_dim=48),
            image_token_index=PLACEHOLDER, projection_dim=48, tie_word_embeddings=True), 16, 4, 1),
        "paligemma2": lambda: PaliGemma(config_of(
            "PaliGemmaForConditionalGeneration", "paligemma",
            dict(model_type="gemma2", tie_word_embeddings=True, rms_norm_eps=1e-6, hidden_activation="gelu_pytorch_tanh",
                 hidden_act="gelu_pytorch_tanh", attention_bias=False, query_pre_attn_scalar=24, sliding_window=128,
                 attn_logit_softcapping=50.0, final_logit_softcapping=30.0),
            dict(model_type="siglip_vision_model", image_size=16, patch_size=4, vision_use_head=False, projection_dim=48),
            image_token_index=PLACEHOLDER, projection_dim=48, tie_word_embeddings=True), 16, 4, 1),
        "internvl": lambda: Fixed(config_of(
            "InternVLForConditionalGeneration", "internvl",
            dict(architectures=["Qwen2ForCausalLM"], model_type="qwen2", use_sliding_window=False),
            dict(model_type="internvl_vision", image_size=[16, 16], patch_size=[4, 4], attention_bias=True,
                 hidden_act="gelu", use_qk_norm=False, norm_type="layer_norm", layer_norm_eps=1e-6),
            image_token_id=PLACEHOLDER, image_seq_length=4, downsample_ratio=0.5), 16, 4, 2, tiles=3),
        "qwen2_5_vl": lambda: Qwen(config_of(
            "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl",
            dict(architectures=["Qwen2ForCausalLM"], model_type="qwen2_5_vl_text", use_sliding_window=False, hidden_size=64,
                 rope_scaling=dict(type="mrope", mrope_section=[2, 3, 3])),
            dict(model_type="qwen2_5_vl", depth=2, hidden_act="silu", hidden_size=32, intermediate_size=48, num_heads=2,
                 in_channels=3, out_hidden_size=64, patch_size=4, spatial_merge_size=2, spatial_patch_size=4,
                 window_size=32, fullatt_block_indexes=[1], tokens_per_second=2, temporal_patch_size=2),
            image_token_id=PLACEHOLDER, video_token_id=503, vision_start_token_id=504, vision_end_token_id=505)),
        "mllama": lambda: Mllama(config_of(
            "MllamaForConditionalGeneration", "mllama",
            dict(model_type="mllama_text_model", head_dim=None, bos_token_id=2, intermediate_size=48, num_hidden_layers=4,
                 cross_attention_layers=[1, 2], rope_theta=500000.0,
                 rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                   original_max_position_embeddings=128)),
            dict(model_type="mllama_vision_model", image_size=16, patch_size=4, attention_heads=2, num_global_layers=1,
                 hidden_act="gelu", norm_eps=1e-5, max_num_tiles=4, intermediate_layers_indices=[0, 1],
                 vision_output_dim=96,
                 supported_aspect_ratios=[[1, 1], [1, 2], [1, 3], [1, 4], [2, 1], [2, 2], [3, 1], [4, 1]]),
            image_token_index=VOCAB), 16, 4),
        "qwen3_vl": lambda: Qwen(qwen3_vl("", dict(num_hidden_layers=3)), 8, 14),
        "qwen3_vl_moe": lambda: Qwen(qwen3_vl(
            "_moe", dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, decoder_sparse_step=1,
                         norm_topk_prob=True, mlp_only_layers=[])), 6, 4),
    }


def one_vision(side, **fields):
    return config_of(
        "LlavaOnevisionForConditionalGeneration", "llava_onevision",
        dict(architectures=["Qwen2ForCausalLM"], model_type="qwen2", use_sliding_window=False),
        dict(model_type="siglip_vision_model", image_size=side, patch_size=4, hidden_act="gelu_pytorch_tanh",
             vision_use_head=False),
        vision_feature_layer=-1, vision_feature_select_strategy="full", projector_hidden_act="gelu",
        multimodal_projector_bias=True, vision_aspect_ratio="anyres_max_2", **fields)


def qwen3_vl(kind, text):
    """More patches on a side of the picture than the table of positions has, or fewer; two layers give deep features."""
    return config_of(
        f"Qwen3VL{'Moe' * bool(kind)}ForConditionalGeneration", f"qwen3_vl{kind}",
        dict(model_type=f"qwen3_vl{kind}_text", attention_bias=False, rope_theta=5000000.0,
             rope_scaling=dict(rope_type="default", mrope_section=[3, 3, 2], mrope_interleaved=True)) | text,
        dict(model_type=f"qwen3_vl{kind}", depth=3, num_hidden_layers=3, hidden_act="gelu_pytorch_tanh", hidden_size=32,
             intermediate_size=48, num_heads=2, in_channels=3, out_hidden_size=48, patch_size=4, spatial_merge_size=2, temporal_patch_size=2,
             num_position_embeddings=81, deepstack_visual_indexes=[0, 2]),
        image_token_id=PLACEHOLDER, video_token_id=503, vision_start_token_id=504, vision_end_token_id=505)


def randomise(net):
    with torch.no_grad():
        for name, p in net.named_parameters():
            noise = torch.randn(p.shape)
            if "lambda" in name:
                p.copy_(1 + 0.3 * noise)
            elif "gate" in name and p.numel() == 1:
                p.copy_(0.7 + 0.2 * noise)
            elif "tile_" in name or "gated_pos" in name:
                p.copy_(0.4 * noise)
            elif p.dim() < 2:
                p.add_(0.15 * noise)
            elif "embed_tokens" in name or "position_embedding" in name or "cls_token" in name:
                p.copy_(0.2 * noise)
            else:
                p.copy_(1.6 * noise / p[0].numel() ** 0.5)


def logits_of(net, model, ids):
    return net(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
               **model.inputs(torch.tensor([ids]))).logits[0]


def lead(logits, wanted):
    index = torch.tensor(wanted)[:, None]
    others = logits.scatter(1, index, float("-inf")).max(1, keepdim=True).values
    return float((logits.gather(1, index) - others).min())


def fit(net, model, prompts, wanted):
    optimiser = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=3e-3, weight_decay=0.0)
    for _ in range(800 if hasattr(model, "causal") else 400):
        loss, worst = 0.0, float("inf")
        for prompt, tokens in zip(prompts, wanted):
            model.num_prompt = len(prompt)
            logits = logits_of(net, model, prompt + tokens[:-1])[len(prompt) - 1:]
            loss = loss + torch.nn.functional.cross_entropy(logits, torch.tensor(tokens))
            worst = min(worst, lead(logits.detach(), tokens))
            if hasattr(model, "causal"):  # with a causal mask other tokens lead
                model.causal = True
                logits = logits_of(net, model, prompt + tokens[:-1])[len(prompt) - 1:]
                model.causal = False
                loss = loss + torch.nn.functional.cross_entropy(logits, torch.tensor(tokens[1:] + tokens[:1]))
                worst = min(worst, lead(logits.detach(), tokens[1:] + tokens[:1]) + 4)
        if worst > 4.5:
            return
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimiser.step()


def prepared(net, model):
    if hasattr(model, "prepare"):
        model.prepare(net)
    return net.float().eval()


def load(folder, model):
    net = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return prepared(net, model)


def make(name, model):
    folder = ROOT / "picture_models" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(model.config))
    torch.manual_seed(0)
    net = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(folder), attn_implementation="eager")
    net = prepared(net, model)
    randomise(net)
    ids = iter((torch.randperm(VOCAB - 30)[:sum(PROMPTS) + len(PROMPTS) * STEPS] + 8).tolist())
    prompts = [[next(ids) for _ in range(length)] for length in PROMPTS]
    wanted = [[next(ids) for _ in range(STEPS)] for _ in PROMPTS]
    prompts = [prompt[:2] + model.tokens + prompt[2:] for prompt in prompts]
    fit(net, model, prompts, wanted)
    net.to(torch.bfloat16).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(model.config, indent=2))  # as it was, not as saved
    (folder / "generation_config.json").unlink(missing_ok=True)
    net = load(folder, model)
    cases = []
    for i, prompt in enumerate(prompts):
        greedy, leads = [], []
        model.num_prompt = len(prompt)
        for _ in range(STEPS):
            with torch.no_grad():
                best = logits_of(net, model, prompt + greedy)[-1].topk(2)
            greedy.append(int(best.indices[0]))
            leads.append(float(best.values[0] - best.values[1]))
        cases.append(dict(prompt_ids=prompt, greedy_ids=greedy, min_lead=round(min(leads), 3)))
        print(name, i, "as fitted" if greedy == wanted[i] else "not as fitted", cases[-1]["min_lead"])
    golden = ROOT / "golden" / "pictures"
    (golden / f"{name}.json").write_text(json.dumps(dict(model=name, cases=cases)))
    tensors = dict(pixel_values=model.rows, image_grid_thw=torch.tensor([model.grid]))
    if hasattr(model, "layout"):
        tensors["image_tiles"] = torch.tensor(model.layout)
    save_file(tensors, golden / f"{name}.safetensors")


def add_log_probs(name, model):
    golden = ROOT / "golden" / "pictures"
    tensors = load_file(golden / f"{name}.safetensors")
    model.rows = tensors["pixel_values"]
    if isinstance(model, Fixed):
        model.pixels = pixels_of(model.rows, model.pixels)
    net, made = load(ROOT / "picture_models" / name, model), json.loads((golden / f"{name}.json").read_text())
    for case in made["cases"]:
        prompt = case["prompt_ids"]
        with torch.no_grad():
            logits = logits_of(net, model, prompt).log_softmax(-1)
        first = len(prompt) - prompt[::-1].index(model.tokens[0])
        case["prompt_log_probs"] = [round(float(logits[i - 1, prompt[i]]), 4) for i in range(first, len(prompt))]
    (golden / f"{name}.json").write_text(json.dumps(made))


if __name__ == "__main__":
    known = models()
    names = sys.argv[1:]
    for name in names[names[:1] == ["--log-probs"]:]:
        (add_log_probs if "--log-probs" in names else make)(name, known[name]())
