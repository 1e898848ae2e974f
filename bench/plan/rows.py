#!/usr/bin/env python3
"""Whether what plan says of a layout is what show and train --dry-run say of the command that it prints.

usage: rows.py [--layouts N] [--seed S] [--starpipe PATH]

Random questions, each of one schedule with groups, offload, recomputation and slices drawn from a seed that is printed, and
the rows that plan answers. Steps are compared with both commands, bytes of the fullest device with both; a row whose
offload show cannot draw is compared with train alone. Prints the worst, and those off by more than 1 %: exit status 1.
"""
import argparse
import json
import random
import shlex
import subprocess
import sys

SCHEDULES = ("gpipe 1f1b interleaved bfs zb1p zb2p zbv v-half v-min 1f1b-v dualpipe dualpipev chimera hanayo adapipe seq1f1b "
             "slimpipe terapipe helix helix:bounded weipipe weipipe:flow=line wzb1 wzb2 tawpipe fsdp sppo").split()
MODELS = [("gpt3-1.3b", 4096), ("gpt3-1.3b", 16384), ("gpt3-7b", 8192), ("llama-h1024", 2048), ("gpt-tiny", 64)]


def ask(starpipe, words):
    run = subprocess.run([starpipe, *words], capture_output=True, text=True)
    return (json.loads(run.stdout) if run.returncode == 0 else None), run.stderr.strip()


def question(draw):
    model, seq = draw.choice(MODELS)
    words = ["plan", "--model", model, "--seq", str(seq), "--schedule", draw.choice(SCHEDULES), "--json", "--top", "2",
             "--micro-batches", str(draw.choice([8, 16, 32, 48, 64])), "--hardware",
             draw.choice(["h100-ib", "a800-ib", "h20-ib"])]
    for name, values in [("--devices", [1, 2, 4]), ("--group", ["tensor", "context", "both"]),
                         ("--data-parallel", [1, 2]), ("--offload", ["none", "full", "adaptive"]),
                         ("--recompute", ["none", "selective", "no-attention", "full"]), ("--dtype", ["f32", "bf16"]),
                         ("--micro-batch-size", [1, 2])]:
        if draw.random() < 0.5:
            words += [name, str(draw.choice(values))]
    if "--offload" not in words and draw.random() < 0.5:
        words += ["--memory-limit", f"{draw.choice([16, 24, 40])}GiB"]
    return words


def fullest(stages):
    return max(sum(v for k, v in s.items() if k.endswith("_bytes") and k != "buffer_bytes") for s in stages)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layouts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--starpipe", default="build/starpipe")
    args = parser.parse_args()
    draw = random.Random(args.seed)
    rows = bad = asked = shown = 0
    worst = 0.0
    while rows < args.layouts:
        words = question(draw)
        answer, _ = ask(args.starpipe, words)
        asked += 1
        for row in [r for r in answer["layouts"] if r["fits"]] if answer else []:
            command = shlex.split(row["command"])
            command = command[command.index("starpipe") + 1:]
            run, why = ask(args.starpipe, [*command, "--dry-run", "--json"])
            said = {"train": (run["predicted_step_ms"], fullest(run["stages"]))} if run else {}
            alike = row["schedule"] != "adapipe"  # whose layers show deals out evenly
            show, _ = ask(args.starpipe, ["show", *command[1:], "--format", "json"]) if alike else (None, "")
            if show and "memory_bytes" in show:
                said["show"] = (show["step_ms"], max(m["total"] for m in show["memory_bytes"]))
                shown += 1
            off = [abs(row["step_ms"] / ms - 1) for ms, _ in said.values()]
            worst = max([worst, *off])
            wrong = not run or max(off) > 0.01 or any(row["memory_bytes"] != b for _, b in said.values()) or \
                min(row["stall_ms"], row["bubble_ratio"], row["step_ms"]) < 0
            if wrong:
                bad += 1
                print("starpipe", shlex.join(words), "\n ", row["command"], row["step_ms"], row["memory_bytes"], said, why)
            rows += 1
    print(f"{rows} rows of {asked} questions, seed {args.seed}: {rows - bad} as train says, {shown} of them as show says; "
          f"worst step {100 * worst:.3f} % off")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
