#!/usr/bin/env python3
"""The time that plan takes for the questions that people ask, and what it answers.

usage: questions.py [--starpipe PATH] [--only WORD]

Prints, for each question: seconds of wall clock and of processors; the best layout, its step, and what train --dry-run says
of its command. Exit status 1 if one of them differs by more than 1 %, or takes longer than its bar.
"""
import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import time

QUESTIONS = [  # the question, the bar in seconds
    ("README", "--model gpt3-1.3b --seq 4096 --stages 4 --micro-batches 16 --hardware a800-ib", 2),
    ("7B, 64k, 8 A800", "--model gpt3-7b --hardware a800-ib", 10),
    ("7B, 64k, 8 A800, tensor groups", "--model gpt3-7b --hardware a800-ib --group tensor", 10),
    ("1.3B, 2k, 64 H100", "--model gpt3-1.3b --seq 2048 --micro-batches 512 --hardware h100-ib --nodes 8", 30),
    ("8B, 128k, 32 H100", "--model {llama3-8b} --seq 131072 --micro-batches 32 --hardware h100-ib --nodes 4", 10),
    ("405B, 4k, 1024 H100", "--model llama3-405b --seq 4096 --micro-batches 2048 --hardware h100-ib --nodes 128", 60),
]
LLAMA3_8B = {"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "num_hidden_layers": 32,
             "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
             "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0}


def cpu():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as info:
        names = [line.split(":")[1].strip() for line in info if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else "unknown"


def processors():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--starpipe", default="build/starpipe")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    llama = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"llama3-8b-{os.getpid()}")
    os.makedirs(llama)
    with open(os.path.join(llama, "config.json"), "w", encoding="ascii") as config:
        json.dump(LLAMA3_8B, config)
    print(f"on {cpu()}\n\n| question | seconds | of processors | best | step | train --dry-run |\n|---|---|---|---|---|---|")
    failed = False
    for name, options, bar in QUESTIONS:
        if args.only not in name:
            continue
        words = [word.format(**{"llama3-8b": llama}) for word in options.split()]
        used, began = processors(), time.monotonic()
        run = subprocess.run([args.starpipe, "plan", *words, "--json"], capture_output=True, text=True, check=True)
        wall, used = time.monotonic() - began, processors() - used
        best = next(r for r in json.loads(run.stdout)["layouts"] if r["fits"])
        command = shlex.split(best["command"])
        dry = subprocess.run([args.starpipe, *command[command.index("starpipe") + 1:], "--dry-run", "--json"],
                             capture_output=True, text=True, check=True)
        said = json.loads(dry.stdout)["predicted_step_ms"]
        grid = "x".join(str(best[k]) for k in ("stages", "tensor_parallel", "context_parallel", "data_parallel"))
        print(f"| {name} | {wall:.1f} | {used:.1f} | {best['schedule']} {grid} | {best['step_ms'] / 1e3:.3f} s | "
              f"{said / 1e3:.3f} s |", flush=True)
        failed |= wall > bar or abs(best["step_ms"] / said - 1) > 0.01
    os.remove(os.path.join(llama, "config.json"))
    os.rmdir(llama)
    return failed


if __name__ == "__main__":
    sys.exit(main())
