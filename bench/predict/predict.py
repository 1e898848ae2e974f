#!/usr/bin/env python3
"""What `train --dry-run` predicts of steps on this machine, beside what they take.

The machine is calibrated once, as a user does it, unless --hardware names a description; no configuration below was run
for that. Then all are run in turns, a round after the other, each right after the first layout of its group: how many
times as long its median step takes is compared with how many times as long it is predicted to take (the median of all
rounds), as a machine that others use is not as fast now as it was then. Both in milliseconds, the shortest of all rounds,
are printed as well; of a group, whether the layout predicted to be the fastest is so, within 2 %.

With --workers N a stage is a process in a network namespace of its own, on a core that is --slow times slower
than this machine's and a network of so many Mbit/s (--rate): a cluster of slow machines. Needs root. The cores are
calibrated at their real rate, of which the description has --slow times less.

    bench/predict/predict.py [--starpipe build/starpipe] [--rounds 3] [--only offload]
    bench/predict/predict.py --workers 4 --slow 4 --rate 100
    bench/predict/predict.py --workers 4 --slow 4 --rate 100 --papers
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

HEAVY = dict(layers=8, hidden=128, heads=4, vocab=4096)
MPI = "mpirun --oversubscribe --bind-to none -np 2"

# group, model, options, rows: schedules with more options; the fastest of a group is to be found
GROUPS = [
    ("tiny", "gpt-tiny", "--seq 256 --micro-batches 8 --stages 2", ["1f1b", "gpipe", "zb1p", "interleaved"]),
    ("short", WIDE, "--seq 256 --micro-batches 4 --micro-batch-size 2 --stages 2",
     ["gpipe", "1f1b", "interleaved", "zb1p", "zbv", "helix", "wzb1", "fsdp"]),
    ("long", TINY, "--seq 1024 --micro-batches 4 --stages 2",
     ["1f1b", "naive", "helix", "weipipe", "zb2p", "seq1f1b --slices 4", "sppo --slices 4", "slimpipe --slices 4",
      "terapipe --slices 4"]),
    ("deep", DEEP, "--seq 256 --micro-batches 8 --stages 2",
     ["1f1b", "1f1b --recompute full", "1f1b --recompute selective", "1f1b --recompute no-attention",
      "gpipe --recompute full", "dualpipev", "hanayo", "v-min"]),
    ("llama", dict(WIDE, llama=True), "--seq 512 --micro-batches 4 --stages 2",
     ["1f1b", "gpipe --recompute selective", "chimera", "weipipe-naive", "1f1b-v", "helix --recompute no-attention"]),
    ("offload", WIDE, "--seq 512 --micro-batches 4 --stages 2",
     ["1f1b", "1f1b --offload full", "gpipe --offload full", "zb1p --offload full", "1f1b-v --offload full",
      "seq1f1b --slices 4 --offload full", "sppo --slices 4 --offload adaptive --memory-limit 110MiB"]),
    ("bf16", WIDE, "--seq 256 --micro-batches 4 --micro-batch-size 2 --stages 2 --dtype bf16",
     ["1f1b", "zb1p", "interleaved", "gpipe --recompute full", "helix"]),
    ("vocabulary", HEAVY, "--seq 256 --micro-batches 8 --stages 2",
     ["1f1b", "1f1b --partition 6,2", "1f1b --vocabulary-parallel", "zb2p --vocabulary-parallel"]),
    ("groups", WIDE, "--seq 256 --micro-batches 4 --micro-batch-size 2",
     ["1f1b --stages 2", (MPI, "1f1b --stages 2"), (MPI, "1f1b --stages 1 --tensor-parallel 2"),
      (MPI, "1f1b --stages 1 --context-parallel 2"), (MPI, "gpipe --stages 1 --tensor-parallel 2"),
      (MPI, "1f1b --stages 1 --data-parallel 2 --micro-batches 2"),
      (MPI, "1f1b --stages 1 --data-parallel 2 --micro-batches 2 --zero 1")]),
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


class Row:
    """A layout of a group: what is predicted of its step, what it took, and that over what the group's first took then."""

    def __init__(self, group, model, options, row):
        launcher, schedule = row if isinstance(row, tuple) else ("", row)
        self.group, self.schedule, self.launcher = group, schedule, launcher.split()
        self.options = ["--model", model, "--threads", "1", *options.split(), "--schedule", *schedule.split()]
        self.took, self.ratios = float("inf"), []

    def run(self, launch, a, files):
        took = measure(lambda command: launch(self.launcher, command), a.starpipe, self.options, *files, a.steps)
        self.took = min(self.took, took)
        return took

    def ratio(self):
        return statistics.median(self.ratios)

    def error(self, base):
        return 100 * (self.said / base.said / self.ratio() - 1)


