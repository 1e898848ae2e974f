#!/usr/bin/env python3
"""Draws layouts of training runs, every family with groups, slices, recomputation, offload and processes.

usage: layouts.py STARPIPE [--layouts 640] [--seed 1]

Prints a line each: processes, then the options of `starpipe train` that differ from those of digests.sh. What train refuses is
drawn again; every schedule has as many as every other, but for adapipe, which chooses by times that it measures.
"""
import argparse
import random
import subprocess

SCHEDULES = ("naive gpipe 1f1b pipedream interleaved bfs zb1p zb2p zb1p:auto zbv v-half v-min 1f1b-v dualpipe dualpipev chimera "
             "hanayo seq1f1b slimpipe slimpipe:exchange=off terapipe helix helix:fold=1 helix:bounded "
             "helix:ship=attention weipipe weipipe:flow=line weipipe-naive wzb1 wzb2 tawpipe fsdp sppo sppo:multiplex").split()

# Groups that share heads, and a ring of them: not drawn.
HYBRID = "--context-parallel 4 --context-method ulysses=2,ring"
HYBRIDS = (f"4 --schedule 1f1b --stages 1 --model llama-tiny --micro-batches 4 --seq 32 {HYBRID}",
           f"8 --schedule zbv --stages 2 --model gpt-tiny --micro-batches 4 --seq 32 --recompute full {HYBRID}",
           f"8 --schedule helix --stages 2 --model llama-tiny --micro-batches 4 --seq 32 --slices 2 {HYBRID}",
           f"8 --schedule sppo --stages 2 --model llama-tiny --micro-batches 4 --seq 32 --slices 2 --dtype bf16 {HYBRID}",
           f"8 --schedule 1f1b --stages 1 --model llama-tiny --micro-batches 4 --seq 32 --tensor-parallel 2 {HYBRID} --zero 1",
           "8 --schedule zb1p --stages 1 --model llama-tiny --micro-batches 4 --seq 32 --context-parallel 8 "
           "--context-method ulysses,ring")


def draw(d, schedule):
    stages = d.choice([2, 2, 4])
    tensor, context, data = d.choice([(1, 1, 1)] * 5 + [(2, 1, 1), (4, 1, 1), (1, 2, 1), (1, 1, 2), (2, 1, 2), (2, 2, 1)])
    groups = tensor * context * data
    options = ["--schedule", schedule, "--stages", stages, "--model", d.choice(["gpt-tiny", "llama-tiny"]),
               "--micro-batches", d.choice([4, 8]), "--seq", d.choice([24, 32])]

    def maybe(part, *words):
        if d.random() < part:
            options.extend(words)

    maybe(0.2, "--micro-batch-size", 2)
    maybe(0.5, "--recompute", d.choice(["selective", "no-attention", "full", "every=2", "none"]))
    maybe(0.25, "--dtype", "bf16")
    maybe(0.15, "--vocabulary-parallel")
    maybe(0.2, "--partition", d.choice({2: ["5,3", "3,5", "6,2"], 4: ["3,2,2,1", "1,3,3,1", "2,2,1,3"]}[stages]))
    maybe(0.15, "--mlp-chunk", 8)
    maybe(0.15, "--logit-rows", 8)
    maybe(0.15, "--offload", "full")
    maybe(0.1, "--clip", 0)
    if any(schedule.startswith(s) for s in ("seq1f1b", "slimpipe", "terapipe", "sppo", "helix")):
        maybe(0.8, "--slices", d.choice([2, 3, 4]))
    for name, n in (("tensor", tensor), ("context", context), ("data", data)):
        if n > 1:
            options.extend([f"--{name}-parallel", n])
    if context > 1:
        maybe(0.5, "--context-method", "ring")
    if groups > 1:
        maybe(0.5, "--zero", 1)
    processes = groups * d.choice([1, stages]) if groups == 1 or d.random() < 0.5 else groups * stages
    return processes, " ".join(map(str, options))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("starpipe")
    p.add_argument("--layouts", type=int, default=640)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    d = random.Random(a.seed)
    each = -(-a.layouts // len(SCHEDULES))
    for schedule in SCHEDULES:
        drawn = set()
        for _ in range(100 * each):
            processes, options = draw(d, schedule)
            command = [a.starpipe, "train", "--dry-run", "--data", a.starpipe, "--threads", "1", *options.split()]
            if processes > 8 or (processes, options) in drawn or subprocess.run(command, capture_output=True).returncode:
                continue
            drawn.add((processes, options))
            print(processes, options, flush=True)
            if len(drawn) == each:
                break
    for line in HYBRIDS:
        print(line, flush=True)


if __name__ == "__main__":
    main()
