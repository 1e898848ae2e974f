#!/usr/bin/env python3
"""What the levels of --zero cost and save: two pipelines, in turns.

A wide model whose parameters outweigh its activations; every level trains the same samples, so that losses must agree.
Without --schedule: 1f1b in one stage, and helix, whose ops gather parts of layers, in two.
    step       best step after the first of a run over the rounds, ms; ratio to --zero 0
    sent       what the first process sends in a step, MiB
    resident   of the largest process (VmHWM), MiB; planned: parameters, optimizer, activations and workspace

    bench/zero/zero.py [--starpipe build/starpipe] [--rounds 3] [--schedule NAME] [--stages 1]
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

CONFIG = {"model_type": "gpt2", "n_layer": 8, "n_head": 8, "n_embd": 512, "n_positions": 256, "vocab_size": 256}
MIB = 1 << 20


def options(args, level):
    return ["train", "--model", args.model, "--seq", "256", "--schedule", args.schedule, "--stages", str(args.stages),
            "--micro-batches", "4", "--data-parallel", "2", "--zero", str(level), "--steps", "4"]


def run(args, level):
    log = os.path.join(args.path, "log.jsonl")
    if os.path.exists(log):
        os.remove(log)
    command = [args.starpipe, *options(args, level), "--data", args.text, "--log", log]
    process = subprocess.run(["mpirun", "-np", str(2 * args.stages), "--oversubscribe", "--allow-run-as-root",
                              "sh", "-c", 'exec /usr/bin/time -f %M -o "$0.$$" "$@"', args.path + "/resident", *command],
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if process.returncode:
        sys.exit(f"--zero {level}: {process.stdout[-400:]}")
    files = glob.glob(args.path + "/resident.*")
    resident = max(int(open(name).read()) for name in files)
    for name in files:
        os.remove(name)
    steps = [json.loads(line) for line in open(log) if '"loss"' in line]
    return min(s["step_ms"] for s in steps[1:]), steps[-1], resident / 1024


def planned(args, level):
    dry = json.loads(subprocess.check_output([args.starpipe, *options(args, level), "--dry-run", "--json"]))
    return max(sum(s[k] for k in ("parameters_bytes", "optimizer_bytes", "activations_bytes", "workspace_bytes"))
               for s in dry["stages"]) / MIB


def compare(args):
    best = {}
    with tempfile.TemporaryDirectory() as args.path:
        args.model = os.path.join(args.path, "wide")
        args.text = os.path.join(args.path, "text")
        os.makedirs(args.model)
        json.dump(CONFIG, open(os.path.join(args.model, "config.json"), "w"))
        open(args.text, "wb").write(bytes((i * i // 7 + i) % 251 for i in range(1 << 16)))
        for _ in range(args.rounds):
            for level in range(4):
                step, last, resident = run(args, level)
                best[level] = (min(step, best.get(level, (step,))[0]), last, resident)
        print(f"{args.schedule}, {args.stages} stages, 2 pipelines\nzero  step ms  ratio  sent MiB  resident MiB  planned")
        for level, (step, last, resident) in best.items():
            sent = last["stages"][0]["bytes_sent"] / MIB
            print(f"{level:4} {step:8.0f} {step / best[0][0]:6.2f} {sent:9.1f} {resident:13.0f} "
                  f"{planned(args, level):8.0f}   loss {last['loss']:.6f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starpipe", default="build/starpipe")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--schedule")
    parser.add_argument("--stages", type=int, default=1)
    args = parser.parse_args()
    args.starpipe = os.path.abspath(args.starpipe)
    for args.schedule, args.stages in [(args.schedule, args.stages)] if args.schedule else [("1f1b", 1), ("helix", 2)]:
        compare(args)


main()
