"""Tokenizer definitions of every kind, trained here on a small corpus, and the texts to try them on."""
import base64
import random
import struct

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
CL100K = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
START, END = r"[^\r\n\p{L}\p{N}]?", r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (START + UPPER + "*" + LOWER + "+" + CONTRACTIONS + "?|" + START + UPPER + "+" + LOWER + "*" + CONTRACTIONS + "?|"
         + r"\p{N}{1,3}" + END)
TEKKEN = START + UPPER + "*" + LOWER + "+|" + START + UPPER + "+" + LOWER + "*|" + r"\p{N}" + END
DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
QWEN35 = CL100K.replace(r"\p{N}{1,3}", r"\p{N}").replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
KIMI = (r"[\p{Han}]+|" + START + r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        + CONTRACTIONS + r"?|\p{N}{1,3}" + END)

SENTENCES = [
    "The quick brown fox jumps over the lazy dog; it wasn't amused, they'll say, and we've seen 1234567 of them.",
    "A serving system turns prompts into tokens, tokens into numbers, and numbers back into text that people read.",
    "Größe, Maß und Übermut: die Straße führt über die Brücke nach Köln. Où est le café? Garçon, déjà vu à Noël!",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Всё будет хорошо, товарищи.",
    "日本語のテキストは空白なしで続きます。東京タワーは高い。カタカナとひらがなと漢字。",
    "中文文本也没有空格,但是有标点符号。机器学习模型需要分词器,服务器把它们变成数字。",
    "한국어 문장은 띄어쓰기가 있습니다. 안녕하세요, 세계! 서울은 아름다운 도시입니다.",
    "هذا نص عربي من اليمين إلى اليسار. שלום עולם, זה טקסט בעברית.",
    "हिन्दी में लिखा हुआ वाक्य। ภาษาไทยไม่มีช่องว่างระหว่างคำ",
    "def f(x):\n    return x ** 2  # comment\n\nfor i in range(10):\n\tprint(f(i), end='\\n')\r\n",
    "{\"key\": [1, 2.5, -3e10, null, true], \"other\": \"value\"} <html><body class='a'>&amp;</body></html>",
    "😀 👩‍👩‍👧‍👦 🇩🇪 🇫🇷 👍🏽 e\u0301 a\u030a n\u0303 ﬁ ﬂ ½ ² Ⅷ ① ㎏ ™ … — “quoted” ‘single’ «guillemets»",
]

ADDED = ["<s>", "</s>", "<unk>", "<|end|>", "<mask>", "<tool_call>", "word", "Ünïcode"]

# Characters that are equal in the tables of all libraries concerned.
RANGES = [(0x20, 0x7F), (0xA1, 0xAC), (0xAE, 0x180), (0x391, 0x3A1), (0x3B1, 0x3C9), (0x400, 0x482), (0x5D0, 0x5EA), (0x620, 0x640),
          (0x905, 0x939), (0x93E, 0x94D), (0xE01, 0xE30), (0x1E00, 0x1E9B), (0x2010, 0x2027), (0x2030, 0x205E), (0x20A0, 0x20B0),
          (0x2150, 0x2188), (0x2460, 0x24FF), (0x3001, 0x301F), (0x3041, 0x3096), (0x30A1, 0x30FF), (0x4E00, 0x4F00),
          (0xAC00, 0xAD00), (0xFF01, 0xFF5E), (0x1F300, 0x1F320), (0x1F600, 0x1F640), (0x1D400, 0x1D420)]
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", "\u00a0", "\u3000", "\u2003", "\u0085", "\u2028"]
ODD = ["\u0000", "\u0001", "\u007f", "\u200b", "\u200d", "\ufeff", "\ufffd", "\u0301", "\u0308", "\u0327", "\u3099", "\u2581", "\u017f", "İ",
       "ß", "ﬀ", "ǆ", "ǅ", "K", "'S", "'LL", "'re", "'ſ", "<0x41>", "##a", "</w>", "|", "0", "12", "345", "6789", "_", "-", "/", "\\", "\u0130"]


def corpus(seed=1, count=3000):
    rng = random.Random(seed)
    for _ in range(count):
        words = rng.choice(SENTENCES).split(" ")
        at = rng.randrange(len(words))
        yield " ".join(words[at:at + rng.randrange(1, 12)])


def text(rng):
    """One generated string."""
    kind = rng.randrange(10)
    if kind == 0:
        return "".join(chr(rng.randrange(*rng.choice(RANGES))) for _ in range(rng.randrange(0, 40)))
    if kind == 1:
        return rng.choice(SPACES + ODD) * rng.randrange(1, 30)
    out = []
    for _ in range(rng.randrange(1, 14)):
        part = rng.randrange(9)
        if part < 4:
            words = rng.choice(SENTENCES).split(" ")
            at = rng.randrange(len(words))
            out.append(" ".join(words[at:at + rng.randrange(1, 5)]))
        elif part == 4:
            out.append(rng.choice(SPACES))
        elif part == 5:
            out.append(rng.choice(ODD))
        elif part == 6:
            out.append(rng.choice(ADDED))
        elif part == 7:
            out.append("".join(chr(rng.randrange(*rng.choice(RANGES))) for _ in range(rng.randrange(1, 6))))
        else:
            out.append(str(rng.randrange(10 ** rng.randrange(1, 12))))
        if rng.random() < 0.4:
            out.append(" ")
    return "".join(out)


