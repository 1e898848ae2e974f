#!/bin/bash
# calibrate: a description that reads back, of one process, of threads, of two; files that appear whole or not
# at all; its refusals, of a busy machine too. info --hardware: machines in words and as files.
. "$(dirname "$0")/../common.sh" || exit 1

# ---- described machines

for name in a800-nvlink-eth a800-pcie-eth a800-ib h20-ib a100-sppo h100-ib h200 laptop; do
    said "info --hardware $name" "^$name: nodes of [0-9]+ x " info --hardware $name
    said "info --hardware $name --json" '"source": \[' info --hardware $name --json
    cmp -s "$work/stdout" "$here/../../src/plan/machine/named/$name.json" ||
        fail "$name as a file is not the file that it came from"
    cp "$work/stdout" "$work/$name.json"
done
said "info --hardware FILE" '^h20-ib: nodes of 8 x NVIDIA H20' info --hardware "$work/h20-ib.json"
said "info --hardware, no copies" '^copies +none' info --hardware laptop
sed 's/"devices": 8/"devices": 0/' "$work/h200.json" > "$work/bad.json"
refused "bad.json: node.devices: it is 0, it must be a whole number" info --hardware "$work/bad.json"
refused "no machine 'h300', did you mean h200\? Give one of a100-sppo .* laptop, or a file" info --hardware h300
refused "No such file" info --hardware "$work/none.json"
said "info --json" '"gemm": "' info --json

# ---- this one

busy=0

# calibrated WHAT COMMAND...: where other programs disturb it, again. They may do so each time: then it is refused, which
# is noted.
calibrated()
{
    local what=$1 status

    shift
    for _ in 1 2; do
        "$@" > "$work/stdout" 2> "$work/stderr" && return
        status=$?
        [ $status -ne 124 ] || continue # so slow that starpipe() has ended it
        [ ! -s "$work/stdout" ] || fail "$what: refused, it prints $(head -n 1 "$work/stdout")"
        if ! grep -q 'calibrate: .* other programs seem to use this machine' "$work/stderr"; then
            fail "$what: $(head -n 2 "$work/stderr")"
            return 1
        fi
    done
    echo "$what: not checked, as this machine is busy"
    busy=1
    return 1
}

# checked WHAT FILE: a machine, with every figure above 0.
checked()
{
    said "$1" '^products +f32 ' info --hardware "$2"
    python3 - "$2" << 'END' || fail "$1: $(cat "$2")"
import json, sys
m = json.load(open(sys.argv[1]))
d = m["device"]
threads = [t["threads"] for t in d.get("teams", [])]
assert threads == [2 ** i for i in range(len(threads))], threads
assert not threads or threads[-1] < d["threads"] <= 2 * threads[-1], (threads, d["threads"])
curves = [c for x in [d] + d.get("teams", []) for k in ("attention", "pairs") for t in x[k].values() for c in t.values()]
curves += [c for x in [d] + d.get("teams", []) for c in [*x["matmul"].values(), x["memory"], x["memory_bf16"]]]
for curve in curves:
    assert curve and all(1e5 < rate < 1e16 for _, rate in curve), curve
assert sum(map(len, curves)) > len(curves)  # on a busy machine some ops take all the time there is at one size
assert 1e-7 < d["launch_s"] < 1e-1
assert m["node"]["host_bytes"] == d["memory_bytes"] * m["node"]["devices"] or m["node"]["copy"] or \
    abs(m["node"]["host_bytes"] - d["memory_bytes"] * m["node"]["devices"]) < m["node"]["devices"]
assert any(line.startswith("measured by starpipe ") for line in m["source"])
print("%s: products %.3g, %.3g GFLOP/s, task %.1f us, link %.2g GB/s" % (
    m["device"]["name"], d["matmul"]["f32"][-1][1] / 1e9, d["matmul"]["bf16"][-1][1] / 1e9,
    d["launch_s"] * 1e6, m["node"]["link"]["bandwidth"] / 1e9))
END
}

if calibrated "calibrate" starpipe calibrate --quick --device cpu; then
    cp "$work/stdout" "$work/here.json"
    checked "calibrate" "$work/here.json"
    grep -q 'node.link: not measured, there was one process' "$work/here.json" || fail "where is the link from?"
    grep -q 'of [0-9]* figures did not get steady' "$work/here.json" || fail "how steady are the figures?"
    # of all numbers of threads that it has, stages take those of theirs
    starpipe train --dry-run --model gpt-tiny --stages 2 --threads 1 --hardware "$work/here.json" \
        > /dev/null 2> "$work/stderr" || fail "no dry run with a calibrated machine"
    [ ! -s "$work/stderr" ] || fail "threads of a calibrated machine: $(cat "$work/stderr")"
