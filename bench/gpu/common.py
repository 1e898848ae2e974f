"""What the benchmarks of bench/gpu share: models, runs of either program, time that is left."""
import argparse
import array
import contextlib
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))

# The sizes of the presets with these names; llama-h4096 is cut to four of its layers.
MODELS = {
    "gpt2-124m": {"style": "gpt2", "layers": 12, "hidden": 768, "heads": 12, "vocab": 50257},
    # as many rows of the table as products like best
    "gpt2-124m-padded": {"style": "gpt2", "layers": 12, "hidden": 768, "heads": 12, "vocab": 50304},
    "gpt3-1.3b": {"style": "gpt2", "layers": 24, "hidden": 2048, "heads": 16, "vocab": 50257},
    "llama-h4096": {"style": "llama", "layers": 4, "hidden": 4096, "heads": 32, "kv_heads": 32,
                    "mlp": 10944, "vocab": 32000},
    "tiny-gpt2": {"style": "gpt2", "layers": 8, "hidden": 64, "heads": 4, "vocab": 256},
    "tiny-llama": {"style": "llama", "layers": 8, "hidden": 64, "heads": 4, "kv_heads": 2,
                   "mlp": 172, "vocab": 256},
}

OUT_OF_MEMORY = re.compile(
    r"out of memory|no memory|can(no|')t allocate|memory limit|not enough memory|ENOMEM|OutOfMemory|"
    r"MemoryAllocation|ALLOC_FAILED|needs? [\d.]+ [KMG]iB", re.I)


class Budget:
    """Seconds that are left, and how long a kind of run took the last time."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds
        self.took = {}

    def left(self):
        return max(0.0, self.end - time.monotonic())

    def allows(self, kind):
        return self.left() > 1.2 * self.took.get(kind, 5.0)


def config(model, seq):
    """config.json of a model whose positions are those of the row."""
    m = model
    if m["style"] == "llama":
        return {"model_type": "llama", "num_hidden_layers": m["layers"], "hidden_size": m["hidden"],
                "num_attention_heads": m["heads"], "num_key_value_heads": m["kv_heads"],
                "intermediate_size": m["mlp"], "vocab_size": m["vocab"],
                "max_position_embeddings": seq, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                "tie_word_embeddings": False, "hidden_act": "silu"}
    return {"model_type": "gpt2", "n_layer": m["layers"], "n_embd": m["hidden"],
            "n_head": m["heads"], "n_positions": seq, "vocab_size": m["vocab"],
            "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
            "tie_word_embeddings": True}


def product_weights(model):
    """Weights that products read, the head's once: N of the formula."""
    m, h = model, model["hidden"]
    if m["style"] == "llama":
        kv = m["kv_heads"] * h // m["heads"]
        layer = h * (h + 2 * kv) + h * h + 3 * h * m["mlp"]
    else:
        layer = 12 * h * h
    return m["layers"] * layer + m["vocab"] * h


def model_flops(model, seq, tokens):
    """6 N T for products, 12 L h s T / 2 for causal attention; nothing for what is recomputed."""
    return (6 * product_weights(model) + 6 * model["layers"] * model["hidden"] * seq) * tokens


def model_directory(args, model, seq):
    """A directory with config.json and random tokens for some sequences; made once."""
    path = os.path.join(args.path, f"{model}-{seq}")
    if not os.path.isdir(path):
        os.makedirs(path)
        with open(os.path.join(path, "config.json"), "w") as f:
            json.dump(config(MODELS[model], seq), f)
        rng = random.Random(7)
        with open(os.path.join(path, "tokens.bin"), "wb") as f:
            tokens = rng.choices(range(MODELS[model]["vocab"]), k=max(100000, 4 * seq))
            array.array("H", tokens).tofile(f)
    return path


