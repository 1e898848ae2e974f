#!/usr/bin/env python3
"""What a GPU does in a training step, kernel by kernel: starpipe's beside PyTorch's.

Each program runs with bench/kernel_times.c loaded by CUDA, which records every kernel. Of the last steps are printed, in ms
a step: kernels by kind and the longest by name, for how long any kernel ran, and for how long none did.

    bench/gpu/kernels.py --starpipe build/starpipe --rows gpt3-1.3b-8k [--sides starpipe,compile] [--json FILE]

Sides: starpipe, fast (any order of sums in attention), eager, compile. Recording costs some microseconds a kernel.
"""
import collections
import ctypes
import glob
import os
import re
import sys

sys.dont_write_bytecode = True
import common
import compare
from common import timed

# What a kernel is for, by its name: the first that matches.
KINDS = (("copies", r"^\[copy|^\[fill"),
         ("attention", r"attention|flash|fmha|cudnn"),
         ("products", r"gemm|nvjet|cutlass|xmma|splitk|cublas"),
         ("update", r"adam|sum_squares|squares|lamb|multi_tensor"),
         ("messages", r"nccl"),
         ("rest", r""))


def demangled(name, library=[]):
    """A C++ name as one reads it, without arguments."""
    if not library:
        library.append(ctypes.CDLL("libstdc++.so.6").__cxa_demangle)
        library[0].restype = ctypes.c_char_p
    status = ctypes.c_int()
    text = library[0](name.encode(), None, None, ctypes.byref(status)) if name.startswith("_Z") else None
    text = text.decode() if text else name
    text = re.sub(r"^void ", "", text.replace("(anonymous namespace)::", ""))
    return re.split(r"[(<]", text)[0] if len(text) > 60 else re.split(r"\(", text)[0]


def records(path):
    with open(path) as f:
        for line in f:
            begin, end, stream, name = line.rstrip("\n").split(" ", 3)
            yield int(begin), int(end), stream, name


def kind_of(name):
    return next(kind for kind, pattern in KINDS if re.search(pattern, name, re.I))


def digest(path, step_ms, steps):
    """Of the last `steps` steps, ms a step: kinds, names with how often, busy, idle."""
    all_ = sorted(records(path))
    if not all_:
        return None
    last = max(end for _, end, _, _ in all_)
    first = last - 1e6 * step_ms * steps
    kinds, names, counts = collections.Counter(), collections.Counter(), collections.Counter()
    busy, until, longest_gaps = 0, first, collections.Counter()
    before = ""
    for begin, end, _, name in all_:
        if begin < first:
            continue
        name = demangled(name)
        ms = (end - begin) / 1e6 / steps
        kinds[kind_of(name)] += ms
        names[name] += ms
        counts[name] += 1 / steps
        if begin > until:
            longest_gaps[f"{before} -> {name}"] += (begin - until) / 1e6 / steps
        busy += max(0, end - max(begin, until))
        until, before = max(until, end), name
    busy /= 1e6 * steps
    return {"step_ms": step_ms, "busy_ms": busy, "idle_ms": step_ms - busy, "kinds": dict(kinds.most_common()),
            "kernels": sum(counts.values()),
            "names": {n: {"ms": ms, "times": counts[n]} for n, ms in names.most_common(40)},
            "gaps": dict(longest_gaps.most_common(12))}


def profile(args, row, side, seconds):
    """The run's result, with `profile`."""
    path = os.path.join(args.path, "kernels")
    recorder = {"CUDA_INJECTION64_PATH": args.recorder, "KERNEL_TIMES": path}
    if side in compare.OURS:
        run = compare.ours(args, row, side, "--stages", args.stages, "--schedule", args.schedule,
                           *args.options.split(), seconds=seconds, variables=recorder)
    else:
        run = compare.theirs(args, row, False, side, args.precision, args.sdpa, seconds, variables=recorder)
    files = sorted(glob.glob(path + ".*"), key=os.path.getsize)  # a process each; the one that trained recorded most
    if run["status"] == "ok":
        run["profile"] = digest(files[-1], run["step_ms"], args.steps) if files else None
        if not run["profile"]:
            run.update(status="error", why=f"{args.recorder} recorded nothing")
    for file in files:
        os.remove(file)
    return run


def show(side, p, most):
    print(f"  {side}: step {p['step_ms']:.2f} ms, busy {p['busy_ms']:.2f}, idle {p['idle_ms']:.2f}, "
          f"{p['kernels']:.0f} kernels; " + ", ".join(f"{k} {ms:.2f}" for k, ms in p["kinds"].items()))
    for name, it in list(p["names"].items())[:most]:
        print(f"    {it['ms']:8.3f} ms  {it['times']:6.0f} x {1e3 * it['ms'] / it['times']:9.1f} us  {name[:110]}")
    for name, ms in list(p["gaps"].items())[:most // 3]:
        print(f"    {ms:8.3f} ms  idle between {name[:120]}", flush=True)


def main():
    p = common.parser(__doc__)
    p.add_argument("--rows", default="gpt3-1.3b-8k", metavar="NAME,...")
    p.add_argument("--sides", default="starpipe,compile", metavar="NAME,...")
    p.add_argument("--recorder", metavar="FILE", help="kernel_times.so (beside starpipe, in bench/.libs/)")
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--stages", type=int, default=1)
    p.add_argument("--schedule", default="1f1b")
    p.add_argument("--options", default="", help="more options of starpipe")
    p.add_argument("--sdpa", default="cudnn")
    p.add_argument("--precision", default="autocast")
    p.add_argument("--most", type=int, default=24, help="names to print")
    args = p.parse_args()

    with common.session(args) as results:
        built = os.path.join(os.path.dirname(args.starpipe), "bench/.libs/kernel_times.so")
        args.recorder = os.path.abspath(args.recorder or built)
        if not os.path.exists(args.recorder):
            sys.exit(f"{args.recorder}: no such file: build it with `make bench`, where the toolkit has CUPTI, "
                     "or give --recorder FILE")
        results["rows"] = {}
        for row in args.rows.split(","):
            print(row, flush=True)
            results["rows"][row] = {}
            for side in args.sides.split(","):
                run = timed(args.budget, (row, side), profile, args, row, side)
                results["rows"][row][side] = run
                if run["status"] == "ok":
                    show(side, run["profile"], args.most)
                else:
                    print(f"  {side}: {run['status']}: {run['why'][:300]}", flush=True)
                common.save(args, results)


if __name__ == "__main__":
    main()
