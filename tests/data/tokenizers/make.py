#!/usr/bin/env python3
"""Makes the tokenizers of this folder and what the `tokenizers` package says of some lines: python3 make.py

Each folder has tokenizer.json, small, in the form of a model family, and cases.json: lines with their ids and what
these are decoded to, [line, ids, text], special tokens in the lines being text; then the same with special tokens.
Lines are in UTF-8; of those with bytes that are none, "latin1", every character stands for a byte, and their ids are
put together from those of the parts between. Some trainers do not learn the same every time.
bench/tokenizer/compare.py has more lines than could be kept here."""
import base64
import json
import os
import random
import sys
import tempfile
import unicodedata

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace("{1,3}", "")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

WORDS = """the of and to in a is that it was for on are with as his they at be this from have or by one had not but what
all were when we there can an your which their said if do will each about how up out them then she many some so these
would other into has more her two like him see time could no make than first been its who now people my made over did
down only way find use may water long little very after words called just where most know don't it's we're I've I'm
they'll he'd SHE'S DON'T O'Neill tokenization pipelines training gradient schedule
über straße naïve café façade Ærø Łódź İstanbul ıssız ﬁnden ½ ² ① Ⅷ ⒌ ﷺ
привет мир текст обучение Ёлка Їжак ελληνικά γλώσσα Ὀδυσσεύς ΣΊΣΥΦΟΣ
سلام العربية مَرْحَبًا ٱلْعَالَمُ فارسی می‌خواهم שלום עברית בְּרֵאשִׁית
नमस्ते हिन्दी क्षत्रिय বাংলা ভাষা தமிழ் తెలుగు ಕನ್ನಡ മലയാളം සිංහල
ภาษาไทย สวัสดีครับ ลาวລາວ မြန်မာ ភាសាខ្មែរ བོད་ཡིག
你好世界 中文分詞 模型训练 日本語のテキスト ガギグゲゴ がぎぐ 東京都 ｶﾞｷﾞ ＡＢＣ１２３
한국어 문장 각 한글 ㄱㄴㄷ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛 𐍈𐌰𐌹 𓀀𓁐 ᚠᚢᚦ ⴰⵣⵓⵍ ኢትዮጵያ ქართული հայերեն""".split()
SMALL = ["e\u0301", "n\u0303", "\u0041\u030a", "q\u0323\u0307", "q\u0307\u0323", "\u1100\u1161\u11a8", "\u1112\u1161\u11ab",
         "\uac00\u11a8", "\u0301", "\u0bc6\u0bbe", "\u212b", "\u2126", "\ufb01", "👩‍👩‍👧‍👦", "👍🏽", "🇫🇷🇩🇪", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "❤️", "1️⃣",
         "😀😃😄", "\u200d", "\u200b", "\ufeff", "\u00ad", "\u202e", "\ufffd", "\ufffe", "\U0010ffff", "\ue000", "\x00",
         "\x01", "\x1b[0m", "\x7f", "\x85", "\xa0", "\u180e", "\u3000", "\u2028", "\u2029", "\u2003", "\u1680", "\t", "\n",
         "\r\n", "\r", "\n\n", " \n ", "  ", "   ", "\t\t", " \t \n", "'s", "'S", "'ſ", "'Re", "'LL", "'", "''", " '", "'t'",
         "’s", "0", "12", "2026", "3.14159", "1,000,000", "10%", "$5", "٣٤٥", "५६", "Ⅷ", "¾", "_", "__init__", "a_b", "-", "--",
         "...", "…", "!?", "。", "、", "「」", "—", "«»", "/", "//", "#include <stdio.h>", "{}", "});", "\\n", "http://a.b/c?d=e&f",
         "x" * 50, "é" * 20, "字" * 17, " " * 40, "\n" * 9, "=" * 33, "ab" * 30, "▁", "▁▁", "<0x41>", "<unk>", "Ġ", "Ċ"]
SPECIALS = ["<|endoftext|>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<think>", "[INST]", "[/INST]", "<|eot_id|>", "wörd",
            "  <mask> ", "<keep>"]
