"""A model that writes texts that are given: a GPT-2 without attention, whose next token depends on the position alone.
Each byte is a token, so that answers come in the smallest pieces there are."""
import array
import json
import os
import struct


def alphabet():
    """The character that byte-level tokenizers show for each byte."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in shown else next(others)) for byte in range(256)]


def write_tensors(path, tensors):
    """A safetensors file of float32: name -> (shape, numbers)."""
    header, end = {}, 0
    for name, (shape, numbers) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + 4 * len(numbers)]}
        end += 4 * len(numbers)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, numbers in tensors.values():
            numbers.tofile(file)


def write(folder, texts, template="{{ messages[-1].content }}"):
    """Writes the model. Returns the prompts: one of so many tokens is answered with the text of that name."""
    end, inner = 256, 64
    prompts, next_token = {}, [end]
    for name, text in texts.items():
        prompts[name] = [ord("x")] * len(next_token)
        next_token[-1:] = [*text.encode(), end, end]
    width = -(-(len(next_token) + 1) // 64) * 64
    vocabulary = 264

    def numbers(count, value=0.0):
        return array.array("f", [value]) * count

    positions, head = numbers(width * width), numbers(vocabulary * width)
    for position in range(width):
        positions[position * width + position] = 1
        token = next_token[position] if position < len(next_token) else end
        head[token * width + position] = 1
    block = "transformer.h.0."
    tensors = {"transformer.wte.weight": ([vocabulary, width], numbers(vocabulary * width)),
               "transformer.wpe.weight": ([width, width], positions),
               "lm_head.weight": ([vocabulary, width], head)}
    for norm in (block + "ln_1", block + "ln_2", "transformer.ln_f"):
        tensors[norm + ".weight"] = ([width], numbers(width, 1.0))
        tensors[norm + ".bias"] = ([width], numbers(width))
    for product, rows, columns in (("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width),
                                   ("mlp.c_fc", width, inner), ("mlp.c_proj", inner, width)):
        tensors[block + product + ".weight"] = ([rows, columns], numbers(rows * columns))
        tensors[block + product + ".bias"] = ([columns], numbers(columns))
    os.makedirs(folder)
    write_tensors(os.path.join(folder, "model.safetensors"), tensors)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    files = {
        "config.json": {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": vocabulary, "n_embd": width,
                        "n_layer": 1, "n_head": width // 64, "n_positions": width, "n_inner": inner, "eos_token_id": end,
                        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False,
                        "torch_dtype": "float32"},
        "tokenizer.json": {"version": "1.0", "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None,
                           "decoder": byte_level,
                           "added_tokens": [{"id": end, "content": "<end>", "special": True, "single_word": False, "lstrip": False,
                                             "rstrip": False, "normalized": False}],
                           "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(alphabet())}, "merges": []}},
        "tokenizer_config.json": {"eos_token": "<end>", "chat_template": template}}
    for name, content in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file)
    return prompts
