"""A GPT in plain PyTorch, as a good user writes it: fused attention, fused norms, nothing exotic.

GPT-2 style (learned positions, LayerNorm, biases, GELU with tanh, tied head) and Llama style
(rotary positions, RMSNorm, grouped heads, SwiGLU, a head of its own), with the parameters of
starpipe's models of the same sizes. forward(ids, targets) is the mean loss.
"""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def attend(q, k, v):
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
    return o.transpose(1, 2).flatten(2)


class GPT2Block(nn.Module):
    def __init__(self, m):
        super().__init__()
        h, self.heads = m["hidden"], m["heads"]
        self.norm_1, self.norm_2 = nn.LayerNorm(h, eps=1e-5), nn.LayerNorm(h, eps=1e-5)
        self.qkv, self.out = nn.Linear(h, 3 * h), nn.Linear(h, h)
        self.up, self.down = nn.Linear(h, 4 * h), nn.Linear(4 * h, h)

    def forward(self, x):
        qkv = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(attend(q, k, v))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class LlamaBlock(nn.Module):
    def __init__(self, m, seq):
        super().__init__()
        h, self.heads, self.kv = m["hidden"], m["heads"], m["kv_heads"]
        d = h // self.heads
        self.norm_1, self.norm_2 = nn.RMSNorm(h, eps=1e-5), nn.RMSNorm(h, eps=1e-5)
        self.qkv = nn.Linear(h, (self.heads + 2 * self.kv) * d, bias=False)
        self.out = nn.Linear(h, h, bias=False)
        self.up = nn.Linear(h, 2 * m["mlp"], bias=False)
        self.down = nn.Linear(m["mlp"], h, bias=False)
        angle = torch.arange(seq)[:, None] / 10000.0 ** (torch.arange(0, d, 2) / d)
        self.register_buffer("cos", torch.cat((angle, angle), -1).cos())
        self.register_buffer("sin", torch.cat((angle, angle), -1).sin())

    def rotate(self, x):
        s, half = x.shape[-2], x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), -1)
        return x * self.cos[:s].to(x.dtype) + turned * self.sin[:s].to(x.dtype)

    def forward(self, x):
        qkv = self.qkv(self.norm_1(x)).unflatten(-1, (self.heads + 2 * self.kv, -1))
        q, k, v = qkv.transpose(1, 2).split((self.heads, self.kv, self.kv), dim=1)
        x = x + self.out(attend(self.rotate(q), self.rotate(k), v))
        gate, up = self.up(self.norm_2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class GPT(nn.Module):
    def __init__(self, m, seq, recompute=False):
        super().__init__()
        h, llama = m["hidden"], m["style"] == "llama"
        self.recompute = recompute
        self.tokens = nn.Embedding(m["vocab"], h)
        self.positions = None if llama else nn.Embedding(seq, h)
        self.blocks = nn.ModuleList(LlamaBlock(m, seq) if llama else GPT2Block(m)
                                    for _ in range(m["layers"]))
        self.norm = nn.RMSNorm(h, eps=1e-5) if llama else nn.LayerNorm(h, eps=1e-5)
        self.head = nn.Linear(h, m["vocab"], bias=False)
        if not llama:
            self.head.weight = self.tokens.weight
        for name, w in self.named_parameters():
            if w.ndim > 1:
                deep = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(w, std=0.02 / (2 * m["layers"]) ** 0.5 if deep else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(w)

    def forward(self, ids, targets):
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def optimizer(model):
    """AdamW with decay on matrices and tables only, in one fused kernel."""
    groups = [{"params": [w for w in model.parameters() if w.ndim > 1], "weight_decay": 0.1},
              {"params": [w for w in model.parameters() if w.ndim < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
