#!/usr/bin/env python3
"""Even against balanced layers, for a model whose head costs as much as several layers.

Both run in turns, in one process; of every round the median step after the first counts. For each
number of stages:

  step       median of the step times, and the ratio balanced / even
  bubble     measured: what stages are idle of the time from the first op to the last
  expected   bubble of a list simulation with the usual op times of a typical step, one core a stage

With more stages than cores the measured figures include waiting for a core: look at the line with
as many stages as cores, and at `expected`.

    bench/partition/partition.py [--starpipe build/starpipe] [--stages 2 4] [--rounds 3]
                                 [--layers 8] [--vocab 8192] [--seq 128]
"""
import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import tempfile

STEPS = 12


def model_directory(path, args):
    config = {"model_type": "llama", "num_hidden_layers": args.layers, "hidden_size": 64,
              "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 172,
              "vocab_size": args.vocab, "max_position_embeddings": args.seq,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
              "hidden_act": "silu"}
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)
    rng = random.Random(7)
    with open(os.path.join(path, "tokens.bin"), "wb") as f:
        for _ in range(100000):
            f.write(rng.randrange(args.vocab).to_bytes(2, "little"))


def run(args, path, stages, partition):
    log = os.path.join(path, "log.jsonl")
    out = subprocess.run(
        [args.starpipe, "train", "--report", "--model", path, "--tokens", path + "/tokens.bin", "--stages",
         str(stages), "--micro-batches", str(4 * stages), "--seq", str(args.seq), "--steps",
         str(STEPS), "--threads", "1", "--partition", partition, "--log", log],
        check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
    with open(log) as f:
        steps = [json.loads(line) for line in f if line.startswith('{"step"')][1:]
    return {
        "step": statistics.median(s["span_ms"] for s in steps),
        "bubble": statistics.median(statistics.mean(t["bubble_ratio"] for t in s["stages"])
                                    for s in steps) * 100,
        "expected": float(re.search(r"measured, ([0-9.]+) % expected", out).group(1)),
        "partition": (re.search(r"^partition ([0-9,]+)", out, re.M) or [0, ""])[1],
        "said": (re.search(r"^partition.*$", out, re.M) or [""])[0],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starpipe", default="build/starpipe")
    parser.add_argument("--stages", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--seq", type=int, default=128)
    args = parser.parse_args()
    path = tempfile.mkdtemp(prefix="starpipe-partition-")
    try:
        model_directory(path, args)
        print(f"llama, {args.layers} layers of 64, vocabulary {args.vocab}, sequences of "
              f"{args.seq}, {os.cpu_count()} cores, {args.rounds} rounds of {STEPS} steps")
        print("stages partition        step ms  ratio  bubble %  expected %")
        for stages in args.stages:
            taken = {"even": [], "balanced": []}
            for _ in range(args.rounds):
                for partition in taken:
                    taken[partition].append(run(args, path, stages, partition))
            even = statistics.median(r["step"] for r in taken["even"])
            for partition, runs in taken.items():
                m = {k: statistics.median(r[k] for r in runs)
                     for k in ("step", "bubble", "expected")}
                name = "even" if partition == "even" else runs[-1]["partition"]
                print(f"{stages:6} {name:15} {m['step']:8.1f} {m['step'] / even:6.3f} "
                      f"{m['bubble']:9.1f} {m['expected']:11.1f}")
            print("       " + taken["balanced"][-1]["said"])
    finally:
        shutil.rmtree(path)


if __name__ == "__main__":
    main()
