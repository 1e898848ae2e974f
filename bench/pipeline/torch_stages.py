#!/usr/bin/env python3
"""One process of a pipeline of torch.distributed.pipelining over gloo: the peer of pipeline.py.

    bench/pipeline/torch_stages.py --rank R --ranks P --store FILE --schedule 1F1B [sizes]

The blocks are those of bench/cpu/torch_step.py. A step is the schedule's, clipping of the norm of all
ranks' gradients, and AdamW. Rank 0 prints one line of JSON.
"""
import argparse
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining
from torch.distributed.pipelining import schedules
from torch.nn import functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cpu"))
from torch_step import Block, make_optimizer  # noqa: E402

# Chunks of a rank, whether they lie in a V, and the class; those that this PyTorch has.
CLASSES = {
    "GPipe": (1, False, "ScheduleGPipe"),
    "1F1B": (1, False, "Schedule1F1B"),
    "Interleaved1F1B": (2, False, "ScheduleInterleaved1F1B"),
    "LoopedBFS": (2, False, "ScheduleLoopedBFS"),
    "InterleavedZeroBubble": (2, False, "ScheduleInterleavedZeroBubble"),
    "ZBVZeroBubble": (2, True, "ScheduleZBVZeroBubble"),
    "DualPipeV": (2, True, "ScheduleDualPipeV"),
}


class Chunk(nn.Module):
    """Consecutive layers; the first with the embedding, the last with the head, which is not tied."""

    def __init__(self, args, index, chunks):
        super().__init__()
        self.bf16 = args.dtype == "bf16"
        self.first, self.last = index == 0, index == chunks - 1
        n = args.layers // chunks
        self.blocks = nn.ModuleList(
            Block(args.hidden, args.heads, args.layers, "sdpa") for _ in range(n))
        if self.first:
            self.wte = nn.Embedding(args.vocab, args.hidden)
            self.wpe = nn.Embedding(args.seq, args.hidden)
        if self.last:
            self.ln_f = nn.LayerNorm(args.hidden)
            self.head = nn.Linear(args.hidden, args.vocab, bias=False)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16, cache_enabled=False):
            if self.first:
                x = self.wte(x) + self.wpe.weight[: x.shape[1]]
            for block in self.blocks:
                x = block(x)
            return self.head(self.ln_f(x)) if self.last else x


def loss_of(logits, targets):
    return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.reshape(-1))


def make_schedule(args):
    chunks, in_v, name = CLASSES[args.schedule]
    total = chunks * args.ranks
    mine = [args.rank + k * args.ranks for k in range(chunks)]
    if in_v:
        mine = [args.rank, total - 1 - args.rank]
    modules = nn.ModuleList(Chunk(args, i, total) for i in mine)
    stages = [pipelining.PipelineStage(module, i, total, torch.device("cpu"))
              for module, i in zip(modules, mine)]
    kind = getattr(schedules, name)
    schedule = kind(stages if issubclass(kind, schedules.PipelineScheduleMulti) else stages[0],
                    args.micro_batches, loss_fn=loss_of)
    return modules, schedule, 0 in mine, total - 1 in mine


def clip(parameters, most):
    """The norm is that of the gradients of all ranks."""
    gradients = [w.grad for w in parameters]
    norm = torch.nn.utils.get_total_norm(gradients) ** 2
    dist.all_reduce(norm)
    scale = torch.clamp(most / (norm.sqrt() + 1e-6), max=1.0)
    torch._foreach_mul_(gradients, scale)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("rank", "ranks", "layers", "hidden", "heads", "vocab", "seq", "micro-batch-size",
                 "micro-batches", "steps"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--schedule", choices=CLASSES, required=True)
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--lr", type=float, default=1e-4)
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", init_method="file://" + args.store, rank=args.rank,
                            world_size=args.ranks)
    modules, schedule, first, last = make_schedule(args)
    optimizer, _ = make_optimizer(modules, args)
    batch = (args.micro_batches * args.micro_batch_size, args.seq)
    times = []
    for _ in range(args.steps + 2):
        ids = torch.randint(args.vocab, (batch[0], batch[1] + 1))
        dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        losses = []
        schedule.step(*([ids[:, :-1].contiguous()] if first else []),
                      **({"target": ids[:, 1:].contiguous(), "losses": losses} if last else {}))
        clip(list(modules.parameters()), 1.0)
        optimizer.step()
        dist.barrier()
        times.append(1e3 * (time.perf_counter() - start))
    loss = torch.stack(losses).mean().detach() if last else torch.zeros(())
    dist.all_reduce(loss)
    if args.rank == 0:
        print(json.dumps({"step_ms": times[2:], "loss": loss.item(), "torch": torch.__version__}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
