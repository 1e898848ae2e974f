#!/usr/bin/env python3
"""What WeiPipe's hand-over saves: steps of wzb2 with a barrier between them and without one.

Two workers in one process, a core each, so that no network counts; few rounds a step, where a barrier
costs most: P-1 turns of 3GP. In turns, without clipping (which would undo steps). For each number of
micro-batches, medians over the steps after the second:

  step     ms, and the ratio to that with a barrier
  bubble   mean of the workers, measured, %

    bench/weipipe/handover.py [--starpipe build/starpipe] [--micro-batches 2 4 8] [--rounds 3]
                              [--layers 4] [--hidden 128] [--seq 512] [--micro-batch-size 4]
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

RUNS = [("wzb2", []), ("wzb2", ["--post-validation"]), ("zb2p", ["--post-validation"])]


def model_directory(path, args):
    config = {"model_type": "gpt2", "n_layer": args.layers, "n_embd": args.hidden, "n_head": 4,
              "vocab_size": 256, "n_positions": args.seq, "n_inner": 4 * args.hidden,
              "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
              "tie_word_embeddings": True}
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)
    rng = random.Random(7)
    with open(os.path.join(path, "text"), "wb") as f:
        f.write(bytes(rng.randrange(256) for _ in range(200003)))


def run(args, path, m, schedule, options):
    log = os.path.join(path, "log.jsonl")
    done = subprocess.run(
        [args.starpipe, "train", "--model", path, "--data", path + "/text", "--schedule", schedule,
         "--stages", "2", "--threads", "1", "--micro-batches", str(m), "--micro-batch-size",
         str(args.micro_batch_size), "--seq", str(args.seq), "--steps", "10", "--clip", "0", "--lr",
         "1e-4", "--log", log, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, timeout=600, env=dict(os.environ, STARPU_HOME=path))
    if done.returncode:
        sys.exit(f"{schedule}: {done.stderr[-400:]}")
    with open(log) as f:
        steps = [json.loads(line) for line in f if line.startswith('{"step"')][2:-1]
    os.remove(log)
    bubble = [statistics.mean(st["bubble_ratio"] for st in s["stages"]) for s in steps]
    return statistics.median(s["step_ms"] for s in steps), 100 * statistics.median(bubble)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starpipe", default="build/starpipe")
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--micro-batch-size", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--seq", type=int, default=512)
    args = parser.parse_args()
    path = tempfile.mkdtemp(prefix="starpipe-handover-")
    try:
        model_directory(path, args)
        print(f"gpt2 style, {args.layers} layers of {args.hidden}, micro-batches of "
              f"{args.micro_batch_size} x {args.seq}, 2 workers in a process, {args.rounds} rounds")
        print("   m  schedule                   step ms  ratio  bubble %")
        for m in args.micro_batches:
            taken = {i: [] for i in range(len(RUNS))}
            for _ in range(args.rounds):
                for i, (schedule, options) in enumerate(RUNS):
                    taken[i].append(run(args, path, m, schedule, options))
            steps = {i: statistics.median(s for s, _ in taken[i]) for i in taken}
            for i, (schedule, options) in enumerate(RUNS):
                print(f"{m:4}  {' '.join([schedule] + options):25} {steps[i]:8.1f} "
                      f"{steps[i] / steps[0]:6.2f} {statistics.median(b for _, b in taken[i]):9.1f}")
    finally:
        shutil.rmtree(path)


if __name__ == "__main__":
    main()