# Newer ones are not yet in the tables of some part of the package.
ASSIGNED = [c for c in range(0x20, 0x2fa1e) if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs")]


def make_lines(n, seed, specials=False):
    """Lines of many scripts, every third with newlines in it."""
    rng = random.Random(seed)
    lines = ["", " ", "  ", "\n", "a", " a", "a ", "x" * 50, "\u0301", "▁"]
    while len(lines) < n:
        line = []
        for _ in range(rng.randint(1, 14)):
            kind = rng.random()
            if kind < 0.5:
                word = rng.choice(WORDS)
                line.append(rng.choice([word, word, word, word.upper(), word.capitalize()]))
            elif kind < 0.8:
                line.append(rng.choice(SMALL))
            elif kind < 0.84:
                line.append("".join(rng.choice("abcdefgh'0123 .,") for _ in range(rng.randint(1, 30))))
            elif kind < 0.9:
                line.append("".join(chr(rng.choice(ASSIGNED)) for _ in range(rng.randint(1, 4))))
            elif kind < 0.94 and specials:
                line.append(rng.choice(SPECIALS))
            else:
                line.append(unicodedata.normalize(rng.choice(["NFD", "NFKD"]), rng.choice(WORDS)))
            line.append(rng.choice(["", " ", " ", " ", " ", "  ", "\n" if len(lines) % 3 == 0 else " "]))
        lines.append("".join(line))
    return lines[:n]


def make_text(words, seed):
    """What the tokenizers learn from: words of which some are frequent."""
    rng = random.Random(seed)
    small = [s for s in SMALL if not s.startswith("<")]
    out = []
    for _ in range(words // 12):
        # The second factor of the place makes the first words, English, the frequent ones.
        out.append(" ".join(WORDS[int(len(WORDS) * rng.random() * rng.random())] for _ in range(10)) +
                   rng.choice([".", "!", ",", " ", "\n", "; 42", " 7 2026"]) + rng.choice(small))
    return out


def byte_level(form, vocab, text):
    """GPT-2, Llama 3, Qwen, and GPT-4o, whose pattern is not matched by hand."""
    t = Tokenizer(models.BPE(ignore_merges=form == "llama3"))
    split = {"llama3": LLAMA3, "qwen": QWEN, "gpt4o": O200K}.get(form)
    if split:
        t.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(split), "isolated"),
             pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if form == "qwen":
        t.normalizer = normalizers.NFC()
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(text, trainers.BpeTrainer(
        vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    bos = "<s>" if form == "llama3" else "<|endoftext|>"
    t.add_special_tokens(["<|endoftext|>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>"])
    if form in ("qwen", "gpt4o"):
        t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    if form == "qwen":
        t.add_tokens([AddedToken("<think>", normalized=False), AddedToken("wörd", single_word=True, normalized=True)])
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    if form == "llama3":
        t.post_processor = processors.Sequence([t.post_processor, processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, t.token_to_id(bos))])])
    return t


