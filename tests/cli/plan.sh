#!/bin/bash
# plan: layouts that fit before those that do not and the fastest first, what is given kept, commands that
# train takes, its tables, its refusals; --slices auto; SPPO's table 3 as show prints it.
. "$(dirname "$0")/../common.sh" || exit 1

# pasted PATTERN ARGUMENTS...: the recommended command, as a shell reads its lines, matches.
pasted()
{
    local pattern=$1

    shift
    starpipe "$@" > "$work/stdout" || fail "$*"
    sed '1,/^recommended/d' "$work/stdout" > "$work/lines"
    [ "$(awk 'length > 80' "$work/lines")" = "" ] || fail "$*: long lines: $(cat "$work/lines")"
    (
        mpirun() { printf '%s|' mpirun "$@"; }
        starpipe() { printf '%s|' starpipe "$@"; }
        . "$work/lines"
    ) > "$work/command"
    grep -Eq -- "$pattern" "$work/command" || fail "$*: nothing like '$pattern': $(cat "$work/command" "$work/stdout")"
}

# ---- layouts

long="plan --model gpt3-1.3b --seq 32768 --micro-batches 16 --data-parallel 1"
pasted '^mpirun\|-np\|8\|starpipe\|train\|--model\|gpt3-1.3b\|.*--stages\|8\|.*--hardware\|h100-ib\|--tokens\|FILE.bin\|$' \
    $long --devices 1
said "plan --top" '^schedule' $long --top 3 --schedule 1f1b
said "plan, too low a limit" '^nothing fits' $long --memory-limit 1GiB --schedule 1f1b --devices 1
pasted '\|--tensor-parallel\|2\|' $long --devices 2 --group tensor --schedule 1f1b
said "plan, no group trains" 'simulated only' $long --devices 2 --group tensor --schedule sppo:multiplex --slices 4 \
    --simulated
refused "no schedule that train runs takes .* --simulated, may do" $long --devices 2 --group tensor \
    --schedule sppo:multiplex --slices 4
refused "none of f32|bf16" plan --model gpt-tiny --seq 64 --dtype f16

# layouts NAME OPTION...: the JSON of plan in $work/NAME.json
layouts()
{
    starpipe plan --json "${@:2}" > "$work/$1.json" || fail "plan --json ${*:2}"
}
layouts all --model gpt3-1.3b --seq 32768 --micro-batches 16 --data-parallel 1 --group tensor --top 512 --simulated
layouts trained --model gpt3-1.3b --seq 32768 --micro-batches 16 --data-parallel 1 --group tensor --top 512
layouts one $(sed 's/^plan //' <<< "$long") --stages 4 --schedule sppo --slices 4 --devices 2 --group tensor
layouts small $(sed 's/^plan //' <<< "$long") --devices 1 --micro-batches 8 --memory-limit 24GiB --top 64
layouts f32 $(sed 's/^plan //' <<< "$long") --devices 1 --schedule gpipe --recompute none --offload none \
    --micro-batch-size 1 --dtype f32
layouts bf16 $(sed 's/^plan //' <<< "$long") --devices 1 --schedule gpipe --recompute none --offload none \
    --micro-batch-size 1
layouts context --model llama-tiny --seq 256 --micro-batches 8 --data-parallel 1 --zero 1 --devices 4 --group context --top 64
layouts tensor --model llama-tiny --seq 256 --micro-batches 8 --data-parallel 1 --devices 2 --group tensor --top 64 --simulated
layouts both --model llama-tiny --seq 256 --micro-batches 8 --data-parallel 1 --zero 1 --devices 4 --group both --top 64 --simulated
layouts chunked $(sed 's/^plan //' <<< "$long") --schedule interleaved --chunks 4
layouts adapipe $(sed 's/^plan //' <<< "$long") --schedule adapipe
layouts tiny --model gpt-tiny --seq 64 --micro-batches 8 --devices 1 --dtype f32 --top 64
python3 - "$work" << 'END' || fail "plan --json"
import json, sys
read = lambda name: json.load(open(f"{sys.argv[1]}/{name}.json"))["layouts"]
rows = read("all")
assert len(rows) > 30, len(rows)
names = {r["schedule"] for r in rows}
assert {"1f1b", "helix", "weipipe", "tawpipe", "fsdp", "sppo", "zbv"} <= names, names
assert any(r["vocabulary_parallel"] for r in rows)
assert all(r["vocabulary_parallel"] == ("--vocabulary-parallel" in r["command"]) for r in rows)
assert all(r["chunks"] == 4 and "--chunks 4 " in r["command"] for r in read("chunked"))
assert read("adapipe") and not any(r["vocabulary_parallel"] for r in read("adapipe"))
last = None
for r in rows:
    assert r["stages"] * r["devices"] == 8 and r["trains"] == (r["devices"] == 1 or not {"multiplex", "ship=attention"} & set(r["schedule"].replace(":", ",").split(",")))
    assert (f"--tensor-parallel {r['devices']}" in r["command"]) == (r["devices"] > 1)
    assert r["micro_batches"] * r["micro_batch_size"] == 16
    tokens = 32768 * 16 / (r["step_ms"] / 1e3) / 8
    assert abs(tokens / r["tokens_per_s"] - 1) < 1e-9
    assert r["fits"] == (r["memory_bytes"] <= 0.92 * 80e9) or r["offload"] != "none" or r["schedule"] == "adapipe", r
    if last:
        assert last["fits"] >= r["fits"]
        assert not r["fits"] or last["tokens_per_s"] >= 0.998 * r["tokens_per_s"]
    last = r
