#!/usr/bin/env python3
"""Makes the models of this folder and what `transformers` writes with them: python3 make.py [--keep] [NAME...]

Each folder is a tiny model in Hugging Face form that has learned DOCUMENTS by heart, and expected.json: a list of

    {"prompt", "prompt_tokens", "tokens", "text", "ended_by"}

of AutoTokenizer and AutoModelForCausalLM.generate(do_sample=False, max_new_tokens=64) in float32; "limit": of so many
tokens instead of 64; "special_tokens": special tokens in the prompt are tokens, where they are text otherwise; "next":
the tokens that may follow the prompt when one is drawn, [{"temperature", "top_k", "top_p", "ids"}].

"text" is what follows the prompt: decode(prompt_tokens + tokens) without its beginning decode(prompt_tokens), both with
skip_special_tokens and without clean_up_tokenization_spaces. The tokens alone would be decoded without a space at
the beginning. A character that the limit has cut is U+FFFD at the end; null: bytes in the middle are no UTF-8.

No case depends on the machine: at every step the best two logits differ by MARGIN, float64 gives the same tokens, and
no token is as near to the bounds of "next". Prompts that miss this are left out, and said.
--keep writes expected.json alone, of the models that are there."""
import importlib.util
import json
import os
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("tokenizers_make", os.path.join(HERE, "../tokenizers/make.py"))
forms = importlib.util.module_from_spec(spec)
spec.loader.exec_module(forms)

MARGIN = 1e-3
POSITIONS = 128
LIMIT = 64
FAMILY = "👩\u200d👩\u200d👧\u200d👦"

# MARK is a special token that ends nothing; SECOND ends a document as eos does, where there is one.
DOCUMENTS = [
    "The pipeline has four stages, and each stage holds two layers.",
    "The bubble is the time in which a stage waits for another.",
    "The gradient of a weight is sent to the process that owns it.",
    "The water runs down to the river, and the river runs to the sea.",
    "A slice of a sequence is sent as soon as it is computed.",
    "A token is a piece of text: \"don't\", 'we'll', 1234567 or 3.14159!",
    "Count with me: one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen, fourteen, "
    "fifteen, sixteen, seventeen, eighteen, nineteen, twenty, and so on, until nobody listens.",
    "def sign(x):\n    if x > 0:\n        return 1\n\n    return -1 if x < 0 else 0\n",
    "one line\r\nanother line\r\n\r\n\tthe last line\r\n",
    "wide  gaps   in    this     line",
    "Der Zug hält über Nacht in Köln; die Straße ist naß.",
    "Un café\u0301 e\u0301toile\u0301, man\u0303ana q\u0323\u0307 and \u1112\u1161\u11ab.",
    "Привет, мир! Модель учит текст.",
    "你好，世界。模型在学习文本。",
    f"Emoji: {FAMILY} are four, 👍🏽 has two, 🇫🇷 is a flag.",
    "Waves 🌊 rise.",
    "Hidden MARKbehind the mark, and MARK MARKonce more.",
    "Ask: who waits?SECOND",
]
# What prompts are made of besides; with the options of their cases.
PROMPTS = [
    ("The pipeline", {}),
    ("The bubble is the time in which a stage waits for another.", {}),
    (" The gradient", {}),
    ("The water runs ", {}),
    ("A token is a piece", {}),
    ("", {}),
    ("Count with me: one,", {}),
    ("Count with me: one, two, three,", {"limit": 1}),
    ("def sign(x):\n", {}),
    ("one line\r\nanother", {}),
    ("one line\r\n", {"limit": 7}),
    ("wide  gaps ", {}),
    ("Der Zug hält", {}),
    ("Der Zug ha\u0308lt", {}),
    ("Un café\u0301 e\u0301toile", {}),
    ("Привет, ", {}),
    ("你好", {}),
    (f"Emoji: {FAMILY}", {}),
    ("Emoji:", {"limit": 3}),
    ("👍🏽 has two, 😀", {}),
    ("Waves ", {"limit": 1}),
    ("Waves", {"limit": 3}),
    ("Hidden", {}),
    ("Ask: who", {}),
    ("EOSThe", {}),
    ("EOSThe", {"special_tokens": True}),
    ("Hidden MARKbehind", {}),
    ("Hidden MARKbehind", {"special_tokens": True}),
    ("▁The pipeline", {}),
    ("no document begins like this one \u00a0\u3000\u202e\u200b ﬁ", {}),
    ("\ttab\nnewline\n\n", {}),
    # NFC makes two characters of each, more tokens than there were bytes.
    ("\u0958" * 15, {"limit": 4}),
    ("The water runs down to the river, and the river runs to the sea. " * 3, {"limit": 9}),
]
# (prompt, temperature, top_k, top_p)
DRAWS = [("The", 3.0, 5, 1.0), ("The", 2.0, 0, 0.7), ("A", 4.0, 8, 0.8), ("A ", 4.0, 3, 1.0), ("", 2.0, 0, 0.5),
         ("Der Zug", 3.0, 0, 0.3), ("one", 3.0, 4, 1.0), ("C", 2.0, 0, 0.5), ("Emoji:", 6.0, 2, 1.0), ("Un", 1.0, 6, 0.95)]

