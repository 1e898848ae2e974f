#!/usr/bin/env python3
"""Checks the golden files against a second implementation, in numpy and nothing else.

Reads the weights of each case, computes the loss of the first step in float64 and compares it
with golden.json; then compares grads.safetensors with central differences of that loss, along
one random direction for each tensor.
"""

import json
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
STEP = 1e-5  # of the central differences


def read_safetensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    header.pop("__metadata__", None)
    tensors = {}
    for name, e in header.items():
        assert e["dtype"] == "F32", (name, e)
        values = np.frombuffer(data[slice(*e["data_offsets"])], "<f4")
        tensors[name] = values.reshape(e["shape"]).astype(float)
    return tensors


def layer_norm(x, w, name, eps):
    centred = x - x.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    return centred * rstd * w[name + ".weight"] + w[name + ".bias"]


def rms_norm(x, w, name, eps):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * w[name + ".weight"]


def beginnings(ids, separator):
    """Of every token, where its document begins."""
    begins = np.zeros_like(ids)
    for b, row in enumerate(ids):
        for t in range(1, len(row)):
            begins[b, t] = t if row[t - 1] == separator else begins[b, t - 1]
    return begins


def attention(q, k, v, begins):
    """q (B,S,a,d), k and v (B,S,g,d); query head i reads key head i / (a/g)."""
    B, S, a, d = q.shape
    out = np.empty_like(q)
    for b in range(B):
        for i in range(a):
            j = i // (a // k.shape[2])
            for t in range(S):
                seen = slice(begins[b, t], t + 1)
                scores = k[b, seen, j] @ q[b, t, i] / np.sqrt(d)
                p = np.exp(scores - scores.max())
                out[b, t, i] = p @ v[b, seen, j] / p.sum()
    return out.reshape(B, S, a * d)


def stretch(frequency, rope):
    """A frequency of rotary positions as rope_parameters stretch it, in plain case distinctions."""
    if rope["rope_type"] == "linear":
        return frequency / rope["factor"]
    if rope["rope_type"] == "default":
        return frequency
    length, turns = rope["original_max_position_embeddings"], frequency / (2 * np.pi)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    if 1 / turns < length / high:
        return frequency
    if 1 / turns > length / low:
        return frequency / rope["factor"]
    smooth = (length * turns - low) / (high - low)
    return (1 - smooth) * frequency / rope["factor"] + smooth * frequency


