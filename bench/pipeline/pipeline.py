#!/usr/bin/env python3
"""Steps of starpipe beside those of torch.distributed.pipelining, for every schedule that both have.

Two processes of PyTorch over gloo, starpipe in two MPI ranks, and starpipe with two stages in one process:
one thread a stage, the same sizes of a GPT-2 style model, clipping and AdamW in all three. They take turns,
so that a change of the machine's mood hits all; a row has the median and the best of all steps of all
rounds, and PyTorch's times over ours (above 1: we are faster). zb1p has one chunk a stage where InterleavedZeroBubble
has two; all else is the same schedule. bf16 is autocast in PyTorch.

    bench/pipeline/pipeline.py [--starpipe build/starpipe] [--python PYTHON] [--dtype f32 bf16]
                               [--rounds 3] [--steps 4] [--quick] [--json FILE] [SCHEDULE ...]

--json FILE writes all steps, and goes on from those that FILE has: rounds can be run one by one.
--quick: one round of two steps, a few minutes.
"""
import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B", "bfs": "LoopedBFS",
         "zb1p": "InterleavedZeroBubble", "zbv": "ZBVZeroBubble", "dualpipev": "DualPipeV"}
SIZES = {"layers": 8, "hidden": 256, "heads": 4, "vocab": 256, "seq": 256, "micro_batch_size": 2,
         "micro_batches": 8}
WAYS = ("torch", "mpi", "process")


def cpu_name():
    with open("/proc/cpuinfo") as f:
        info = f.read()
    name = re.search(r"model name\s*: (.*)", info)
    flags = set(re.search(r"flags\s*: (.*)", info).group(1).split())
    known = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    return f"{name.group(1) if name else 'CPU'}, {os.cpu_count()} cores, {' '.join(known)}"


def model_directory(path, args):
    config = {"model_type": "gpt2", "n_layer": args.layers, "n_embd": args.hidden,
              "n_head": args.heads, "n_positions": args.seq, "vocab_size": args.vocab,
              "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
              "tie_word_embeddings": False}
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)
    rng = random.Random(7)
    with open(os.path.join(path, "tokens.bin"), "wb") as f:
        for _ in range(100000):
            f.write(rng.randrange(args.vocab).to_bytes(2, "little"))


def flags_of(args, names):
    return [word for name in names
            for word in ("--" + name.replace("_", "-"), str(getattr(args, name)))]


def ours(args, path, schedule, dtype, ranks):
    log = os.path.join(path, "log.jsonl")
    launch = args.mpirun.split() + ["-np", str(ranks)] if ranks > 1 else []
    done = subprocess.run(
        launch + [args.starpipe, "train", "--model", path, "--tokens", path + "/tokens.bin",
                  "--schedule", schedule, "--stages", "2", "--threads", "1", "--dtype", dtype,
                  "--lr", "1e-4", "--steps", str(args.steps + 2), "--log", log]
        + flags_of(args, ("seq", "micro_batch_size", "micro_batches")),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=600,
        env=dict(os.environ, STARPU_HOME=path, OMPI_ALLOW_RUN_AS_ROOT="1",
                 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"))
    if done.returncode:
        sys.exit(f"{schedule}, {ranks} processes: {done.stderr[-400:]}")
    with open(log) as f:
        steps = [json.loads(line) for line in f if line.startswith('{"step"')]
    os.remove(log)
    return [s["step_ms"] for s in steps][2:]


def theirs(args, path, schedule, dtype):
    store = os.path.join(path, "store")
    command = [args.python, HERE + "/torch_stages.py", "--ranks", "2", "--store", store,
               "--schedule", PEERS[schedule], "--dtype", dtype] + flags_of(args, [*SIZES, "steps"])
    env = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    ranks = [subprocess.Popen(command + ["--rank", str(r)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, env=env) for r in range(2)]
    try:
        said = [rank.communicate(timeout=600) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
        if os.path.exists(store):
            os.remove(store)
    for rank, (_, err) in zip(ranks, said):
        if rank.returncode:
            sys.exit(f"PyTorch, {PEERS[schedule]}: {err[-600:]}")
    result = json.loads(said[0][0].strip().splitlines()[-1])
    return result["step_ms"], result["torch"]


def turn(args, path, schedule, dtype, row, known):
    if args.peer:
        steps, known["torch"] = theirs(args, path, schedule, dtype)
        row["torch"] += steps
    row["mpi"] += ours(args, path, schedule, dtype, 2)
    row["process"] += ours(args, path, schedule, dtype, 1)


def pair(values, digits):
    return ", ".join(f"{value:.{digits}f}" for value in values) if values else "-"


def print_table(known):
    """Every cell: median, best."""
    print(f"{known['cpu']}; PyTorch {known.get('torch', 'not installed')}; " +
          ", ".join(f"{name} {known['sizes'][name]}" for name in SIZES))
    print("| type | schedule | PyTorch's | PyTorch ms | two ranks ms | ratio | one process ms | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, row in known["rows"].items():
        dtype, schedule = name.split()
        ms = {way: (statistics.median(row[way]), min(row[way])) for way in WAYS if row[way]}
        cells = [pair(ms.get("torch"), 0)]
        for way in WAYS[1:]:
            ratio = "torch" in ms and [peer / us for peer, us in zip(ms["torch"], ms[way])]
            cells += [pair(ms[way], 0), pair(ratio, 2)]
        print(f"| {dtype} | `{schedule}` | {PEERS[schedule]} | {' | '.join(cells)} |")


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--starpipe", default=os.path.join(HERE, "../../build/starpipe"))
    p.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    p.add_argument("--mpirun", default="mpirun --oversubscribe --bind-to none")
    p.add_argument("--dtype", nargs="+", choices=("f32", "bf16"), default=["f32", "bf16"])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=4, help="of a run, after two that do not count")
    p.add_argument("--quick", action="store_true")
    p.add_argument("--json", metavar="FILE")
    for name, value in SIZES.items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    p.add_argument("schedules", nargs="*", metavar="SCHEDULE", default=list(PEERS))
    args = p.parse_args()
    for schedule in args.schedules:
        if schedule not in PEERS:
            p.error(f"unknown schedule {schedule}: want {', '.join(PEERS)}")
    if args.layers % 4:
        p.error("--layers must be a multiple of 4: two stages of two chunks")
    if args.quick:
        args.rounds, args.steps = 1, 2
    args.peer = not subprocess.run([args.python, "-c", "import torch"],
                                   stderr=subprocess.DEVNULL).returncode
    return p, args


def main():
    p, args = parse()
    known = {"cpu": cpu_name(), "sizes": {name: getattr(args, name) for name in SIZES}, "rows": {}}
    if args.json and os.path.exists(args.json):
        with open(args.json) as f:
            before = json.load(f)
        if any(before[key] != known[key] for key in ("cpu", "sizes")):
            p.error(f"{args.json} is of another machine or of other sizes")
        known = before
    if not args.peer:
        print(f"{args.python} has no PyTorch: our times alone")
    path = tempfile.mkdtemp(prefix="starpipe-pipeline-")
    try:
        model_directory(path, args)
        for _ in range(args.rounds):
            for dtype in args.dtype:
                for schedule in args.schedules:
                    row = known["rows"].setdefault(f"{dtype} {schedule}", {w: [] for w in WAYS})
                    turn(args, path, schedule, dtype, row, known)
        if args.json:
            with open(args.json, "w") as f:
                json.dump(known, f)
        print_table(known)
    finally:
        shutil.rmtree(path)


if __name__ == "__main__":
    main()
