#!/usr/bin/env python3
"""What `train --dry-run` predicts of steps on this machine, beside what they take.

The machine is calibrated before each group, unless --hardware names a description; no configuration below was
run for that. Each is run twice, in two rounds; the median step of the quieter round counts. Every row is printed.

With --workers N a stage is a process in a network namespace of its own, on a core that is --slow times slower
than this machine's and a network of so many Mbit/s (--rate): a cluster of slow machines. Needs root. The cores are
calibrated at their real rate, of which the description has --slow times less.

    bench/predict/predict.py [--starpipe build/starpipe]
    bench/predict/predict.py --workers 4 --slow 4 --rate 100
    bench/predict/predict.py --workers 4 --slow 4 --rate 100 --papers

With --kinds every row has a model, a type and a schedule of its own, and the machine is calibrated once as a user
does it: for all numbers of threads.

    bench/predict/predict.py --kinds
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from namespaces import Cluster  # noqa: E402

TINY = dict(layers=8, hidden=128, heads=4)
WIDE = dict(layers=8, hidden=256, heads=4)
DEEP = dict(layers=16, hidden=192, heads=6)

# group, model, options; rows of a group differ in the schedule, and the fastest is to be found
GROUPS = [
    ("short", WIDE, "--seq 256 --micro-batches 8 --micro-batch-size 2",
     ["gpipe", "1f1b", "interleaved", "zb1p", "zbv", "helix", "wzb1", "fsdp"]),
    ("long", TINY, "--seq 2048 --micro-batches 4 --micro-batch-size 1",
     ["1f1b", "naive", "helix", "weipipe", "zb2p", "seq1f1b --slices 4", "sppo --slices 4"]),
    ("deep", DEEP, "--seq 512 --micro-batches 8 --micro-batch-size 1",
     ["1f1b", "1f1b --recompute full", "dualpipev", "hanayo", "wzb2", "v-min"]),
    ("llama", dict(WIDE, llama=True), "--seq 1024 --micro-batches 4 --micro-batch-size 1",
     ["1f1b", "gpipe --recompute selective", "chimera", "weipipe-naive", "1f1b-v"]),
]


# The same over a network: narrower, as the cores are slower.
SMALL = dict(layers=8, hidden=128, heads=4)
EVEN = dict(layers=16, hidden=96, heads=4)
CLUSTER = [
    ("wide", SMALL, "--seq 256 --micro-batches 8 --micro-batch-size 2",
     ["gpipe", "1f1b", "zb1p", "dualpipev", "helix", "weipipe", "wzb1", "fsdp"]),
    ("long", SMALL, "--seq 1024 --micro-batches 8 --micro-batch-size 1",
     ["1f1b", "naive", "zb2p", "seq1f1b --slices 4", "sppo --slices 4", "weipipe-naive", "fsdp"]),
    ("deep", EVEN, "--seq 512 --micro-batches 16 --micro-batch-size 1",
     ["1f1b", "1f1b --recompute full", "interleaved", "v-min", "1f1b-v", "chimera", "wzb2"]),
]

# Long sequences in slices: attention has most of the time, and the later a slice is the more.
NARROW = dict(layers=8, hidden=64, heads=2)
CLUSTER.append(("slices", NARROW, "--seq 8192 --micro-batches 2 --micro-batch-size 1",
                ["1f1b", "seq1f1b --slices 8", "seq1f1b --slices 8 --partition-slices flops",
                 "slimpipe:exchange=off --slices 8", "slimpipe --slices 8"]))

# One long sequence, whose first and last slices are shared out to the stages that idle.
CLUSTER.append(("multiplex", NARROW, "--seq 8192 --micro-batches 1 --micro-batch-size 1",
                ["sppo --slices 8 --partition-slices flops",
                 "sppo:multiplex --slices 8 --partition-slices flops"]))

# A head of 2.7 layers, on the last stage, with layers dealt out so that it fits in, or a share of it on every stage.
HEAVY = dict(layers=8, hidden=128, heads=4, vocab=4096)
CLUSTER.append(("vocabulary", HEAVY, "--seq 256 --micro-batches 16 --micro-batch-size 2",
                ["1f1b", "1f1b --partition balanced", "1f1b --vocabulary-parallel", "zb2p",
                 "zb2p --vocabulary-parallel", "zbv", "zbv --vocabulary-parallel"]))

# HelixPipe: two micro-batches a slot, or slices of one, so that messages travel beside what computes.
CLUSTER.append(("helix", NARROW,
                "--recompute no-attention --seq 4096 --micro-batches 8 --micro-batch-size 1",
                ["helix:fold=1", "helix", "helix --slices 4", "helix:ship=attention",
                 "helix:ship=attention --slices 4"]))

# What HelixPipe and WeiPipe send against what a pipeline sends, at the ratios of WeiPipe's table 2: tokens of a
# micro-batch over twelve times the hidden size, by which a boundary tensor is larger than a layer's weights.
PAPERS = [
    (ratio, NARROW, f"--dtype bf16 --recompute no-attention --seq 1024 --micro-batch-size {batch}",
     ["1f1b", "helix:fold=1", "helix", "helix:ship=attention", "weipipe:gradients=f32", "weipipe",
      "weipipe:flow=line,gradients=f32", "weipipe:flow=line", "tawpipe:node=2"])
    for ratio, batch in (("1.33", 1), ("2.67", 2), ("5.33", 4))
]
# Several chunks a worker, whose weights go down the line.
PAPERS.append(
    ("chunks", TINY, "--seq 512 --micro-batch-size 1",
     [f"{schedule} --chunks {chunks}" for schedule in ("weipipe:flow=line", "tawpipe:node=2", "wzb1:flow=line", "wzb2")
      for chunks in (1, 2)]))

# Every kind of work once or more: models, types, schedules, recomputation; steps of 20 ms to a second.
LARGE = dict(layers=8, hidden=512, heads=8, vocab=4096)
KINDS = [
    ("gpt-tiny", "--seq 256 --micro-batches 8 --schedule 1f1b"),
    ("gpt-tiny", "--seq 128 --micro-batches 8 --micro-batch-size 4 --schedule interleaved --dtype bf16"),
    ("gpt-tiny", "--seq 512 --micro-batches 8 --micro-batch-size 2 --schedule zb1p"),
    ("llama-tiny", "--seq 512 --micro-batches 8 --micro-batch-size 2 --schedule gpipe"),
    ("llama-tiny", "--seq 1024 --micro-batches 4 --micro-batch-size 2 --schedule helix"),
    (dict(TINY, llama=True), "--seq 512 --micro-batches 8 --schedule 1f1b --recompute full --dtype bf16"),
    (TINY, "--seq 2048 --micro-batches 4 --schedule seq1f1b --slices 4"),
    (WIDE, "--seq 256 --micro-batches 8 --micro-batch-size 2 --schedule zb1p --dtype bf16"),
    (dict(WIDE, llama=True), "--seq 512 --micro-batches 8 --schedule interleaved --recompute selective"),
    (LARGE, "--seq 256 --micro-batches 4 --schedule 1f1b"),
    (LARGE, "--seq 256 --micro-batches 4 --micro-batch-size 2 --schedule zbv --dtype bf16"),
    (LARGE, "--seq 512 --micro-batches 4 --schedule gpipe --recompute full --dtype bf16"),
]


def model_dir(where, m):
    """A preset, or a directory with the config.json of a model."""
    if isinstance(m, str):
        return m
    path = os.path.join(where, "-".join(f"{k}{v}" for k, v in m.items()))
    os.makedirs(path, exist_ok=True)
    if m.get("llama"):
        config = dict(model_type="llama", hidden_size=m["hidden"], intermediate_size=4 * m["hidden"],
                      num_hidden_layers=m["layers"], num_attention_heads=m["heads"],
                      num_key_value_heads=m["heads"], vocab_size=m.get("vocab", 256),
                      max_position_embeddings=8192,
                      rms_norm_eps=1e-5, tie_word_embeddings=False)
    else:
        config = dict(model_type="gpt2", n_embd=m["hidden"], n_layer=m["layers"], n_head=m["heads"],
                      n_positions=8192, vocab_size=m.get("vocab", 256))
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)
    return path


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def measure(launch, starpipe, options, log, text, steps):
    if os.path.exists(log):
        os.unlink(log)
    launch([starpipe, "train", *options, "--data", text, "--steps", str(steps), "--lr", "0", "--log", log])
    with open(log) as f:
        ms = [line["step_ms"] for line in map(json.loads, f) if "step_ms" in line]
    return statistics.median(ms[2:])


def slower(path, factor):
    """The description of a machine whose kernels take so many times as long."""
    def curves(node):
        if isinstance(node, dict):
            return {k: curves(v) for k, v in node.items()}
        return [[x, rate / factor] for x, rate in node]

    with open(path) as f:
        m = json.load(f)
    for key in ("matmul", "attention", "memory"):
        m["device"][key] = curves(m["device"][key])
    with open(path, "w") as f:
        json.dump(m, f)


def data(where):
    """A text to train on."""
    text = os.path.join(where, "text")
    with open(text, "wb") as f:
        f.write(bytes((i * 2654435761 >> 13) % 256 for i in range(100000)))
    return text


def one(a, where, hardware, launch, options):
    """What was predicted of a step, and what it took."""
    options = ["--stages", str(a.stages), "--threads", "1", *options]
    said = json.loads(launch([a.starpipe, "train", "--dry-run", "--json", "--hardware", hardware,
                              *options]))["predicted_step_ms"]
    took = min(measure(launch, a.starpipe, options, os.path.join(where, "log"), os.path.join(where, "text"), a.steps)
               for _ in range(a.rounds))
    return said, took


def kinds(a, where, launch):
    """Rows of their own, on one description of this machine."""
    data(where)
    hardware = a.hardware or os.path.join(where, "machine.json")
    if not a.hardware:
        launch([a.starpipe, "calibrate", "--output", hardware])
    rows = []
    for m, options in KINDS:
        said, took = one(a, where, hardware, launch, ["--model", model_dir(where, m), *options.split()])
        rows.append(abs(said / took - 1))
        name = m if isinstance(m, str) else os.path.basename(model_dir(where, m))
        print(f"{name:40} {options:84} measured {took:7.1f} ms  predicted {said:7.1f}  {said / took:5.2f}", flush=True)
    print(f"{len(rows)} configurations: mean error {100 * statistics.mean(rows):.1f} %, worst {100 * max(rows):.1f} %")


def compare(a, where, groups, launch, calibrate):
    """Predicts and measures all of them; prints every row."""
    data(where)
    hardware = a.hardware or os.path.join(where, "machine.json")
    print(f"{a.stages} stages, "
          + (f"{a.slow:g} times slower each, {a.rate} Mbit/s" if a.workers else a.launcher or "one process"))
    rows, right, n = [], 0, 0
    for group, m, common, schedules in groups:
        if a.only and group != a.only:
            continue
        if not a.hardware:
            calibrate([a.starpipe, "calibrate", "--threads", "1", "--output", hardware])
            if a.slow > 1:
                slower(hardware, a.slow)
        with open(hardware) as f:
            print(f"{group:6} on {json.load(f)['device']['name']}", flush=True)
        best = {}
        for schedule in schedules:
            said, took = one(a, where, hardware, launch, ["--model", model_dir(where, m), *common.split(),
                                                          "--schedule", *schedule.split()])
            error = 100 * (said / took - 1)
            rows.append(abs(error))
            best[schedule] = (said, took)
            print(f"{group:6} {schedule:32} predicted {said:8.1f} ms  measured {took:8.1f}  {error:+6.1f} %",
                  flush=True)
        chosen = min(best, key=lambda s: best[s][0])
        fastest = min(t for _, t in best.values())
        ok = best[chosen][1] <= 1.02 * fastest
        right += ok
        n += 1
        print(f"{group:6} chosen {chosen}: {'right' if ok else 'wrong'}", flush=True)
    print(f"{len(rows)} configurations: mean error {statistics.mean(rows):.1f} %, worst {max(rows):.1f} %; "
          f"winner right in {right} of {n}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--starpipe", default="build/starpipe")
    p.add_argument("--hardware", help="a machine description instead of calibrating")
    p.add_argument("--stages", type=int, default=2)
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--launcher", default="", help='what starts processes, as "mpirun -np 2"')
    p.add_argument("--workers", type=int, default=0, help="stages in namespaces, a process each")
    p.add_argument("--slow", type=float, default=1, help="how many times slower the cores of workers are")
    p.add_argument("--rate", type=int, default=100, help="of each worker's network, Mbit/s; 0: no limit")
    p.add_argument("--papers", action="store_true", help="HelixPipe and WeiPipe in their variants instead")
    p.add_argument("--kinds", action="store_true", help="rows of every kind of work, one calibration for all")
    p.add_argument("--only", help="one group")
    a = p.parse_args()
    a.starpipe = os.path.abspath(a.starpipe)
    with tempfile.TemporaryDirectory() as where:
        if not a.workers:
            def launch(command):
                return run(a.launcher.split() + command)
            if a.kinds:
                kinds(a, where, launch)
                return
            compare(a, where, GROUPS, launch, launch)
            return
        a.stages = a.workers
        with Cluster(a.workers, a.slow, os.path.dirname(a.starpipe)) as cluster:
            cluster.throttle(a.rate)
            papers = [(g, m, f"{o} --micro-batches {2 * a.workers}", s) for g, m, o, s in PAPERS]
            compare(a, where, papers if a.papers else CLUSTER, cluster.mpirun,
                    lambda command: cluster.mpirun(command, min(a.workers, os.cpu_count()), slow=False))


if __name__ == "__main__":
    main()
