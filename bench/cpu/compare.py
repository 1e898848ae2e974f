#!/usr/bin/env python3
"""Training steps of starpipe and of PyTorch, eager and compiled, on the same cores, in one run.

For each model and type the programs take turns, so that a change of the machine's mood hits all;
the best of all steps of each counts, and the ratio is PyTorch's time over ours (above 1: we are
faster). PyTorch's bf16 is autocast: its weights stay f32, as our master weights do. Without PyTorch
only our times are printed.

    bench/cpu/compare.py [--starpipe build/starpipe] [--threads 2] [--rounds 3] [--dtypes f32,bf16]
                         [--modes eager,compile] [MODEL ...]

Models: demo (the model of ./quickstart demo), stack (twelve GPT-2 124M layers with a byte
vocabulary: the layers alone), gpt2-124m (the whole model, 50257 tokens), all with forward,
backward, clipping and AdamW.
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA = {"kv_heads": 2, "mlp": 172}  # of the demo's model, llama-tiny; the others are GPT-2 style
MODELS = {  # layers, hidden, heads, vocabulary, sequence, micro-batch size, micro-batches, steps
    "demo": (8, 64, 4, 256, 64, 2, 8, 40),
    "stack": (12, 768, 12, 256, 1024, 1, 1, 4),
    "gpt2-124m": (12, 768, 12, 50257, 1024, 1, 1, 4),
}


def model_directory(root, name):
    layers, hidden, heads, vocab, seq = MODELS[name][:5]
    path = os.path.join(root, name)
    os.makedirs(path)
    config = {"model_type": "llama", "num_hidden_layers": layers, "hidden_size": hidden,
              "num_attention_heads": heads, "num_key_value_heads": LLAMA["kv_heads"],
              "intermediate_size": LLAMA["mlp"], "vocab_size": vocab,
              "max_position_embeddings": seq, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "tie_word_embeddings": False, "hidden_act": "silu"}
    if name != "demo":
        config = {"model_type": "gpt2", "n_layer": layers, "n_embd": hidden, "n_head": heads,
                  "n_positions": seq, "vocab_size": vocab, "layer_norm_epsilon": 1e-5,
                  "activation_function": "gelu_new", "tie_word_embeddings": True}
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f)
    rng = random.Random(7)
    with open(os.path.join(path, "tokens.bin"), "wb") as f:
        for _ in range(100000):
            f.write(rng.randrange(vocab).to_bytes(2, "little"))
    return path


def cpu_name():
    with open("/proc/cpuinfo") as f:
        lines = f.read().splitlines()
    name = next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), "CPU")
    flags = next((x.split() for x in lines if x.startswith("flags")), [])
    units = [x for x in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if x in flags]
    return f"{name} ({', '.join(units) or 'no vector units named'})"


def ours(args, path, name, dtype):
    seq, batch, micro, steps = MODELS[name][4:]
    log = os.path.join(path, "log.jsonl")
    subprocess.run([args.starpipe, "train", "--model", path, "--tokens", path + "/tokens.bin",
                    "--stages", "1", "--seq", str(seq), "--micro-batch-size", str(batch),
                    "--micro-batches", str(micro), "--steps", str(steps + 2),
                    "--threads", str(args.threads), "--lr", "1e-4", "--log", log,
                    "--dtype", dtype],
                   check=True, stdout=subprocess.DEVNULL)
    with open(log) as f:
        times = [json.loads(line).get("step_ms") for line in f]
    return [t for t in times if t][2:]


def theirs(args, name, dtype, mode):
    layers, hidden, heads, vocab, seq, batch, micro, steps = MODELS[name]
    style = [] if name != "demo" else ["--style", "llama", "--kv-heads", str(LLAMA["kv_heads"]),
                                       "--mlp", str(LLAMA["mlp"])]
    out = subprocess.run([args.python, HERE + "/torch_step.py", "--layers", str(layers),
                          "--hidden", str(hidden), "--heads", str(heads), "--vocab", str(vocab),
                          "--seq", str(seq), "--micro-batch-size", str(batch), "--micro-batches",
                          str(micro), "--steps", str(steps), "--threads", str(args.threads),
                          "--dtype", dtype, "--json"] + style + ["--compile"] * (mode == "compile"),
                         check=True, stdout=subprocess.PIPE, text=True).stdout
    result = json.loads(out.strip().splitlines()[-1])
    return result["step_ms_min"], result["step_ms_median"]


def compare(args, path, name, dtype, modes):
    a, b = [], {mode: [] for mode in modes}
    for _ in range(args.rounds):
        a.append(ours(args, path, name, dtype))
        for mode in modes:
            b[mode].append(theirs(args, name, dtype, mode))
    best, median = min(map(min, a)), min(map(statistics.median, a))
    line = f"{name:10} {dtype:5} {best:8.1f} {median:8.1f}"
    for times in b.values():
        their_best, their_median = (min(column) for column in zip(*times))
        line += (f" | {their_best:8.1f} {their_median:8.1f}"
                 f" {their_best / best:5.2f} {their_median / median:5.2f}")
    print(line, flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--starpipe", default=os.path.join(HERE, "../../build/starpipe"))
    p.add_argument("--python", default=sys.executable, help="a Python that has PyTorch")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--dtypes", default="f32,bf16")
    p.add_argument("--modes", default="eager,compile", help="of PyTorch")
    p.add_argument("models", nargs="*", metavar="MODEL", default=["demo", "stack"])
    args = p.parse_args()
    for name in args.models:
        if name not in MODELS:
            p.error(f"unknown model {name}: want {', '.join(MODELS)}")
    dtypes, modes = args.dtypes.split(","), args.modes.split(",")
    if set(dtypes) - {"f32", "bf16"} or set(modes) - {"eager", "compile"}:
        p.error("--dtypes takes f32,bf16 and --modes eager,compile")
    torch = subprocess.run([args.python, "-c", "import torch; print(torch.__version__)"], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if torch.returncode:
        print("PyTorch is not installed here: our times alone")
        modes = []
    print(f"{cpu_name()}, {args.threads} threads"
          + (f", PyTorch {torch.stdout.strip()}" if modes else ""))
    print("milliseconds a step, best and median; of PyTorch also its time over ours, of each")
    print(f"{'model':10} {'type':5} {'starpipe':>17}"
          + "".join(f" | {'PyTorch ' + mode:>29}" for mode in modes))
    root = tempfile.mkdtemp()
    try:
        for name in args.models:
            path = model_directory(root, name)
            for dtype in dtypes:
                compare(args, path, name, dtype, modes)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
