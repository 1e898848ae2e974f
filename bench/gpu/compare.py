#!/usr/bin/env python3
"""Training steps of starpipe and of PyTorch, eager and compiled, on one device in one run.

The programs take turns; of each the best round counts (the median of a round's last steps). A
row that does not fit in memory says so; unless --recompute says which, it is then run once more
with recomputation on both sides.

    bench/gpu/compare.py --starpipe build/starpipe [--rows gpt2,llama] [--rounds 2] [--json FILE]

Rows (--rows takes beginnings of names):
"""
import concurrent.futures
import sys

sys.dont_write_bytecode = True
import common
from common import MODELS, better, gib, timed

ROWS = {  # model, sequence, micro-batch size, micro-batches
    "gpt2-124m-1k": ("gpt2-124m", 1024, 16, 2),
    "gpt2-124m-padded-1k": ("gpt2-124m-padded", 1024, 16, 2),
    "gpt3-1.3b-2k": ("gpt3-1.3b", 2048, 4, 2),
    "gpt3-1.3b-8k": ("gpt3-1.3b", 8192, 1, 4),
    "gpt3-1.3b-32k": ("gpt3-1.3b", 32768, 1, 1),
    "llama-h4096-16k": ("llama-h4096", 16384, 1, 2),
    "tiny-gpt2": ("tiny-gpt2", 128, 2, 4),
    "tiny-llama": ("tiny-llama", 128, 2, 4),
}
OURS, PEERS = ("starpipe", "fast"), ("eager", "compile")
FAST = {"SP_CUDA_FAST": "1"}  # sums of attention's backward in any order, as PyTorch's are
__doc__ += "".join(f"    {n:16} {m}, s = {s}, {k} micro-batches of {b}\n"
                   for n, (m, s, b, k) in ROWS.items())


def ours(args, row, side, *options, seconds, variables=()):
    model, seq, batch, micro = ROWS[row]
    return common.starpipe(args, model, seq, "--micro-batches", micro, "--micro-batch-size", batch, *options,
                           steps=args.warmup + args.steps, last=args.steps, seconds=seconds,
                           variables={**dict(variables), **(FAST if side == "fast" else {})})


def theirs(args, row, recompute, mode, precision, sdpa, seconds, **other):
    model, seq, batch, micro = ROWS[row]
    return common.torch_run(args, {"model": MODELS[model], "seq": seq, "batch": batch,
                                   "micro": micro, "mode": mode, "precision": precision,
                                   "sdpa": sdpa,
                                   "recompute": recompute, "warmup": args.warmup,
                                   "steps": args.steps, **other}, seconds)


def compile_ahead(args, rows):
    """One step of every compiled model, several at a time: PyTorch keeps what it compiled, and a later run takes a few
    seconds instead of tens. What fails here, for lack of memory say, is compiled in its turn."""
    with concurrent.futures.ThreadPoolExecutor(args.ahead) as pool:
        for row in rows:
            for precision in args.precisions:
                pool.submit(theirs, args, row, args.recompute == "full", "compile", precision, args.sdpa[0],
                            args.budget.left(), warmup=1, steps=1)


def measure(args, row, recompute):
    """The best result of each side, PyTorch's with its fastest kernel of attention; and of each precision of PyTorch's
    apart, as best["eager autocast"]."""
    best = {}
    ways = [(p, k) for p in args.precisions for k in args.sdpa]
    for n in range(args.rounds):
        for side in OURS if args.device == "cuda" else OURS[:1]:
            best[side] = better(best.get(side), timed(
                args.budget, (row, side), ours, args, row, side, "--stages", 1, "--schedule", "1f1b",
                "--recompute", "full" if recompute else "none"))
        for mode in args.modes.split(",") if args.peer else ():
            # After the first round only the fastest way of each precision.
            for precision, sdpa in ways if not n else fastest_ways(best, mode, args.precisions):
                result = timed(args.budget, (row, mode), theirs, args, row, recompute, mode,
                               precision, sdpa)
                result = {**result, "precision": precision, "sdpa": sdpa}
                for side in (mode, f"{mode} {precision}"):
                    best[side] = better(best.get(side), result)
    return best


def fastest_ways(best, mode, precisions):
    return [(p, best[f"{mode} {p}"]["sdpa"]) for p in precisions]