def charsmap(rules):
    """A precompiled character map (Darts-clone double array) of {string: replacement}."""
    strings, offsets = b"", {}
    for key, value in rules.items():
        offsets[key.encode()] = len(strings)
        strings += value.encode() + b"\0"
    units, used = [0] * 1024, {0}

    def grow(n):
        while len(units) <= n:
            units.extend([0] * 1024)

    def place(node, keys, depth):
        labels = sorted({k[depth] if len(k) > depth else 0 for k in keys})
        base = 1
        while any((base ^ c) in used or (base ^ c) == 0 for c in labels) or (base ^ node) >= 1 << 21:
            base += 1
        grow(base | 255)
        for c in labels:
            used.add(base ^ c)
        units[node] |= (base ^ node) << 10
        for c in labels:
            child = base ^ c
            inner = [k for k in keys if (k[depth] if len(k) > depth else 0) == c]
            if c == 0:
                units[node] |= 1 << 8
                units[child] = offsets[inner[0]] | 1 << 31
            else:
                units[child] |= c
                place(child, inner, depth + 1)

    place(0, list(offsets), 0)
    blob = struct.pack("<%dI" % len(units), *units)
    return struct.pack("<I", len(blob)) + blob + strings


NMT_RULES = {"\u00a0": " ", "\u3000": " ", "\t": " ", "\n": " ", "\r": " ", "ﬁ": "fi", "ﬂ": "fl", "½": "1⁄2", "①": "1", "™": "TM", "…": "...",
             "e\u0301": "é", "a\u030a": "å", "Ａ": "A", "\u200b": " ", "\u0001": "", "Ⅷ": "VIII", "が": "が"}


