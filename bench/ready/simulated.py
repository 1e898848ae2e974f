#!/usr/bin/env python3
"""Strict against ready, simulated: `starpipe show --scheduler ready --vary ...` for every schedule that it takes.

Prints Markdown tables, one for each number of stages: makespan of strict over makespan of ready at the same times of
ops, the mean over seeds, and the smallest in brackets. A backward takes two forwards, a message 5 % of one; 4 layers a
stage, 4 micro-batches a stage.

    bench/ready/simulated.py [SCHEDULE ...] [--starpipe build/starpipe] [--stages 8 64] [--seeds 1 2 3 4] [--vary ...]
"""
import argparse
import concurrent.futures
import os
import re
import statistics
import subprocess
import sys

SCHEDULES = ["gpipe", "1f1b", "pipedream", "interleaved", "bfs", "zb1p", "zb2p", "zbv", "v-half", "v-min", "1f1b-v",
             "dualpipe", "dualpipev", "chimera", "hanayo", "adapipe", "seq1f1b", "terapipe", "sppo", "helix"]
VARIED = ["as planned", "uniform=0.1", "uniform=0.3", "uniform=0.5", "lognormal=0.1", "lognormal=0.3", "lognormal=0.5",
          "stage=1x1.5", "link=1x20"]
LAYERS = 4  # of a stage
SLICED = ["seq1f1b", "terapipe", "sppo"]
PARTS = ["helix"]
SAYS = re.compile(r"strict takes \S+ ([0-9.]+) times as long")


def show(a, schedule, stages, vary, seed):
    """Strict over ready."""
    cost = (f"pre=1,attn=3,post=2,backward=2,comm={0.05 * 6 * LAYERS}" if schedule in PARTS else "f=1,b=1,w=1,comm=0.05")
    drawn = vary.startswith(("uniform", "lognormal"))
    command = [a.starpipe, "show", "--schedule", schedule, "--stages", str(stages), "--micro-batches", str(4 * stages),
               "--layers", str(LAYERS * stages), "--cost", cost, "--scheduler", "ready",
               *(["--slices", "4"] if schedule in SLICED else [])]
    if vary != "as planned":
        command += ["--vary", f"{vary},seed={seed}" if drawn else vary]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return float(SAYS.search(done.stdout)[1])


def cell(a, schedule, stages, vary, pool):
    seeds = a.seeds if vary.startswith(("uniform", "lognormal")) else a.seeds[:1]
    gains = list(pool.map(lambda seed: show(a, schedule, stages, vary, seed), seeds))
    return gains, f"{statistics.mean(gains):.3f}" + (f" ({min(gains):.3f})" if len(gains) > 1 else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starpipe", default="build/starpipe")
    parser.add_argument("--stages", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--vary", nargs="+", default=VARIED)
    parser.add_argument("schedules", nargs="*", default=SCHEDULES)
    a = parser.parse_args()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for stages in a.stages:
            worst = {vary: [] for vary in a.vary}
            print(f"{stages} stages, {4 * stages} micro-batches, {LAYERS} layers a stage, seeds "
                  f"{', '.join(map(str, a.seeds))}; strict over ready, mean (least)\n")
            print("| schedule |", " | ".join(a.vary), "|\n|---|" + "---|" * len(a.vary))
            for schedule in a.schedules:
                cells = []
                for vary in a.vary:
                    gains, text = cell(a, schedule, stages, vary, pool)
                    worst[vary].append(statistics.mean(gains))
                    cells.append(text)
                print(f"| {schedule} |", " | ".join(cells), "|", flush=True)
            print("| least, most mean |", " | ".join(f"{min(w):.3f}, {max(w):.3f}" for w in worst.values()), "|\n")


if __name__ == "__main__":
    main()
