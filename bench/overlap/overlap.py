#!/usr/bin/env python3
"""Forwards and backwards that overlap in a tensor-parallel or context-parallel group over a slow network.

Two members of one stage, each in a network namespace with a core of its own whose ops take longer, as an accelerator
behind a slow link has it. One order of forwards and backwards runs in pairs that overlap, and one op after the other; both
without a limit of the network and within one:

  apart      step whose ops follow each other, best over the rounds, ms
  pairs      step whose ops overlap
  exchange   what the network adds to `apart`: exchanges that nothing hides
  hidden     the part of it that pairs hide, and of the exchanges of the shorter op of each pair, the forward

Needs root, iproute2 and Open MPI; `make bench` before. Namespaces are removed at the end.

    bench/overlap/overlap.py [--starpipe build/starpipe] [--rates 200 400] [--rounds 3] [--slow 3]
                             [--group "--tensor-parallel 2"] [--micro-batches 5]
"""
import argparse
import json
import os
import random
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from namespaces import Cluster  # noqa: E402

STEPS = 3
LAYERS = 4

# Of ten tensors of rows that a layer sends, four are its forward's; with heads or keys exchanged, about a third.
FORWARD = {"tensor": 4 / 10, "context": 1 / 3}


def order(pairs, m):
    ops = ["0F0"]
    for k in range(1, m):
        ops.append(f"(0F{k};0B{k - 1})OVERLAP_F_B" if pairs else f"0F{k},0B{k - 1}")
    return ",".join(ops + [f"0B{m - 1}"]) + "\n"


def prepare(path, args):
    config = {"model_type": "gpt2", "n_layer": LAYERS, "n_embd": 256, "n_head": 8, "vocab_size": 256,
              "n_positions": 1024, "tie_word_embeddings": True}
    with open(path + "/config.json", "w") as f:
        json.dump(config, f)
    rng = random.Random(7)
    with open(path + "/text", "wb") as f:
        f.write(bytes(rng.randrange(256) for _ in range(200003)))
    for name in ("pairs", "apart"):
        with open(f"{path}/{name}.csv", "w") as f:
            f.write(order(name == "pairs", args.micro_batches))


def run(cluster, args, path, name):
    log = path + "/log.jsonl"
    if os.path.exists(log):
        os.remove(log)
    cluster.mpirun([os.path.abspath(args.starpipe), "train", "--model", path, "--data", path + "/text", "--schedule",
                    f"csv:{path}/{name}.csv", "--seq", "1024", "--steps", str(STEPS), "--threads", "1", "--log", log,
                    *args.group.split()])
    with open(log) as f:
        steps = [json.loads(line) for line in f if line.startswith('{"step"')]
    return min(s["span_ms"] for s in steps[1:]), steps[-1]["loss"]


def measure(cluster, args, path):
    kind = "tensor" if "tensor" in args.group else "context"
    free = {}
    print("Mbit/s   apart ms   pairs ms   exchange ms   hidden   of the forward's   loss")
    for rate in (0, *args.rates):
        cluster.throttle(rate)
        best = {}
        for _ in range(args.rounds):
            for name in ("apart", "pairs"):
                taken, loss = run(cluster, args, path, name)
                best[name] = min(taken, best.get(name, (taken,))[0]), loss
        (apart, loss), (pairs, other) = best["apart"], best["pairs"]
        free = free or best
        exchange = apart - free["apart"][0]
        hidden = exchange - (pairs - free["pairs"][0])
        figures = f"{exchange:13.0f} {hidden / exchange:8.2f} {hidden / exchange / FORWARD[kind]:18.2f}" if rate else " " * 41
        print(f"{rate or '-':>6} {apart:10.0f} {pairs:10.0f} {figures}   {loss:.6f} {other:.6f}")
        sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starpipe", default="build/starpipe")
    parser.add_argument("--rates", type=int, nargs="+", default=[200, 400])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slow", type=float, default=3)
    parser.add_argument("--micro-batches", type=int, default=5)
    parser.add_argument("--group", default="--tensor-parallel 2")
    args = parser.parse_args()
    path = tempfile.mkdtemp(prefix="starpipe-overlap-")
    try:
        prepare(path, args)
        print(f"gpt2 style, {LAYERS} layers of 256, {args.micro_batches} sequences of 1024, one stage of two members "
              f"({args.group}), ops {args.slow:g} times slower")
        with Cluster(2, slow=args.slow) as cluster:
            measure(cluster, args, path)
    finally:
        shutil.rmtree(path)


if __name__ == "__main__":
    main()
