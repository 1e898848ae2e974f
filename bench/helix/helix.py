#!/usr/bin/env python3
"""HelixPipe beside 1F1B and ZB1P where attention dominates: long sequences, a narrow model; in slices, and on disk.

All run in turns, stages in one process, one thread a stage, with the same recomputation; of every
round the median step after the first counts. For each recomputation and schedule:

  step       median over the rounds, and the ratio to helix of the same rounds
  bubble     measured: what stages are idle of the time from the first op to the last
  expected   bubble of a list simulation with the usual op times of a typical step
  floor      step over what all ops together take, divided by the stages: 1 is no bubble at all
  peak       most activations of the fullest stage, MiB

    bench/helix/helix.py [--starpipe build/starpipe] [--stages 2] [--micro-batches 4] [--layers 4]
                         [--seq 4096] [--hidden 128] [--rounds 5] [--recompute no-attention none]
"""
import argparse
import json
import os
import re
import random
import shutil
import statistics
import subprocess
import tempfile

STEPS = 3
SCHEDULES = ["helix", "helix --slices 4", "helix --offload full", "1f1b", "zb1p"]


def model_directory(path, args):
    config = {"model_type": "gpt2", "n_layer": args.layers, "n_embd": args.hidden,
              "n_head": max(1, args.hidden // 64), "vocab_size": 256, "n_positions": args.seq,
              "n_inner": 4 * args.hidden, "layer_norm_epsilon": 1e-5,
              "activation_function": "gelu_new", "tie_word_embeddings": True}
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)
    rng = random.Random(7)
    with open(os.path.join(path, "text"), "wb") as f:
        f.write(bytes(rng.randrange(256) for _ in range(8 * args.seq)))


def run(args, path, schedule, recompute):
    log = os.path.join(path, "log.jsonl")
    out = subprocess.run(
        [args.starpipe, "train", "--report", "--model", path, "--data", path + "/text", "--schedule", *schedule.split(),
         "--recompute", recompute, "--stages", str(args.stages), "--micro-batches",
         str(args.micro_batches), "--seq", str(args.seq), "--steps", str(STEPS), "--threads", "1",
         "--log", log], check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
    with open(log) as f:
        steps = [json.loads(line) for line in f if line.startswith('{"step"')][1:]
    os.remove(log)
    return {
        "step": statistics.median(s["span_ms"] for s in steps),
        "bubble": 100 * statistics.median(
            statistics.mean(t["bubble_ratio"] for t in s["stages"]) for s in steps),
        "expected": float(re.search(r"measured, ([0-9.]+) % expected", out).group(1)),
        "floor": statistics.median(
            s["span_ms"] * args.stages / sum(t["busy_ms"] for t in s["stages"]) for s in steps),
        "peak": max(t["peak_activation_bytes"] for t in steps[-1]["stages"]) / 2**20,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starpipe", default="build/starpipe")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--seq", type=int, default=4096)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--recompute", nargs="+", default=["no-attention", "none"])
    args = parser.parse_args()
    path = tempfile.mkdtemp(prefix="starpipe-helix-")
    try:
        model_directory(path, args)
        print(f"gpt2 style, {args.layers} layers of {args.hidden}, sequences of {args.seq}, "
              f"{args.stages} stages, {args.micro_batches} micro-batches, {os.cpu_count()} cores, "
              f"{args.rounds} rounds of {STEPS} steps")
        print("recompute     schedule               step ms  ratio  bubble %  expected %  floor  peak MiB")
        for recompute in args.recompute:
            rounds = []
            for i in range(args.rounds):
                order = SCHEDULES[i % len(SCHEDULES):] + SCHEDULES[:i % len(SCHEDULES)]
                taken = {s: run(args, path, s, recompute) for s in order}
                rounds.append(taken)
            for s in SCHEDULES:
                m = {k: statistics.median(r[s][k] for r in rounds)
                     for k in ("step", "bubble", "expected", "floor", "peak")}
                ratio = statistics.median(r[s]["step"] / r["helix"]["step"] for r in rounds)
                print(f"{recompute:13} {s:20} {m['step']:9.1f} {ratio:6.3f} {m['bubble']:9.1f} "
                      f"{m['expected']:11.1f} {m['floor']:6.3f} {m['peak']:9.2f}")
    finally:
        shutil.rmtree(path)


if __name__ == "__main__":
    main()
