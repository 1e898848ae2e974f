#!/usr/bin/env python3
"""Activations on disk: steps under a memory limit that they exceed several times, and longest sequences.

limit     one sequence, one stage; what is kept from forward to backward is several times the limit.
          `none` without a limit, `full` and `adaptive` within it, `adaptive` without: in turns.
          step       best of the steps after the first of a run, over the rounds, ms; ratio to `none`
          kept       what a step keeps in all and what of it leaves memory, MiB
          planned, buffers, resident, net
                     MiB at the highest: by the plan; of StarPU's buffers; of the process (VmHWM); and
                     that without what it had before the model was there
          stalls     waiting for the disk, ms; and how much of the disk's time was under computation
          loss       of the last step, which must be the same for all
longest   the longest sequence (a multiple of 256 tokens) that trains within a limit, by --dry-run, and
          then one step of it for real: nothing recomputed, --recompute full, no-attention, and sppo with
          --offload full and adaptive, slices as many as fit best. Keys and values stay.
keys      the same where keys and values leave too: by --dry-run, within the limit and within eight times as much, with
          up to 256 slices; a step for real of four times the longest with which they stay; and what it costs them to
          leave at the length of `limit`, where both fit, against no offloading and against their staying, in turns.
shared    the same longest sequences on two stages, sppo and sppo:multiplex, and a step for real of half of --seq
          tokens in 32 slices, both ways.
optimizer the longest sequence, by --dry-run, in a device whose memory the states of the model fill to four fifths:
          activations, keys and values leave; and the optimizer's state too; a step of each for real.

    bench/offload/offload.py [--starpipe build/starpipe] [--dir /var/tmp] [--rounds 2] [limit] [longest] [keys]
        [shared] [optimizer]
"""
import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

MIB = 1 << 20


def model_directory(path, hidden, layers, positions):
    config = {"model_type": "llama", "vocab_size": 256, "hidden_size": hidden,
              "num_hidden_layers": layers, "num_attention_heads": hidden // 32,
              "num_key_value_heads": max(1, hidden // 128), "intermediate_size": hidden * 11 // 4,
              "max_position_embeddings": positions, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "tie_word_embeddings": False}
    os.makedirs(path)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)


def starpipe(args, model, *options, timeout=3600):
    command = [args.starpipe, "train", "--model", model, "--data", args.text, "--stages", "1",
               "--micro-batches", "1", *map(str, options)]
    if "--offload" in options:
        command += ["--offload-dir", args.dir]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=timeout, env=dict(os.environ, STARPU_HOME=args.path))


def run(args, model, *options):
    log = os.path.join(args.path, "log.jsonl")
    if os.path.exists(log):
        os.remove(log)
    done = starpipe(args, model, "--log", log, *options)
    if done.returncode:
        sys.exit(f"{options}: {done.stderr[-400:]}")
    with open(log) as f:
        lines = [json.loads(line) for line in f]
    return lines[0], [line for line in lines if "step" in line]


def limit(args):
    model = os.path.join(args.path, "wide")
    model_directory(model, args.hidden, args.layers, args.seq)
    cut = ["--schedule", "sppo", "--slices", args.slices, "--seq", args.seq, "--steps", args.steps]
    within = ["--memory-limit", f"{args.limit}MiB"]
    runs = {"none": [], "full": ["--offload", "full", "--offload-keys", "stay", *within],
            "adaptive": ["--offload", "adaptive", *within],
            "adaptive, no limit": ["--offload", "adaptive"]}
    best, last = {}, {}
    for _ in range(args.rounds):
        for name, options in runs.items():
            plan, steps = run(args, model, *cut, *options)
            taken = min(s["step_ms"] for s in steps[1:] or steps)
            best[name] = min(taken, best.get(name, taken))
            last[name] = plan, steps
    kept = last["none"][1][-1]["stages"][0]["peak_activation_bytes"]
    print(f"llama style, {args.layers} layers of {args.hidden}, one sequence of {args.seq} tokens in "
          f"{args.slices} slices, activations {kept / MIB:.0f} MiB, limit {args.limit} MiB "
          f"({kept / MIB / args.limit:.1f} times)")
    print("offload             step ms  ratio  kept  leave  planned  buffers  resident   net  "
          "stalls ms  under comp. %  loss")
    for name, (plan, steps) in last.items():
        s = steps[-1]["stages"][0]
        off = plan.get("offload", {})
        figures = [off.get("planned_bytes", [0])[0], s["most_buffer_bytes"], s["most_resident_bytes"],
                   s["most_resident_bytes"] - off.get("resident_before_bytes", 0)]
        hidden = 100 * (1 - s["offload_stall_ms"] / s["disk_ms"]) if s["disk_ms"] else float("nan")
        print(f"{name:18} {best[name]:8.0f} {best[name] / best['none']:6.3f} {kept / MIB:5.0f} "
              f"{s['bytes_offloaded'] / MIB:6.0f} " +
              " ".join(f"{f / MIB:8.1f}" if f else "       -" for f in figures) +
              f" {s['offload_stall_ms']:8.1f} {hidden:13.1f}  {steps[-1]['loss']:.9f}")


