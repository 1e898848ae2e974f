#!/usr/bin/env python3
"""WeiPipe beside 1F1B and FSDP over a network of a given rate, and over one that is not the limit.

Makes a network namespace for every worker, joins them by a bridge, lets `tc` limit what each sends,
and runs the schedules in turns under mpirun over TCP, a process and a core a worker. Long sequences, a
narrow model: 1F1B sends 2bsh numbers of a micro-batch over each link, the others weights and gradients.
For each rate (Mbit/s, 0: not limited):

  step     median of the step times after the first, over the rounds, ms; and the ratio to 1f1b
  sent     MB that the busiest worker sends in a step
  wire     what that takes at the rate, ms
  busy     what the ops of the busiest worker take, ms

Needs root, iproute2 and Open MPI. Namespaces and addresses are removed at the end.

    bench/weipipe/weipipe.py [--starpipe build/starpipe] [--workers 2] [--micro-batches 8]
                             [--rates 50 100 400 0] [--rounds 3] [--layers 4] [--hidden 32]
                             [--seq 256] [--micro-batch-size 64] [--schedules 1f1b weipipe ...]
"""
import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from namespaces import Cluster  # noqa: E402

STEPS = 4


def model_directory(path, args):
    config = {"model_type": "gpt2", "n_layer": args.layers, "n_embd": args.hidden,
              "n_head": max(1, args.hidden // 32), "vocab_size": 256, "n_positions": args.seq,
              "n_inner": 4 * args.hidden, "layer_norm_epsilon": 1e-5,
              "activation_function": "gelu_new", "tie_word_embeddings": True}
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)
    rng = random.Random(7)
    with open(os.path.join(path, "text"), "wb") as f:
        f.write(bytes(rng.randrange(256) for _ in range(200003)))


def run(cluster, args, path, schedule):
    log = os.path.join(path, "log.jsonl")
    if os.path.exists(log):
        os.remove(log)
    cluster.mpirun([os.path.abspath(args.starpipe), "train", "--model", path, "--data", path + "/text",
                    "--schedule", schedule, "--stages", str(args.workers), "--micro-batches",
                    str(args.micro_batches), "--micro-batch-size", str(args.micro_batch_size), "--seq",
                    str(args.seq), "--steps", str(STEPS), "--threads", "1", "--log", log])
    with open(log) as f:
        steps = [json.loads(line) for line in f if line.startswith('{"step"')][1:]
    return {"step": statistics.median(s["span_ms"] for s in steps),
            "sent": max(s["bytes_sent"] for s in steps[-1]["stages"]) / 1e6,
            "busy": max(s["busy_ms"] for s in steps[-1]["stages"])}


def measure(cluster, args, path):
    print("Mbit/s schedule         step ms  ratio  sent MB  wire ms  busy ms")
    for rate in args.rates:
        cluster.throttle(rate)
        taken = {s: [] for s in args.schedules}
        for _ in range(args.rounds):
            for s in args.schedules:
                taken[s].append(run(cluster, args, path, s))
        first = statistics.median(r["step"] for r in taken[args.schedules[0]])
        for s in args.schedules:
            m = {k: statistics.median(r[k] for r in taken[s]) for k in taken[s][0]}
            wire = f"{8e3 * m['sent'] / rate:8.0f}" if rate else "       -"
            print(f"{rate or '-':>6} {s:14} {m['step']:9.0f} {m['step'] / first:6.2f} "
                  f"{m['sent']:8.2f} {wire} {m['busy']:8.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starpipe", default="build/starpipe")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--micro-batch-size", type=int, default=64)
    parser.add_argument("--rates", type=int, nargs="+", default=[50, 100, 400, 0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--schedules", nargs="+", default=["1f1b", "weipipe", "wzb2", "fsdp"])
    args = parser.parse_args()
    path = tempfile.mkdtemp(prefix="starpipe-weipipe-")
    try:
        model_directory(path, args)
        print(f"gpt2 style, {args.layers} layers of {args.hidden}, micro-batches of "
              f"{args.micro_batch_size} x {args.seq}, {args.micro_batches} of them, "
              f"{args.workers} workers over TCP, {os.cpu_count()} cores, {args.rounds} rounds")
        with Cluster(args.workers) as cluster:
            measure(cluster, args, path)
    finally:
        shutil.rmtree(path)


if __name__ == "__main__":
    main()