assert len({(r["schedule"], r["stages"]) for r in rows}) == len(rows)
trained = read("trained")
assert trained and all(r["trains"] for r in trained)
assert all(r["processes"] == 8 and r["command"].startswith("mpirun -np 8 starpipe train ") for r in trained)
assert all(("--memory-limit" in r["command"]) == (r["offload"] != "none" or r["schedule"] == "adapipe" or r["recompute"] == "auto") for r in trained)
one = read("one")
assert len(one) == 1 and one[0]["slices"] == 4 and one[0]["stages"] == 4
small = [r for r in read("small") if r["fits"]]
assert small and all(r["memory_bytes"] <= 24 * 2**30 for r in small)
assert any(r["recompute"] != "none" or r["offload"] != "none" for r in small)
ratio = read("f32")[0]["memory_bytes"] / read("bf16")[0]["memory_bytes"]
assert 1.5 < ratio < 2.1, ratio
context = read("context")
assert context and all(r["trains"] and r["devices"] == 4 for r in context)
assert all("--context-parallel 4" in r["command"] and "--zero 1" in r["command"] for r in context)
tensor = read("tensor")
both = read("both")
grids = {(r["tensor_parallel"], r["context_parallel"]) for r in both}
assert grids == {(4, 1), (2, 2), (1, 4)} and all(r["devices"] == 4 for r in both), grids
grid = [r for r in both if r["tensor_parallel"] == 2]
assert all("--context-parallel 2" in r["command"] and "--tensor-parallel 2" in r["command"] for r in grid if r["trains"])
assert min(r["step_ms"] for r in both if r["tensor_parallel"] == 1) == context[0]["step_ms"]
json.dump([r["command"] for r in read("tiny") + context + tensor + grid[:6] if r["trains"] and r["fits"]], open(sys.argv[1] + "/commands", "w"))
END

