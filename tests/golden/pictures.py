#!/usr/bin/env python3
"""Makes pictures of odd sizes and modes, and what Pillow and transformers make of them.

    pip install pillow==11.3.0 numpy 'transformers<5'
    pictures.py              writes tests/pictures/*, tests/golden/pictures.{json,bin}
    pictures.py NAME...      adds what these processors make of tests/pictures to the .json
    pictures.py --sizes [NAME...]    writes tests/golden/picture_sizes.json: what these processors, or all, make of 140
                             pictures of other sizes, whose pixels follow from pattern(); mllama's and llava_onevision's with
                             transformers 5

The .bin has the pixels of each picture as transformers' load_image() gives them (RGB, 8 bits); the
.json their sizes, and for each processor the size and the CRC-32 of its values as float32, in the
order in which an encoder reads them. Processors are transformers' slow ones (Pillow and numpy).
Pillow up to 12 filters columns before rows; Pillow 13 takes the cheaper order, which changes some
values by 1.
"""
import io
import json
import pathlib
import struct
import sys
import warnings
import zlib

import numpy as np
from PIL import Image, PngImagePlugin
from transformers import (CLIPImageProcessor, Gemma3ImageProcessor, GotOcr2ImageProcessor, Idefics3ImageProcessor,
                          LlavaNextImageProcessor, PixtralImageProcessor, Qwen2VLImageProcessor, SiglipImageProcessor)
from transformers.image_utils import load_image

try:
    from transformers import LlavaOnevisionImageProcessorPil as LlavaOnevisionImageProcessor  # transformers 5
    from transformers import MllamaImageProcessorPil as MllamaImageProcessor
except ImportError:
    from transformers import LlavaOnevisionImageProcessor, MllamaImageProcessor

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Of 1 x 1 and 3 x 3 pixels transformers would not find the channels.
AS_ARRAYS = {"return_tensors": "np", "input_data_format": "channels_last"}
rng = np.random.default_rng(20251130)


def noise(width, height, channels=3):
    """Smooth colours with noise on them, so that filters matter and files stay small."""
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(x / (5 + 2 * c) + c) * np.cos(y / (7 - c) + 2 * c) for c in range(channels)]
    values = 127 + 90 * np.stack(waves, -1) + rng.integers(-20, 20, (height, width, channels))
    return np.clip(values, 0, 255).astype(np.uint8)


def picture(width, height, mode="RGB"):
    channels = {"RGB": 3, "RGBA": 4, "CMYK": 4, "L": 1, "LA": 2}[mode]
    values = noise(width, height, channels)
    return Image.fromarray(values[..., 0] if mode == "L" else values, mode)