ROPE = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64}
# form: of the tokenizer; eos: of generation_config.json, None: there is none; ends: what ends a document.
MODELS = {
    "gpt2": dict(form="gpt2", vocab=384, tokenizer="GPT2Tokenizer", bos="<|endoftext|>", mark="<|im_start|>",
                 ends=["<|endoftext|>"], eos="one", config=dict(
                     model_type="gpt2", n_layer=2, n_embd=32, n_head=4, n_positions=POSITIONS)),
    # Bytes for what is no letter of Latin, grouped queries, bos before every text.
    "llama2": dict(form="llama2", vocab=430, tokenizer="PreTrainedTokenizerFast", bos="<s>", mark="<unk>",
                   ends=["</s>"], eos="one", config=dict(
                       model_type="llama", num_hidden_layers=3, hidden_size=32, num_attention_heads=4,
                       num_key_value_heads=2, intermediate_size=56, rms_norm_eps=1e-5,
                       max_position_embeddings=POSITIONS, tie_word_embeddings=False)),
    # Several ends, and config.json knows the first alone.
    "llama3": dict(form="llama3", vocab=384, tokenizer="PreTrainedTokenizerFast", bos="<s>", mark="<|im_start|>",
                   ends=["<|endoftext|>", "<|eot_id|>"], eos="list", config=dict(
                       model_type="llama", num_hidden_layers=2, hidden_size=32, num_attention_heads=4,
                       num_key_value_heads=1, intermediate_size=64, rms_norm_eps=1e-5, rope_parameters=ROPE,
                       max_position_embeddings=POSITIONS, tie_word_embeddings=False)),
    # No generation_config.json, and more rows than tokens.
    "qwen2": dict(form="qwen", vocab=384, tokenizer="Qwen2Tokenizer", bos=None, mark="<|im_start|>",
                  ends=["<|im_end|>"], eos=None, rows=416, config=dict(
                      model_type="qwen2", num_hidden_layers=2, hidden_size=32, num_attention_heads=4,
                      num_key_value_heads=2, intermediate_size=64, rms_norm_eps=1e-6, rope_parameters={
                          "rope_type": "default", "rope_theta": 10000.0},
                      max_position_embeddings=POSITIONS, tie_word_embeddings=True)),
}  # fmt: skip


