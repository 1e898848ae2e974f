#!/usr/bin/env python3
"""Equal lengths of slices beside equal times: step and bubble of schedules that cut sequences.

Two stages in one process, a core each; a long sequence and a narrow model, so that attention, which
grows along the sequence, has most of the time. In turns. For each schedule and way to cut:

  tokens   of the slices
  step     median of the step times after the first, over the rounds, ms; and the ratio to equal lengths
  bubble   mean of the stages, measured, %; and what the list simulation expects of the same op times

    bench/slices/slices.py [--starpipe build/starpipe] [--slices 4] [--micro-batches 1] [--rounds 3]
                           [--layers 4] [--hidden 64] [--seq 8192] [--schedules sppo seq1f1b terapipe]
"""
import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

STEPS = 4


def model_directory(path, args):
    config = {"model_type": "gpt2", "n_layer": args.layers, "n_embd": args.hidden,
              "n_head": max(1, args.hidden // 64), "vocab_size": 256, "n_positions": args.seq,
              "n_inner": 4 * args.hidden, "layer_norm_epsilon": 1e-5,
              "activation_function": "gelu_new", "tie_word_embeddings": True}
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)
    rng = random.Random(7)
    with open(os.path.join(path, "text"), "wb") as f:
        f.write(bytes(rng.randrange(256) for _ in range(200003)))


def starpipe(args, path, schedule, cut, *options):
    done = subprocess.run(
        [args.starpipe, "train", "--report", "--model", path, "--data", path + "/text", "--schedule", schedule,
         "--stages", "2", "--threads", "1", "--micro-batches", str(args.micro_batches), "--slices",
         str(args.slices), "--partition-slices", cut, "--seq", str(args.seq), "--steps",
         str(STEPS), *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        timeout=900, env=dict(os.environ, STARPU_HOME=path))
    if done.returncode:
        sys.exit(f"{schedule}: {done.stderr[-400:]}")
    return done.stdout


def run(args, path, schedule, cut):
    log = os.path.join(path, "log.jsonl")
    out = starpipe(args, path, schedule, cut, "--log", log)
    with open(log) as f:
        steps = [json.loads(line) for line in f if line.startswith('{"step"')][1:]
    os.remove(log)
    expected = re.search(r"measured, ([0-9.]+) % expected", out)
    return (statistics.median(s["span_ms"] for s in steps),
            100 * statistics.mean(st["bubble_ratio"] for st in steps[-1]["stages"]),
            float(expected.group(1)) if expected else float("nan"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starpipe", default="build/starpipe")
    parser.add_argument("--slices", type=int, default=4)
    parser.add_argument("--micro-batches", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--seq", type=int, default=8192)
    parser.add_argument("--schedules", nargs="+", default=["sppo", "seq1f1b", "terapipe"])
    args = parser.parse_args()
    path = tempfile.mkdtemp(prefix="starpipe-slices-")
    try:
        model_directory(path, args)
        print(f"gpt2 style, {args.layers} layers of {args.hidden}, {args.micro_batches} x "
              f"{args.seq} tokens in {args.slices} slices, 2 stages in a process, "
              f"{args.rounds} rounds")
        print("schedule  cut     step ms  ratio  bubble %  expected %  tokens")
        for schedule in args.schedules:
            cuts = ["length", "dp" if schedule == "terapipe" else "flops"]
            taken = {c: [] for c in cuts}
            for _ in range(args.rounds):
                for c in cuts:
                    taken[c].append(run(args, path, schedule, c))
            for c in cuts:
                tokens = re.search(r"slices of (.*) tokens",
                                   starpipe(args, path, schedule, c, "--dry-run")).group(1)
                step, bubble, expected = (statistics.median(t[i] for t in taken[c])
                                          for i in range(3))
                first = statistics.median(t[0] for t in taken[cuts[0]])
                print(f"{schedule:9} {c:7} {step:7.0f} {step / first:6.2f} {bubble:9.1f} "
                      f"{expected:11.1f}  {tokens}")
    finally:
        shutil.rmtree(path)


if __name__ == "__main__":
    main()
