#!/usr/bin/env python3
"""What it costs to move activations to main memory: the same step with --offload none, adaptive and full.

`adaptive` has no limit, so that as much leaves as hides; with --shares it has limits, too, of what `none` took.
`full` is with keys that stay, and with keys that leave. The first step, in which buffers are made, is apart.

  ratio     step over that of `none`; bar of adaptive without a limit: 1.10
  bus       ms of the copies at the rate of the bus, both ways at once; bar of full: a step of 1.3 times the longer
            of that and of `none`
  stall     what the step waited for copies, ms, and what was expected

    bench/gpu/offload.py --starpipe build/starpipe [--seqs 16384,32768] [--shares 0.8,0.6] [--rounds 2] [--json FILE]
"""
import sys

sys.dont_write_bytecode = True
import common
from common import better, gib, timed

RATIO, BUS = 1.10, 1.3
ROWS = {"gpt3-1.3b": ("gpt3-1.3b", "16384,32768"), "tiny": ("tiny-gpt2", "512")}


def run(args, seq, options, seconds):
    if options[1] != "none":
        options = [*options, "--offload-dir", args.dir]
    return common.starpipe(args, ROWS[args.row][0], seq, "--schedule", "sppo", "--slices", args.slices,
                           "--stages", 1, "--micro-batches", 1, *options,
                           steps=1 + args.steps, last=args.steps, seconds=seconds)


def ways_of(args, peak_bytes):
    """Options by name; without a peak, as on a CPU, no limits."""
    ways = {"none": ["--offload", "none"], "adaptive": ["--offload", "adaptive"]}
    for share in args.shares.split(",") if peak_bytes and args.shares else []:
        ways[f"adaptive {share}"] = ["--offload", "adaptive",
                                     "--memory-limit", int(float(share) * peak_bytes)]
    ways["full, keys stay"] = ["--offload", "full", "--offload-keys", "stay"]
    ways["full"] = ["--offload", "full", "--offload-keys", "leave"]
    return ways


def line_of(way, r, none):
    if r["status"] != "ok":
        return f"{way:16} {r['status']}: {r['why'][:160]}"
    ratio = r["step_ms"] / none["step_ms"] if "step_ms" in none else 0
    return (f"{way:16} {r['step_ms']:9.1f} {ratio:7.3f} {gib(r['offloaded_bytes']):>8} {gib(r['returned_bytes']):>8} "
            f"{r.get('bus_ms', 0):8.1f} {r['stall_ms']:8.1f} {r['stall_expected_ms']:8.1f} "
            f"{gib(r['peak_bytes']):>8} {r['first_ms']:9.1f}")


def bars_of(rows):
    """What the bars ask for, of the ways that ran."""
    none = rows["none"].get("step_ms")
    ran = {way: rows[way] for way in ("adaptive", "full") if none and rows[way]["status"] == "ok"}
    bars = {"adaptive": (none, RATIO), "full": (none and max(none, ran.get("full", {}).get("bus_ms", 0)), BUS)}
    return {way: {"ratio": r["step_ms"] / bars[way][0], "bar": bars[way][1],
                  "met": r["step_ms"] <= bars[way][0] * bars[way][1]} for way, r in ran.items()}


def measure(args, seq, results):
    """All ways at one length."""
    rows = results["seqs"].setdefault(str(seq), {"rows": {}})["rows"]
    print(f"{results['device']}, {args.dtype}, {ROWS[args.row][0]}, {seq} tokens in {args.slices} slices")
    print(f"{'way':16} {'step ms':>9} {'ratio':>7} {'out GiB':>8} {'back GiB':>8} {'bus ms':>8} {'stall':>8} "
          f"{'expected':>8} {'peak GiB':>8} {'first ms':>9}")
    rows["none"] = timed(args.budget, "none", run, args, seq, ["--offload", "none"])
    ways = ways_of(args, rows["none"].get("peak_bytes"))
    for i in range(args.rounds):
        for way, options in ways.items():
            if i or way != "none":  # it has run
                rows[way] = better(rows.get(way), timed(args.budget, way, run, args, seq, options))
            common.save(args, results)
    for way in ways:
        print(line_of(way, rows[way], rows["none"]), flush=True)
    if args.device != "cuda":
        return
    bars = results["seqs"][str(seq)]["bars"] = bars_of(rows)
    for way, bar in bars.items():
        print(f"{way}: {bar['ratio']:.3f}, bar {bar['bar']}: {'met' if bar['met'] else 'not met'}", flush=True)


def main():
    p = common.parser(__doc__)
    common.add_row(p, ROWS)
    p.add_argument("--slices", type=int, default=8)
    p.add_argument("--seqs", metavar="N,...", help="tokens (16384,32768)")
    p.add_argument("--shares", default="", metavar="X,...", help="limits, of what none took")
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--steps", type=int, default=4, help="measured in a round, after one")
    p.add_argument("--dir", default="/var/tmp", help="--offload-dir")
    args = p.parse_args()
    args.row = common.row_of(args)

    with common.session(args) as results:
        results.update(model=ROWS[args.row][0], slices=args.slices, seqs={})
        for seq in (args.seqs or ROWS[args.row][1]).split(","):
            measure(args, int(seq), results)
            common.save(args, results)


if __name__ == "__main__":
    main()