def execute(command, seconds, env=None):
    """(status, stdout, last line of stderr); status is ok, oom, refused, error or timeout."""
    try:
        run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=env, start_new_session=True)
    except OSError as e:
        return "error", "", str(e)
    try:
        out, err = run.communicate(timeout=max(1.0, seconds))
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.communicate()
        return "timeout", "", f"still running after {seconds:.0f} s"
    lines = err.strip().splitlines() or [f"exit status {run.returncode}, no message"]
    if not run.returncode:
        return "ok", out, lines[-1]
    if run.returncode == -signal.SIGKILL or OUT_OF_MEMORY.search(err[-4000:]):
        return "oom", out, lines[-1]
    return "refused" if run.returncode == 2 else "error", out, lines[-1]


def expected_stalls(out):
    """The sum of "stalls ms (expected)" in brackets, of the lines of a report's stages."""
    rows = out.partition("stalls ms (expected)\n")[2].splitlines()
    found = [re.fullmatch(r" *\d+ +[\d.]+ +[\d.]+ +[\d.]+ \(([\d.]+)\)", row) for row in rows]
    return sum(float(m[1]) for m in found if m)


def starpipe(args, model, seq, *options, steps=10, last=None, seconds=600, variables=()):
    """Trains `steps` steps: status, and where it is ok the medians of the `last` steps of the log.
    `variables` are added to the environment."""
    path = model_directory(args, model, seq)
    log = os.path.join(args.path, "log.jsonl")
    if os.path.exists(log):
        os.remove(log)
    command = [args.starpipe, "train", "--model", path, "--tokens", path + "/tokens.bin",
               "--seq", str(seq), "--steps", str(steps), "--lr", "1e-4", "--log", log,
               "--device", args.device, "--dtype", args.dtype, "--report"]
    if args.device == "cpu":
        command += ["--threads", str(args.threads)]
    env = dict(os.environ, STARPU_SILENT="1", **dict(variables))
    env.setdefault("STARPU_HOME", args.path)
    status, out, why = execute([*command, *map(str, options)], seconds, env)
    if status != "ok":
        return {"status": status, "why": why}
    if not os.path.exists(log):  # a dry run
        return {"status": "ok"}
    with open(log) as f:
        lines = [json.loads(line) for line in f]
    done = [line for line in lines if "step" in line]
    tail = done[-(last or max(1, len(done) // 2)):]
    result = {"status": "ok", "parameters": lines[0].get("parameters"),
              "step_ms": statistics.median(s["step_ms"] for s in tail),
              "busy_ms": statistics.median(sum(t["busy_ms"] for t in s["stages"]) for s in tail),
              "update_ms": statistics.median(sum(t["update_ms"] for t in s["stages"]) for s in tail),
              "stall_ms": statistics.median(
                  sum(t.get("offload_stall_ms", 0) for t in s["stages"]) for s in tail),
              "offloaded_bytes": sum(t.get("bytes_offloaded", 0) for t in tail[-1]["stages"]),
              "returned_bytes": sum(t.get("bytes_brought_back", 0) for t in tail[-1]["stages"]),
              "stall_expected_ms": expected_stalls(out),
              "first_ms": done[0]["step_ms"],
              "bubble": statistics.mean(t["bubble_ratio"] for t in tail[-1]["stages"]),
              "loss_first": done[0]["loss"], "loss_last": done[-1]["loss"]}
    peaks = [t.get("peak_device_bytes") for s in done for t in s["stages"]]
    result["peak_bytes"] = max((p for p in peaks if p), default=None)  # not every build tells it
    offload = lines[0].get("offload")
    if offload:  # both ways at once
        result["bus_ms"] = 1e3 * max(result["offloaded_bytes"] / offload["bytes_written_per_s"],
                                     result["returned_bytes"] / offload["bytes_read_per_s"])
    return result


def torch_run(args, spec, seconds):
    """peer.py in a process of its own: its JSON, or why there is none."""
    variables = spec.pop("variables", {})
    spec = {"device": args.device, "threads": args.threads, **spec}
    status, out, why = execute([args.python, os.path.join(HERE, "peer.py"), json.dumps(spec)],
                               seconds, {**os.environ, **variables})
    return json.loads(out.strip().splitlines()[-1]) if status == "ok" else \
        {"status": status, "why": why}


def better(a, b):
    """The faster of two results; any that ran before one that did not, news before none."""
    if a is None or b["status"] == "ok" and (a["status"] != "ok" or b["step_ms"] < a["step_ms"]):
        return b
    return a


def timed(budget, kind, run, *what, **options):
    """Runs if the budget allows it, never longer than what is left."""
    if not budget.allows(kind):
        return {"status": "skipped", "why": "no time left"}
    start = time.monotonic()
    result = run(*what, **options, seconds=budget.left())
    if result["status"] == "timeout":
        result = {"status": "skipped", "why": "no time left"}
    budget.took[kind] = max(time.monotonic() - start, budget.took.get(kind, 0))
    return result


def refusal(args, dtype):
    """Why this build does not train on the device with that type, as it says; empty if it does."""
    status, _, why = execute([args.starpipe, "train", "--dry-run", "--model", "gpt-tiny",
                              "--device", args.device, "--dtype", dtype], 60)
    return "" if status == "ok" else why


def has_torch(args):
    return subprocess.run([args.python, "-c", "import torch"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


def machine(device):
    """Name, driver and memory of the GPU, or the name of the CPU."""
    if device == "cuda" and shutil.which("nvidia-smi"):
        out = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total",
                              "--format=csv,noheader,nounits"], stdout=subprocess.PIPE, text=True)
        fields = [f.strip() for f in (out.stdout.splitlines() or [""])[0].split(",")]
        if len(fields) == 3:
            return {"device": fields[0], "driver": fields[1], "memory_bytes": int(fields[2]) << 20}
    with open("/proc/cpuinfo") as f:
        name = re.search(r"model name\s*: (.*)", f.read())
    return {"device": name.group(1) if name and device == "cpu" else device,
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}


def parser(doc):
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--starpipe", default=os.path.join(HERE, "../../build/starpipe"))
    p.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--threads", type=int, default=os.cpu_count(), help="on the CPU")
    p.add_argument("--json", metavar="FILE", help="the figures, as one object")
    p.add_argument("--seconds-budget", type=float, default=540, metavar="S",
                   help="what does not fit is skipped, and said (default 540)")
    return p


def add_row(p, rows):
    p.add_argument("--row", "--rows", choices=rows, help="default gpt3-1.3b, on the CPU tiny")


def row_of(args):
    return args.row or ("tiny" if args.device == "cpu" else "gpt3-1.3b")


@contextlib.contextmanager
def session(args):
    """A scratch directory, the type of arithmetic, the clock; gives what the results begin with."""
    args.starpipe = os.path.abspath(args.starpipe)
    if not os.access(args.starpipe, os.X_OK):
        sys.exit(f"{args.starpipe}: no such program: give --starpipe PATH")
    args.dtype = "bf16" if args.device == "cuda" and not refusal(args, "bf16") else "f32"
    why = refusal(args, args.dtype)
    if why:
        sys.exit(f"{why}\n(--device cpu runs tiny rows)")
    args.path = tempfile.mkdtemp(prefix="starpipe-gpu-")
    args.budget = Budget(args.seconds_budget)
    results = {**machine(args.device), "dtype": args.dtype}
    try:
        yield results
    finally:
        shutil.rmtree(args.path)
    if failed(results):
        sys.exit(1)


def failed(node):
    """Whether a run anywhere in the results ended with an error, which lack of memory is not."""
    if isinstance(node, dict):
        return "error" in (node.get("status"), node.get("ended")) or any(map(failed, node.values()))
    return False


def save(args, results):
    """Written after every row: a run that is cut short leaves what it has."""
    if args.json:
        with open(args.json + ".tmp", "w") as f:
            json.dump(results, f, indent=1)
            f.write("\n")
        os.replace(args.json + ".tmp", args.json)


def size(text):
    """Bytes of 512MiB, 70GiB or a plain number."""
    number, unit = re.fullmatch(r"([\d.]+)(|KiB|MiB|GiB)", text).groups()
    return int(float(number) * 1024 ** ("", "KiB", "MiB", "GiB").index(unit))


def gib(bytes_):
    return f"{bytes_ / (1 << 30):.3g}" if bytes_ else "-"
