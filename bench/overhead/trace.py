#!/usr/bin/env python3
"""What --log and --trace cost: steps with neither and with both, in turns.

usage: trace.py [--starpipe build/starpipe] [--rounds 7] [--steps 40] [--limit 2] [OPTION ...]
(OPTIONs go to train.) Prints the median step of each round, of the last 31 steps, and the medians of all rounds;
the exit status is 1 where both cost more than `limit` percent.
"""
import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--starpipe", default="build/starpipe")
parser.add_argument("--rounds", type=int, default=7)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--limit", type=float, default=2)
args, options = parser.parse_known_args()

with tempfile.TemporaryDirectory() as scratch:
    text = Path(scratch, "text")
    text.write_text("what a step costs is what it costs without being looked at\n" * 400)

    def step(number, *more):
        """The shortest of the steps that the median is of, and the median, in ms."""
        command = [args.starpipe, "train", "--report", "--model", "gpt-tiny", "--data", text, "--stages", "2",
                   "--micro-batches", "8", "--steps", str(args.steps), *options, *more]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = re.search(r"typical of the last \d+ \(([0-9.]+) ms; ([0-9.]+) to", out)
        return float(found[1]), float(found[2])

    plain, traced = [], []
    for k in range(args.rounds):
        pair = [lambda: plain.append(step(k)),
                lambda: traced.append(step(k, "--log", f"{scratch}/log{k}", "--trace", f"{scratch}/trace{k}"))]
        for run in pair if k % 2 else reversed(pair):
            run()
        print(f"round {k}: median {plain[-1][0]:.2f} ms, {traced[-1][0]:.2f} with --log --trace; "
              f"shortest {plain[-1][1]:.2f}, {traced[-1][1]:.2f}", flush=True)

median = [statistics.median(x[0] for x in runs) for runs in (plain, traced)]
least = [statistics.median(x[1] for x in runs) for runs in (plain, traced)]
cost = 100 * (median[1] / median[0] - 1)
print(f"median {median[0]:.2f} ms, {median[1]:.2f} with both: {cost:+.2f} %; "
      f"shortest {100 * (least[1] / least[0] - 1):+.2f} %")
sys.exit(cost > args.limit)