def fits(args, model, seq, options, limit):
    done = starpipe(args, model, "--dry-run", "--seq", seq, "--memory-limit", f"{limit}MiB",
                    *options)
    return done.returncode == 0


def longest_of(args, model, options, limit=None):
    limit = limit or args.small
    low, high = 0, 1
    while fits(args, model, 256 * high, options, limit):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if fits(args, model, 256 * middle, options, limit):
            low = middle
        else:
            high = middle
    return 256 * low


def longest(args):
    model = os.path.join(args.path, "narrow")
    model_directory(model, args.narrow, 4, 1 << 20)
    sliced = [["--schedule", "sppo", "--slices", n, "--partition-slices", how, "--offload-keys", "stay",
               "--offload", mode]
              for n in (16, 32, 64) for how in ("length", "flops") for mode in ("full", "adaptive")]
    ways = {"none": [["--schedule", "1f1b"]],
            "recompute full": [["--schedule", "1f1b", "--recompute", "full"]],
            "no-attention": [["--schedule", "1f1b", "--recompute", "no-attention"]],
            "sppo full": [s for s in sliced if s[-1] == "full"],
            "sppo adaptive": [s for s in sliced if s[-1] == "adaptive"],
            "sppo full, recompute": [s + ["--recompute", "full"] for s in sliced if s[-1] == "full"]}
    print(f"llama style, 4 layers of {args.narrow}, limit {args.small} MiB")
    print("way                    tokens  ratio  step s  resident net MiB  options")
    first = None
    for name, choices in ways.items():
        seq, options = max(((longest_of(args, model, c), c) for c in choices), key=lambda x: x[0])
        first = first or seq
        if not seq:
            print(f"{name:20} {'none':>8}")
            continue
        plan, steps = run(args, model, "--seq", seq, "--steps", 1, "--memory-limit",
                          f"{args.small}MiB", *options)
        s = steps[-1]["stages"][0]
        net = s["most_resident_bytes"] - plan.get("offload", {}).get("resident_before_bytes", 0)
        print(f"{name:20} {seq:8} {seq / first:6.2f} {steps[-1]['step_ms'] / 1e3:7.1f} "
              f"{net / MIB if net else float('nan'):17.1f}  {' '.join(map(str, options[1:]))}")
        sys.stdout.flush()


def sliced(slices, keys, schedule="sppo"):
    return ["--schedule", schedule, "--slices", slices, "--partition-slices", "length", "--offload", "full",
            "--offload-keys", keys]


def keys(args):
    model = os.path.join(args.path, "narrow-keys")
    model_directory(model, args.narrow, 4, 1 << 30)
    print(f"llama style, 4 layers of {args.narrow}, keys and values stay or leave: the longest sequence, tokens")
    print("limit MiB      stay     leave   ratio")
    for limit in args.small, 8 * args.small:
        stay, leave = (max(longest_of(args, model, sliced(n, how), limit) for n in slices)
                       for how, slices in (("stay", (32, 64, 128, 256)), ("leave", (128, 256))))
        print(f"{limit:9} {stay:9} {leave:9} {leave / stay:7.1f}")
        sys.stdout.flush()
    plan, steps = run(args, model, "--seq", 4 * args.seq, "--steps", 1, "--memory-limit", f"{args.small}MiB",
                      *sliced(128, "leave"))
    s = steps[-1]["stages"][0]
    print(f"{4 * args.seq} tokens within {args.small} MiB: {steps[-1]['step_ms'] / 1e3:.1f} s, planned "
          f"{plan['offload']['planned_bytes'][0] / MIB:.1f} MiB, buffers {s['most_buffer_bytes'] / MIB:.1f}, resident "
          f"{s['most_resident_bytes'] / MIB:.1f}, {s['bytes_offloaded'] / MIB:.0f} out, "
          f"{s['bytes_brought_back'] / MIB:.0f} back, stalls {s['offload_stall_ms'] / 1e3:.1f} s")
    wide = os.path.join(args.path, "wide-keys")
    model_directory(wide, args.hidden, args.layers, args.seq)
    best = {}
    for _ in range(args.rounds):
        for name, options in (("none", sliced(args.slices, "auto")[:6]), ("stay", sliced(args.slices, "stay")),
                              ("leave", sliced(args.slices, "leave"))):
            _, steps = run(args, wide, "--seq", args.seq, "--steps", args.steps, *options)
            taken = min(s["step_ms"] for s in steps[1:] or steps)
            if taken <= best.get(name, (taken, 0))[0]:
                best[name] = taken, steps[-1]["stages"][0]
    print(f"{args.layers} layers of {args.hidden}, {args.seq} tokens in {args.slices} slices of one length")
    print("keys and values   step ms  ratio   buffers MiB   stalls ms")
    for name, (taken, s) in best.items():
        buffers = f"{s['most_buffer_bytes'] / MIB:13.1f} {s['offload_stall_ms']:11.1f}" if name != "none" else ""
        print(f"{name:15} {taken:9.0f} {taken / best['none'][0]:6.3f} {buffers}")


