#!/usr/bin/env python3
"""One measurement of PyTorch in a process of its own: peer.py SPEC, both as JSON.

SPEC with `gemm`: rates of products n x n x n, the best of a cold device and the one that it keeps up. Otherwise
training steps of model.py: model, seq, batch, micro, steps, mode eager|compile, precision autocast|bf16|f32,
recompute, sdpa: the kernel of attention, flash|cudnn, or default for PyTorch's choice; memory_bytes: the most that it
may take of the device, 0 for all.
"""
import contextlib
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.dont_write_bytecode = True
from model import GPT, optimizer

CUDA = False
SUSTAINED_S = 4


def clock():
    """A mark on the device's time line; on the CPU the time."""
    if not CUDA:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def between(start, end):
    return start.elapsed_time(end) if CUDA else 1e3 * (end - start)


def synchronize():
    if CUDA:
        torch.cuda.synchronize()


def gemm(spec):
    n, dtype = spec["gemm"], torch.bfloat16 if spec["dtype"] == "bf16" else torch.float32
    a, b = (torch.randn(n, n, device=spec["device"]).to(dtype) for _ in range(2))
    c, times, begun = torch.empty_like(a), [], time.monotonic()
    while len(times) < 8 or CUDA and time.monotonic() - begun < SUSTAINED_S:
        start = clock()
        for _ in range(10):
            torch.matmul(a, b, out=c)
        end = clock()
        synchronize()
        times.append(between(start, end) / 10)
    last = times[-max(3, len(times) // 4):]  # by then clocks are what power allows
    return {"status": "ok", "tflops": 2 * n**3 / min(times[1:]) / 1e9,
            "tflops_sustained": 2 * n**3 / statistics.median(last) / 1e9,
            "torch": torch.__version__, "cuda": torch.version.cuda}


def attention_kernel(name):
    """Scaled dot products with this kernel alone: an error where it cannot compute them."""
    kernels = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    return contextlib.nullcontext() if name == "default" else sdpa_kernel(kernels[name])


def step(model, loss_of, opt, batches, cast):
    """Forward and backward of every micro-batch, clipping of the gradients' norm, AdamW."""
    opt.zero_grad(set_to_none=True)
    total = 0
    for ids, targets in batches:
        with cast:
            loss = loss_of(ids, targets) / len(batches)
        loss.backward()
        total += loss.detach()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    opt.step()
    return total


def train(spec):
    device, m, s = spec["device"], spec["model"], spec["seq"]
    if CUDA and spec.get("memory_bytes"):
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, spec["memory_bytes"] / total))
    torch.manual_seed(1)
    with torch.device(device):
        model = GPT(m, s, spec.get("recompute", False))
        ids = torch.randint(m["vocab"], (spec["micro"], spec["batch"], s + 1))
    if spec["precision"] == "bf16":
        model.bfloat16()
    cast = contextlib.nullcontext()
    if spec["precision"] == "autocast":
        cast = torch.autocast(device, dtype=torch.bfloat16)
    opt = optimizer(model)
    # The moments are there before the longest step, as in any step but the first.
    step(model, model, opt, [(ids[0, :, :64], ids[0, :, 1:65])], cast)
    loss_of = torch.compile(model) if spec["mode"] == "compile" else model
    batches = [(i[:, :-1].contiguous(), i[:, 1:].contiguous()) for i in ids]

    losses, marks = [], []
    for i in range(spec["warmup"] + spec["steps"]):
        if i == spec["warmup"]:
            synchronize()
            marks.append(clock())
        losses.append(step(model, loss_of, opt, batches, cast))
        if i >= spec["warmup"]:
            marks.append(clock())
    synchronize()
    times = [between(*pair) for pair in zip(marks, marks[1:])]
    return {"status": "ok", "step_ms": statistics.median(times), "steps_ms": times,
            "parameters": sum(w.numel() for w in model.parameters()),
            "peak_bytes": torch.cuda.max_memory_allocated() if CUDA else None,
            "loss_first": float(losses[0]), "loss_last": float(losses[-1])}


def main():
    global CUDA
    spec = json.loads(sys.argv[1])
    CUDA = spec["device"] == "cuda"
    torch.set_num_threads(spec["threads"])
    try:
        if "gemm" in spec:
            result = gemm(spec)
        else:
            with attention_kernel(spec.get("sdpa", "default")):
                result = train(spec)
    except torch.OutOfMemoryError as e:
        result = {"status": "oom", "why": str(e).splitlines()[0]}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
