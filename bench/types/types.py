#!/usr/bin/env python3
"""The losses of a model trained in f32, in bf16 and in fp8, beside each other.

    bench/types/types.py --starpipe build/starpipe --data book.txt [--model gpt-tiny] [--steps 200] [OPTION ...]

Every run has the same data, weights and options; further ones go to `starpipe train`. A line for every
tenth of the steps has the mean losses of that tenth; the last line has the largest difference of a
step's loss from bf16's, and that of the mean of all steps.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

TYPES = ("f32", "bf16", "fp8")


def losses(args, more, dtype, directory):
    log = os.path.join(directory, dtype + ".jsonl")
    command = [args.starpipe, "train", "--model", args.model, "--data", args.data, "--dtype", dtype]
    command += ["--steps", str(args.steps), "--log", log] + more
    run = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if run.returncode:
        sys.exit(f"{dtype}: {run.stderr.strip()}")
    with open(log) as f:
        steps = [json.loads(line) for line in f]
    return [s["loss"] for s in steps if "loss" in s and "step" in s]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starpipe", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", default="gpt-tiny")
    parser.add_argument("--steps", type=int, default=200)
    args, more = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as directory:
        curves = [losses(args, more, dtype, directory) for dtype in TYPES]
    print("steps     " + "".join(f"{t:>10}" for t in TYPES))
    tenth = max(args.steps // 10, 1)
    for at in range(0, args.steps, tenth):
        parts = [c[at : at + tenth] for c in curves]
        print(f"{at + 1:4}-{at + len(parts[0]):<5}" + "".join(f"{sum(p) / len(p):10.4f}" for p in parts))
    bf16 = curves[1]
    for dtype, curve in zip(TYPES, curves):
        worst = max(abs(a / b - 1) for a, b in zip(curve, bf16))
        mean = sum(curve) / sum(bf16) - 1
        print(f"{dtype}: a loss differs by at most {100 * worst:.2f} % from bf16's, the mean by {100 * mean:+.3f} %")


if __name__ == "__main__":
    main()
