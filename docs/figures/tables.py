#!/usr/bin/env python3
"""The tables of README.md and docs/ that commands can fill: prints one of them as Markdown.

usage: docs/figures/tables.py NAME      (`starpipe` is that of the PATH)

A table is a function below. Figures come from `starpipe show --format json` and `starpipe reproduce --format json`;
everything else in a cell is written here. `docs/figures/make` puts the tables where they belong.
"""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys

TABLES = {}


def table(function):
    TABLES[function.__name__.replace("_", "-")] = function
    return function


@functools.lru_cache(maxsize=None)
def starpipe(command):
    folder = os.environ.get("TABLES_PRINTED")  # of docs/figures/make: several tables are of one command
    kept = pathlib.Path(folder, re.sub(r"[^-\w.]", "_", command)) if folder else None
    if kept and kept.exists():
        return json.loads(kept.read_text())
    out = subprocess.run(["starpipe", *command.split()], check=True, stdout=subprocess.PIPE, text=True).stdout
    if kept:
        kept.write_text(out)
    return json.loads(out)


def show(options):
    return starpipe(f"show --format json {options}")


def number(value, decimals=None):
    """A figure: with so many decimals, or with six digits at most."""
    value += abs(value) * 1e-12  # what ends in 5 is rounded up, whatever the last bit is
    return f"{value:.6g}" if decimals is None else f"{value:.{decimals}f}"


def makespan(shown):
    return number(shown["makespan"])


def bubble(shown):
    return number(100 * shown["bubble_ratio"], 1)


def peak(shown):
    return number(max(shown["peak_micro_batches"]))


def gib(shown, stage=None, kind="total"):
    """Of a stage, or of the fullest one."""
    held = [stage[kind] / 2**30 for stage in shown["memory_bytes"]]
    return max(held) if stage is None else held[stage]


def markdown(head, rows):
    lines = ["| " + " | ".join(line) + " |" for line in (head, *rows)]
    lines.insert(1, "|" + "---|" * len(head))
    return "\n".join(re.sub(r"\|  (?=\|)", "| ", line) for line in lines)


SLICED = {"seq1f1b", "slimpipe", "terapipe", "sppo"}
SIGN = {"exact": "", "-": "", "lower bound": "≥ ", "upper bound": "≤ ", "approximate": "≈ "}  # of a claim


def unit(schedule, stages, micro_batches):
    """A schedule at f = b = w = 1, comm = 0; two slices where there are any."""
    slices = " --slices 2" if schedule in SLICED else ""
    return show(f"--schedule {schedule} --stages {stages} --micro-batches {micro_batches}{slices}")


@table
def readme():
    rows = [
        ("whole backwards", "`naive` · `gpipe` · `1f1b` · [`pipedream`](docs/schedules.md#pipedream) · `pipedream-2bw`, both asynchronous · `adapipe` on equal stages: it deals out layers and recompute by memory"),
        ("slices of sequences", "`seq1f1b` · [`slimpipe`](docs/schedules.md#slimpipe), whose stages share attention · `terapipe` · `sppo`, for one long sequence ((p-1)/n of bubble)"),
        ("several chunks a stage", "`interleaved` · `bfs`"),
        ("weight gradients apart", "`zb1p` · `zb2p` (24 from a stage's first op to its last) · `:auto` searches the order at your costs"),
        ("in a V or in waves", "`zbv` · `v-half` · `v-min` · `1f1b-v` · `hanayo` · `dualpipev`"),
        ("two copies of the model", "`dualpipe` · `chimera`"),
        ("attention apart", "[`helix`](docs/schedules.md#helixpipe): attention, which has no parameters, on all stages in parallel; its bubble has no attention in it"),
        ("weights travel", "[`weipipe`](docs/schedules.md#weipipe), `wzb1`, `wzb2`, [`tawpipe`](docs/schedules.md#weipipe): activations stay; [`fsdp`](docs/schedules.md#fsdp) (ZeRO-3), what they are measured against"),
    ]
    filled = []
    for kind, text in rows:
        entries = text.split(" · ")
        if kind not in ("attention apart", "weights travel"):
            entries = [with_figures(entry) for entry in entries]
        filled.append((kind, " · ".join(entries)))
    return markdown(("kind", "name: makespan, peak"), filled)


