#!/usr/bin/env python3
"""Writes the golden models, losses and gradients of this directory, with PyTorch and transformers.

Each case is a tiny random model as transformers' save_pretrained writes it, trained for ten
steps in float64 on the CPU from its float32 weights. See README.md for what the files hold.

    python3 make_goldens.py [--out DIR] [CASE ...]
"""

import argparse
import importlib
import json
import math
import os
import platform

import numpy as np
import safetensors.torch
import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))

TOKENS = 1003  # the eighth step reads past the end: wrapping is tested too
VOCAB = 61
SEPARATOR = 19  # the most frequent token: 28 of 1003

TRAINING = {
    "order": "sequential",
    "seq": 16,
    "micro_batch_size": 2,
    "micro_batches": 4,
    "steps": 10,
    "lr": 1e-2,
    "warmup": 3,
    "weight_decay": 0.1,
    "beta1": 0.9,
    "beta2": 0.95,
    "eps": 1e-8,
    "clip": 1.0,
}

# Widths are small to keep the files small, odd where they may be and not multiples of 8 where
# they can; the norm's eps, theta and the MLP's width differ so that a default never passes for a
# value that was read.
CASES = {
    "gpt2": dict(
        model_type="gpt2", seed=11, n_layer=5, n_embd=12, n_head=3, n_inner=20, n_positions=40,
        layer_norm_epsilon=1e-5, tie_word_embeddings=True,
    ),
    "gpt2-untied": dict(
        model_type="gpt2", seed=12, n_layer=4, n_embd=10, n_head=2, n_positions=40,
        layer_norm_epsilon=1e-3, tie_word_embeddings=False,
    ),
    "llama": dict(
        model_type="llama", seed=13, num_hidden_layers=5, hidden_size=16, num_attention_heads=4,
        num_key_value_heads=2, head_dim=4, intermediate_size=20, rms_norm_eps=1e-5,
        rope_theta=10000.0, tie_word_embeddings=False,
    ),
    "llama-tied": dict(
        model_type="llama", seed=14, num_hidden_layers=3, hidden_size=12, num_attention_heads=2,
        num_key_value_heads=1, head_dim=10, intermediate_size=20, rms_norm_eps=1e-3,
        rope_theta=500.0, tie_word_embeddings=True,
    ),
    # Wavelengths 6, 30, 140 and 665 of positions: one kept, one between, two stretched.
    "llama3-rope": dict(
        model_type="llama", seed=15, num_hidden_layers=2, hidden_size=16, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, intermediate_size=12, rms_norm_eps=1e-5,
        rope_parameters=dict(
            rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0,
            high_freq_factor=4.0, original_max_position_embeddings=32,
        ),
        tie_word_embeddings=False,
    ),
    "llama-bias": dict(
        model_type="llama", seed=16, num_hidden_layers=2, hidden_size=12, num_attention_heads=3,
        num_key_value_heads=1, head_dim=4, intermediate_size=15, rms_norm_eps=1e-4,
        rope_parameters=dict(rope_type="linear", rope_theta=300.0, factor=2.5),
        tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
    ),
    "mistral": dict(
        model_type="mistral", seed=17, num_hidden_layers=2, hidden_size=12, num_attention_heads=4,
        num_key_value_heads=2, head_dim=6, intermediate_size=14, rms_norm_eps=1e-5,
        rope_theta=700.0, tie_word_embeddings=False, sliding_window=16,
    ),
    "qwen2": dict(
        model_type="qwen2", seed=18, num_hidden_layers=3, hidden_size=12, num_attention_heads=6,
        num_key_value_heads=3, intermediate_size=18, rms_norm_eps=1e-6, rope_theta=900.0,
        tie_word_embeddings=True, use_sliding_window=False, sliding_window=4,
    ),
    "qwen3": dict(
        model_type="qwen3", seed=19, num_hidden_layers=3, hidden_size=14, num_attention_heads=4,
        num_key_value_heads=2, head_dim=6, intermediate_size=10, rms_norm_eps=1e-3,
        rope_theta=1100.0, tie_word_embeddings=False, attention_bias=True,
    ),
    # Documents end with this token: attention stays inside them, positions begin anew.
    "gpt2-documents": dict(
        model_type="gpt2", seed=20, separator=SEPARATOR, n_layer=2, n_embd=12, n_head=3, n_inner=20,
        n_positions=40, layer_norm_epsilon=1e-5, tie_word_embeddings=True,
    ),
    "llama-documents": dict(
        model_type="llama", seed=21, separator=SEPARATOR, num_hidden_layers=2, hidden_size=16,
        num_attention_heads=4, num_key_value_heads=2, head_dim=4, intermediate_size=20,
        rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False,
    ),
}  # fmt: skip

