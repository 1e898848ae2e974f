#!/usr/bin/env python3
"""Makes gpt2/ and llama/, two models in Hugging Face form without weights: python3 make_tokenizer.py

Their tokenizers are byte-level BPE of 2,048 tokens, in the form of GPT-2 and of Llama 3, learned from the sources and
the documentation of this repository with the `tokenizers` package. Newer sources make other tokens; the losses of the
README are those of the files that are kept."""
import json
import os
import sys

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.join(HERE, "..", "..")
VOCAB = 2048  # with the special tokens
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")

MODELS = {
    # The config.json of openai-community/gpt2, but for the tokens: it has 50257 of them, of which the first 2048 occur.
    "gpt2": {
        "config.json": {
            "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12,
            "n_positions": 1024, "n_ctx": 1024, "vocab_size": 50257, "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "attn_pdrop": 0.0, "embd_pdrop": 0.0,
            "resid_pdrop": 0.0, "tie_word_embeddings": True},
        "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer", "model_max_length": 1024, "add_prefix_space": False},
        "special": ("<|endoftext|>",)},
    # A Llama of 11 M parameters: 8 query heads to 4 of keys and values.
    "llama": {
        "config.json": {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 8, "hidden_size": 320,
            "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 40, "intermediate_size": 896,
            "max_position_embeddings": 2048, "vocab_size": VOCAB, "hidden_act": "silu", "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "initializer_range": 0.02, "attention_bias": False, "mlp_bias": False,
            "tie_word_embeddings": False},
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 2048},
        "special": ("<|begin_of_text|>", "<|end_of_text|>")},
}


def texts():
    """Every source and page, in the order of their paths."""
    paths = [os.path.join(TOP, "docs", name) for name in os.listdir(os.path.join(TOP, "docs")) if name.endswith(".md")]
    for folder, _, names in os.walk(os.path.join(TOP, "src")):
        paths += [os.path.join(folder, name) for name in names if name.endswith((".c", ".h"))]
    for path in sorted(paths):
        with open(path, encoding="utf-8") as f:
            yield f.read()


def byte_level(name, special):
    t = Tokenizer(models.BPE(ignore_merges=name == "llama"))
    if name == "llama":
        t.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
             pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts(), trainers.BpeTrainer(
        vocab_size=VOCAB - len(special), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.add_special_tokens(list(special))
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    if name == "llama":
        bos = special[0]
        t.post_processor = processors.Sequence([t.post_processor, processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, t.token_to_id(bos))])])
    return t


def main():
    for name, model in MODELS.items():
        special = model["special"]
        t = byte_level(name, special)
        bos, eos = t.token_to_id(special[0]), t.token_to_id(special[-1])
        to = os.path.join(HERE, name)
        os.makedirs(to, exist_ok=True)
        with open(os.path.join(to, "tokenizer.json"), "w", encoding="utf-8") as f:
            json.dump(json.loads(t.to_str()), f, ensure_ascii=False, separators=(",", ":"))
            f.write("\n")
        names = {"bos_token": special[0], "eos_token": special[-1]}
        ids = {"bos_token_id": bos, "eos_token_id": eos}
        for file, content in (("config.json", {**model["config.json"], **ids}), ("generation_config.json", ids),
                              ("tokenizer_config.json", {**model["tokenizer_config.json"], **names})):
            with open(os.path.join(to, file), "w", encoding="utf-8") as f:
                json.dump(content, f, indent=2)
                f.write("\n")


if __name__ == "__main__":
    sys.exit(main())