def with_figures(entry):
    """Makespan and peak behind the name that an entry begins with."""
    name = entry[: entry.index(")") + 1] if entry.startswith("[") else entry[: entry.index("`", 1) + 1]
    schedule = name.split("`")[1]
    if schedule.startswith(":"):
        return entry
    shown = unit(schedule, 4, 8)
    return f"{name} {makespan(shown)}, {peak(shown)}{entry[len(name):]}"


@table
def schedules():
    rows = [
        ("naive", "1", "m·p(f+b+w)", "exact"),
        ("gpipe", "m", "(m+p-1)(f+b+w)", "exact"),
        ("1f1b", "p-i on stage i", "(m+p-1)(f+b+w)", "exact"),
        ("pipedream", "p-i on stage i", "(m+p-1)(f+b+w)", "exact"),
        ("pipedream-2bw", "p-i on stage i", "(m+p-1)(f+b+w)", "exact"),
        ("adapipe", "p-i on stage i", "as `1f1b` on equal stages; no closed form on others", "-"),
        ("seq1f1b", "(p-i+n-1)/n on stage i", "(m + (p-1)/n)(f+b+w)", "exact"),
        ("slimpipe", "(nv+2(p-1-i))/(nv) on stage i", "(m + (p-1)/(nv))(f+b+w)", "exact"),
        ("terapipe", "m", "(m + (p-1)/n)(f+b+w)", "exact"),
        ("sppo", "1", "m(1 + (p-1)/n)(f+b+w)", "exact"),
        ("interleaved", "(2(p-1-i) + (v-1)N + 1)/v on stage i", "(m + (p-1)/v)(f+b+w), m ≥ p", "exact"),
        ("bfs", "m", "(m + (p-1)/v)(f+b+w), m ≥ p", "exact"),
        ("zb1p", "p; v > 1: (p + (v-1)N)/v", "m(f+b+w) + (p-1) max(f+b-w, f, b)/v, m ≥ p", "exact"),
        ("zb2p", "2p-1", "m(f+b+w) + (p-1) max(f, f+b-2w), m ≥ 2p-1, w ≤ f and b; fewer m [below](#what-is-exact-and-what-is-not)", "exact"),
        ("zbv", "p", "m(f+b+w) + (p-1)f/2", "lower bound"),
        ("v-half", "(p+2)/2, rounded up", "m(f+b+w) + (p-1)f/2", "lower bound"),
        ("v-min", "(p+4)/3, rounded up", "m(f+b+w) + (p-1)f/2", "lower bound"),
        ("1f1b-v", "2p/3 + 1", "(m + (p-1)/2)(f+b+w)", "lower bound"),
        ("hanayo", "p", "(m + (p-1)/v)(f+b+w)", "lower bound"),
        ("dualpipev", "p + 1/2", "m(f+b+w) + (p-1)(f+2b-w)/2", "approximate"),
        ("dualpipe", "p + 1, of either copy", "m(f+b+w) + (p/2-1)(f+2b-w)", "approximate"),
        ("weipipe", "pv chunks: one", "(m + (p-1)/v)(f+b+w), m ≥ 2p", "upper bound"),
        ("weipipe-naive", "p chunks: one", "m(f+B) + (p-1)(max(f,B) + (m/p-1)\\|f-B\\|), B = b+w", "upper bound"),
        ("wzb1", "3pv/2 chunks: one and a half", "m(f+b+w) + (p-1) max(f+b, f+w, 2b, 2w)/v, m ≥ 2p", "upper bound"),
        ("wzb2", "pv chunks: one", "m(f+b+w) + (p-1) max(f, b, w)/v", "upper bound"),
        ("tawpipe", "pv chunks: one", "m(f+B) + (K-1) max(f, B)/v, B = b+w, K nodes, p divides m", "upper bound"),
        ("fsdp", "v chunks: one", "m(f+b+w)", "exact"),
        ("chimera", "p/2+1 to p, of either copy", "m/p · (2f + (2p-2)(b+w)) + (p-2)f, p divides m, b+w ≥ f", "exact"),
    ]
    missing = {s["name"] for s in starpipe("list --json")} - {"helix"} ^ {row[0] for row in rows}
    if missing:
        sys.exit(f"tables.py: in the table or in `starpipe list`, not in both: {', '.join(sorted(missing))}")
    filled = []
    for name, held, formula, claim in rows:
        small, large = unit(name, 4, 8), unit(name, 8, 32)
        claimed = small.get("formula", {}).get("claim", "-")
        if claimed != claim:
            sys.exit(f"tables.py: {name}: its formula is said to be '{claim}', show says '{claimed}'")
        filled.append((f"`{name}`", held, SIGN[claim] + formula, makespan(small), bubble(small), peak(small), bubble(large), peak(large)))
    return markdown(("name", "peak activations (at most)", "makespan, comm = 0", "p=4, m=8: makespan", "bubble", "peak",
                     "p=8, m=32: bubble", "peak"), filled)