def exif(orientation, order=">"):
    head = b"MM\0*" if order == ">" else b"II*\0"
    return b"Exif\0\0" + head + struct.pack(order + "IHHHIHHI", 8, 1, 0x0112, 3, 1, orientation, 0, 0)


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def png_chunks(width, height, depth, kind, rows, *chunks):
    """A PNG of given bytes of rows, for what Pillow does not write."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    body = b"".join(b"\0" + row for row in rows)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(chunk(*c) for c in chunks) + chunk(
        b"IDAT", zlib.compress(body)) + chunk(b"IEND", b"")


def png_pictures():
    sizes = [(1, 1), (1, 200), (200, 1), (2, 3), (28, 28), (27, 29), (64, 48), (13, 77), (97, 31), (5, 900)]
    for width, height in sizes:
        yield f"rgb_{width}x{height}.png", saved(picture(width, height), "PNG")
    yield "long_1x5000.png", saved(Image.fromarray(np.tile(noise(1, 50), (100, 1, 1))), "PNG")
    yield "long_5000x1.png", saved(Image.fromarray(np.tile(noise(50, 1), (1, 100, 1))), "PNG")
    yield "grey.png", saved(picture(33, 21, "L"), "PNG")
    yield "grey_alpha.png", saved(picture(21, 33, "LA"), "PNG")
    yield "rgba.png", saved(picture(40, 30, "RGBA"), "PNG")
    for bits in (1, 2, 4, 8):
        indexed = picture(31, 19).quantize(2**bits)
        yield f"palette_{bits}.png", saved(indexed, "PNG", bits=bits)
    yield "palette_transparent.png", saved(picture(31, 19).quantize(16), "PNG", transparency=3)
    yield "one_bit.png", saved(picture(37, 19, "L").convert("1"), "PNG")
    for bits in (2, 4):
        rows = [bytes(rng.integers(0, 256, (23 * bits + 7) // 8, dtype=np.uint8)) for _ in range(11)]
        yield f"grey_{bits}.png", png_chunks(23, 11, bits, 0, rows)
    deep = rng.integers(0, 700, (14, 25)).astype(">u2")
    yield "grey_16.png", png_chunks(25, 14, 16, 0, [row.tobytes() for row in deep])
    for name, kind, channels in (("rgb_16", 2, 3), ("grey_alpha_16", 4, 2), ("rgba_16", 6, 4)):
        deep = rng.integers(0, 65536, (12, 17 * channels)).astype(">u2")
        yield f"{name}.png", png_chunks(17, 12, 16, kind, [row.tobytes() for row in deep])
    few = [(b"PLTE", bytes([9, 90, 200, 250, 20, 30]))]
    yield "palette_short.png", png_chunks(16, 2, 4, 3, [bytes(range(8)), bytes([0x01] * 8)], *few)
    yield "rgb_transparent.png", saved(picture(9, 9), "PNG", transparency=(1, 2, 3))
    yield "exif_6.png", saved(picture(24, 16), "PNG", exif=exif(6))
    text = PngImagePlugin.PngInfo()
    text.add_itxt("XML:com.adobe.xmp", '<x tiff:Orientation="8"/>', zip=True)
    yield "xmp_8.png", saved(picture(24, 16), "PNG", pnginfo=text)
    text = PngImagePlugin.PngInfo()
    text.add_text("Raw profile type exif", f"\nexif\n{len(exif(5)):8}\n{exif(5).hex()}\n")
    yield "profile_5.png", saved(picture(24, 16), "PNG", pnginfo=text)


def other_pictures():
    yield "plain.jpg", saved(picture(75, 53), "JPEG", quality=90)
    yield "fine.jpg", saved(picture(45, 33), "JPEG", quality=95, subsampling=0)
    yield "half.jpg", saved(picture(45, 33), "JPEG", quality=80, subsampling=1)
    yield "progressive.jpg", saved(picture(75, 53), "JPEG", progressive=True)
    yield "grey.jpg", saved(picture(31, 47, "L"), "JPEG")
    yield "cmyk.jpg", saved(picture(30, 22, "CMYK"), "JPEG", quality=90)
    yield "pixel.jpg", saved(picture(1, 1), "JPEG")
    for orientation in range(1, 9):
        order = "<" if orientation % 2 else ">"
        yield f"exif_{orientation}.jpg", saved(picture(30, 20), "JPEG", exif=exif(orientation, order))
    yield "exif_9.jpg", saved(picture(30, 20), "JPEG", exif=exif(9))
    yield "xmp_3.jpg", saved(picture(30, 20), "JPEG", xmp=b"<x><tiff:Orientation>3</tiff:Orientation></x>")
    yield "lossless.webp", saved(picture(41, 27), "WEBP", lossless=True)
    yield "lossy.webp", saved(picture(41, 27), "WEBP", quality=80)
    yield "alpha.webp", saved(picture(26, 35, "RGBA"), "WEBP", lossless=True, exact=True)
    yield "exif_7.webp", saved(picture(30, 20), "WEBP", lossless=True, exif=exif(7))
    frames = [picture(20, 16) for _ in range(3)]
    yield "frames.webp", saved(frames[0], "WEBP", lossless=True, save_all=True, append_images=frames[1:])
    yield "plain.gif", saved(picture(35, 22).quantize(64), "GIF")
    yield "interlaced.gif", saved(picture(35, 22).quantize(32), "GIF", interlace=1)
    yield "transparent.gif", saved(picture(18, 18).quantize(16), "GIF", transparency=5)
    yield "grey.gif", saved(picture(18, 29, "L"), "GIF")
    yield "frames.gif", saved(frames[0].quantize(16), "GIF", save_all=True,
                              append_images=[f.quantize(16) for f in frames[1:]])
    part = bytearray(saved(picture(10, 8).quantize(8), "GIF", transparency=2))
    part[6:10] = struct.pack("<HH", 16, 14)  # the screen is larger than the frame
    yield "part.gif", bytes(part)


def raster_rows(pixels, patch):
    """[n, 3, H, W] to rows of patches."""
    frames, channels, height, width = pixels.shape
    h, w = height // patch, width // patch
    pixels = pixels[:, :, :h * patch, :w * patch].reshape(frames, channels, h, patch, w, patch)
    return pixels.transpose(0, 2, 4, 1, 3, 5).reshape(frames * h * w, -1), [frames, h, w]


def clip(image, patch=7, **options):
    sizes = dict(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    made = CLIPImageProcessor(**dict(sizes, **options))(image, **AS_ARRAYS)
    return raster_rows(made["pixel_values"], patch)


def square(kind, image, patch=8, **options):
    made = kind(size={"height": 32, "width": 48}, **options)(image, **AS_ARRAYS)
    return raster_rows(np.asarray(made["pixel_values"]), patch)


def qwen(image, **options):
    made = Qwen2VLImageProcessor(min_pixels=256, max_pixels=4096, **options)(image, **AS_ARRAYS)
    return made["pixel_values"], [int(n) for n in made["image_grid_thw"][0]]


def pixtral(image):
    processor = PixtralImageProcessor(size={"longest_edge": 64}, patch_size={"height": 16, "width": 16})
    made = processor(image, **AS_ARRAYS)
    return raster_rows(np.asarray(made["pixel_values"]), 8)


def tiles(image):
    processor = GotOcr2ImageProcessor(size={"height": 32, "width": 32}, crop_to_patches=True, max_patches=6)
    return raster_rows(np.asarray(processor(image, **AS_ARRAYS)["pixel_values"]), 8)


def idefics3(image, **options):
    processor = Idefics3ImageProcessor(size={"longest_edge": 88}, max_image_size={"longest_edge": 32}, **options)
    return raster_rows(np.asarray(processor(image, **AS_ARRAYS)["pixel_values"])[0], 8)


def llava_next(image):
    if image.height == 1:
        raise ValueError("must be > 0: transformers 4 takes one row of pixels for a channel")
    processor = LlavaNextImageProcessor(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28},
                                        image_grid_pinpoints=[[28, 56], [56, 28], [56, 56], [84, 28], [28, 84]])
    return raster_rows(np.asarray(processor(image, **AS_ARRAYS)["pixel_values"])[0], 7)


def llava_onevision(image, pictures=1, **options):
    """`pictures`: how many the prompt has; of several each is in one square. The squares' last 2 pixels are in no patch."""
    sizes = [[30 * rows, 30 * columns] for rows in range(1, 4) for columns in range(1, 4)]
    processor = LlavaOnevisionImageProcessor(size={"height": 30, "width": 30}, image_grid_pinpoints=sizes, **options)
    made = processor([[image] * pictures], **AS_ARRAYS)
    return raster_rows(np.asarray(made["pixel_values"])[0, ..., :28, :28], 7)


