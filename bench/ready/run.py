#!/usr/bin/env python3
"""Strict against ready, run: steps of 4 workers whose ops take other times than planned.

Makes a network namespace for each worker, as bench/weipipe/weipipe.py does, and trains a small model with each
schedule under both schedulers, in turns. Every task sleeps until it has taken --task-us times the factor of its op
(bench/slow_cores.c), so a few real cores do for many workers, and both schedulers get the same times. Prints a
Markdown table: step of strict over step of ready, each the shortest of all rounds; the mean over seeds, and the smallest in brackets. The highest
memory of kept activations that a stage counted must be that of strict, and so must the losses, to the bit.

--vary link=WxM lets worker W send and receive M Mbit/s, the rest is as `show --vary` has it.

Needs root, iproute2, Open MPI, and `make bench`.

    bench/ready/run.py [SCHEDULE ...] [--starpipe build/starpipe] [--seeds 1 2] [--rounds 2] [--vary uniform=0.5 ...]
"""
import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from namespaces import Cluster  # noqa: E402

SCHEDULES = ["gpipe", "1f1b", "interleaved", "zb1p", "zb2p", "zbv", "v-half", "v-min", "1f1b-v", "dualpipe",
             "dualpipev", "chimera", "hanayo", "seq1f1b", "helix"]
VARIED = ["uniform=0.5", "lognormal=0.5", "stage=1x1.5"]
WORKERS, LAYERS, STEPS = 4, 16, 5
SLICED = {"seq1f1b": 4}


def model_directory(path):
    config = {"model_type": "gpt2", "n_layer": LAYERS, "n_embd": 32, "n_head": 2, "vocab_size": 256,
              "n_positions": 64, "n_inner": 128, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
              "tie_word_embeddings": True}
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)
    with open(os.path.join(path, "text"), "wb") as f:
        f.write(bytes(random.Random(7).randrange(256) for _ in range(100003)))


def variables(vary, seed, task_us):
    """What slow_cores.c reads of one --vary."""
    kind, _, value = vary.partition("=")
    out = [f"SLOW_TASK_US={task_us}", f"SLOW_SEED={seed}"]
    if kind == "stage":
        stage, by = value.split("x")
        out += [f"SLOW_STAGE={stage}", f"SLOW_BY={by}"]
    elif kind != "link":  # which is the network's
        out.append(f"SLOW_{kind.upper()}={value}")
    return out


def slow_link(cluster, vary):
    cluster.throttle(0)
    if vary.startswith("link="):
        worker, mbit = vary[len("link="):].split("x")
        cluster.throttle(int(mbit), [int(worker)])


def run(cluster, a, path, schedule, scheduler, vary, seed):
    log = os.path.join(path, "log.jsonl")
    if os.path.exists(log):
        os.remove(log)
    cluster.mpirun([os.path.abspath(a.starpipe), "train", "--model", path, "--data", path + "/text", "--schedule",
                    schedule, "--stages", str(WORKERS), "--micro-batches", str(a.micro_batches), "--micro-batch-size",
                    "1", "--seq", "64", "--steps", str(STEPS), "--threads", "1", "--scheduler", scheduler, "--log", log,
                    *(["--slices", str(SLICED[schedule])] if schedule in SLICED else [])],
                   variables=variables(vary, seed, a.task_us))
    with open(log) as f:
        steps = [json.loads(line) for line in f if line.startswith('{"step"')]
    return {"step": min(s["span_ms"] for s in steps[1:]), "loss": [s["loss"] for s in steps],
            "peak": max(s["peak_activation_bytes"] for s in steps[-1]["stages"])}


def measure(cluster, a, path, schedule, vary):
    """A cell of the table."""
    gains = []
    for seed in a.seeds if vary.startswith(("uniform", "lognormal")) else a.seeds[:1]:
        step = {"strict": [], "ready": []}
        for _ in range(a.rounds):
            strict, ready = (run(cluster, a, path, schedule, s, vary, seed) for s in step)
            step["strict"].append(strict["step"])
            step["ready"].append(ready["step"])
            if strict["loss"] != ready["loss"] or ready["peak"] > strict["peak"]:
                sys.exit(f"{schedule}, {vary}, seed {seed}: strict {strict}, ready {ready}")
        gains.append(min(step["strict"]) / min(step["ready"]))
    return f"{statistics.mean(gains):.3f}" + (f" ({min(gains):.3f})" if len(gains) > 1 else "")


def cpu():
    with open("/proc/cpuinfo") as f:
        return next(line.split(":")[1].strip() for line in f if line.startswith("model name"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starpipe", default="build/starpipe")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--vary", nargs="+", default=VARIED)
    parser.add_argument("--micro-batches", type=int, default=16)
    parser.add_argument("--task-us", type=int, default=2000)
    parser.add_argument("schedules", nargs="*", default=SCHEDULES)
    a = parser.parse_args()
    path = tempfile.mkdtemp(prefix="starpipe-ready-")
    print(f"{WORKERS} workers on {os.cpu_count()} cores ({cpu()}), {LAYERS} layers, {a.micro_batches} micro-batches, tasks "
          f"of {a.task_us} us, seeds {', '.join(map(str, a.seeds))}; strict over ready, mean (least)\n")
    print("| schedule |", " | ".join(a.vary), "|\n|---|" + "---|" * len(a.vary))
    try:
        model_directory(path)
        with Cluster(WORKERS, build=os.path.dirname(a.starpipe)) as cluster:
            for schedule in a.schedules:
                cells = []
                for vary in a.vary:
                    slow_link(cluster, vary)
                    cells.append(measure(cluster, a, path, schedule, vary))
                print(f"| {schedule} |", " | ".join(cells), "|", flush=True)
    finally:
        shutil.rmtree(path)


if __name__ == "__main__":
    main()
