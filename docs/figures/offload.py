#!/usr/bin/env python3
"""Draws docs/offload.svg: what `--offload adaptive` leaves in memory, slice by slice.

usage: docs/figures/offload.py > docs/offload.svg      (`starpipe` is that of the PATH)

The numbers are those of two `train --dry-run`, with and without offload: the tokens of each slice, the
activations that all of them keep, and the part of each slice that leaves. Slice i leaves while slice i + 1
computes, and comes back before its backward.
"""

import re
import subprocess

OPTIONS = """--model llama-tiny --stages 1 --micro-batches 1 --seq 2048 --schedule sppo
    --slices 8 --threads 1 --hardware laptop""".split()
OFFLOAD = "--offload adaptive --memory-limit 48MiB".split()

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 880, 340, 60, 56, 56

STYLE = (
    "<style>.all{fill:#1b2430}.page{fill:#fff}.memory{fill:#3b7dd8}.disk{fill:#d5dbe3}"
    ".limit{stroke:#c0392b;stroke-dasharray:5 4}"
    "@media (prefers-color-scheme:dark){.all{fill:#e4e9f0}.page{fill:#14181e}.memory{fill:#5b97e6}"
    ".disk{fill:#3a4552}.limit{stroke:#ff8f85}}</style>"
)


def dry_run(options):
    command = ["starpipe", "train", "--dry-run", *OPTIONS, *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def plan():
    """Kept MiB and the part that leaves of each slice, and the MiB that the limit leaves for them."""
    text = dry_run(OFFLOAD)
    tokens = [int(t) for t in re.search(r"slices of ([\d ]+) tokens", text)[1].split()]
    row = re.search(r"^ +0 +\d+ +0 +([\d.]+) +([\d.]+) +([\d.]+)$", text, re.M)
    parts = re.search(r"keeps, leaves\n +0 +[\d.]+ +([\d.]+) +(.*)", text)
    leaves = [float(part or 0) / 100 for part in re.findall(r"(\d+) %|stays", parts[2])]
    whole = re.search(r"^ +0 +\d+ +0 +[\d.]+ +([\d.]+) +", dry_run([]), re.M)
    kept = [float(whole[1]) * t / sum(tokens) for t in tokens]
    # What may leave is less than what is kept: keys and values stay.
    share = float(parts[1]) / sum(k * a for k, a in zip(kept, leaves))
    return kept, [a * share for a in leaves], 48 - float(row[1]) - float(row[3])


def columns(kept, leaves):
    """(label, MiB in memory, MiB on disk) after every forward and before every backward."""
    n = len(kept)
    order = [("F", i) for i in range(n)] + [("B", i) for i in reversed(range(n))]
    for name, i in order:
        disk = sum(kept[j] * leaves[j] for j in range(i))
        yield f"{name}{i}", sum(kept[: i + 1]) - disk, disk


def box(x, y, width, height, what):
    return f'<rect class="{what}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def text(x, y, what, anchor="middle"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{what}</text>'


def draw(kept, leaves, limit):
    high = HEIGHT - TOP - BOTTOM
    scale = high / sum(kept)
    base = HEIGHT - BOTTOM
    bars = list(columns(kept, leaves))
    step = (WIDTH - LEFT - 20) / len(bars)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" class="all" font-family="Helvetica, Arial, sans-serif" '
        'font-size="12">'
    )
    yield STYLE
    yield box(0, 0, WIDTH, HEIGHT, "page")
    yield text(LEFT, 20, "activations of one sequence of 2048 tokens in 8 slices, MiB: llama-tiny, f32, one stage, --memory-limit 48MiB", "start")
    yield box(LEFT, 30, 12, 12, "memory") + text(LEFT + 18, 40, "in memory", "start")
    yield box(LEFT + 110, 30, 12, 12, "disk") + text(LEFT + 128, 40, "on disk", "start")
    for i, (label, memory, disk) in enumerate(bars):
        x = LEFT + i * step + 3
        yield box(x, base - memory * scale, step - 6, memory * scale, "memory")
        yield box(x, base - (memory + disk) * scale, step - 6, disk * scale, "disk")
        yield text(x + step / 2 - 3, base + 18, label)
    y = base - limit * scale
    yield (
        f'<line class="limit" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - 20}" y2="{y:.1f}"/>'
    )
    yield text(LEFT + 4, y - 5, "what --memory-limit leaves for them", "start")
    for mib in range(0, int(sum(kept)) + 1, 20):
        yield text(LEFT - 8, base - mib * scale + 4, str(mib), "end")
    yield text(LEFT, base + 40, "forwards of the slices, then their backwards", "start")
    yield "</svg>"


def main():
    print("\n".join(draw(*plan())))


main()
