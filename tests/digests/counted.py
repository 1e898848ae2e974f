#!/usr/bin/env python3
"""What a dry run counts beside what the run logs: bytes of buffers, and of messages, of every stage.

usage: counted.py STARPIPE [--layouts 300] [--seed 2] [--steps 3] [--mpirun "mpirun ..."]

Layouts are drawn by layouts.py. Without offload both are equal; with it buffers are never more than counted (their values leave
memory, and StarPU frees late), and at most 12 % less. Prints a line for each that is not so, and how many were; fails if any.
"""
import argparse
import concurrent.futures
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile

import layouts


def last_step(path):
    with open(path) as f:
        return json.loads([line for line in f if '"stages"' in line and '"loss"' in line][-1])


def compare(a, text, processes, options):
    """None: refused, or what differs, "" if nothing."""
    launch = shlex.split(a.mpirun) + ["-np", str(processes)] if processes > 1 else []
    common = [a.starpipe, "train", "--data", text, "--steps", str(a.steps), "--threads", "1", "--eps", "1e-3", *options.split()]
    with tempfile.TemporaryDirectory() as d:
        said = subprocess.run(launch + common + ["--dry-run", "--json"], capture_output=True, text=True)
        if said.returncode:
            return None
        log = os.path.join(d, "log")
        ran = subprocess.run(launch + common + ["--log", log], capture_output=True, text=True, timeout=300)
        if ran.returncode:
            return "does not run: " + ran.stderr.strip().splitlines()[-1]
        planned, logged = json.loads(said.stdout)["stages"], last_step(log)["stages"]
    differs = []
    for s, (p, l) in enumerate(zip(planned, logged)):
        has, counted = l["buffer_bytes"], p["buffer_bytes"]
        fine = has <= counted <= 1.12 * has if "--offload" in options else has == counted
        if not fine:
            differs.append(f"stage {s} has buffers of {has} bytes, counted {counted}")
        if processes > 1 and l["bytes_sent"] != p["bytes_sent"]:
            differs.append(f"stage {s} sent {l['bytes_sent']} bytes, planned {p['bytes_sent']}")
    return "; ".join(differs)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("starpipe")
    p.add_argument("--layouts", type=int, default=300)
    p.add_argument("--seed", type=int, default=2)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--mpirun", default="mpirun --oversubscribe")
    a = p.parse_args()
    d = random.Random(a.seed)
    with tempfile.NamedTemporaryFile("w") as text, concurrent.futures.ThreadPoolExecutor(2) as pool:
        text.write("The quick brown fox jumps over the lazy dog. " * 100)
        text.flush()
        found = wrong = 0
        while found < a.layouts:
            drawn = [layouts.draw(d, d.choice(layouts.SCHEDULES)) for _ in range(8)]
            # :auto has another order as soon as it has measured some steps
            drawn = [one for one in drawn if one[0] <= 8 and (a.steps < 4 or ":auto" not in one[1])]
            for one, said in zip(drawn, pool.map(lambda one: compare(a, text.name, *one), drawn)):
                if said is None or found == a.layouts:
                    continue
                found += 1
                wrong += said != ""
                if said:
                    print(f"{one[0]} {one[1]}: {said}", flush=True)
    print(f"{found} layouts, {found - wrong} as counted")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