def write_json(value, *path):
    with open(os.path.join(*path), "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1)
        f.write("\n")


def fill(text, m):
    """The text with the special tokens of a model."""
    return text.replace("MARK", m["mark"]).replace("EOS", m["ends"][0]).replace("SECOND", m["ends"][-1])


def make_tokenizer(m, to):
    """Learned from Latin letters: other scripts are bytes."""
    text = ["".join(c for c in d if ord(c) < 0x250).replace("MARK", "").replace("SECOND", "") for d in DOCUMENTS]
    t = forms.FORMS[m["form"]](m["form"], m["vocab"], text * 4)
    with open(os.path.join(to, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(json.loads(t.to_str()), f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
    names = {"tokenizer_class": m["tokenizer"], "eos_token": m["ends"][0], "clean_up_tokenization_spaces": False}
    names.update({"bos_token": m["bos"]} if m["bos"] else {})
    names.update({"unk_token": "<unk>", "add_bos_token": True} if m["form"] == "llama2" else {})
    write_json(names, to, "tokenizer_config.json")
    return t


def make_rows(m, t):
    """Documents with their ends, one a row, and targets, -100 behind the end."""
    rows = []
    for d in DOCUMENTS:
        text = fill(d, m)
        ids = forms.encode(t, text, True)
        if not text.endswith(tuple(m["ends"])):
            ids.append(t.token_to_id(m["ends"][0]))
        assert len(ids) < POSITIONS, (len(ids), d)
        # Where the tokenizer puts no bos before a text, one document in three has it nevertheless.
        bos = [t.token_to_id(m["bos"])] if m["bos"] else []
        if not m["form"].startswith("llama"):
            rows.append(ids)
        if m["form"].startswith("llama") or bos and len(rows) % 3 == 0:
            rows.append(bos + ids)
    longest = max(map(len, rows))
    inputs = torch.tensor([r + [0] * (longest - len(r)) for r in rows])
    targets = torch.tensor([r + [-100] * (longest - len(r)) for r in rows])
    return inputs, targets


def train(model, inputs, targets):
    adam = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    steps = 500
    for step in range(steps):
        for group in adam.param_groups:
            group["lr"] = 4e-3 * min(1, (step + 1) / 20, (steps - step) / 100)
        loss = model(input_ids=inputs, labels=targets).loss
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
    return loss.item()


def make_model(name, m, to):
    t = make_tokenizer(m, to)
    rows = m.get("rows") or t.get_vocab_size()
    eos = [t.token_to_id(e) for e in m["ends"]]
    config = dict(m["config"], vocab_size=rows, eos_token_id=eos[0], bos_token_id=m["bos"] and t.token_to_id(m["bos"]))
    torch.manual_seed(7)
    config = transformers.AutoConfig.for_model(**config)
    for dropout in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
        if hasattr(config, dropout):
            setattr(config, dropout, 0.0)
    model = AutoModelForCausalLM.from_config(config)
    loss = train(model, *make_rows(m, t))
    model.eval().save_pretrained(to)
    generation = os.path.join(to, "generation_config.json")
    if m["eos"]:
        ends = {"bos_token_id": config.bos_token_id, "eos_token_id": eos if m["eos"] == "list" else eos[0]}
        write_json(dict(ends, transformers_version=transformers.__version__), generation)
    elif os.path.exists(generation):
        os.unlink(generation)
    print(f"{name}: {model.num_parameters()} parameters, {rows} tokens, loss {loss:.4f}")


# ---- what transformers writes


class Writer:
    """A model directory as transformers loads it."""

    def __init__(self, dir):
        self.tokenizer = AutoTokenizer.from_pretrained(dir)
        self.model = AutoModelForCausalLM.from_pretrained(dir, dtype=torch.float32).eval()
        self.wide = AutoModelForCausalLM.from_pretrained(dir, dtype=torch.float64).eval()
        eos = self.model.generation_config.eos_token_id
        self.eos = eos if isinstance(eos, list) else [eos]

    def encode(self, prompt, special):
        ids = self.tokenizer(prompt, split_special_tokens=not special)["input_ids"]
        # generate() begins with bos where there is nothing to begin with.
        return ids or [self.model.generation_config.bos_token_id]

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def generate(self, model, ids, limit):
        """Greedy tokens, and the least difference of the best two logits."""
        out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.int64),
                             do_sample=False, max_new_tokens=limit, pad_token_id=self.eos[0],
                             return_dict_in_generate=True, output_logits=True)
        best = torch.cat(out.logits).topk(2).values
        return out.sequences[0, len(ids):].tolist(), (best[:, 0] - best[:, 1]).min().item()

    def case(self, prompt, limit=LIMIT, special_tokens=False):
        """(case, None), or (None, why there is none)."""
        ids = self.encode(prompt, special_tokens)
        if ids == [None]:
            return None, "nothing to begin with"
        if len(ids) + limit > self.model.config.max_position_embeddings:
            return None, f"{len(ids)} tokens"
        tokens, margin = self.generate(self.model, ids, limit)
        if margin < MARGIN:
            return None, f"the best two are {margin:.1e} apart"
        if self.generate(self.wide, ids, limit)[0] != tokens:
            return None, "float64 differs"
        text, begin = self.decode(ids + tokens), self.decode(ids)
        # A run of byte tokens that is no UTF-8 is decoded to U+FFFD as a whole, the part in the prompt as well.
        whole = text.startswith(begin) and "\ufffd" not in text.rstrip("\ufffd")
        text = text[len(begin):] if whole else None
        case = {"prompt": prompt, "prompt_tokens": ids, "tokens": tokens, "text": text,
                "ended_by": "eos" if tokens[-1] in self.eos else "tokens"}
        case.update({"limit": limit} if limit != LIMIT else {})
        case.update({"special_tokens": True} if special_tokens else {})
        return case, None

    def next(self, prompt, temperature, top_k, top_p):
        """(what may be drawn after a prompt, None), or (None, why it is not said)."""
        ids = self.encode(prompt, False)
        if ids == [None]:
            return None, "nothing to begin with"
        with torch.no_grad():
            scores = self.model(torch.tensor([ids])).logits[0, -1:] / temperature
        if top_k:
            best = scores.topk(top_k + 1).values[0]
            if best[-2] - best[-1] < MARGIN:
                return None, "two at the bound of top_k"
            scores = transformers.TopKLogitsWarper(top_k)(None, scores)
        if top_p < 1:
            sums = scores.softmax(-1).sort(descending=True).values.cumsum(-1)[0]
            if (sums - top_p).abs().min() < MARGIN:
                return None, "at the bound of top_p"
            scores = transformers.TopPLogitsWarper(top_p)(None, scores)
        if scores.softmax(-1).max() > 0.8:
            return None, "one token is likely"
        may = scores[0].isfinite().nonzero()[:, 0].tolist()
        return {"temperature": temperature, "top_k": top_k, "top_p": top_p, "ids": may}, None


def make_expected(name, m, dir):
    w = Writer(dir)
    package = forms.Tokenizer.from_file(os.path.join(dir, "tokenizer.json"))
    cases, taken = [], 0
    for prompt, options in PROMPTS:
        prompt = fill(prompt, m)
        case, why = w.case(prompt, **options)
        if why:
            print(f"{name}: without {prompt[:40]!r} {options}: {why}")
            continue
        package.encode_special_tokens = not options.get("special_tokens")
        ids = package.encode(prompt).ids
        assert ids == case["prompt_tokens"] or not ids, (prompt, ids, case["prompt_tokens"])
        cases.append(case)
    for prompt, *options in DRAWS:
        may, why = w.next(prompt, *options)
        if why:
            print(f"{name}: nothing drawn after {prompt!r} {options}: {why}")
            continue
        case = next((c for c in cases if c["prompt"] == prompt), None)
        if not case:
            case, why = w.case(prompt)
            if why:
                case, why = w.case(prompt, limit=1)
            if why:
                print(f"{name}: nothing drawn after {prompt!r}: {why}")
                continue
            cases.append(case)
        case.setdefault("next", []).append(may)
        taken += 1
    kinds = {c["ended_by"] for c in cases}
    ends = {c["tokens"][-1] for c in cases if c["ended_by"] == "eos"}
    assert kinds == {"eos", "tokens"} and len(ends) == len(m["ends"]) and taken >= 3, (kinds, ends, taken)
    with open(os.path.join(dir, "expected.json"), "w", encoding="utf-8") as f:
        f.write("[" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "]\n")
    print(f"{name}: {len(cases)} prompts, {taken} draws")


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    keep = "--keep" in sys.argv
    for name in [a for a in sys.argv[1:] if a != "--keep"] or MODELS:
        to = os.path.join(HERE, name)
        os.makedirs(to, exist_ok=True)
        if not keep:
            make_model(name, MODELS[name], to)
        make_expected(name, MODELS[name], to)


if __name__ == "__main__":
    sys.exit(main())