@table
def slimpipe():
    options = "--stages 8 --micro-batches 4 --model gpt3-7b --seq 131072 --hardware h100-ib"
    rows = []
    for name in ("1f1b", "seq1f1b", "seq1f1b --partition-slices flops", "slimpipe:exchange=off", "slimpipe"):
        row, sent = [f"`{name}`" + (", whole sequences" if name == "1f1b" else "")], []
        for slices in (1,) if name == "1f1b" else (16, 64):
            shown = show(f"--schedule {name} --slices {slices} {options}")
            row += [number(shown["step_ms"] / 1e3, 0), number(gib(shown), 0)]
            sent.append(number(shown["bytes_sent"][0] / 1e9, 0))
        row += [""] * (5 - len(row))
        rows.append((*row, ", ".join(dict.fromkeys(sent))))
    return markdown(("", "16 slices: step s", "GiB", "64 slices: step s", "GiB", "stage 0 sends GB"), rows)


@table
def helix_formulas():
    rows = [
        ("1f1b", "3(p-1)(pre+attn+post)L/p", "108", "16(p-i)L/p"),
        ("zb1p", "(p-1)(pre+3attn+post)L/p", "72", "16L"),
        ("helix:fold=1", "3(p-1)(pre+post)", "27", "16mL/p"),
        ("helix", "at most 6(p-1)(pre+post)", "54", "16mL/p"),
        ("helix --recompute no-attention", "at most 8(p-1)(pre+post)", "72", "4mL/p"),
    ]
    filled = []
    for name, formula, value, held in rows:
        shown = show(f"--schedule {name}{'' if '--recompute' in name else ' --recompute none'} --stages 4 "
                     "--micro-batches 8 --layers 8 --cost pre=1,attn=3,post=2,backward=2")
        busy = max(shown["makespan"] - idle for idle in shown["idle"])
        filled.append((f"`{name}`", formula, value, number(shown["makespan"] - busy), held))
    return markdown(("m = 2p", "bubble", "p=4, L=8: formula", "simulated", "activations / bsh"), filled)


@table
def chunks():
    rows = []
    for name in ("weipipe:flow=line", "tawpipe:node=1", "wzb1:flow=line", "wzb2"):
        row = [f"`{name}`"]
        for chunks in (1, 2, 4):
            shown = show(f"--schedule {name} --stages 4 --micro-batches 8 --chunks {chunks}")
            row += [makespan(shown), bubble(shown) + " %"]
        rows.append(row)
    return markdown(("", "v = 1", "", "v = 2", "", "v = 4", ""), rows)


def step_ms(options):
    """Without and with the vocabulary shared out."""
    return [number(show(options + cut)["step_ms"], 0) for cut in ("", " --vocabulary-parallel")]


@table
def vocabulary():
    rows = []
    for name in ("1f1b", "zb2p", "zbv"):
        row = [f"`{name}`"]
        for model in ("gpt3-1.3b", "gpt3-7b"):
            row += step_ms(f"--schedule {name} --stages 8 --micro-batches 32 --model {model} --seq 4096 --dtype bf16")
        rows.append(row)
    return markdown(("schedule", "gpt3-1.3b", "shared", "gpt3-7b", "shared"), rows)


@table
def multiplex():
    rows = []
    for name in ("sppo", "sppo:multiplex"):
        shown = show(f"--schedule {name} --stages 8 --slices 32 --micro-batches 1 --model gpt3-7b --seq 131072 --dtype bf16")
        sent = [number(min(shown["bytes_sent"]) / 1e9, 0), number(max(shown["bytes_sent"]) / 1e9, 0)]
        rows.append((f"`{name}`", number(shown["step_ms"] / 1e3, 2) + " s",
                     number(gib(shown, -1), 1) + " GiB", " to ".join(dict.fromkeys(sent)) + " GB"))
    return markdown(("", "step", "last stage", "sent by a stage"), rows)


def reproduced(paper):
    """With other assumptions where a paper has any: the rest is the same."""
    options = " --assumptions" if paper in ("weipipe", "helixpipe") else ""
    return starpipe(f"reproduce {paper} --format json{options}")