def byte_level(pattern=None, prefix=False, **kwargs):
    t = Tokenizer(models.BPE(**kwargs))
    inner = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=pattern is None)
    if pattern is not None:
        patterns = pattern if isinstance(pattern, list) else [pattern]
        inner = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns] + [inner])
    t.pre_tokenizer = inner
    t.decoder = decoders.ByteLevel()
    train(t, trainers.BpeTrainer(vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return t


def train(t, trainer):
    t.train_from_iterator(corpus(), trainer)


def llama2(first_only=False, fallback=True, prefix=True):
    """Llama 2, TinyLlama, Mistral: merges of U+2581 words with byte fallback, no pre-tokenizer."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=fallback))
    specials = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.pre_tokenizer = pre_tokenizers.Metaspace()  # for training only
    train(t, trainers.BpeTrainer(vocab_size=900, special_tokens=specials, limit_alphabet=120, show_progress=False))
    t = clear_added(t)
    t.pre_tokenizer = None
    if first_only:
        t.normalizer = None
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first" if prefix else "never", split=False)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    t.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if prefix else []))
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    for s in ["<unk>", "<s>", "</s>"]:
        t.add_special_tokens([AddedToken(s, normalized=False, special=True)])
    return t


def clear_added(t):
    """The same tokenizer without the added tokens that training left."""
    import json
    document = json.loads(t.to_str())
    document["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(document))


def unigram(byte_fallback=False):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    specials = ["<pad>", "</s>", "<unk>"] + (["<0x%02X>" % b for b in range(256)] if byte_fallback else [])
    train(t, trainers.UnigramTrainer(vocab_size=900, special_tokens=specials, unk_token="<unk>", show_progress=False))
    if byte_fallback:
        import json
        document = json.loads(t.to_str())
        document["model"]["byte_fallback"] = True
        document["added_tokens"] = document["added_tokens"][:3]
        t = Tokenizer.from_str(json.dumps(document))
        t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")])
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return t


def t5():
    t = unigram()
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap(NMT_RULES)), normalizers.Strip(left=False, right=True),
                                         normalizers.Replace(Regex(" {2,}"), "▁")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    return t


def bert(lower=True, strip=None):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    t.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=strip)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece(cleanup=lower)
    train(t, trainers.WordPieceTrainer(vocab_size=900, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], limit_alphabet=150,
                                       show_progress=False))
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    t.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return t


def word_level(pre, decoder=None, normalizer=None):
    t = Tokenizer(models.WordLevel(unk_token="<unk>"))
    t.pre_tokenizer = pre
    if normalizer is not None:
        t.normalizer = normalizer
    if decoder is not None:
        t.decoder = decoder
    train(t, trainers.WordLevelTrainer(vocab_size=700, special_tokens=["<unk>", "<pad>"], show_progress=False))
    return t


def roberta():
    t = byte_level(prefix=True)
    t.post_processor = processors.RobertaProcessing(("</s>", 6), ("<s>", 5))
    t.add_special_tokens([AddedToken("<s>"), AddedToken("</s>"), AddedToken("<mask>", lstrip=True)])
    return t


def suffix_bpe():
    """CLIP and GPT-1: "</w>" at the end of words."""
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.BPEDecoder("</w>")
    train(t, trainers.BpeTrainer(vocab_size=900, special_tokens=["<unk>"], end_of_word_suffix="</w>", limit_alphabet=120, show_progress=False))
    return t


def prefix_bpe(fuse):
    t = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##", fuse_unk=fuse))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.decoder = decoders.WordPiece()
    train(t, trainers.BpeTrainer(vocab_size=900, special_tokens=["<unk>"], continuing_subword_prefix="##", limit_alphabet=100, show_progress=False))
    return t


def with_added(t):
    """Every flag of an added token, and an id far behind the others."""
    t.add_special_tokens([AddedToken("<s>"), AddedToken("</s>", rstrip=True), AddedToken("<mask>", lstrip=True)])
    t.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("word", single_word=True), AddedToken("Ünïcode"),
                  AddedToken("<|end|>", lstrip=True, rstrip=True, normalized=False), AddedToken("e\u0301", normalized=True)])
    return t


def normalized_bytes():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.ByteLevel()])
    t.pre_tokenizer = pre_tokenizers.Split(Regex(r"Ġ?[^Ġ]+"), "isolated")
    t.decoder = decoders.ByteLevel()
    train(t, trainers.BpeTrainer(vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return t


def gemma():
    t = llama2()
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return t


def splits(behavior, invert=False):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"[aeiou]+|\d"), behavior, invert), pre_tokenizers.Split("t", behavior)])


def all_definitions():
    """{name: function that makes the tokenizer}"""
    def make(pattern=None, **kwargs):
        return lambda: byte_level(pattern, **kwargs)

    def pre(*steps, **kwargs):
        return lambda: word_level(pre_tokenizers.Sequence(list(steps)), **kwargs)

    p = pre_tokenizers
    return {
        "gpt2": make(),
        "gpt2_prefix_space": make(prefix=True),
        "gpt2_regex": make(GPT2),
        "cl100k": lambda: with_added(byte_level(CL100K, ignore_merges=True)),
        "qwen2": lambda: with_nfc(with_added_after(byte_level(QWEN2))),
        "qwen35": make(QWEN35),
        "o200k": make(O200K),
        "tekken": make(TEKKEN, ignore_merges=True),
        "deepseek": make(DEEPSEEK),
        "kimi": make(KIMI),
        "starcoder": lambda: digits_first(),
        "falcon": lambda: falcon(),
        "roberta": roberta,
        "added_tokens": lambda: with_added(byte_level()),
        "added_tokens_lower": lambda: with_added(lowered(byte_level())),
        "normalized_bytes": normalized_bytes,
        "llama2": llama2,
        "llama2_first": lambda: llama2(first_only=True),
        "llama2_no_prefix": lambda: llama2(first_only=True, prefix=False),
        "llama2_unknown": lambda: llama2(fallback=False),
        "gemma": gemma,
        "unigram": unigram,
        "unigram_bytes": lambda: unigram(byte_fallback=True),
        "t5": t5,
        "bert": bert,
        "bert_cased": lambda: bert(lower=False),
        "bert_accents": lambda: bert(strip=False),
        "suffix_bpe": suffix_bpe,
        "prefix_bpe": lambda: prefix_bpe(False),
        "prefix_bpe_fused": lambda: prefix_bpe(True),
        "word_level": pre(p.WhitespaceSplit(), p.Punctuation("merged_with_previous")),
        "word_level_digits": pre(p.Whitespace(), p.Digits(individual_digits=False), decoder=decoders.CTC(pad_token="<pad>", word_delimiter_token="e")),
        "delimiter": pre(p.CharDelimiterSplit(" "), p.FixedLength(length=3), decoder=decoders.Sequence([decoders.Replace(Regex("[aeiou]+"), "*"), decoders.Fuse()])),
        "scripts": pre(p.UnicodeScripts(), p.WhitespaceSplit(), decoder=decoders.Sequence([decoders.Strip("e", 2, 0), decoders.Metaspace(prepend_scheme="never")])),
        "removed": pre(splits("removed"), p.WhitespaceSplit()),
        "inverted": pre(splits("removed", True), p.WhitespaceSplit()),
        "merged_next": pre(splits("merged_with_next"), normalizer=normalizers.Strip(left=True, right=False)),
        "merged_previous": pre(splits("merged_with_previous", True), normalizer=normalizers.NFKC()),
        "contiguous": pre(splits("contiguous"), p.Punctuation("contiguous")),
    }


def with_nfc(t):
    t.normalizer = normalizers.NFC()
    return t


def with_added_after(t):
    t.add_special_tokens(["<s>", "</s>", "<|end|>"])
    t.add_tokens(["<tool_call>"])
    return t


def lowered(t):
    t.normalizer = normalizers.Lowercase()
    return t


def digits_first():
    t = byte_level()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return t


def falcon():
    t = byte_level()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
                                               pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    return t
