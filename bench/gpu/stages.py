#!/usr/bin/env python3
"""Four stages beside one on the same device, and what scheduling adds to the kernels.

On one device a pipeline can only cost: the same kernels, with messages and an order between them.
Each schedule runs the same step with one stage and with four, in turns; of each the best round
counts (the median of a round's last steps). A schedule that refuses one stage is measured against 1f1b.

  ratio      step with four stages over step with one; bar 1.05
  overhead   step less the kernel times of all stages, those of their ops and updates (busy_ms, update_ms), of
             the step, %; bar 2 %

    bench/gpu/stages.py --starpipe build/starpipe [--schedules 1f1b,zbv,...] [--rounds 2]
"""
import sys

sys.dont_write_bytecode = True
import common
from common import gib, timed

RATIO, OVERHEAD = 1.05, 0.02

# model, sequence, micro-batches; and where a schedule cuts sequences: slices, sequence, micro-batches
ROWS = {"gpt3-1.3b": (("gpt3-1.3b", 2048, 8), (4, 8192, 2), (8, 32768, 1)),
        "tiny": (("tiny-gpt2", 256, 8), (2, 256, 8), (4, 512, 1))}
SCHEDULES = ["1f1b", "interleaved", "zb1p", "zbv", "dualpipev", "helix", "seq1f1b", "sppo",
             "weipipe", "fsdp"]


def run(args, schedule, stages, seconds):
    (model, seq, micro), sliced, long = ROWS[args.row]
    name, slices = schedule.split(":")[0], 1
    if name in ("seq1f1b", "terapipe"):
        slices, seq, micro = sliced
    elif name == "sppo":
        slices, seq, micro = long
    options = ["--schedule", schedule, "--stages", stages, "--slices", slices,
               "--micro-batches", micro, "--recompute", args.recompute]
    return common.starpipe(args, model, seq, *options, steps=3 + args.steps, last=args.steps,
                           seconds=seconds)


def best_of(args, schedule):
    """The best result with one stage and with four, and the schedule of the first."""
    best, one = {}, schedule
    for _ in range(args.rounds):
        for stages in (1, 4):
            name = one if stages == 1 else schedule
            r = timed(args.budget, (schedule, stages), run, args, name, stages)
            if r["status"] == "refused" and stages == 1 and name != "1f1b":
                one = name = "1f1b"
                r = timed(args.budget, (schedule, stages), run, args, name, stages)
            old = best.get(stages)
            if old is None or r["status"] == "ok" and (
                    old["status"] != "ok" or r["step_ms"] < old["step_ms"]):
                best[stages] = r
    return best, one


def main():
    p = common.parser(__doc__)
    common.add_row(p, ROWS)
    p.add_argument("--schedules", default=",".join(SCHEDULES), metavar="NAME,...")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--steps", type=int, default=6, help="measured in a round, after three")
    p.add_argument("--recompute", default="no-attention", help="the same for all")
    args = p.parse_args()
    args.row = common.row_of(args)

    with common.session(args) as results:
        print(f"{results['device']}, {args.dtype}, {args.row}, recompute {args.recompute}")
        print(f"{'schedule':14} {'1 stage':>9} {'4 stages':>9} ms {'ratio':>7}"
              f" {'overhead %: 1':>14} {'4':>5} {'peak GiB: 1':>12} {'4':>5}")
        results["rows"] = {}
        for schedule in args.schedules.split(","):
            best, one = best_of(args, schedule)
            row = results["rows"][schedule] = {"one_stage": best[1], "four_stages": best[4],
                                               "one_stage_schedule": one}
            bad = next((f"with {n}: {r['status']}: {r['why'][:200]}"
                        for n, r in best.items() if r["status"] != "ok"), None)
            if bad:
                print(f"{schedule:14} {bad}", flush=True)
                continue
            row["ratio"] = best[4]["step_ms"] / best[1]["step_ms"]
            row["overhead"] = [1 - (best[n]["busy_ms"] + best[n]["update_ms"]) / best[n]["step_ms"]
                               for n in (1, 4)]
            missed = ["ratio"] * (row["ratio"] > RATIO) + ["overhead"] * (
                max(row["overhead"]) > OVERHEAD)
            row["missed"] = missed
            print(f"{schedule:14} {best[1]['step_ms']:9.1f} {best[4]['step_ms']:9.1f}    "
                  f"{row['ratio']:7.3f} {100 * row['overhead'][0]:14.1f} "
                  f"{100 * row['overhead'][1]:5.1f} {gib(best[1]['peak_bytes']):>12} "
                  f"{gib(best[4]['peak_bytes']):>5}  "
                  f"{'over the bar: ' + ', '.join(missed) if missed else 'within the bars'}"
                  f"{'' if one == schedule else ' (one stage: 1f1b)'}", flush=True)
            common.save(args, results)


if __name__ == "__main__":
    main()
