#!/usr/bin/env python3
"""Bubble measured beside bubble expected, for every layer-wise schedule, in one process.

Trains a small GPT on two stages, a core each, with ops of at least 2 ms, and compares the bubble of
the step with what the list simulation says of the same order with the op times of that step.
Schedules take turns, and the step with the median difference counts.

    bench/bubble/bubble.py [--starpipe build/starpipe] [--rounds 3] [--stages 2] [SCHEDULE ...]
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile

LINE = re.compile(r"typical of .*\(([\d.]+) ms;.* bubble ([\d.]+) % measured")
# what the replay of the measured op times does not explain, in points
REST = re.compile(r"^\+ rest +\S+ +([-+][\d.]+)$", re.M)
SLICED = {"seq1f1b": 2, "slimpipe": 4, "terapipe": 2, "sppo": 4}
MODEL = {"model_type": "gpt2", "n_layer": 8, "n_embd": 256, "n_head": 4, "vocab_size": 256,
         "n_positions": 512, "n_inner": None, "layer_norm_epsilon": 1e-5,
         "activation_function": "gelu_new"}


def run(starpipe, model, data, schedule, stages):
    name = schedule.split(":")[0]
    command = [starpipe, "train", "--report", "--model", model, "--data", data, "--schedule", schedule,
               "--stages", str(stages), "--micro-batches", "8", "--seq", "512", "--steps", "6",
               "--slices", str(SLICED.get(name, 1)), "--log", os.path.join(model, "log.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True)
    found, rest = LINE.search(done.stdout), REST.search(done.stdout)
    if done.returncode or not found or not rest:
        return None, done.stderr.strip().splitlines()[-1:] or ["no summary"]
    step, measured = (float(x) for x in found.groups())
    return (step, measured, round(measured - float(rest.group(1)), 1)), None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--starpipe", default="build/starpipe")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("schedules", nargs="*")
    args = parser.parse_args()
    names = args.schedules or [s["name"] for s in json.loads(subprocess.run(
        [args.starpipe, "list", "--json"], capture_output=True, text=True, check=True).stdout)]

    with tempfile.TemporaryDirectory() as root:
        model, data = os.path.join(root, "model"), os.path.join(root, "data")
        os.makedirs(model)
        with open(os.path.join(model, "config.json"), "w") as f:
            json.dump(MODEL, f)
        with open(data, "wb") as f:
            f.write(bytes((i * 7919 + i // 13) % 251 for i in range(100003)))
        results = {name: [] for name in names}
        for _ in range(args.rounds):
            for name in names:
                figures, refusal = run(args.starpipe, model, data, name, args.stages)
                if refusal:
                    results[name] = refusal
                elif isinstance(results[name], list):
                    results[name].append(figures)
    print(f"{'schedule':<12} {'step ms':>8} {'measured %':>11} {'expected %':>11} {'points':>7}")
    for name, rows in results.items():
        if not rows or isinstance(rows[0], str):
            print(f"{name:<12} {rows[0] if rows else ''}")
            continue
        middle = statistics.median_low([m - e for _, m, e in rows])
        step, measured, expected = next(r for r in rows if r[1] - r[2] == middle)
        print(f"{name:<12} {step:8.1f} {measured:11.1f} {expected:11.1f} {middle:+7.1f}")


if __name__ == "__main__":
    main()