def mllama(image, **options):
    processor = MllamaImageProcessor(size={"height": 28, "width": 28}, **options)
    made = processor([[image]], **AS_ARRAYS)
    pixels, mask = np.asarray(made["pixel_values"])[0, 0], np.asarray(made["aspect_ratio_mask"])[0, 0]
    return raster_rows(pixels[:int(mask.sum())], 7)


PROCESSORS = {
    "clip": clip,
    "clip_lanczos": lambda image: clip(image, resample=1, crop_size={"height": 35, "width": 21}),
    "clip_box": lambda image: clip(image, resample=4),
    "clip_hamming": lambda image: clip(image, resample=5, do_normalize=False),
    "siglip": lambda image: square(SiglipImageProcessor, image),
    "gemma3": lambda image: square(Gemma3ImageProcessor, image),
    "qwen2_vl": lambda image: qwen(image, patch_size=8),
    "qwen3_vl": lambda image: qwen(image, patch_size=16, image_mean=[0.5] * 3, image_std=[0.5] * 3),
    "pixtral": pixtral,
    "tiles": tiles,
    "llava_next": llava_next,
    "idefics3": idefics3,
    "llava_onevision": lambda image: llava_onevision(image, image_mean=[0.5] * 3, image_std=[0.5] * 3),
    "llava_onevision_several": lambda image: llava_onevision(image, 2, resample=2),
    "mllama": mllama,
    "mllama_six": lambda image: mllama(image, max_image_tiles=6, resample=3),
    "idefics3_whole": lambda image: idefics3(image, do_image_splitting=False),
}


