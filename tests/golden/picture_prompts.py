#!/usr/bin/env python3
"""Prompts with pictures as the processors of Hugging Face transformers make them.

    pip install torch transformers pillow torchvision
    picture_prompts.py      writes tests/golden/picture_prompts.json

The tokenizer is the quick-start model's with the tokens `added` behind its own; pictures are those of
tests/pictures.
"""
import json
import pathlib
import tempfile

from transformers import (Gemma3ImageProcessorPil, Gemma3Processor, Idefics3ImageProcessorPil, Idefics3Processor,
                          LlavaNextImageProcessorPil, LlavaNextProcessor, LlavaOnevisionImageProcessorPil, LlavaOnevisionProcessor,
                          LlavaOnevisionVideoProcessor, MllamaImageProcessorPil, MllamaProcessor, PreTrainedTokenizerFast,
                          Qwen2VLImageProcessorPil, Qwen3VLProcessor, Qwen3VLVideoProcessor)
from transformers.image_utils import load_image

ROOT = pathlib.Path(__file__).resolve().parents[1]
FIRST_ADDED = 4096


def tokenizer_with(added, **names):
    tokenizer = json.loads((ROOT.parent / "models" / "quickstart" / "tokenizer.json").read_text())
    for i, token in enumerate(added):
        tokenizer["added_tokens"].append(dict(id=FIRST_ADDED + i, content=token, single_word=False, lstrip=False,
                                              rstrip=False, normalized=False, special=True))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tokenizer.json"
        path.write_text(json.dumps(tokenizer))
        return PreTrainedTokenizerFast(tokenizer_file=str(path), pad_token=added[0], extra_special_tokens=names)


def idefics3():
    names = [f"<row_{r}_col_{c}>" for r in range(1, 4) for c in range(1, 4)]
    added = ["<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>"] + names
    sizes = dict(size={"longest_edge": 88}, max_image_size={"longest_edge": 32})
    processor = Idefics3Processor(Idefics3ImageProcessorPil(**sizes), tokenizer_with(added), image_seq_len=4)
    config = dict(vision_config=dict(patch_size=8, image_size=32), scale_factor=2, image_token_id=FIRST_ADDED)
    return processor, added, config, dict(image_processor_type="Idefics3ImageProcessor", **sizes)


def gemma3():
    added = ["<image_soft_token>", "<start_of_image>", "<end_of_image>"]
    tokenizer = tokenizer_with(added, image_token=added[0], boi_token=added[1], eoi_token=added[2])
    size = dict(size={"height": 32, "width": 32})
    processor = Gemma3Processor(Gemma3ImageProcessorPil(**size), tokenizer, image_seq_length=4)
    config = dict(vision_config=dict(patch_size=8, image_size=32), mm_tokens_per_image=4, image_token_index=FIRST_ADDED)
    return processor, added, config, dict(image_processor_type="Gemma3ImageProcessor", **size)


def llava_next():
    added = ["<image>"]
    sizes = dict(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28},
                 image_grid_pinpoints=[[28, 56], [56, 28], [56, 56], [84, 28], [28, 84]])
    # The class token counts where the strategy is "default", which takes it away again.
    processor = LlavaNextProcessor(LlavaNextImageProcessorPil(**sizes), tokenizer_with(added), patch_size=7,
                                   vision_feature_select_strategy="default", num_additional_image_tokens=1)
    config = dict(vision_config=dict(patch_size=7, image_size=28), image_token_index=FIRST_ADDED)
    return processor, added, config, dict(image_processor_type="LlavaNextImageProcessor", **sizes)


def llava_onevision():
    added = ["<image>", "<video>"]
    sizes = dict(size={"height": 30, "width": 30},
                 image_grid_pinpoints=[[30 * rows, 30 * columns] for rows in range(1, 4) for columns in range(1, 4)])
    tokenizer = tokenizer_with(added, image_token=added[0], video_token=added[1])
    processor = LlavaOnevisionProcessor(LlavaOnevisionImageProcessorPil(**sizes), tokenizer, LlavaOnevisionVideoProcessor(),
                                        num_image_tokens=16, vision_feature_select_strategy="full",
                                        vision_aspect_ratio="anyres_max_2")
    config = dict(vision_config=dict(patch_size=7, image_size=30), image_token_index=FIRST_ADDED, vision_aspect_ratio="anyres_max_2")
    return processor, added, config, dict(image_processor_type="LlavaOnevisionImageProcessor", **sizes)


def qwen3_vl():
    added = ["<|image_pad|>", "<|vision_start|>", "<|vision_end|>", "<|video_pad|>"]
    tokenizer = tokenizer_with(added, image_token=added[0], vision_start_token=added[1], vision_end_token=added[2],
                               video_token=added[3])
    sizes = dict(patch_size=16, size={"shortest_edge": 2048, "longest_edge": 16384})
    processor = Qwen3VLProcessor(Qwen2VLImageProcessorPil(**sizes), tokenizer, Qwen3VLVideoProcessor())
    vision = dict(patch_size=16, temporal_patch_size=2, spatial_merge_size=2)
    config = dict(vision_config=vision, image_token_id=FIRST_ADDED)
    return processor, added, config, dict(image_processor_type="Qwen2VLImageProcessorFast", **sizes)


def mllama():
    added = ["<|image|>"]
    tokenizer = tokenizer_with(added, image_token=added[0])
    tokenizer.bos_token = added[0]  # none is put in front
    size = dict(size={"height": 28, "width": 28})
    processor = MllamaProcessor(MllamaImageProcessorPil(**size), tokenizer)
    config = dict(vision_config=dict(patch_size=7, image_size=28), image_token_index=FIRST_ADDED)
    return processor, added, config, dict(image_processor_type="MllamaImageProcessor", **size)


def main():
    out = {}
    for name, mark, make in (("gemma3", "<start_of_image>", gemma3), ("idefics3", "<image>", idefics3),
                             ("qwen3_vl", "<|vision_start|><|image_pad|><|vision_end|>", qwen3_vl),
                             ("llava_next", "<image>", llava_next), ("llava_onevision", "<image>", llava_onevision),
                             ("mllama", "<|image|>", mllama)):
        processor, added, config, preprocessor = make()
        cases = []
        for text, pictures in (("User: <image>What is it?", ["rgb_97x31.png"]),
                               ("<image>", ["rgb_28x28.png"]),
                               ("a\n<image><image>\nb", ["rgb_13x77.png", "long_5000x1.png"])):
            text = text.replace("<image>", mark)
            if name == "qwen3_vl":  # it refuses the long one
                pictures = [picture.replace("long_5000x1", "rgb_64x48") for picture in pictures]
            images = [load_image(str(ROOT / "pictures" / picture)) for picture in pictures]
            # A list for each prompt, as of its chat template: several pictures are not cut.
            images = [images] if name == "llava_onevision" else images
            ids = processor(images=images, text=text, add_special_tokens=False)["input_ids"][0]
            cases.append(dict(text=text, pictures=pictures, ids=ids))
        out[name] = dict(added=added, config=config, preprocessor=preprocessor, cases=cases)
    (ROOT / "golden" / "picture_prompts.json").write_text(json.dumps(out) + "\n")


main()
