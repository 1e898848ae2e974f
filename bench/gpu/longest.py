#!/usr/bin/env python3
"""The longest sequence that trains in the memory of one device: one micro-batch of one sequence.

Doubles the sequence until it does not fit, then halves the distance down to --grain tokens; a length
counts if whole steps ran. Ways of starpipe: nothing moved (none), everything recomputed (recompute),
sppo with --offload full and adaptive in the number of slices that 'plan' would take. PyTorch with
activation checkpointing, eager, in either precision. --limit is starpipe's --memory-limit, and what PyTorch's
allocator may take. A length that starpipe's own plan refuses is
not tried.

    bench/gpu/longest.py --starpipe build/starpipe [--ways none,adaptive,torch-bf16] [--json FILE]

Bars: no offload at least as long as PyTorch; adaptive at least four times as long, unless main memory ends it.
"""
import os
import sys

sys.dont_write_bytecode = True
import common
from common import MODELS, gib, timed

ROWS = {"gpt3-1.3b": (8192, 2048, 1 << 20), "tiny": (512, 512, 4096)}  # first, grain, last length
OURS = {"none": ["--schedule", "1f1b"],
        "recompute": ["--schedule", "1f1b", "--recompute", "full"],
        "full": ["--schedule", "sppo", "--slices", "auto", "--offload", "full"],
        "adaptive": ["--schedule", "sppo", "--slices", "auto", "--offload", "adaptive"]}
THEIRS = {"torch-autocast": "autocast", "torch-bf16": "bf16", "torch-f32": "f32"}
BARS = {"none": ("recompute", 1.0), "adaptive": ("adaptive", 4.0)}


def ours(args, way, seq, seconds):
    options = ["--stages", 1, "--micro-batches", 1, *OURS[way]]
    if "--offload" in options:
        options += ["--offload-dir", args.dir]
    if args.limit:
        options += ["--memory-limit", args.limit]
    planned = common.starpipe(args, args.model, seq, *options, "--dry-run", steps=1, seconds=60)
    if planned["status"] != "ok":
        return planned
    return common.starpipe(args, args.model, seq, *options, steps=args.steps, last=1,
                           seconds=seconds)


def theirs(args, way, seq, seconds):
    return common.torch_run(args, {"model": MODELS[args.model], "seq": seq, "batch": 1, "micro": 1,
                                   "mode": "eager", "precision": THEIRS[way], "recompute": True,
                                   "memory_bytes": args.limit or 0, "warmup": args.steps - 1, "steps": 1}, seconds)


def longest(args, way, budget):
    """What fits at most: its result with `seq`, the shortest that does not, why the search ended."""
    first, grain, last = ROWS[args.row]
    low, high, best, seq = 0, None, {}, first
    while high is None or high - low > grain:
        result = timed(budget, way, theirs if way in THEIRS else ours, args, way, seq)
        if result["status"] == "ok":
            low, best = seq, result
        elif result["status"] in ("oom", "refused"):
            high = seq
        if result["status"] in ("skipped", "error"):
            break
        if high is None and low >= last:
            result = {"status": "limit", "why": "longer ones are not tried"}
            break
        seq = 2 * low if high is None else max(grain, (low + high) // 2 // grain * grain)
        if high is not None and not low < seq < high:
            break
    best.update(seq=low, too_long=high, ended=result["status"], why=result.get("why"))
    return best


def main():
    p = common.parser(__doc__)
    common.add_row(p, ROWS)
    p.add_argument("--ways", metavar="NAME,...", help=", ".join([*OURS, *THEIRS]))
    p.add_argument("--limit", type=common.size, metavar="BYTES",
                   help="of either program, as 40GiB: shorter sequences tell as much (default: all that is free)")
    p.add_argument("--dir", default=os.environ.get("TMPDIR", "/var/tmp"), help="--offload-dir")
    p.add_argument("--steps", type=int, default=1, help="whole steps of a trial (default 1)")
    args = p.parse_args()
    args.row = common.row_of(args)
    args.model = "tiny-gpt2" if args.row == "tiny" else args.row

    with common.session(args) as results:
        torch = [w for w in THEIRS if (THEIRS[w] == "f32") == (args.dtype == "f32")]
        if not common.has_torch(args):
            print(f"{args.python} has no PyTorch: our figures alone")
            torch = []
        ways = args.ways.split(",") if args.ways else ["adaptive", *torch, "none", "recompute", "full"]
        unknown = [w for w in ways if w not in OURS and w not in THEIRS]
        if unknown:
            p.error(f"no such way: {', '.join(unknown)}")
        print(f"{results['device']}, {args.dtype}, {args.model}, "
              f"memory {gib(results['memory_bytes'])} GiB" +
              (f", --memory-limit {gib(args.limit)} GiB" if args.limit else ""))
        print(f"{'way':16} {'tokens':>8} {'too long':>9} {'step s':>8} {'peak GiB':>9}")
        results.update(limit_bytes=args.limit, ways={})
        for i, way in enumerate(ways):
            share = common.Budget(args.budget.left() / (len(ways) - i))
            r = results["ways"][way] = longest(args, way, share)
            step = f"{r['step_ms'] / 1e3:8.2f}" if "step_ms" in r else f"{'-':>8}"
            end = "" if r["ended"] in ("ok", "oom", "refused") else f"  {r['ended']}: {r['why']}"
            print(f"{way:16} {r['seq']:8} {r['too_long'] or '-':>9} {step} "
                  f"{gib(r.get('peak_bytes')):>9}{end}", flush=True)
            common.save(args, results)
        if args.device == "cuda":  # on the CPU PyTorch knows no limit
            report(args, results)


def report(args, results):
    """The bars, against the longer of PyTorch's two precisions."""
    found = {way: r["seq"] for way, r in results["ways"].items()}
    peer = max((found[w] for w in THEIRS if w in found), default=0)
    for bar, (way, want) in BARS.items():
        if peer and way in found:
            ratio = found[way] / peer
            results.setdefault("bars", {})[bar] = {"ratio": ratio, "bar": want, "met": ratio >= want}
            print(f"{way} is {ratio:.2f} times as long as PyTorch with checkpointing, bar {want}: "
                  f"{'met' if ratio >= want else 'not met'}")
    common.save(args, results)


if __name__ == "__main__":
    main()