def sentencepiece_bpe(form, vocab, text):
    """Llama 2, which rewrites the text first, and Mistral, which marks the spaces when it cuts."""
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.train_from_iterator(text, trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=specials, limit_alphabet=200, show_progress=False))
    # Trained without those of bytes as added tokens, which sentencepiece does not have.
    j = json.loads(t.to_str())
    j["added_tokens"] = [a for a in j["added_tokens"] if not a["content"].startswith("<0x")]
    if form == "llama2":
        j["pre_tokenizer"] = None
        j["normalizer"] = {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    else:
        j["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    j["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    t = Tokenizer.from_str(json.dumps(j))
    if form == "mistral":
        t.add_special_tokens(["[INST]", "[/INST]"])
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", t.token_to_id("<s>"))])
    return t


def unigram(form, vocab, text):
    """Unigram with unk, or with byte fallback; and in between, what other pre-tokenizers and normalizers do."""
    specials = ["<unk>", "<s>", "</s>"]
    if form == "unigram-bytes":
        specials += [f"<0x{b:02X}>" for b in range(256)]
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.NFKC()
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    t.decoder = decoders.Metaspace(prepend_scheme="always")
    t.train_from_iterator(text, trainers.UnigramTrainer(
        vocab_size=vocab, special_tokens=specials, unk_token="<unk>", show_progress=False))
    j = json.loads(t.to_str())
    if form == "unigram-bytes":
        j["model"]["byte_fallback"] = True
        j["added_tokens"] = [a for a in j["added_tokens"] if not a["content"].startswith("<0x")]
        j["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Strip", "strip_left": False, "strip_right": True},
                                                               {"type": "NFC"}]}
        j["decoder"] = {"type": "Sequence", "decoders": [
            {"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}]}
    if form == "unigram-map":
        j["normalizer"] = {"type": "Sequence", "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": charsmap(NAME)},
            {"type": "Replace", "pattern": {"String": "\r"}, "content": " "}]}
    t = Tokenizer.from_str(json.dumps(j))
    t.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", t.token_to_id("</s>"))])
    return t


def other(form, vocab, text):
    """Characters as BPE has them by itself, behind the steps that the families do not have."""
    n, p = normalizers, pre_tokenizers
    t = Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=form == "other1"))
    if form == "other1":
        t.normalizer = n.Sequence([n.NFKD(), n.StripAccents(), n.Lowercase(), n.Strip()])
        t.pre_tokenizer = p.Sequence([p.Whitespace(), p.Digits(individual_digits=True)])
    elif form == "other2":
        t.normalizer = n.Sequence([n.NFD(), n.Replace(Regex(r"\s"), " "), n.Replace("ab", "")])
        t.pre_tokenizer = p.Sequence([p.Split(" ", "merged_with_previous"), p.Punctuation("contiguous"), p.Digits(),
                                      p.Split(Regex(r"[aeiou]\w"), "merged_with_next"), p.CharDelimiterSplit("x")])
    else:
        t.pre_tokenizer = p.Sequence([p.Punctuation("removed"), p.ByteLevel(add_prefix_space=True), p.Digits(),
                                      p.Split(Regex("[0-9][0-9]"), "contiguous")])
        t.model = models.BPE()
        t.decoder = decoders.ByteLevel()
    t.train_from_iterator(text, trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=["[UNK]"], limit_alphabet=150, show_progress=False))
    t.add_tokens([AddedToken("<keep>", rstrip=True, lstrip=True, normalized=False)])
    return t


NAME = None  # of the rules of sentencepiece for unigram-map; None: a few of our own
RULES = [("ﬁ", "fi"), ("Ａ", "A"), ("Ｂ", "B"), ("e\u0301", "é"), ("\xa0", " "), ("\u3000", " "), ("\t", " "), ("①", "1"),
         ("½", "1⁄2"), ("\u200d", ""), ("\xad", ""), ("\ufeff", ""), ("ｶﾞ", "ガ"), ("…", "..."), ("\u0301", ""), ("\x01", "")]


