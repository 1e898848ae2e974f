#!/usr/bin/env python3
"""Writes what --dtype fp8 is tested against, with PyTorch's own casts to fp8.

`fp8.txt`: numbers and the codes that torch.float8_e4m3fn and torch.float8_e5m2 make of them. In the
directories of some cases `fp8.safetensors`, the gradients of the first step with the products of
layers in fp8 and all else in bf16, and `fp8.json`, its loss and how far it is from that of float64.
The models are those of make_goldens.py, written here once more in plain tensor operations.

    python3 make_fp8.py
"""

import json
import math
import os

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = ("gpt2", "llama")
FORMATS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
MOST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}


# ---- files ----


def read_safetensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    header.pop("__metadata__", None)
    return {
        name: torch.from_numpy(
            np.frombuffer(data[slice(*e["data_offsets"])], "<f4").reshape(e["shape"]).astype(float)
        )
        for name, e in header.items()
    }


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, x in sorted(tensors.items()):
        values = x.numpy().astype("<f4").tobytes()
        ends = [len(data), len(data) + len(values)]
        header[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": ends}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + data)


# ---- numbers ----


def code(x, dtype):
    return torch.tensor(x, dtype=torch.float32).to(dtype).view(torch.uint8).item()


def write_numbers(path):
    with open(path, "w") as f:
        for name, dtype in FORMATS.items():
            codes = torch.arange(256, dtype=torch.int16).to(torch.uint8).view(dtype).float()
            finite = sorted({abs(x) for x in codes.tolist() if math.isfinite(x)})
            asked = list(codes[codes.isfinite()].tolist())
            for low, high in zip(finite, finite[1:]):
                half = np.float32((low + high) / 2)
                asked += [half, np.nextafter(half, np.float32(0)), -np.nextafter(half, np.float32(9e9))]
            for x in asked:
                f.write(f"{name} {float(x).hex()} {code(float(x), dtype)}\n")


# ---- a step in fp8 ----


def fp8(x, dtype):
    """x as the format has it, scaled by the largest power of two that takes nothing beyond it."""
    largest = x.abs().max().item()
    scale = 2.0 ** math.floor(math.log2(MOST[dtype] / largest)) if largest else 1.0
    return (x * scale).float().to(dtype).double() / scale


class Product(torch.autograd.Function):
    """x (T,in), w (out,in): x w^T"""

    @staticmethod
    def forward(ctx, x, w):
        x, w = fp8(x, torch.float8_e4m3fn), fp8(w, torch.float8_e4m3fn)
        ctx.save_for_backward(x, w)
        return x @ w.T

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dy = fp8(dy, torch.float8_e5m2)
        return dy @ w, dy.T @ x


class Stored(torch.autograd.Function):
    """An activation, and its gradient: both are bf16."""

    @staticmethod
    def forward(ctx, x):
        return x.bfloat16().double()

    @staticmethod
    def backward(ctx, dx):
        return dx.bfloat16().double()


class Low(torch.autograd.Function):
    """A parameter as the kernels read it, or an activation whose gradient is not stored."""

    @staticmethod
    def forward(ctx, w):
        return w.bfloat16().double()

    @staticmethod
    def backward(ctx, dw):
        return dw


class LowGradient(torch.autograd.Function):
    """A gradient that is stored, although its activation is not, or as a part of a sum."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, dx):
        return dx.bfloat16().double()


class Gelu(torch.autograd.Function):
    """gelu(u) before u is rounded; the backward has what was stored."""

    @staticmethod
    def forward(ctx, u):
        ctx.save_for_backward(u.bfloat16().double())
        return torch.nn.functional.gelu(u, approximate="tanh")

    @staticmethod
    def backward(ctx, dg):
        (u,) = ctx.saved_tensors
        with torch.enable_grad():
            u = u.detach().requires_grad_()
            g = torch.nn.functional.gelu(u, approximate="tanh")
        return torch.autograd.grad(g, u, dg)[0]


class Weighted(torch.autograd.Function):
    """softmax(scores) v, stored: the backward multiplies dO with the O that was."""

    @staticmethod
    def forward(ctx, scores, v):
        p = scores.softmax(-1)
        o = (p @ v).bfloat16().double()
        ctx.save_for_backward(p, v, o)
        return o

    @staticmethod
    def backward(ctx, do):
        p, v, o = ctx.saved_tensors
        do = do.bfloat16().double()
        dp = do @ v.transpose(-1, -2)
        return p * (dp - (do * o).sum(-1, keepdim=True)), p.transpose(-1, -2) @ do


stored = Stored.apply


def product(x, w, *b):
    return sum((y for y in b), Product.apply(x.flatten(0, -2), w).unflatten(0, x.shape[:-1]))


def attention(q, k, v):
    """q (B,S,a,d), k and v (B,S,g,d)"""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    hidden = torch.ones(q.shape[2], q.shape[2]).triu(1).bool()
    scores = (q @ k.transpose(2, 3) / math.sqrt(q.shape[3])).masked_fill(hidden, -math.inf)
    return Weighted.apply(scores, v).transpose(1, 2).flatten(2)


def head(x, w):
    return stored(x @ w.T)


def logits_gpt2(w, c, ids):
    h, heads = c["n_embd"], c["n_head"]

    def norm(x, name):
        y = torch.nn.functional.layer_norm(x, (h,), eps=c["layer_norm_epsilon"])
        return stored(y * w[name + ".weight"] + w[name + ".bias"])

    x = stored(w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][: ids.shape[1]])
    for layer in range(c["n_layer"]):
        at = f"transformer.h.{layer}."
        n = norm(x, at + "ln_1")
        qkv, b = w[at + "attn.c_attn.weight"].T, w[at + "attn.c_attn.bias"]
        q = stored(product(LowGradient.apply(n), qkv[:h], b[:h]))
        kv = stored(product(n, qkv[h:], b[h:]))
        o = attention(*(y.unflatten(2, (heads, -1)) for y in (q, kv[..., :h], kv[..., h:])))
        x = stored(product(o, w[at + "attn.c_proj.weight"].T, w[at + "attn.c_proj.bias"], x))
        u = product(norm(x, at + "ln_2"), w[at + "mlp.c_fc.weight"].T, w[at + "mlp.c_fc.bias"])
        g = Low.apply(Gelu.apply(LowGradient.apply(u)))
        x = stored(product(g, w[at + "mlp.c_proj.weight"].T, w[at + "mlp.c_proj.bias"], x))
    return head(norm(x, "transformer.ln_f"), w["transformer.wte.weight"])


def rotated(x, theta):
    d = x.shape[-1]
    turn = torch.arange(x.shape[1])[:, None] * theta ** (-torch.arange(0, d, 2) / d)
    cos, sin = turn.cos()[:, None], turn.sin()[:, None]
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def logits_llama(w, c, ids):
    heads, groups, d = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    theta = c["rope_parameters"]["rope_theta"]

    def norm(x, name):
        rstd = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["rms_norm_eps"])
        return stored(x * rstd * w[name + ".weight"])

    x = stored(w["model.embed_tokens.weight"][ids])
    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        n = norm(x, at + "input_layernorm")
        own = {k: w[f"{at}self_attn.{k}_proj.weight"] for k in "qkvo"}
        q = stored(product(LowGradient.apply(n), own["q"])).unflatten(2, (heads, d))
        kv = stored(product(n, torch.cat((own["k"], own["v"])))).unflatten(2, (2, groups, d))
        q, k = stored(rotated(q, theta)), stored(rotated(kv[:, :, 0], theta))
        x = stored(product(attention(q, k, kv[:, :, 1]), own["o"], x))
        mlp = {k: w[f"{at}mlp.{k}_proj.weight"] for k in ("gate", "up", "down")}
        n = norm(x, at + "post_attention_layernorm")
        gate, up = stored(product(n, torch.cat((mlp["gate"], mlp["up"])))).chunk(2, -1)
        x = stored(product(stored(torch.nn.functional.silu(gate) * up), mlp["down"], x))
    return head(norm(x, "model.norm"), w["lm_head.weight"])


def first_step(case):
    directory = os.path.join(HERE, case)
    with open(os.path.join(directory, "config.json")) as f:
        config = json.load(f)
    with open(os.path.join(directory, "golden.json")) as f:
        golden = json.load(f)
    t = golden["training"]
    rows, S = t["micro_batch_size"], t["seq"]
    tokens = torch.from_numpy(np.fromfile(os.path.join(HERE, "tokens.bin"), "<u2").astype(int))
    weights = read_safetensors(os.path.join(directory, "model.safetensors"))
    for w in weights.values():
        w.requires_grad_()
    logits_of = logits_gpt2 if config["model_type"] == "gpt2" else logits_llama
    total = 0.0
    for i in range(t["micro_batches"]):
        at = (torch.arange(rows)[:, None] + i * rows) * S + torch.arange(S + 1)
        low = {name: Low.apply(w) for name, w in weights.items()}
        logits = logits_of(low, config, tokens[at[:, :-1]])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[at[:, 1:]].flatten())
        (loss / t["micro_batches"]).backward()
        total += loss.item() / t["micro_batches"]
    grads = {name: w.grad for name, w in weights.items()}
    exact = read_safetensors(os.path.join(directory, "grads.safetensors"))
    apart = {k: ((grads[k] - g).abs().max() / g.abs().max()).item() for k, g in exact.items()}
    norm = math.sqrt(sum(g.pow(2).sum().item() for g in grads.values()))
    result = {
        "torch": torch.__version__,
        "losses": [total],
        "grad_norms": [norm],
        "from_float64": {
            "loss": float(f"{total / golden['losses'][0] - 1:.2g}"),
            "grads": float(f"{max(apart.values()):.2g}"),
        },
    }
    print(case, result)
    write_safetensors(os.path.join(directory, "fp8.safetensors"), grads)
    with open(os.path.join(directory, "fp8.json"), "w") as f:
        json.dump(result, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    write_numbers(os.path.join(HERE, "fp8.txt"))
    for name in CASES:
        first_step(name)