def made_of(image, processor):
    """Grid, width and CRC-32; None: the processor refuses the picture."""
    try:
        values, grid = PROCESSORS[processor](image)
    except ValueError as error:
        assert "aspect ratio" in str(error) or "must be > 0" in str(error), error
        return None
    values = np.ascontiguousarray(values, np.float32)
    return {"grid": grid, "width": values.shape[1], "crc": zlib.crc32(values.tobytes())}


def write_list(golden):
    (ROOT / "golden" / "pictures.json").write_text(
        "[\n" + ",\n".join(json.dumps(entry) for entry in golden) + "\n]\n")


def add(processors):
    """Of the pixels in pictures.bin: another release of Pillow may give palettes with transparency other colours."""
    golden = json.loads((ROOT / "golden" / "pictures.json").read_text())
    pixels = (ROOT / "golden" / "pictures.bin").read_bytes()
    for entry in golden:
        image = Image.frombytes("RGB", (entry["width"], entry["height"]), pixels[entry["at"]:][:3 * entry["width"] * entry["height"]])
        for processor in processors:
            if made := made_of(image, processor):
                entry[processor] = made
    write_list(golden)


def pattern(width, height, seed):
    """Colours that rise in steps, with noise; src/vision/preprocess_test.cc makes the same."""
    y, x, c = np.mgrid[0:height, 0:width, 0:3].astype(np.uint32)
    hashed = (x * 73856093) ^ (y * 19349663) ^ (c * 83492791) ^ np.uint32(seed * 7919)
    noise = (hashed * np.uint32(2654435761)) >> np.uint32(27)
    return ((x * 5 + y * 3 + c * 40 + noise) & 255).astype(np.uint8)


def sizes(processors):
    """For each picture width, height and, by processor, grid, width of a row and CRC-32; null: refused. Adds those of
    `processors`."""
    path = ROOT / "golden" / "picture_sizes.json"
    before = json.loads(path.read_text()) if path.exists() else []
    random = np.random.default_rng(47)
    out = []
    for seed in range(140):
        longest = [12, 40, 120, 300][seed % 4]
        width, height = (int(n) for n in random.integers(1, longest + 1, 2))
        if seed % 20 == 19:
            width = 1 + seed % 3
        image = Image.fromarray(pattern(width, height, seed), "RGB")
        made = {name: made_of(image, name) for name in processors}
        kept = before[seed][2] if seed < len(before) else {}
        out.append([width, height, kept | {name: m and m["grid"] + [m["width"], m["crc"]] for name, m in made.items()}])
    text = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in out)
    path.write_text("[\n" + text + "\n]\n")


def main():
    folder = ROOT / "pictures"
    folder.mkdir(exist_ok=True)
    golden, pixels = [], b""
    for name, data in [*png_pictures(), *other_pictures()]:
        (folder / name).write_bytes(data)
        image = load_image(Image.open(io.BytesIO(data)))
        entry = {"name": name, "width": image.width, "height": image.height, "at": len(pixels)}
        pixels += np.asarray(image).tobytes()
        for processor in PROCESSORS:
            if made := made_of(image, processor):
                entry[processor] = made
        golden.append(entry)
    write_list(golden)
    (ROOT / "golden" / "pictures.bin").write_bytes(pixels)


warnings.simplefilter("ignore")
if sys.argv[1:2] == ["--sizes"]:
    sizes(sys.argv[2:] or PROCESSORS)
elif sys.argv[1:]:
    add(sys.argv[1:])
else:
    main()