def charsmap(name=None):
    """The table of a normalizer of sentencepiece, in base64: of that name, or of RULES."""
    import io
    import sentencepiece

    out, rules = io.BytesIO(), None
    if not name:
        with tempfile.NamedTemporaryFile("w", suffix=".tsv", delete=False) as f:
            rules = f.name
            for source, target in RULES:
                f.write(" ".join(f"{ord(c):X}" for c in source) + "\t" + " ".join(f"{ord(c):X}" for c in target) + "\n")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(make_text(2000, 1)), model_writer=out, vocab_size=300, character_coverage=0.98,
        hard_vocab_limit=False, minloglevel=2, **({"normalization_rule_tsv": rules} if rules else {"normalization_rule_name": name}))
    if rules:
        os.unlink(rules)

    def fields(message):
        """Of a message in protocol buffers, (number, bytes) of those that are bytes."""
        at = 0

        def varint():
            nonlocal at
            value = shift = 0
            while True:
                byte = message[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value

        while at < len(message):
            key = varint()
            if key & 7 == 2:
                n = varint()
                yield key >> 3, message[at:at + n]
                at += n
            elif key & 7 == 0:
                varint()
            else:
                at += 4 if key & 7 == 5 else 8

    spec = next(b for k, b in fields(out.getvalue()) if k == 3)  # normalizer_spec
    return base64.b64encode(next(b for k, b in fields(spec) if k == 2)).decode()  # precompiled_charsmap


FORMS = {"gpt2": byte_level, "llama3": byte_level, "qwen": byte_level, "gpt4o": byte_level,
         "llama2": sentencepiece_bpe, "mistral": sentencepiece_bpe,
         "unigram": unigram, "unigram-bytes": unigram, "unigram-map": unigram, "other1": other, "other2": other, "other3": other}


def encode(t, line, special):
    t.encode_special_tokens = not special
    return t.encode(line, add_special_tokens=False).ids


def encode_bytes(t, line):
    """Ids of bytes that may be no UTF-8: the byte tokens of these, and the text after them as text that goes on."""
    j = json.loads(t.to_str())
    for z in (j["normalizer"] or {}).get("normalizers", []):
        if z["type"] == "Prepend":
            j["normalizer"]["normalizers"].remove(z)
    if (j["pre_tokenizer"] or {}).get("type") == "Metaspace":
        j["pre_tokenizer"]["prepend_scheme"] = "never"
    going_on = Tokenizer.from_str(json.dumps(j))
    alphabet = {b: c for b, c in zip([*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)],
                                     [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)])}
    for b in range(256):
        alphabet.setdefault(b, 0x100 + sum(1 for k in range(b) if alphabet[k] >= 0x100))
    ids, text = [], line.decode("utf-8", "surrogateescape")
    begin = 0
    for at in range(len(text) + 1):
        if at < len(text) and not "\udc80" <= text[at] <= "\udcff":
            continue
        if at > begin:
            ids += encode(going_on if begin else t, text[begin:at], False)
        if at < len(text):
            byte = ord(text[at]) - 0xdc00
            name = chr(alphabet[byte]) if t.token_to_id("<0x41>") is None else f"<0x{byte:02X}>"
            ids.append(t.token_to_id(name))
        begin = at + 1
    return ids


def said(t, line, ids, skip):
    """What ids are decoded to; None: the package has replaced what is no UTF-8."""
    text = t.decode(ids, skip_special_tokens=skip)
    return None if text.count("\ufffd") > line.count("\ufffd") else text


def main():
    text = make_text(60000, 1)
    for form, make in FORMS.items():
        t = make(form, 700, text)
        to = os.path.join(HERE, form)
        os.makedirs(to, exist_ok=True)
        j = json.loads(t.to_str())
        with open(os.path.join(to, "tokenizer.json"), "w", encoding="utf-8") as f:
            json.dump(j, f, ensure_ascii=False, separators=(",", ":"))
            f.write("\n")
        specials = {kind: name for kind, name in (("bos_token", "<s>"), ("eos_token", "<|endoftext|>"), ("eos_token", "</s>"))
                    if t.token_to_id(name) is not None and not (name == "</s>" and t.token_to_id("<|endoftext|>"))}
        if specials:
            with open(os.path.join(to, "tokenizer_config.json"), "w", encoding="utf-8") as f:
                f.write(json.dumps(specials) + "\n")
        cases = {"plain": [], "special": [], "latin1": []}
        for line in make_lines(120, 2):
            ids = encode(t, line, False)
            cases["plain"].append([line, ids, said(t, line, ids, False)])
        for line in make_lines(60, 3, True):
            ids = encode(t, line, True)
            cases["special"].append([line, ids, said(t, line, ids, True)])
        rng = random.Random(4)
        for line in make_lines(30, 5) if form in ("gpt2", "llama3", "llama2", "mistral", "unigram-bytes") else []:
            b = bytearray(line.encode())
            for _ in range(3):
                b.insert(rng.randint(0, len(b)), rng.choice([0x80, 0xbf, 0xc3, 0xe2, 0xf0, 0xff, 0xed, 0xc0]))
            cases["latin1"].append([b.decode("latin1"), encode_bytes(t, bytes(b)), None])
        with open(os.path.join(to, "cases.json"), "w", encoding="utf-8") as f:
            f.write("{" + ",\n".join(json.dumps(k) + ": [\n" + ",\n".join(
                json.dumps(c, ensure_ascii=True, separators=(",", ":")) for c in v) + "]"
                for k, v in cases.items()) + "}\n")


if __name__ == "__main__":
    sys.exit(main())
