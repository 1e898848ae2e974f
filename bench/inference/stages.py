#!/usr/bin/env python3
"""Tokens a second of `starpipe sample` on one stage and on two, in turns: medians, and the fastest.

A GPT-2 with random weights, a prompt of as many bytes as --prompt says; with one stage all cores compute
each slice, with two each has half of them. The text must be the same.

    bench/inference/stages.py [--starpipe build/starpipe] [--rounds 5] [--layers 12] [--hidden 512]
                              [--prompt 4096] [--tokens 33]
"""
import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile

CUTS = [(1, 1), (1, 8), (2, 1), (2, 8), (2, 16)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starpipe", default="build/starpipe")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--prompt", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=33)
    args = parser.parse_args()
    rng = random.Random(7)
    prompt = "".join(rng.choice("abcdefgh ") for _ in range(args.prompt))
    rates, texts = {cut: ([], []) for cut in CUTS}, set()

    with tempfile.TemporaryDirectory(prefix="starpipe-stages-") as path:
        with open(path + "/config.json", "w") as f:
            json.dump({"model_type": "gpt2", "n_layer": args.layers, "n_embd": args.hidden,
                       "n_head": max(1, args.hidden // 64), "vocab_size": 256, "n_inner": 4 * args.hidden,
                       "n_positions": args.prompt + args.tokens, "layer_norm_epsilon": 1e-5,
                       "activation_function": "gelu_new", "tie_word_embeddings": True}, f)
        with open(path + "/text", "w") as f:
            f.write(prompt)
        subprocess.run([args.starpipe, "train", "--model", path, "--data", path + "/text", "--seq", "64",
                        "--steps", "1", "--save", path + "/run"], check=True, stdout=subprocess.DEVNULL)
        for _ in range(args.rounds):
            for stages, slices in CUTS:
                done = subprocess.run(
                    [args.starpipe, "sample", path + "/run", "--prompt", prompt, "--temperature", "0", "--tokens",
                     str(args.tokens), "--stages", str(stages), "--slices", str(slices)],
                    capture_output=True, timeout=600)
                found = re.findall(r"([0-9.]+) a second", done.stderr.decode())
                if done.returncode or len(found) != 2:
                    sys.exit(f"{stages} stages: {done.stderr.decode()[-400:]}")
                texts.add(done.stdout)
                for rate, to in zip(found, rates[stages, slices]):
                    to.append(float(rate))
    print(f"{args.layers} layers of {args.hidden}, {args.prompt} + {args.tokens} tokens, {args.rounds} rounds; tokens/s")
    print("stages  slices   prompt  (fastest)   text  (fastest)")
    for (stages, slices), (fed, drawn) in rates.items():
        print(f"{stages:6} {slices:7} {statistics.median(fed):8.0f} {max(fed):10.0f} {statistics.median(drawn):7.1f} "
              f"{max(drawn):9.1f}")
    if len(texts) > 1:
        sys.exit("the texts differ")


if __name__ == "__main__":
    main()