def shared(args):
    model = os.path.join(args.path, "narrow-shared")
    model_directory(model, args.narrow, 4, 1 << 30)
    print(f"llama style, 4 layers of {args.narrow} on 2 stages, {args.small} MiB a stage: the longest sequence, tokens")
    print("schedule             stay     leave   ratio")
    for schedule in "sppo", "sppo:multiplex":
        stay, leave = (max(longest_of(args, model, ["--stages", "2", *sliced(n, how, schedule)])
                           for n in (32, 64, 128)) for how in ("stay", "leave"))
        print(f"{schedule:15} {stay:9} {leave:9} {leave / stay:7.1f}")
        sys.stdout.flush()
    for schedule, how in ((s, h) for s in ("sppo", "sppo:multiplex") for h in ("stay", "leave")):
        plan, steps = run(args, model, "--seq", args.seq // 2, "--steps", 2, "--stages", "2",
                          *sliced(32, how, schedule))
        stages = steps[-1]["stages"]
        print(f"{schedule}, {args.seq // 2} tokens, keys {how}: {steps[-1]['step_ms'] / 1e3:.1f} s, planned "
              f"{[round(b / MIB, 1) for b in plan['offload']['planned_bytes']]} MiB, buffers "
              f"{stages[0]['most_buffer_bytes'] / MIB:.1f} of the process, "
              f"{sum(s['bytes_offloaded'] for s in stages) / MIB:.0f} out, "
              f"{sum(s['bytes_brought_back'] for s in stages) / MIB:.0f} back")


def optimizer(args):
    model = os.path.join(args.path, "narrow-states")
    model_directory(model, args.narrow, 4, 1 << 30)
    dry = json.loads(starpipe(args, model, "--seq", 256, "--dry-run", "--json").stdout)["stages"][0]
    states = dry["parameters_bytes"] + dry["optimizer_bytes"]
    limit = round(1.25 * states / MIB)
    print(f"llama style, 4 layers of {args.narrow}, states {states / MIB:.1f} MiB, limit {limit} MiB")
    print("optimizer    longest   step s   planned   buffers  resident  before")
    for name, more in ("in memory", []), ("leaves", ["--offload-optimizer"]):
        options = max(([*sliced(n, "leave"), *more] for n in (32, 64, 128)),
                      key=lambda o: longest_of(args, model, o, limit))
        seq = longest_of(args, model, options, limit)
        plan, steps = run(args, model, "--seq", seq, "--steps", 2, "--memory-limit", f"{limit}MiB", *options)
        s, off = steps[-1]["stages"][0], plan["offload"]
        print(f"{name:10} {seq:9} {steps[-1]['step_ms'] / 1e3:8.1f} {off['planned_bytes'][0] / MIB:9.1f} "
              f"{s['most_buffer_bytes'] / MIB:9.1f} {s['most_resident_bytes'] / MIB:9.1f} "
              f"{off.get('resident_before_bytes', 0) / MIB:7.1f}")
        sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=["limit", "longest", "keys"])
    parser.add_argument("--starpipe", default="build/starpipe")
    parser.add_argument("--dir", default="/var/tmp")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--seq", type=int, default=18432)
    parser.add_argument("--slices", type=int, default=32)
    parser.add_argument("--limit", type=int, default=512)
    parser.add_argument("--narrow", type=int, default=128)
    parser.add_argument("--small", type=int, default=64)
    args = parser.parse_args()
    args.path = tempfile.mkdtemp(prefix="starpipe-offload-")
    args.text = os.path.join(args.path, "text")
    rng = random.Random(7)
    with open(args.text, "wb") as f:
        f.write(bytes(rng.randrange(256) for _ in range(200003)))
    try:
        for what in args.what:
            {"limit": limit, "longest": longest, "keys": keys, "shared": shared, "optimizer": optimizer}[what](args)
    finally:
        shutil.rmtree(args.path)


if __name__ == "__main__":
    main()