CLASSES = {
    "gpt2": ("GPT2", "GPT2LMHeadModel"),
    "llama": ("Llama", "LlamaForCausalLM"),
    "mistral": ("Mistral", "MistralForCausalLM"),
    "qwen2": ("Qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("Qwen3", "Qwen3ForCausalLM"),
}


def rms_norm_any_dtype(self, x):
    """LlamaRMSNorm, as all relatives have it, without its cast to float32."""
    variance = x.pow(2).mean(-1, keepdim=True)
    return self.weight * (x * torch.rsqrt(variance + self.variance_epsilon))


def rotary_any_dtype(self, x, position_ids):
    """LlamaRotaryEmbedding with its angles in the dtype of x instead of float32."""
    rope = self.config.rope_parameters
    d = getattr(self.config, "head_dim", None)
    d = d or self.config.hidden_size // self.config.num_attention_heads
    inverse = rope["rope_theta"] ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
    if rope["rope_type"] == "linear":
        inverse = inverse / rope["factor"]
    elif rope["rope_type"] == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        seen = rope["original_max_position_embeddings"] * inverse / (2 * math.pi)
        kept = ((seen - low) / (high - low)).clamp(0, 1)
        inverse = kept * inverse + (1 - kept) * inverse / rope["factor"]
    assert torch.allclose(inverse.float(), self.inv_freq.float(), rtol=1e-5)
    angles = position_ids[..., None].to(x.dtype) * inverse
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def make_tokens():
    """A noisy Markov chain: learnable, and no period."""
    rng = np.random.default_rng(2024)
    tokens = [7]
    while len(tokens) < TOKENS:
        noisy = rng.random() < 0.3
        tokens.append(int(rng.integers(VOCAB)) if noisy else (5 * tokens[-1] + 3) % VOCAB)
    tokens = np.array(tokens, dtype="<u2")
    for period in range(1, TOKENS // 2):
        assert np.mean(tokens[period:] == tokens[:-period]) < 0.2, period
    return tokens


def make_model(case):
    options = dict(CASES[case])
    seed = options.pop("seed")
    options.pop("separator", None)
    common = dict(vocab_size=VOCAB, bos_token_id=0, eos_token_id=0, use_cache=False)
    style, cls = CLASSES[options.pop("model_type")]
    if style == "GPT2":
        common.update(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    else:
        common.update(max_position_embeddings=40)
    config = getattr(transformers, style + "Config")(**common, **options)
    config._attn_implementation = "sdpa"
    model = getattr(transformers, cls)(config).eval()
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, w in model.named_parameters():
            noise = torch.from_numpy(rng.standard_normal(tuple(w.shape)).astype(np.float32))
            if w.ndim == 2 and ("wte" in name or "wpe" in name or "embed" in name):
                w.copy_(0.4 * noise)
            elif w.ndim == 2:
                w.copy_(0.8 / math.sqrt(config.hidden_size) * noise)
            elif name.endswith("bias"):
                w.copy_(0.1 * noise)
            else:
                w.copy_(1.0 + 0.2 * noise)
    return model


def batch(tokens, step, micro_batch):
    """Inputs and targets (B, S) of one micro-batch, in sequential order."""
    B, S, M = TRAINING["micro_batch_size"], TRAINING["seq"], TRAINING["micro_batches"]
    n = (step * M + micro_batch) * B + np.arange(B)[:, None]
    at = (n * S + np.arange(S + 1)[None, :]) % len(tokens)
    ids = torch.from_numpy(tokens[at].astype(np.int64))
    return ids[:, :-1], ids[:, 1:]


def documents(x, separator):
    """Which keys each query sees, (B, 1, S, S), and the position of each token in its document."""
    number = torch.zeros_like(x)
    number[:, 1:] = (x == separator)[:, :-1].cumsum(-1)
    together = number[:, :, None] == number[:, None, :]
    return together.tril()[:, None], together.tril().sum(-1) - 1


def forward(model, x, separator):
    if separator is None:
        return model(input_ids=x).logits
    mask, positions = documents(x, separator)
    return model(input_ids=x, attention_mask=mask, position_ids=positions).logits


def train(model, tokens, separator):
    """Losses, gradient norms and learning rates of every step; gradients of the first step."""
    t = TRAINING
    params = dict(model.named_parameters())
    matrices = [w for w in params.values() if w.ndim >= 2]
    vectors = [w for w in params.values() if w.ndim < 2]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": t["weight_decay"]},
            {"params": vectors, "weight_decay": 0.0},
        ],
        betas=(t["beta1"], t["beta2"]),
        eps=t["eps"],
        foreach=False,
    )
    losses, norms, rates, first = [], [], [], None
    for step in range(t["steps"]):
        optimizer.zero_grad(set_to_none=True)
        loss = 0.0
        for i in range(t["micro_batches"]):
            x, y = batch(tokens, step, i)
            logits = forward(model, x, separator)
            part = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
            (part / t["micro_batches"]).backward()
            loss += part.item() / t["micro_batches"]
        if first is None:
            first = {name: w.grad.clone() for name, w in params.items()}
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), t["clip"], foreach=False)
        rate = t["lr"] * min(1.0, (step + 1) / t["warmup"])
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        losses.append(loss)
        norms.append(norm.item())
        rates.append(rate)
    return losses, norms, rates, first


