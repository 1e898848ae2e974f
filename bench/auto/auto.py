#!/usr/bin/env python3
"""What --schedule auto is worth: its step over the fastest of twenty layouts, on two devices of this machine.

Three models, each on two workers of one process and on two ranks. All twenty layouts and auto are run in turns, a
round after the other. Of a round the median step counts, of all rounds the shortest: other programs only make steps
longer. Steps of auto count from where it has settled on a layout. It measures the machine by itself, within
--within seconds, unless --hardware describes it. Exit status 1 if auto is more than 5 % slower than the fastest.

    bench/auto/auto.py [--starpipe build/starpipe] [--rounds 3] [--only wide]
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

WIDE = dict(model_type="gpt2", n_embd=256, n_layer=8, n_head=4, n_positions=1024, vocab_size=1024)
MODELS = [("gpt-tiny", "--seq 256"), ("llama-tiny", "--seq 256"), ("wide", "--seq 128")]
SEQUENCES = 8
LOOK = 24    # steps until it has settled
BAR = 1.05


def cut(batch):
    """A step of as many sequences in micro-batches of so many."""
    return f"--micro-batches {SEQUENCES // batch} --micro-batch-size {batch}"


# On two devices however these are made.
STAGES = [f"--schedule {s} --stages 2 {cut(b)}" for s, b in (
    ("1f1b", 1), ("1f1b", 2), ("1f1b", 4), ("gpipe", 1), ("gpipe", 2), ("interleaved", 1), ("bfs", 2), ("zb1p", 1),
    ("zb1p", 2), ("zb2p", 1), ("zbv", 1), ("v-half", 1), ("1f1b-v", 1), ("helix", 2), ("weipipe", 2),
    ("weipipe:flow=line", 4), ("fsdp", 2), ("fsdp", 4))]
# And the ways that workers or ranks have alone.
WORKERS = [f"--schedule 1f1b --stages 1 {cut(b)}" for b in (1, 8)]
RANKS = [f"--schedule 1f1b --stages 1 --tensor-parallel 2 {cut(8)}",
         f"--schedule 1f1b --stages 1 --data-parallel 2 --micro-batches 1 --micro-batch-size {SEQUENCES // 2}"]


def run(command, env):
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


class Bench:
    def __init__(self, a, where):
        self.a, self.log = a, os.path.join(where, "log")
        self.env = dict(os.environ, XDG_CACHE_HOME=where)
        self.text = os.path.join(where, "text")
        with open(self.text, "wb") as f:
            f.write(bytes((i * 2654435761 >> 13) % 256 for i in range(100000)))
        self.wide = os.path.join(where, "wide")
        os.makedirs(self.wide)
        with open(os.path.join(self.wide, "config.json"), "w") as f:
            json.dump(WIDE, f)

    def train(self, launch, model, options, steps, first):
        """Median step, without the `first` ones, and what was printed."""
        name, common = model
        said = run([*launch, self.a.starpipe, "train", "--model", self.wide if name == "wide" else name,
                    *common.split(), *options.split(), "--data", self.text, "--steps", str(steps), "--lr", "0",
                    "--log", self.log, "--progress", "plain"], self.env)
        with open(self.log) as f:
            ms = [line["step_ms"] for line in map(json.loads, f) if "step_ms" in line]
        return statistics.median(ms[first:]), said

    def auto(self, launch, model):
        """A run of auto: its step once it has settled, and the layout that it ended with."""
        options = f"--schedule auto --micro-batches {SEQUENCES} --auto-within {self.a.within}"
        if self.a.hardware:
            options += f" --hardware {self.a.hardware}"
        ms, said = self.train(launch, model, options, LOOK + self.a.steps, LOOK + 1)
        name = re.search(r"^auto: (.*): [\d.]+ ms a step predicted", said, re.M).group(1)
        settled = re.search(r"^auto: goes on with (.*)$", said, re.M)
        return ms, f"{settled.group(1)} (first {name})" if settled else name

    def compare(self, kind, launch, layouts, model):
        """Runs all of them in turns; prints the fastest ones, and auto's step over the fastest. Returns that."""
        best, auto, named = dict.fromkeys(layouts, float("inf")), float("inf"), ""
        for _ in range(self.a.rounds):
            for layout in layouts:
                ms, _ = self.train(launch, model, layout, self.a.steps + 2, 2)
                best[layout] = min(best[layout], ms)
            ms, name = self.auto(launch, model)
            if ms < auto:
                auto, named = ms, name
        for layout in sorted(layouts, key=best.get)[:None if self.a.all else 3]:
            print(f"{model[0]:10} {kind:9} {best[layout]:8.1f} ms  {layout}")
        ratio = auto / min(best.values())
        print(f"{model[0]:10} {kind:9} {auto:8.1f} ms  auto: {named}; {ratio:.3f} of the fastest of {len(layouts)}",
              flush=True)
        return ratio


def main():
    for word in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        os.environ.setdefault(word, "1")
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--starpipe", default="build/starpipe")
    p.add_argument("--hardware", help="a machine description instead of measuring")
    p.add_argument("--within", type=float, default=30)
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--only", help="one model: gpt-tiny, llama-tiny, wide")
    p.add_argument("--launcher", default="mpirun --oversubscribe --bind-to none -np 2", help="what starts two ranks; "
                   "empty: workers alone")
    p.add_argument("--ranks", action="store_true", help="two ranks alone")
    p.add_argument("--all", action="store_true", help="print every layout")
    a = p.parse_args()
    a.starpipe = os.path.abspath(a.starpipe)
    kinds = [] if a.ranks else [("2 workers", [], STAGES + WORKERS)]
    if a.launcher:
        kinds.append(("2 ranks", a.launcher.split(), STAGES + RANKS))
    with tempfile.TemporaryDirectory() as where:
        bench = Bench(a, where)
        ratios = [bench.compare(*kind, model) for model in MODELS if a.only in (None, model[0]) for kind in kinds]
    print(f"auto's step over the fastest layout's: worst {max(ratios):.3f}, mean {statistics.mean(ratios):.3f}")
    sys.exit(max(ratios) > BAR)


if __name__ == "__main__":
    main()
