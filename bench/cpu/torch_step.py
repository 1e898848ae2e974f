#!/usr/bin/env python3
"""Times one training step of a GPT in PyTorch on N CPU threads, eager or compiled: the peer.

A step is forward and backward of every micro-batch with accumulated gradients, clipping of
their global norm, and AdamW. The model is written by hand in the manner of nanoGPT, with
PyTorch's own fused attention, norms, activation, loss and optimizer. --no-head times the layers
alone, without embedding, logits and loss. --dtype bf16 runs forward and backward under autocast:
weights, their gradients and the optimizer stay f32.

Prints one line: JSON with --json, else a sentence.
"""

import argparse
import json
import math
import platform
import re
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, hidden, heads, layers, attention):
        super().__init__()
        self.heads, self.attention = heads, attention
        self.ln_1 = nn.LayerNorm(hidden)
        self.c_attn = nn.Linear(hidden, 3 * hidden)
        self.attn_proj = nn.Linear(hidden, hidden)
        self.ln_2 = nn.LayerNorm(hidden)
        self.c_fc = nn.Linear(hidden, 4 * hidden)
        self.gelu = nn.GELU(approximate="tanh")
        self.mlp_proj = nn.Linear(4 * hidden, hidden)
        for linear in (self.c_attn, self.attn_proj, self.c_fc, self.mlp_proj):
            nn.init.normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)
        for linear in (self.attn_proj, self.mlp_proj):
            nn.init.normal_(linear.weight, std=0.02 / math.sqrt(2 * layers))

    def attend(self, q, k, v):
        if self.attention == "sdpa":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        s = q.shape[-2]
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        future = torch.ones(s, s, dtype=torch.bool).triu(1)
        return scores.masked_fill(future, -math.inf).softmax(-1) @ v

    def forward(self, x):
        b, s, h = x.shape
        qkv = self.c_attn(self.ln_1(x)).view(b, s, 3, self.heads, h // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.attn_proj(self.attend(q, k, v).transpose(1, 2).reshape(b, s, h))
        return x + self.mlp_proj(self.gelu(self.c_fc(self.ln_2(x))))


class LlamaBlock(nn.Module):
    """RMSNorm, rotary positions, grouped heads, SwiGLU; no biases."""

    def __init__(self, args):
        super().__init__()
        h, self.heads, self.kv = args.hidden, args.heads, args.kv_heads
        d = self.d = h // self.heads
        self.norm_1, self.norm_2 = nn.RMSNorm(h, eps=1e-5), nn.RMSNorm(h, eps=1e-5)
        self.qkv = nn.Linear(h, (self.heads + 2 * self.kv) * d, bias=False)
        self.out = nn.Linear(h, h, bias=False)
        self.up = nn.Linear(h, 2 * args.mlp, bias=False)
        self.down = nn.Linear(args.mlp, h, bias=False)
        angle = torch.arange(args.seq)[:, None] / 10000 ** (torch.arange(0, d, 2) / d)
        self.register_buffer("cos", torch.cat((angle, angle), -1).cos())
        self.register_buffer("sin", torch.cat((angle, angle), -1).sin())

    def rotate(self, x):
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), -1)
        return x * self.cos + turned * self.sin

    def forward(self, x):
        b, s, h = x.shape
        qkv = self.qkv(self.norm_1(x)).view(b, s, -1, self.d).transpose(1, 2)
        q, k, v = qkv.split((self.heads, self.kv, self.kv), dim=1)
        o = F.scaled_dot_product_attention(
            self.rotate(q), self.rotate(k), v, is_causal=True, enable_gqa=self.kv != self.heads
        )
        x = x + self.out(o.transpose(1, 2).reshape(b, s, h))
        gate, up = self.up(self.norm_2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Stack(nn.Module):
    """Layers alone: the loss is the product with a fixed gradient of the output."""

    def __init__(self, args):
        super().__init__()
        self.blocks = nn.ModuleList(
            LlamaBlock(args)
            if args.style == "llama"
            else Block(args.hidden, args.heads, args.layers, args.attention)
            for _ in range(args.layers)
        )

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class GPT(nn.Module):
    """The whole model: GPT-2 style with a tied head, Llama style with one of its own."""

    def __init__(self, args):
        super().__init__()
        self.wte = nn.Embedding(args.vocab, args.hidden)
        self.stack = Stack(args)
        nn.init.normal_(self.wte.weight, std=0.02)
        if args.style == "llama":
            self.wpe = None
            self.ln_f = nn.RMSNorm(args.hidden, eps=1e-5)
            self.head = nn.Linear(args.hidden, args.vocab, bias=False)
        else:
            self.wpe = nn.Embedding(args.seq, args.hidden)
            self.ln_f = nn.LayerNorm(args.hidden)
            nn.init.normal_(self.wpe.weight, std=0.02)

    def forward(self, ids, targets):
        x = self.wte(ids)
        if self.wpe is not None:
            x = x + self.wpe.weight[: ids.shape[1]]
        x = self.ln_f(self.stack(x))
        logits = F.linear(x, self.wte.weight if self.wpe is not None else self.head.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def make_optimizer(model, args):
    groups = [
        {"params": [w for w in model.parameters() if w.ndim >= 2], "weight_decay": 0.1},
        {"params": [w for w in model.parameters() if w.ndim < 2], "weight_decay": 0.0},
    ]
    options = dict(lr=args.lr, betas=(0.9, 0.95), eps=1e-8)
    try:
        return torch.optim.AdamW(groups, fused=True, **options), "fused"
    except (RuntimeError, TypeError):  # a PyTorch without fused AdamW on CPU
        return torch.optim.AdamW(groups, foreach=True, **options), "foreach"


def make_micro_batches(args):
    """What each micro-batch of a step needs, made before the clock starts."""
    b, s, h = args.micro_batch_size, args.seq, args.hidden
    if args.no_head:
        return [
            (torch.randn(b, s, h, requires_grad=True), torch.randn(b, s, h) / (b * s))
            for _ in range(args.micro_batches)
        ]
    ids = torch.randint(args.vocab, (args.micro_batches, b, s + 1))
    return [(i[:, :-1].contiguous(), i[:, 1:].contiguous()) for i in ids]


def run_step(model, optimizer, micro_batches, args):
    optimizer.zero_grad(set_to_none=True)
    total = 0.0
    for x, y in micro_batches:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.dtype == "bf16"):
            out = model(x) if args.no_head else model(x, y) / args.micro_batches
        if args.no_head:
            x.grad = None
            out.backward(y.to(out.dtype))
        else:
            out.backward()
            total += out.item()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return total


def gemm_library():
    mkl = re.search(r"Math Kernel Library Version ([\d.]+)", torch.__config__.show())
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    return f"oneMKL {mkl.group(1)}" if mkl else blas.group(1) if blas else "unknown"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    size = dict(layers=12, hidden=768, heads=12, vocab=50257, seq=1024)
    work = dict(micro_batch_size=1, micro_batches=1, steps=5, warmup=2, threads=1)
    for name, default in {**size, **work}.items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=int, default=default, help=f"default {default}")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--attention", choices=("sdpa", "explicit"), default="sdpa")
    parser.add_argument("--style", choices=("gpt2", "llama"), default="gpt2")
    parser.add_argument("--kv-heads", type=int, help="of --style llama, default --heads")
    parser.add_argument("--mlp", type=int, help="MLP width of --style llama, default 8/3 hidden")
    parser.add_argument("--no-head", action="store_true", help="the layers alone")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32", help="bf16: autocast")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.kv_heads = args.kv_heads or args.heads
    args.mlp = args.mlp or 8 * args.hidden // 3
    for name in size | work:
        least = 0 if name == "warmup" else 1
        if getattr(args, name) < least:
            parser.error(f"--{name.replace('_', '-')} must be at least {least}")
    if args.hidden % args.heads:
        parser.error(f"--hidden {args.hidden} is not a multiple of --heads {args.heads}")
    return args