def in_float64(model):
    """Replaces what transformers casts to float32 in the code of a model, and returns the way back."""
    module = importlib.import_module(type(model).__module__)
    style = type(model).__name__.removesuffix("ForCausalLM")
    replaced = []
    for name, forward in (("RMSNorm", rms_norm_any_dtype), ("RotaryEmbedding", rotary_any_dtype)):
        cls = getattr(module, style + name, None)
        if cls:
            replaced.append((cls, cls.forward))
            cls.forward = forward
    return replaced


def worst(a, b):
    return max(abs(x - y) / abs(y) for x, y in zip(a, b))


def make_case(case, out, tokens):
    directory = os.path.join(out, case)
    model = make_model(case)
    model.save_pretrained(directory)
    os.remove(os.path.join(directory, "generation_config.json"))
    os.chmod(os.path.join(directory, "model.safetensors"), 0o644)

    # transformers as it is, in float32: what rounding alone changes, for the tolerances.
    separator = CASES[case].get("separator")
    losses32, norms32, _, grads32 = train(model, tokens, separator)

    model = make_model(case).double()
    replaced = in_float64(model)
    losses, norms, rates, grads = train(model, tokens, separator)
    for cls, forward in replaced:
        cls.forward = forward

    safetensors.torch.save_file(
        {name: g.float().contiguous() for name, g in grads.items()},
        os.path.join(directory, "grads.safetensors"),
    )
    os.chmod(os.path.join(directory, "grads.safetensors"), 0o644)
    rounding = {
        "losses": worst(losses32, losses),
        "grad_norms": worst(norms32, norms),
        "grads": max(
            ((grads32[k].double() - g).abs().max() / g.abs().max()).item() for k, g in grads.items()
        ),
    }
    golden = {
        "case": case,
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "safetensors": safetensors.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "tokens": "tokens.bin",
        "training": TRAINING | ({} if separator is None else {"document_separator": separator}),
        "float32_deviation": {key: float(f"{value:.2g}") for key, value in rounding.items()},
        "losses": losses,
        "grad_norms": norms,
        "lrs": rates,
    }
    with open(os.path.join(directory, "golden.json"), "w") as f:
        json.dump(golden, f, indent=1)
        f.write("\n")
    print(
        f"{case}: {sum(w.numel() for w in model.parameters())} parameters, "
        f"loss {losses[0]:.6f} .. {losses[-1]:.6f}, grad norm {norms[0]:.4f} .. {norms[-1]:.4f}, "
        "float32 deviates by " + ", ".join(f"{k} {v:.1e}" for k, v in rounding.items())
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=HERE, help="directory to write (default: this one)")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=" ".join(CASES))
    args = parser.parse_args()
    unknown = set(args.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {' '.join(sorted(unknown))} (there are {' '.join(CASES)})")

    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    torch.set_num_threads(1)  # the order of sums, hence the last bits, depends on it
    torch.use_deterministic_algorithms(True)
    transformers.logging.disable_progress_bar()
    os.makedirs(args.out, exist_ok=True)
    tokens = make_tokens()
    tokens.tofile(os.path.join(args.out, "tokens.bin"))
    for case in args.cases or CASES:
        make_case(case, args.out, tokens)


if __name__ == "__main__":
    main()