def cells_of(paper):
    return {(c["experiment"], c["row"], c["column"]): c for c in reproduced(paper)["cells"]}


def varied(paper, experiment):
    """What is simulated under other assumptions, by row and column."""
    return {(u["row"], u["column"]): u["simulated"]
            for u in reproduced(paper)["unpublished"] if u["experiment"] == experiment}


def value(v):
    if v is None or isinstance(v, str):
        return v or "-"
    return number(v, 0 if v == int(v) else 2 if abs(v) < 10 else 1 if abs(v) < 1000 else 0)


def differences(paper, rows):
    """Cells that are off, and why: (name, experiment, row, column, reason)."""
    cells = cells_of(paper)
    filled = []
    for name, *which, reason in rows:
        c = cells[tuple(which)]
        relation = f"{c['relation']} " if c.get("relation") else ""
        filled.append((name, relation + value(c["published"]), value(c["simulated"]), reason))
    return markdown(("", "published", "simulated", "because"), filled)


@table
def papers():
    def of(right, all_of_them):
        return f"{right} of {all_of_them}" if all_of_them else "-"

    rows = []
    for paper in ("helixpipe", "weipipe", "sppo", "survey"):
        s = reproduced(paper)["summary"]
        rows.append((f"`{paper}`", str(s["cells"]), str(s["simulated"]), of(s["winners_right"], s["winners"]),
                     of(s["verdicts_right"], s["verdicts"]), of(s["claims_right"], s["claims"]), number(100 * s["mean_error"], 1) + " %"))
    return markdown(("paper", "cells", "simulated", "same system ahead", "out of memory or not", "claims hold", "mean error"), rows)


@table
def helix_speedups():
    cells = {(c["row"].split(",")[0], c["column"]): c for c in reproduced("helixpipe")["cells"]
             if c["experiment"] == "figure8" and "128k, 8 stages" in c["row"]}
    models = ("1.3B", "3B", "7B")
    rows = []
    for gpu in ("H20", "A800"):
        rows.append((f"{gpu}, published", *(f"{cells[gpu, m]['published']:.0f}" for m in models)))
        rows.append((f"{gpu}, simulated", *(f"{cells[gpu, m]['simulated']:.1f}" for m in models)))
    return markdown(("", *models), rows)


@table
def helix_attention():
    speedups = varied("helixpipe", "assumptions")
    models = ("1.3B", "3B", "7B")
    rows = [(row.split()[2], *(number(speedups[row, m], 0) for m in models))
            for row in dict.fromkeys(row for row, _ in speedups)]
    return markdown(("part of the peak", *models), rows)


@table
def weipipe_systems():
    """How far rates and memory are off, by system: the least and the most, in per cent."""
    off = {}
    for c in reproduced("weipipe")["cells"]:
        if c["experiment"] in ("table2", "table3", "table4", "table2-memory") and not c.get("claim"):
            p, s = c["published"], c["simulated"]
            if not isinstance(p, str) and not isinstance(s, str):
                off.setdefault((c["experiment"], c["column"]), []).append(100 * (s / p - 1))

    def ends(experiment, system):
        return f"{min(off[experiment, system]):+.0f}..{max(off[experiment, system]):+.0f}" if (experiment, system) in off else "-"

    systems = ("1F1B", "ZB1", "ZB2", "FSDP", "WeiPipe")
    rows = [(name, *(ends(experiment, system) for system in systems)) for name, experiment in (
        ("rate, table 2", "table2"), ("table 3", "table3"), ("table 4", "table4"), ("memory, table 2", "table2-memory"))]
    return markdown(("% off", *systems), rows)


@table
def weipipe_blocking():
    rates = varied("weipipe", "blocking")
    cells = cells_of("weipipe")
    rows = []
    for h in (1024, 2048, 4096):
        rows.append((str(h), *(number(rates[f"llama-h{h}", column], 0)
                               for column in ("1F1B, messages block", "1F1B, they do not", "WeiPipe")),
                     number(cells["table2", f"H={h} S=4096 G=16", "WeiPipe"]["published"], 0)))
    return markdown(("h", "1F1B, messages block", "1F1B, they do not", "WeiPipe", "WeiPipe, published"), rows)