fi

echo old > "$work/out.json"
ln "$work/out.json" "$work/other.json"
if calibrated "calibrate --output" starpipe calibrate --quick --threads 1 --device cpu --output "$work/out.json"; then
    [ ! -s "$work/stdout" ] || fail "calibrate --output prints: $(head -n 2 "$work/stdout")"
    checked "calibrate --output" "$work/out.json"
    [ "$(cat "$work/other.json")" = old ] || fail "--output writes into the old file, does not replace it"
    grep -q '"name": "1 core of ' "$work/out.json" || fail "--threads 1 is no device of 1 core"
    grep -q '"teams"' "$work/out.json" && fail "--threads 1 measures other numbers of threads"
    starpipe show --model gpt-tiny --hardware "$work/out.json" --threads 2 > /dev/null 2> "$work/stderr"
    grep -q 'no figures of devices of 2 threads, those of 1 are taken' "$work/stderr" ||
        fail "a machine without figures of 2 threads: $(cat "$work/stderr")"
fi

# Two threads on one core are in each other's way whenever they are timed: no figure, no file.
if command -v taskset > /dev/null; then
    echo old > "$work/kept.json"
    core=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/') # one that may be used
    timeout 120 taskset -c "$core" "$STARPIPE" calibrate --quick --device cpu --threads 2 --output "$work/kept.json" \
        > "$work/stdout" 2> "$work/stderr"
    [ $? -eq 1 ] && grep -q 'calibrate: .* other programs seem to use this machine' "$work/stderr" ||
        fail "disturbed all the time, calibrate says: $(cat "$work/stderr")"
    [ "$(cat "$work/kept.json")" = old ] || fail "refused, calibrate wrote: $(head "$work/kept.json")"
fi

# Stopped, it leaves the old file and nothing beside it.
mkdir "$work/stopped"
echo old > "$work/stopped/out.json"
timeout -s INT 1 "$STARPIPE" calibrate --offload-dir "$work/stopped" --output "$work/stopped/out.json" > "$work/output" 2>&1
[ $? -eq 124 ] || fail "calibrate ended before it was stopped: $(cat "$work/output")"
[ "$(cat "$work/stopped/out.json")" = old ] || fail "stopped, calibrate wrote: $(head "$work/stopped/out.json")"
[ "$(ls "$work/stopped")" = out.json ] || fail "stopped, calibrate leaves $(ls "$work/stopped")"

refused "/nowhere" calibrate --output /nowhere/out.json
refused "/nowhere" calibrate --offload-dir /nowhere
refused "none of auto" calibrate --device gpu
refused "threads" calibrate --threads -1
refused "no option --quik, did you mean --quick" calibrate --quik
starpipe calibrate --quick > /dev/full 2> "$work/stderr"
[ $? -eq 1 ] && grep -q "cannot write\|other programs seem to" "$work/stderr" || fail "calibrate does not say that it cannot write"

if have_mpi; then
    if calibrated "2 processes" mpi 2 calibrate --quick --output "$work/two.json"; then
        checked "2 processes" "$work/two.json"
        grep -q 'node.link: messages between ranks 0 and 1' "$work/two.json" || fail "2 processes: no message was timed"
    fi
    timeout -k 5 60 $MPIRUN -np 1 env HWLOC_SYNTHETIC="core:8 pu:1" "$STARPIPE" calibrate --quick --device cpu : \
        -np 1 env HWLOC_SYNTHETIC="core:2 pu:1" "$STARPIPE" calibrate --quick --device cpu > "$work/output" 2>&1
    [ $? -eq 2 ] && grep -q 'calibrate: the processes have different numbers of cores; give all' "$work/output" ||
        fail "processes with different numbers of cores: $(head -n 2 "$work/output")"
    refused_by_all=$(mpi 2 calibrate --quick --offload-dir /nowhere 2>&1 | grep -c '^starpipe: .*nowhere')
    [ "$refused_by_all" -eq 1 ] || fail "2 processes: $refused_by_all lines of one refusal"
fi
[ "$failures" -gt 0 ] || [ "$busy" -eq 0 ] || exit 77
finish