def figures(row, best, peak):
    """Rates and ratios beside the times."""
    model, seq, batch, micro = ROWS[row]
    tokens = batch * micro * seq
    flops = common.model_flops(MODELS[model], seq, tokens)
    result = {"model": model, "seq": seq, "micro_batch_size": batch, "micro_batches": micro,
              "tokens": tokens, "model_flops": flops}
    for side, r in best.items():
        if r["status"] == "ok":
            r["tokens_per_s"] = 1e3 * tokens / r["step_ms"]
            r["mfu"] = flops / r["step_ms"] / 1e9 / peak if peak else None
        result[side] = r
    for us, prefix in ((best["starpipe"], "ratio_"), (best.get("fast"), "fast_ratio_")):
        for side in (s for s in best if s not in OURS):
            r = best.get(side)
            if us and r and us["status"] == r["status"] == "ok":
                result[prefix + side] = r["step_ms"] / us["step_ms"]
                if us["parameters"] != r["parameters"]:
                    sys.exit(f"{row}: {us['parameters']} parameters here, {r['parameters']} there")
    return result


def show(name, result):
    apart = [s for s in result if s.startswith(PEERS) and " " in s]
    for side in (*OURS, *(sorted(apart) or PEERS)):
        r = result.get(side)
        if r is None:
            continue
        line = f"{name if side == OURS[0] else '':24} {side:16}"
        if r["status"] != "ok":
            print(f"{line} {r['status']}: {r['why'][:200]}")
            continue
        mfu = f"{100 * r['mfu']:6.1f}" if r.get("mfu") else f"{'-':>6}"
        ratios = " ".join(f"{result[p + side]:6.2f}" if p + side in result else f"{'':6}"
                          for p in ("ratio_", "fast_ratio_"))
        print(f"{line} {r['step_ms']:9.1f} {r['tokens_per_s']:9.0f} {mfu} "
              f"{gib(r.get('peak_bytes')):>8} {ratios}  {r.get('sdpa', '')}".rstrip())
    sys.stdout.flush()


def main():
    p = common.parser(__doc__)
    p.add_argument("--rows", metavar="NAME,...", help="default: all, on the CPU tiny")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--steps", type=int, default=6, help="measured in a round (default 6)")
    p.add_argument("--warmup", type=int, default=3, help="before them (default 3)")
    p.add_argument("--recompute", choices=("none", "full", "auto"), default="auto")
    p.add_argument("--modes", default=",".join(PEERS), metavar="NAME,...", help="PyTorch's, eager,compile")
    p.add_argument("--precisions", default="autocast,bf16", metavar="NAME,...",
                   help="PyTorch's where ours is bf16")
    p.add_argument("--ahead", type=int, default=0, metavar="N",
                   help="compile PyTorch's models first, N at a time (default 0: each in its turn)")
    p.add_argument("--sdpa", default="", metavar="NAME,...",
                   help="PyTorch's kernels of attention: flash, cudnn, default (flash,cudnn; f32, CPU: default)")
    args = p.parse_args()
    starts = tuple((args.rows or ("tiny" if args.device == "cpu" else "gpt,llama")).split(","))
    rows = [name for name in ROWS if name.startswith(starts)]
    if set(args.modes.split(",")) - set(PEERS):
        p.error(f"--modes takes {', '.join(PEERS)}")
    if not rows:
        p.error(f"no row begins with {args.rows}: {', '.join(ROWS)}")

    with common.session(args) as results:
        peak = common.torch_run(args, {"gemm": 8192 if args.device == "cuda" else 1024,
                                       "dtype": args.dtype}, args.budget.left())
        args.peer = peak["status"] == "ok"
        args.precisions = args.precisions.split(",") if args.dtype == "bf16" else ["f32"]
        args.sdpa = args.sdpa.split(",") if args.sdpa else \
            ["flash", "cudnn"] if args.device == "cuda" and args.dtype == "bf16" else ["default"]
        results.update(gemm_tflops=peak.get("tflops"),
                       gemm_tflops_sustained=peak.get("tflops_sustained"), torch=peak.get("torch"),
                       sdpa=args.sdpa, rows={})
        if args.peer:
            print(f"{results['device']}, PyTorch {peak['torch']}, {args.dtype}; "
                  f"products at {peak['tflops']:.3g} TFLOP/s, {peak['tflops_sustained']:.3g} for long; "
                  f"attention by {', '.join(args.sdpa)}")
        else:
            print(f"{results['device']}, {args.dtype}; our figures alone: {peak['why'][:200]}")
        print(f"{'row':24} {'':16} {'step ms':>9} {'tokens/s':>9} {'MFU %':>6} {'peak GiB':>8} "
              f"{'ratio':>6} {'fast':>6}  attention")
        if args.peer and args.ahead > 0 and "compile" in args.modes:
            compile_ahead(args, rows)
        for row in rows:
            for recompute in {"none": [False], "full": [True], "auto": [False, True]}[args.recompute]:
                best = measure(args, row, recompute)
                name = row + (" recomputed" if recompute else "")
                results["rows"][name] = figures(row, best, peak.get("tflops"))
                show(name, results["rows"][name])
                common.save(args, results)
                if not any(r["status"] == "oom" for r in best.values()):
                    break


if __name__ == "__main__":
    main()