def rope(x, parameters, at):
    """Rotates the pairs (x_i, x_{i+d/2}) by t / theta^(2i/d), stretched, as complex numbers."""
    B, S, heads, d = x.shape
    frequencies = parameters["rope_theta"] ** (-np.arange(0, d, 2) / d)
    frequencies = [stretch(f, parameters) for f in frequencies]
    turn = np.exp(1j * at[..., None] * np.array(frequencies))[:, :, None, :]
    z = (x[..., : d // 2] + 1j * x[..., d // 2 :]) * turn
    return np.concatenate((z.real, z.imag), -1)


def logits_gpt2(w, c, ids, begins):
    a, eps = c["n_head"], c["layer_norm_epsilon"]
    B, S = ids.shape
    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][np.arange(S) - begins]
    for layer in range(c["n_layer"]):
        at = f"transformer.h.{layer}."
        y = layer_norm(x, w, at + "ln_1", eps)
        y = y @ w[at + "attn.c_attn.weight"] + w[at + "attn.c_attn.bias"]
        q, k, v = y.reshape(B, S, 3, a, -1).transpose(2, 0, 1, 3, 4)
        y = attention(q, k, v, begins) @ w[at + "attn.c_proj.weight"] + w[at + "attn.c_proj.bias"]
        x = x + y
        u = layer_norm(x, w, at + "ln_2", eps) @ w[at + "mlp.c_fc.weight"] + w[at + "mlp.c_fc.bias"]
        u = 0.5 * u * (1 + np.tanh(np.sqrt(2 / np.pi) * (u + 0.044715 * u**3)))
        x = x + u @ w[at + "mlp.c_proj.weight"] + w[at + "mlp.c_proj.bias"]
    x = layer_norm(x, w, "transformer.ln_f", eps)
    return x @ w["transformer.wte.weight" if c["tie_word_embeddings"] else "lm_head.weight"].T


def logits_llama(w, c, ids, begins):
    a, g, eps = (c[k] for k in ("num_attention_heads", "num_key_value_heads", "rms_norm_eps"))
    d = c.get("head_dim") or c["hidden_size"] // a
    positions = c["rope_parameters"]
    B, S = ids.shape
    at_token = np.arange(S) - begins
    x = w["model.embed_tokens.weight"][ids]

    def linear(y, name):
        return y @ w[name + ".weight"].T + w.get(name + ".bias", 0)

    def normed(y, name):
        return rms_norm(y, w, name, eps) if name + ".weight" in w else y

    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        y = rms_norm(x, w, at + "input_layernorm", eps)
        q = normed(linear(y, at + "self_attn.q_proj").reshape(B, S, a, d), at + "self_attn.q_norm")
        k = normed(linear(y, at + "self_attn.k_proj").reshape(B, S, g, d), at + "self_attn.k_norm")
        v = linear(y, at + "self_attn.v_proj").reshape(B, S, g, d)
        y = attention(rope(q, positions, at_token), rope(k, positions, at_token), v, begins)
        x = x + linear(y, at + "self_attn.o_proj")
        y = rms_norm(x, w, at + "post_attention_layernorm", eps)
        gate, up = linear(y, at + "mlp.gate_proj"), linear(y, at + "mlp.up_proj")
        x = x + linear(gate / (1 + np.exp(-gate)) * up, at + "mlp.down_proj")
    x = rms_norm(x, w, "model.norm", eps)
    return x @ w["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"].T


def first_loss(w, config, training, tokens):
    rows = training["micro_batches"] * training["micro_batch_size"]
    S = training["seq"]
    x = np.stack([tokens[n * S : n * S + S] for n in range(rows)])
    y = np.stack([tokens[n * S + 1 : n * S + S + 1] for n in range(rows)])
    begins = beginnings(x, training.get("document_separator", -1))
    logits_of = logits_gpt2 if config["model_type"] == "gpt2" else logits_llama
    logits = logits_of(w, config, x, begins)
    top = logits.max(-1, keepdims=True)
    lse = np.log(np.exp(logits - top).sum(-1)) + top[..., 0]
    return (lse - np.take_along_axis(logits, y[..., None], -1)[..., 0]).mean()


def check(case):
    directory = os.path.join(HERE, case)
    with open(os.path.join(directory, "config.json")) as f:
        config = json.load(f)
    with open(os.path.join(directory, "golden.json")) as f:
        golden = json.load(f)
    tokens = np.fromfile(os.path.join(HERE, golden["tokens"]), "<u2").astype(int)
    weights = read_safetensors(os.path.join(directory, "model.safetensors"))
    grads = read_safetensors(os.path.join(directory, "grads.safetensors"))
    assert {k: v.shape for k, v in weights.items()} == {k: v.shape for k, v in grads.items()}

    loss = first_loss(weights, config, golden["training"], tokens)
    loss_error = abs(loss / golden["losses"][0] - 1)
    rng = np.random.default_rng(5)
    errors = {}
    for name, value in weights.items():
        direction = rng.standard_normal(value.shape)
        ends = []
        for sign in (1, -1):
            moved = {**weights, name: value + sign * STEP * direction}
            ends.append(first_loss(moved, config, golden["training"], tokens))
        slope = (ends[0] - ends[1]) / (2 * STEP)
        scale = np.linalg.norm(grads[name])  # of the slope along a random direction
        errors[name] = abs(slope - (grads[name] * direction).sum()) / scale
    norm = np.sqrt(sum((g**2).sum() for g in grads.values()))
    norm_error = abs(norm / golden["grad_norms"][0] - 1)
    worst = max(errors, key=errors.get)
    ok = loss_error < 1e-12 and norm_error < 1e-6 and errors[worst] < 1e-6
    print(
        f"{case}: loss {loss:.9f} off by {loss_error:.1e}, gradient norm by {norm_error:.1e}, "
        f"{len(errors)} gradients by at most {errors[worst]:.1e} ({worst}){'' if ok else ': WRONG'}"
    )
    return ok


if __name__ == "__main__":
    cases = [d for d in os.listdir(HERE) if os.path.exists(os.path.join(HERE, d, "golden.json"))]
    sys.exit(0 if cases and all([check(case) for case in sorted(cases)]) else 1)