def main():
    args = parse()
    torch.set_num_threads(args.threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(1)
    model = Stack(args) if args.no_head else GPT(args)
    optimizer, kind = make_optimizer(model, args)
    micro_batches = make_micro_batches(args)
    if args.compile:
        model = torch.compile(model)

    times, cpu_times, losses = [], [], []
    for step in range(args.warmup + args.steps):
        start, cpu_start = time.perf_counter(), time.process_time()
        losses.append(run_step(model, optimizer, micro_batches, args))
        if step >= args.warmup:
            times.append(1e3 * (time.perf_counter() - start))
            cpu_times.append(1e3 * (time.process_time() - cpu_start))

    median = statistics.median(times)
    tokens = args.micro_batches * args.micro_batch_size * args.seq
    result = {
        "peer": "pytorch compiled" if args.compile else "pytorch eager",
        **vars(args),
        "parameters": sum(w.numel() for w in model.parameters()),
        "optimizer": f"AdamW {kind}",
        "step_ms_median": round(median, 3),
        "step_ms_min": round(min(times), 3),
        "cpu_ms_median": round(statistics.median(cpu_times), 3),  # of all threads together
        "tokens_per_s": round(1e3 * tokens / median, 1),
        "loss_first": None if args.no_head else losses[0],
        "loss_last": None if args.no_head else losses[-1],
        "gemm": gemm_library(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
    }
    del result["json"]
    if args.json:
        print(json.dumps(result))
    else:
        print(
            f"torch {torch.__version__}, {result['gemm']}, {args.threads} thread"
            f"{'s' if args.threads > 1 else ''}: "
            f"{median:.1f} ms a step (best {min(times):.1f}), {result['tokens_per_s']} tokens/s"
        )


if __name__ == "__main__":
    main()