def compare(a, where, groups, launch, calibrate):
    """Predicts all of them, measures them in turns, prints every row. How far off the mean and the worst are."""
    text, log = data(where), os.path.join(where, "log")
    hardware = a.hardware or os.path.join(where, "machine.json")
    rows = [Row(group, model_dir(where, m), common + (f" --stages {a.workers}" if a.workers else ""), row)
            for group, m, common, schedules in groups if a.only in (None, group) for row in schedules]
    if not a.hardware:
        calibrate([a.starpipe, "calibrate", "--output", hardware])
        if a.slow > 1:
            slower(hardware, a.slow)
    with open(hardware) as f:
        print(f"on {json.load(f)['device']['name']}"
              + (f", {a.slow:g} times slower each, {a.rate} Mbit/s" if a.workers else ""), flush=True)
    for row in rows:
        row.said = json.loads(launch(row.launcher, [a.starpipe, "train", "--dry-run", "--json", "--hardware", hardware,
                                                    *row.options]))["predicted_step_ms"]
    groups = {row.group: [other for other in rows if other.group == row.group] for row in rows}
    for _ in range(a.rounds):
        for base, *others in groups.values():
            base.ratios.append(1)
            for row in others:
                before = base.run(launch, a, (log, text))
                row.ratios.append(row.run(launch, a, (log, text)) / before)
    right, errors = 0, []
    for group, own in groups.items():
        for row in own:
            name = " ".join([*(["2 processes:"] if row.launcher else []), row.schedule])
            print(f"{group:10} {name:64} predicted {row.said:7.1f} ms, measured {row.took:7.1f}; times the first "
                  f"{row.said / own[0].said:5.2f}, {row.ratio():5.2f}: {row.error(own[0]):+6.1f} %")
        errors += [abs(row.error(own[0])) for row in own[1:]]
        chosen = min(own, key=lambda row: row.said)
        ok = chosen.ratio() <= 1.02 * min(row.ratio() for row in own)
        right += ok
        print(f"{group:10} chosen {chosen.schedule}: {'right' if ok else 'wrong'}", flush=True)
    print(f"{len(errors)} layouts beside the first of {len(groups)} groups: mean error {statistics.mean(errors):.1f} %, "
          f"worst {max(errors):.1f} %; winner right in {right} of {len(groups)}")


def main():
    for word in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        os.environ.setdefault(word, "1")
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--starpipe", default="build/starpipe")
    p.add_argument("--hardware", help="a machine description instead of calibrating")
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--workers", type=int, default=0, help="stages in namespaces, a process each")
    p.add_argument("--slow", type=float, default=1, help="how many times slower the cores of workers are")
    p.add_argument("--rate", type=int, default=100, help="of each worker's network, Mbit/s; 0: no limit")
    p.add_argument("--papers", action="store_true", help="HelixPipe and WeiPipe in their variants instead")
    p.add_argument("--only", help="one group")
    a = p.parse_args()
    a.starpipe = os.path.abspath(a.starpipe)
    with tempfile.TemporaryDirectory() as where:
        if not a.workers:
            compare(a, where, GROUPS, lambda launcher, command: run(launcher + command), run)
            return
        with Cluster(a.workers, a.slow, os.path.dirname(a.starpipe)) as cluster:
            papers = [(g, m, f"{o} --micro-batches {2 * a.workers}", s) for g, m, o, s in PAPERS]
            cluster.throttle(a.rate)
            compare(a, where, papers if a.papers else CLUSTER, lambda _, command: cluster.mpirun(command),
                    lambda command: cluster.mpirun([*command, "--threads", "1"], min(a.workers, os.cpu_count()),
                                                   slow=False))


if __name__ == "__main__":
    main()
