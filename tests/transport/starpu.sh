#!/bin/bash
# Runs whose messages go through StarPU-MPI (--transport starpu): in groups of all kinds they have the bits of those over
# MPI, and send the bytes that were planned. A killed process ends the run, a stopped one is reported.
. "$(dirname "$0")/../common.sh" || exit 1
. "$here/../train/grid.sh"
have_mpi || exit 77

# alike PROCESSES OPTIONS...: over both transports.
alike()
{
    local n=$1 what="$1 processes, ${*:2}" same transport

    shift
    same="--model llama-tiny --data $work/text --seq 64 --steps 3 --clip 0.5 $*"
    for transport in mpi starpu; do
        quiet "$what, $transport" mpi "$n" train $same --transport $transport --log "$work/$transport.jsonl" || return
    done
    agree "$what" near "$work/starpu.jsonl" "$work/mpi.jsonl" 0
    ln -sf "$work/starpu.jsonl" "$work/grid.jsonl"
    is_planned "$what" bytes_sent bytes_sent "$(starpipe train $same --dry-run --json)"
    grep -q '"transport":"StarPU-MPI over ' "$work/starpu.jsonl" || fail "$what: $(head -n 1 "$work/starpu.jsonl")"
    stages_of "$work/starpu.jsonl" polling_ms | tail -n 1 | grep -q '[1-9]' || fail "$what: no polling_ms"
}

alike 2 --stages 2
alike 4 --stages 4 --schedule zbv --micro-batches 8
alike 2 --stages 2 --tensor-parallel 1 --post-validation
alike 4 --stages 2 --tensor-parallel 2
alike 4 --stages 2 --context-parallel 2
alike 4 --stages 2 --context-parallel 2 --context-method ring
alike 4 --stages 2 --data-parallel 2 --zero 1
alike 4 --stages 4 --schedule weipipe --micro-batches 8
alike 4 --stages 4 --schedule fsdp --micro-batches 4
alike 4 --stages 4 --schedule helix --micro-batches 8
alike 2 --stages 2 --schedule sppo --slices 4 --micro-batches 2 --offload full --offload-dir "$work"

# ---- the record of a step: when messages were ready, and arrived

if command -v python3 > /dev/null; then
    quiet "a record" mpi 4 train --model llama-tiny --data "$work/text" --seq 64 --stages 4 --steps 4 --transport starpu \
        --log "$work/log" --trace "$work/trace"
    python3 "$here/../trace/check_record.py" "$work/trace/trace.json" "$work/log" || fail "the record of a step"
fi

# ---- ends

killed "a killed process" 4 --model gpt-tiny --data "$work/text" --seq 32 --stages 4 --transport starpu

timeout 60 $MPIRUN -np 2 "$STARPIPE" train --model gpt-tiny --data "$work/text" --seq 32 --stages 2 --transport starpu \
    --steps 100000 --stall-timeout 3 > "$work/stopped" 2>&1 < /dev/null &
run=$!
children="$children $run"
if wait_for 30 grep -qs 'step [2-9]' "$work/stopped"; then
    # env and timeout have become the launcher's parents, or the launcher
    rank=$(pgrep -f "^$STARPIPE train .*--stall-timeout 3" | tail -n 1)
    children="$children $rank"
    kill -STOP "$rank"
    wait $run
    grep '^starpipe: ' "$work/stopped"
    grep -q '^starpipe: rank 0: nothing moved for 3 s' "$work/stopped" || fail "the stall is not reported"
    kill -9 "$rank" 2> /dev/null
else
    fail "no step: $(tail -n 3 "$work/stopped")"
fi

# ---- refusals

said "one process" 'done: ' train --model gpt-tiny --data "$work/text" --seq 32 --stages 2 --steps 1 --transport starpu
refused 'simulate: no option --transport' simulate --transport starpu
refused 'transport: .*' train --model gpt-tiny --data "$work/text" --transport star
finish