@table
def weipipe_assumptions():
    of = varied("weipipe", "assumptions")
    rows = []
    for name in dict.fromkeys(row for row, _ in of):
        rows.append((name, number(of[name, "the same system fastest"], 0),
                     f"{of[name, 'ZB too fast by, least']:.0f}..{of[name, 'ZB too fast by, most']:.0f}"))
    total = number(of["as assumed", "of"], 0)
    return markdown(("assumption", f"same system fastest, of {total} rows", "ZB too fast by %"), rows)


@table
def weipipe_winners():
    """By experiment: rows in which the same system is the fastest, cells in which both fit or both do not."""
    def fastest(row, value):
        return max((c for c in row if not isinstance(c[value], str)), key=lambda c: c[value])["column"]

    fast, fit = ["same system fastest"], ["out of memory or not"]
    for experiment in ("table2", "table3", "table4"):
        rows = {}
        for c in reproduced("weipipe")["cells"]:
            if c["experiment"] == experiment:
                rows.setdefault(c["row"], []).append(c)
        same = sum(fastest(row, "published") == fastest(row, "simulated") for row in rows.values())
        cells = [c for row in rows.values() for c in row]
        fits = sum((c["published"] == "OOM") == (c["simulated"] == "OOM") for c in cells)
        fast.append(f"{same} of {len(rows)}" + (" rows" if len(fast) == 1 else ""))
        fit.append(f"{fits} of {len(cells)}" + (" cells" if len(fit) == 1 else ""))
    return markdown(("", "table 2 (NVLink, Ethernet)", "table 3 (PCIe, Ethernet)", "table 4 (NVLink)"), (fast, fit))


@table
def sppo_speedups():
    cells = cells_of("sppo")

    def row(name, *which, join=" to ", decimals=2):
        values = [cells[one] for one in which]
        return (name, join.join(number(c["published"], None if decimals == 1 else decimals) for c in values),
                join.join(number(c["simulated"], decimals) for c in values))

    half, speedup = "GPT-13B, 512K", "figure10-speedup"
    return markdown(("", "published", "simulated"), (
        row("7B, 512K to 896K, over Megatron-LM", (speedup, "GPT-7B, 512K to 896K", "least"),
            (speedup, "GPT-7B, 512K to 896K", "most")),
        row("13B, 512K, adaptive offloading", ("figure11", half, "adaptive offloading")),
        row("13B, 512K, full offloading", ("figure11", half, "full offloading")),
        row("13B, 512K, multiplexed", ("figure11", half, "multiplexed partitioning")),
        row("65B, 600K and 640K", (speedup, "GPT-65B, 600K", "exact"), (speedup, "GPT-65B, 640K", "exact"), join=" and "),
        row("hours for 10^9 tokens, 7B with 4M on 128 GPUs", ("figure1", "GPT-7B, 4M, 128 GPUs", "time for 10^9 tokens"),
            decimals=1)))


@table
def sppo_differences():
    half = "GPT-13B, 512K"
    return differences("sppo", (
        ("13B, full offloading", "figure11", half, "full offloading", "transfers hide"),
        ("longest, Megatron-LM, 128 GPUs", "figure12", "Megatron-Tuned", "128 GPUs", "32 heads end SP"),
        ("longest, SPPO, 32 GPUs", "figure12", "SPPO", "32 GPUs", "keys and values stay: 4bsh, recomputation keeps 2bsh"),
        ("peak, full offloading", "figure8", "two stages, four slices", "full offloading", "layers leave one by one"),
    ))


@table
def survey_differences():
    return differences("survey", (
        ("Interleaved, micro-batches", "summary", "Interleaved (Megatron)", "Peak Activations", "P + (P-1)/V"),
        ("DualPipe, micro-batches", "summary", "DualPipe (DeepSeek-V3)", "Peak Activations", "P + 1"),
        ("DualPipe, idle %", "summary", "DualPipe (DeepSeek-V3)", "Bubble", "its order"),
        ("1F1B, P=8, GB", "activation-memory", "1F1B P=8", "Activation Memory", "16bsh numbers a layer"),
        ("recomputation costs %", "checkpointing", "Full checkpointing", "Compute Overhead", "attention's backward"),
        ("stages, 7B on 64 GPUs", "choice", "7B on 64 GPUs", "PP", "replicas exchange gradients in the open"),
    ))


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in TABLES:
        sys.exit(f"usage: tables.py NAME; there are {', '.join(TABLES)}")
    print(TABLES[sys.argv[1]]())


if __name__ == "__main__":
    main()