# Schedules whose stages share parameters, tokens, or both.
for shared in "context helix sppo fsdp" "tensor helix sppo fsdp weipipe" "both zb1p zbv wzb1"; do
    for schedule in ${shared#* }; do
        pasted "\\|--schedule\\|$schedule" plan --model llama-tiny --seq 256 --micro-batches 8 --data-parallel 1 --stages 4 \
            --devices 2 --group ${shared%% *} --schedule $schedule
    done
done

# What is recommended runs: every command for a tiny model, of two stages.
while read -r command; do
    said "of plan: $command" 'nothing was submitted' ${command#*starpipe } --dry-run
done < <(python3 -c 'import json, sys
for c in json.load(open(sys.argv[1])): print(c)' "$work/commands")

pasted '\|--context-parallel\|2\|--zero\|1\|' $long --devices 2 --group context --schedule 1f1b
pasted '\|--context-parallel\|8\|--context-method\|ulysses=4,ring\|' plan --model llama-tiny --seq 96 --micro-batches 4 \
    --devices 8 --schedule 1f1b --group context
# ---- nodes of two kinds: stages on the slower one have fewer layers, and train says the same of the command

layouts mixed --model gpt3-1.3b --seq 8192 --micro-batches 16 --hardware h100-ib:1,h20-ib:1 --tensor-parallel 8 \
    --context-parallel 1 --data-parallel 1 --recompute none --offload none
python3 - "$work" "$STARPIPE" << 'END' || fail "nodes of two kinds"
import json, shlex, subprocess, sys
rows = json.load(open(f"{sys.argv[1]}/mixed.json"))["layouts"]
row = next(r for r in rows if r["schedule"] == "1f1b" and r["chunks"] == 1)
first, second = map(int, row["partition"].split(","))
command = shlex.split(row["command"])
command = command[command.index("starpipe") + 1:]
kinds = command[command.index("--hardware") + 1]
assert kinds in ("h100-ib:1,h20-ib:1", "h20-ib:1,h100-ib:1"), kinds
assert (first > second + 3) == kinds.startswith("h100"), (kinds, first, second)
ask = lambda words: json.loads(subprocess.run([sys.argv[2], *words], capture_output=True, check=True).stdout)
assert ask([*command, "--dry-run", "--json"])["predicted_step_ms"] == row["step_ms"]
assert ask(["show", *command[1:], "--json"])["step_ms"] == row["step_ms"]
even = [w for w in command[1:] if w not in ("--partition", row["partition"])]
assert ask(["show", *even, "--json"])["step_ms"] > 1.1 * row["step_ms"]
assert ask(["show", *even, "--partition", "balanced", "--json"])["step_ms"] == row["step_ms"]
END
kinds="--model gpt3-1.3b --seq 8192 --hardware h100-ib:1,a800-ib:2"
refused "nodes 2: h100-ib:1,a800-ib:2 has 3; leave --nodes out" plan $kinds --nodes 2
refused "chooses for devices that are alike" train $kinds --schedule auto --dry-run
refused "a list takes one of them" plan --model gpt-tiny --seq 64 --hardware laptop,h100-ib
said "info of two kinds" '^2 of a800-ib: nodes of 8' info --hardware h100-ib:1,a800-ib:2

# ---- named as train names them: exactly these groups, and what train --dry-run says of the command

while read -r tensor context data zero options; do
    starpipe plan --model llama-tiny --seq 256 --micro-batches 8 --schedule 1f1b --dtype f32 $options --json \
        > "$work/grid.json" || fail "plan $options"
    command=$(sed -n 's/.*"command": ".*starpipe \(.*\)",$/\1/p' "$work/grid.json" | head -n 1)
    starpipe $command --dry-run --json > "$work/grid.run" || fail "$command"
    python3 - "$work" $tensor $context $data $zero << 'END' || fail "plan $options is not what trains"
import json, sys
found = json.load(open(sys.argv[1] + "/grid.json"))["layouts"][0]
run = json.load(open(sys.argv[1] + "/grid.run"))
want = [int(x) for x in sys.argv[2:]]
assert [found[k] for k in ("tensor_parallel", "context_parallel", "data_parallel", "zero")] == want, found
assert [run[k] for k in ("tensor_parallel", "context_parallel", "data_parallel", "zero")] == want, run
assert found["processes"] == 8 and found["stages"] * want[0] * want[1] * want[2] == 8, found
assert abs(found["step_ms"] / run["predicted_step_ms"] - 1) < 1e-9, (found, run)
most = max(sum(v for k, v in s.items() if k.endswith("_bytes") and k != "buffer_bytes") for s in run["stages"])
assert found["memory_bytes"] == most, (found["memory_bytes"], most)
END
done << 'END'
1 1 2 1 --devices 1 --data-parallel 2 --zero 1
2 1 1 0 --tensor-parallel 2 --context-parallel 1 --data-parallel 1
1 2 1 1 --tensor-parallel 1 --context-parallel 2 --data-parallel 1 --zero 1
2 2 2 1 --tensor-parallel 2 --context-parallel 2 --data-parallel 2 --zero 1
1 1 4 0 --devices 1 --data-parallel 4 --zero 0
END

# ---- rows of steps so long that the search predicts them from shorter ones: they are what train says of them

while read -r options; do
    starpipe plan $options --top 3 --json > "$work/rows.json" || fail "plan $options"
    python3 - "$STARPIPE" "$work/rows.json" << 'END' || fail "plan $options is not what trains"
import json, shlex, subprocess, sys
rows = [r for r in json.load(open(sys.argv[2]))["layouts"] if r["fits"]]
assert rows
for row in rows:
    words = shlex.split(row["command"])
    run = subprocess.run([sys.argv[1], *words[words.index("starpipe") + 1:], "--dry-run", "--json"], capture_output=True, text=True)
    assert not run.returncode, (row["command"], run.stderr)
    said = json.loads(run.stdout)
    most = max(sum(v for k, v in s.items() if k.endswith("_bytes") and k != "buffer_bytes") for s in said["stages"])
    assert abs(row["step_ms"] / said["predicted_step_ms"] - 1) < 1e-6, (row["command"], row["step_ms"], said["predicted_step_ms"])
    assert row["memory_bytes"] == most, (row["command"], row["memory_bytes"], most)
    assert row["stall_ms"] >= 0 and row["bubble_ratio"] >= 0, row
END
done << 'END'
--model gpt3-1.3b --seq 4096 --micro-batches 64 --devices 1 --schedule 1f1b --memory-limit 14GiB --offload adaptive
--model gpt3-1.3b --seq 16384 --micro-batches 48 --devices 4 --schedule helix:bounded --memory-limit 16GiB --recompute none --offload adaptive
--model llama-h1024 --seq 2048 --micro-batches 48 --devices 2 --group both --schedule zb1p --micro-batch-size 1
--model gpt-tiny --seq 64 --micro-batches 64 --micro-batch-size 1 --devices 2 --schedule zbv
END
# ---- what is searched beside: types, layers that compute again one by one, memory that stays free

python3 - "$STARPIPE" << 'END' || fail "types, layers and memory"
import json, shlex, subprocess, sys
def ask(*words):
    run = subprocess.run([sys.argv[1], *words], capture_output=True, text=True)
    assert not run.returncode, (words, run.stderr)
    return json.loads(run.stdout)
def rows(*words): return ask("plan", "--json", *words)["layouts"]
def check(row):
    words = shlex.split(row["command"])
    said = ask(*words[words.index("starpipe") + 1:], "--dry-run", "--json")
    most = max(sum(v for k, v in s.items() if k.endswith("_bytes") and k != "buffer_bytes") for s in said["stages"])
    assert abs(row["step_ms"] / said["predicted_step_ms"] - 1) < 1e-6 and row["memory_bytes"] == most, (row, said)
both = rows("--model", "gpt2-124m", "--seq", "1024", "--micro-batches", "16", "--hardware", "laptop", "--dtype", "both")
assert [r["dtype"] for r in both] == ["f32", "bf16"] and both[0]["step_ms"] < both[1]["step_ms"], both
alone = rows("--model", "gpt2-124m", "--seq", "1024", "--micro-batches", "16", "--hardware", "laptop", "--dtype", "bf16")
assert alone[0]["dtype"] == "bf16" and abs(alone[0]["step_ms"] / both[1]["step_ms"] - 1) < 0.01, (alone, both)
large = ["plan", "--json", "--model", "gpt3-7b", "--seq", "8192", "--stages", "4", "--schedule", "1f1b", "--micro-batches", "16",
         "--recompute", "none", "--offload", "none", "--devices", "1", "--data-parallel", "1"]
for machine, has in ("h200", True), ("a800-ib", False):
    runs = [subprocess.run([sys.argv[1], *large, "--hardware", machine, "--dtype", d], capture_output=True, text=True)
            for d in ("bf16", "fp8")]
    bf16, fp8 = (json.loads(run.stdout)["layouts"][0] for run in runs)
    assert fp8["dtype"] == "fp8" and "--dtype fp8" in fp8["command"] and fp8["memory_bytes"] == bf16["memory_bytes"], fp8
    assert fp8["step_ms"] < 0.95 * bf16["step_ms"] if has else fp8["step_ms"] == bf16["step_ms"], (machine, fp8, bf16)
    assert [len(run.stderr.splitlines()) for run in runs] == [0, 0 if has else 1], [run.stderr for run in runs]
    assert has or "no rates of products in fp8, those of bf16 are taken" in runs[1].stderr, runs[1].stderr
    if has:
        check(fp8)
tight = ["--model", "gpt3-1.3b", "--seq", "4096", "--stages", "4", "--micro-batches", "16", "--memory-limit", "12GiB", "--offload", "none"]
auto = [r for r in rows(*tight) if r["recompute"] == "auto"]
assert auto and all("--recompute auto --memory-limit 12884901888" in r["command"] and r["memory_bytes"] <= 12 << 30 for r in auto), auto
check(auto[0])
# show draws what was chosen layer by layer, or with adapipe
for row in auto[:2] + [r for r in rows(*tight, "--schedule", "adapipe") if r["fits"]][:1]:
    shown = ask("show", *shlex.split(row["command"])[5:], "--json")
    assert shown["step_ms"] == row["step_ms"], (row, shown["step_ms"])
    assert max(m["total"] for m in shown["memory_bytes"]) == row["memory_bytes"], (row, shown["memory_bytes"])
same = ["--schedule", auto[0]["schedule"], "--data-parallel", str(auto[0]["data_parallel"]), "--devices", str(auto[0]["devices"])]
assert all(auto[0]["step_ms"] < min(r["step_ms"] for r in rows(*tight, *same, "--recompute", mode) if r["fits"])
           for mode in ("no-attention", "full")), auto[0]
assert {r["offload"] for r in rows(*tight[:-1], "full") if r["schedule"] != "adapipe"} == {"full"}
most = lambda *words: max(r["memory_bytes"] for r in rows("--model", "gpt3-7b", "--seq", "16384", "--micro-batches", "16", *words) if r["fits"])
assert most() <= 0.92 * 80e9 and most("--reserve", "40") <= 0.6 * 80e9
# every size that is not given is searched, and what is printed is what trains
wide = rows("--model", "gpt3-1.3b", "--seq", "2048", "--micro-batches", "64", "--nodes", "2")
assert len({r["data_parallel"] for r in wide}) > 1 and all(r["processes"] == 16 for r in wide), wide
assert all(r["micro_batches"] * r["micro_batch_size"] * r["data_parallel"] == 64 for r in wide)
for row in wide[:4]:
    check(row)
END
refused "leave --reserve out" plan --model gpt-tiny --seq 64 --reserve 10 --memory-limit 1GiB

# Ctrl-C ends the search with what it has.
python3 - "$STARPIPE" << 'END' || fail "plan does not end on SIGINT"
import json, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it, and so would plan
run = subprocess.Popen([sys.argv[1], "plan", "--model", "llama3-405b", "--seq", "4096", "--micro-batches", "2048", "--nodes", "128", "--json"],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
time.sleep(3)
run.send_signal(signal.SIGINT)
out, err = run.communicate(timeout=60)
assert run.returncode == 0 and err.startswith("plan: stopped after "), (run.returncode, err)
said = json.loads(out)
assert said["complete"] is False and len(said["layouts"]) >= 1 and "mpirun -np 1024" in said["layouts"][0]["command"], said
END
refused "data-parallel 16: there are 8 devices" plan --model gpt-tiny --seq 64 --data-parallel 16
refused "data-parallel 3: there are 8 devices, which so many pipelines cannot share" plan --model gpt-tiny --seq 64 --data-parallel 3
refused "a step of 4096 x 65536 x 8 sequences is too long" plan --model gpt-tiny --seq 64 --data-parallel 4096 \
    --micro-batches 65536 --micro-batch-size 8
refused "devices chooses --tensor-parallel and --context-parallel" plan --model gpt-tiny --seq 64 --devices 2 \
    --tensor-parallel 2

# ---- the table: the rows of the JSON, which are of different ideas, in columns that hold them

# table NAME OPTION...: both forms of one plan, in $work/NAME.text and .json, compared.
table()
{
    starpipe plan "${@:2}" > "$work/$1.text" || fail "plan ${*:2}"
    layouts "$@"
    python3 - "$work/$1" << 'END' || fail "the table of plan ${*:2}"
import json, re, sys
rows = json.load(open(sys.argv[1] + ".json"))["layouts"]
head, order, *lines = open(sys.argv[1] + ".text").read().split("\n")
common = lines.pop(0)[len("all with "):].split(", ") if lines[0].startswith("all with ") else []
assert lines[0] == "" and not any(line.endswith(" ") for line in lines)
names, lines = lines[1], lines[2:lines.index("", 1)]
assert len(lines) == len(rows), (lines, len(rows))
# a column ends where its name does, or begins there: "schedule", "recompute", "offload" and "vocabulary"
left = ["schedule", "recompute", "offload", "vocabulary"]
table = {}
for found in re.finditer(r"\S+", names):
    name = found[0]
    ends = [re.compile(r"\S.*?(?=  |$)").match(line, found.start()) if name in left else
            re.compile(r"(?<=  )(\S+ )*\S+$").search(line[:found.end()]) for line in lines]
    table[name] = [end[0] if end else line for end, line in zip(ends, lines)]
kind = {"stages": lambda r: str(r["stages"]), "tensor": lambda r: str(r["tensor_parallel"]),
    "context": lambda r: str(r["context_parallel"]), "data": lambda r: str(r["data_parallel"]),
    "micro-batches": lambda r: f"{r['micro_batches']} x {r['micro_batch_size']}", "chunks": lambda r: str(r["chunks"]),
    "slices": lambda r: str(r["slices"]), "recompute": lambda r: r["recompute"], "offload": lambda r: r["offload"],
    "vocabulary": lambda r: "split" if r["vocabulary_parallel"] else "-"}
for name, of in kind.items():
    cells = [of(r) for r in rows]
    if name in table:
        assert table[name] == cells and (len(set(cells)) > 1 or len(rows) == 1), (name, table[name], cells)
    elif set(cells) - {"1", "-"} or name in ("stages", "recompute", "offload", "micro-batches"):
        assert f"{name} {cells[0]}" in common and len(set(cells)) == 1, (name, cells, common)
unit = {"ms": 1, "s": 1e3, "MiB": 2**20, "GiB": 2**30}
def near(cell, value):
    figure, what = cell.split()
    return abs(float(figure) * unit[what] - value) <= 0.0051 * value
assert all(near(c, r["step_ms"]) for c, r in zip(table["step"], rows)), table["step"]
assert all(near(c, r["memory_bytes"]) for c, r in zip(table["memory"], rows)), table["memory"]
assert all(abs(float(c) - r["tokens_per_s"]) <= 0.0051 * r["tokens_per_s"] for c, r in zip(table["tokens/s"], rows))
assert all(c == f"{100 * r['bubble_ratio']:.1f} %" for c, r in zip(table["bubble"], rows)), table["bubble"]
assert table["schedule"] == [r["schedule"] for r in rows], table["schedule"]
for line, row in zip(lines, rows):
    assert line.endswith("does not fit") == (not row["fits"] and rows[0]["fits"])
assert ("none fits" in order) == (not rows[0]["fits"]), order
END
}
table twelve --model gpt-tiny --seq 64 --micro-batches 8
table single $(sed 's/^plan //' <<< "$long") --schedule helix:ship=attention,bounded --devices 1
table first --model gpt-tiny --seq 64 --micro-batches 8 --top 1
table none --model gpt3-1.3b --seq 8192 --micro-batches 8 --memory-limit 1GiB --devices 2
table some --model gpt3-1.3b --seq 8192 --micro-batches 8 --memory-limit 16GiB --devices 1 --data-parallel 1 \
    --offload none --recompute none --top 64
table pipelines --model gpt-tiny --seq 64 --micro-batches 8 --data-parallel 2 --group both
python3 - "$work" << 'END' || fail "rows of one idea"
import json, sys
read = lambda name: json.load(open(f"{sys.argv[1]}/{name}.json"))["layouts"]
family = lambda r: r["schedule"].split(":")[0]
grid = lambda r: (r["stages"], r["tensor_parallel"], r["context_parallel"], r["data_parallel"])
rows = read("twelve")
assert len(rows) == 12 and len({(family(r), grid(r)) for r in rows}) == 12
assert rows[0] == read("first")[0] and len({family(r) for r in rows}) >= 6 and len({grid(r) for r in rows}) >= 6, rows
assert len(read("single")) == len(read("first")) == 1
fits = [r["fits"] for r in read("some")]
assert True in fits and False in fits and fits == sorted(fits, reverse=True), fits
assert not any(r["fits"] for r in read("none"))
assert all(r["data_parallel"] == 2 for r in read("pipelines"))
END

# Names of directories are whatever they are: the command goes back through a shell, the table stays on its lines.
plain="$work/it's <b>&amp; \"\$(touch oops)\" \\ $(printf 'long%.0s' {1..40})"
hostile="$plain"$'\e[31m, \n'"\\"
one="--seq 32 --micro-batches 4 --stages 2 --devices 1 --schedule 1f1b"
for name in "$plain" "$hostile"; do
    cp -r "$SP_TESTDATA/golden/llama" "$name" || fail "a directory"
    starpipe plan --model "$name" $one > "$work/stdout" || fail "plan of a directory"
    sed '1,/^recommended/d' "$work/stdout" > "$work/lines"
    grep -q $'\e' "$work/stdout" && fail "a name colours the terminal: $(cat -A "$work/stdout")"
    (
        mpirun() { printf '%s\0' "$@"; }
        . "$work/lines"
    ) > "$work/command"
    python3 - "$work/command" "$name" << 'END' || fail "the command of a directory: $(cat "$work/lines")"
import sys
words = open(sys.argv[1]).read().split("\0")
assert words[words.index("--model") + 1] == sys.argv[2], words
assert words[-3:] == ["--tokens", "FILE.bin", ""], words
END
done

# ---- the page: all layouts as points, those of the table and of the frontier with their picture

# page NAME OPTION...: the page beside the JSON of all layouts, of the table and of the others.
page()
{
    starpipe plan --format html --output "$work/$1.html" "${@:2}" > "$work/stdout" || fail "plan --format html ${*:2}"
    [ -s "$work/stdout" ] && fail "plan --output prints: $(head -n 2 "$work/stdout")"
    layouts "$1.every" "${@:2}" --top 512
    layouts "$1" "${@:2}"
    python3 - "$work/$1" << 'END' || fail "the page of plan ${*:2}"
import json, re, sys
import xml.etree.ElementTree as tree
text = open(sys.argv[1] + ".html").read()
assert not re.search(r"<script|<link|<img|src=|@import|url\((?!#)|https?:(?!//www.w3.org/2000/svg)", text)
page = tree.fromstring(text.replace("http://www.w3.org/2000/svg", ""))
every = json.load(open(sys.argv[1] + ".every.json"))["layouts"]
rows = json.load(open(sys.argv[1] + ".json"))["layouts"]
ids = [e.get("id") for e in page.iter() if e.get("id") not in (None, "idle", "odd")]
links = [e.get("href") for e in page.iter("a")]
assert len(set(ids)) == len(ids) and all(link[1:] in ids for link in links), set(links) - {"#" + i for i in ids}
assert text.count('id="idle"') == text.count('id="odd"') == 1
# the points: a link for each layout, and where they are tells which are on the frontier
chart = page.find(".//svg[@class='chart']")
points = chart.findall("a")
assert len(points) == len(every), (len(points), len(every))
fit = [r for r in every if r["fits"]] or every
ahead = lambda a, b: a["step_ms"] <= b["step_ms"] and a["memory_bytes"] <= b["memory_bytes"] and \
    (a["step_ms"], a["memory_bytes"]) != (b["step_ms"], b["memory_bytes"])
front = {(r["step_ms"], r["memory_bytes"]) for r in fit if not any(ahead(o, r) for o in fit)}
best = [p for p in points if "best" in p.get("class").split()]
assert len(best) == len(front), (len(best), front)
assert len([p for p in points if "full" in p.get("class").split()]) == sum(not r["fits"] for r in every)
# the sections: rows and frontier, in the order of all, each with its command and one picture
key = lambda r: r["command"]
told = [r for r in every if key(r) in {key(r) for r in rows} or (r["step_ms"], r["memory_bytes"]) in front]
sections = page.findall(".//section")
assert len(rows) <= len(sections) <= len(told) and len(sections) - len(rows) <= len(front), (len(sections), len(rows))
commands = ["".join(s.find("pre").itertext()).replace(" \\\n   ", "").strip() for s in sections]
assert {key(r) + " --tokens FILE.bin" for r in rows} <= set(commands) <= {key(r) + " --tokens FILE.bin" for r in told}, commands
for number, section in enumerate(sections, 1):
    assert section.get("id") == f"layout-{number}" and len(section.findall("figure/svg")) == 1
    assert section.find("figure/svg").findall(".//rect[@class='bar']"), number
assert [float(c.findtext("text")) for c in points if "told" in c.get("class").split()] == list(range(len(sections), 0, -1))
details = page.findall(".//td/details/pre")
assert len(details) + len(sections) == len(every), (len(details), len(sections), len(every))
END
}
page many --model gpt-tiny --seq 64 --micro-batches 8 --stages 4 --memory-limit 3MiB --offload none --recompute none
grep -q 'class="told' "$work/many.html" && grep -q 'class="other g0 full"' "$work/many.html" ||
    fail "a page of what fits and what does not"
page lone --model gpt-tiny --seq 64 --micro-batches 8 --stages 4 --devices 2 --group tensor --schedule 1f1b --micro-batch-size 1
page full --model gpt3-1.3b --seq 8192 --micro-batches 8 --memory-limit 1GiB --devices 2 --schedule 1f1b
grep -q '<p>nothing fits' "$work/full.html" || fail "a page where nothing fits: $(head -c 300 "$work/full.html")"
# The picture is what show draws of it.
command=$(sed -n 's/.*"command": ".*starpipe train \(.*\)",$/\1/p' "$work/lone.json")
starpipe show $command --format svg > "$work/lone.svg" || fail "show $command"
for file in lone.svg lone.html; do
    sed -n 's/ y="[^"]*"//; s/^.*\(<rect class="bar".*\)$/\1/p' "$work/$file" > "$work/$file.bars"
done
[ -s "$work/lone.svg.bars" ] && cmp -s "$work/lone.svg.bars" "$work/lone.html.bars" || fail "another picture than show's"
page hostile --model "$hostile" $one
# Steps too long for a picture are drawn with fewer micro-batches, as few as the schedule takes.
starpipe plan --model gpt-tiny --seq 64 --micro-batches 512 --micro-batch-size 1 --devices 2 --schedule 1f1b \
    --format html > "$work/long.html" || fail "a page of a long step"
grep -q 'A step of 64 micro-batches instead of 512' "$work/long.html" || fail "a picture of 512 micro-batches"

refused "--schedule: 76 bytes of a name and its options, at most 63" plan --model gpt-tiny $one \
    --schedule "interleaved:group=$(printf '0%.0s' {1..57})2"
refused "cannot write $work/none/x" plan --model gpt-tiny $one --output "$work/none/x"

refused "which model" plan
refused "has 512 positions" plan --model gpt-tiny
refused "there is no machine" plan --model gpt-tiny --seq 64 --hardware abacus
refused "does not cut sequences" plan --model gpt-tiny --seq 256 --schedule 1f1b --slices 4
refused "do not make 3 stages" plan --model gpt-tiny --seq 256 --stages 3
refused "are more than the 8 layers" plan --model gpt-tiny --seq 256 --stages 16
refused "65 slices of a sequence of 64 tokens" plan --model gpt-tiny --seq 64 --slices 65 --schedule sppo
refused "want none, full or adaptive" plan --model gpt-tiny --seq 64 --offload some
refused "no schedule that train runs takes" plan --model gpt-tiny --seq 64 --schedule dualpipe --micro-batches 3 --devices 1 \
    --micro-batch-size 1
refused "no schedule 'dragonpipe'; there are: naive gpipe" plan --model gpt-tiny --seq 64 --schedule dragonpipe
refused "no schedule 'zbb', did you mean zbv\?" plan --model gpt-tiny --seq 64 --schedule zbb
refused "nodes" plan --model gpt-tiny --seq 64 --nodes 0

# ---- multiplexed slices: what cannot be shared out is left out, or refused with the reason

pasted '\|--schedule\|sppo:multiplex\|--stages\|8\|.*--slices\|8\|' plan \
    --schedule sppo:multiplex --model gpt3-1.3b --seq 32768 --micro-batches 1 --devices 1 --slices 8
share="--micro-batches 1 --schedule sppo:multiplex=auto"
said "multiplex where it pays" '^sppo:multiplex .* 8 stages .* 32 slices' show $share --stages 8 --slices 32 \
    --model gpt3-7b --seq 131072 --dtype bf16
said "multiplex where it does not" '^sppo .* 4 stages .* 8 slices' show $share --stages 4 --slices 8 \
    --model gpt2-124m --seq 1024 --hardware a800-nvlink-eth
refused "which is faster depends on the model; give --model" show $share --stages 2 --slices 4
refused "makes 65537 parts" show --schedule sppo:multiplex --stages 2 --slices 65536 --micro-batches 1
refused "ops, at most" show --schedule sppo:multiplex --stages 30 --slices 29 --micro-batches 6000
refused "at most 2147483647 tokens" plan --model gpt3-7b --seq 131072 --micro-batch-size 16385

# ---- --slices auto

make_text 5003 > "$work/text"
said "--slices auto" 'slices of [0-9]+( [0-9]+)+ tokens' train --model gpt-tiny --data "$work/text" --schedule sppo \
    --stages 2 --seq 256 --micro-batches 1 --slices auto --dry-run
said "show --slices auto" '^peak' show --model gpt3-1.3b --schedule sppo --stages 4 --seq 131072 --slices auto
refused "does not cut sequences" train --model gpt-tiny --data "$work/text" --schedule 1f1b --slices auto
refused "or auto" train --model gpt-tiny --data "$work/text" --schedule sppo --slices many

# ---- table 3

said "table 3" '^without multiplex: makespan 4.125, bubble 27.27 %; with it 3.125, 4.00 %: 24.2 % less$' \
    show --schedule sppo:multiplex --stages 4 --slices 8 --micro-batches 1
sed -n '/^slices of/,/^right by/p' "$work/stdout" | sed 's/ *$//' > "$work/table"
diff - "$work/table" << 'END' || fail "another table 3"
slices of    stage 0             stage 1             stage 2             stage 3
left         {0,1,2}             {0,1}               {0}                 -
steady       {3,4,5,6,7}         {2,3,4,5,6}         {1,2,3,4,5}         {0,1,2,3,4}
right        -                   {7}                 {6,7}               {5,6,7}
left  by     {0,1,2,3}           {1,2,3}             {2,3}               -
right by     -                   {0,1}               {0,1,2}             {0,1,2,3}
END
starpipe show --schedule sppo:multiplex --stages 4 --slices 8 --micro-batches 1 --format json |
    python3 -c 'import json, sys
t = json.load(sys.stdin)["multiplex"]
assert [len(s["left"]) for s in t] == [3, 2, 1, 0] and [len(s["right"]) for s in t] == [0, 1, 2, 3]
assert t[0]["left_stages"] == [0, 1, 2, 3] and t[3]["right_stages"] == [0, 1, 2, 3]' || fail "table 3 in JSON"
refused "at least 3 slices on 4 stages" show --schedule sppo:multiplex --stages 4 --slices 2
refused "at most 30" show --schedule sppo:multiplex --stages 31 --slices 64
refused "at most 16 stages" train --model gpt3-1.3b --data "$work/text" --schedule sppo:multiplex \
    --stages 20 --slices 20 --seq 1024 --micro-batches 1
refused "can be shared out" train --model gpt-tiny --data "$work/text" --schedule sppo:multiplex \
    --stages 4 --slices auto --seq 14
refused "parts with multiplex" train --model gpt3-1.3b --data "$work/text" --schedule sppo:multiplex \
    --stages 8 --slices 240 --seq 4096 --micro-batches 1
finish
