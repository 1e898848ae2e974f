#!/usr/bin/env python3
"""What it costs to move activations to main memory: the same step with --offload none, adaptive and full.

The sequence is the longest of 32768, 16384, ... tokens of which nothing need leave. `adaptive` has no limit, so
that as much leaves as hides; then it has limits, in shares of what `none` took. The first step, in which buffers are
made, is apart.

  ratio   step over that of `none`; bar of adaptive without a limit: 1.10
  stall   what the step waited for copies, ms
  left    what went to main memory in a step

    bench/gpu/offload.py --starpipe build/starpipe [--shares 0.8,0.6] [--slices 8] [--rounds 2] [--json FILE]
"""
import sys

sys.dont_write_bytecode = True
import common
from common import better, gib, timed

RATIO = 1.10
ROWS = {"gpt3-1.3b": ("gpt3-1.3b", 32768), "tiny": ("tiny-gpt2", 512)}


def run(args, seq, options, seconds):
    if "--offload" in options:
        options = [*options, "--offload-dir", args.dir]
    return common.starpipe(args, ROWS[args.row][0], seq, "--schedule", "sppo", "--slices", args.slices,
                           "--stages", 1, "--micro-batches", 1, *options,
                           steps=1 + args.steps, last=args.steps, seconds=seconds)


def sequence_of(args):
    """The longest sequence that needs no offload, and its first result."""
    seq = ROWS[args.row][1]
    while True:
        result = timed(args.budget, "none", run, args, seq, ["--offload", "none"])
        if result["status"] not in ("oom", "refused") or seq <= 64 * args.slices:
            return seq, result
        seq //= 2


def ways_of(args, peak_bytes):
    """Options by name; without a peak, as on a CPU, no limits."""
    ways = {"none": ["--offload", "none"], "adaptive": ["--offload", "adaptive"]}
    for share in args.shares.split(",") if peak_bytes and args.shares else []:
        ways[f"adaptive {share}"] = ["--offload", "adaptive",
                                     "--memory-limit", int(float(share) * peak_bytes)]
    ways["full"] = ["--offload", "full"]
    return ways


def line_of(way, r, none):
    if r["status"] != "ok":
        return f"{way:14} {r['status']}: {r['why'][:160]}"
    left, ratio = r["offloaded_bytes"], r["step_ms"] / none["step_ms"] if "step_ms" in none else 0
    return (f"{way:14} {r['step_ms']:9.1f} {ratio:7.3f} {r['stall_ms']:9.1f} {gib(left):>9} "
            f"{gib(r['peak_bytes']):>9} {r['first_ms']:10.1f}")


def main():
    p = common.parser(__doc__)
    common.add_row(p, ROWS)
    p.add_argument("--slices", type=int, default=8)
    p.add_argument("--shares", default="0.8,0.6", metavar="X,...", help="limits, of what none took")
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--steps", type=int, default=4, help="measured in a round, after one")
    p.add_argument("--dir", default="/var/tmp", help="--offload-dir")
    args = p.parse_args()
    args.row = common.row_of(args)

    with common.session(args) as results:
        seq, none = sequence_of(args)
        ways = ways_of(args, none.get("peak_bytes"))
        rows = results["rows"] = {"none": none}
        results.update(model=ROWS[args.row][0], seq=seq, slices=args.slices)
        print(f"{results['device']}, {args.dtype}, {ROWS[args.row][0]}, {seq} tokens in {args.slices} slices")
        print(f"{'way':14} {'step ms':>9} {'ratio':>7} {'stall ms':>9} {'left GiB':>9} {'peak GiB':>9} "
              f"{'first ms':>10}")
        for i in range(args.rounds):
            for way, options in ways.items():
                if i or way != "none":  # it has run
                    rows[way] = better(rows.get(way), timed(args.budget, way, run, args, seq, options))
                common.save(args, results)
        for way in ways:
            print(line_of(way, rows[way], rows["none"]), flush=True)
        if args.device == "cuda" and none["status"] == rows["adaptive"]["status"] == "ok":
            ratio = rows["adaptive"]["step_ms"] / rows["none"]["step_ms"]
            results["bar"] = {"ratio": ratio, "bar": RATIO, "met": ratio <= RATIO}
            print(f"adaptive takes {ratio:.3f} of the step with nothing moved, bar {RATIO}: "
                  f"{'met' if ratio <= RATIO else 'not met'}")
        common.save(args, results)


if __name__ == "__main__":
    main()
