#!/bin/bash
# Runs whose messages go through StarPU-MPI (--transport starpu): in groups of all kinds they have the bits of those over
# MPI, and send the bytes that were planned. A killed process ends the run, a stopped one is reported.
. "$(dirname "$0")/../common.sh" || exit 1
. "$here/../train/grid.sh"
have_mpi || exit 77

alike=(
    "2 --stages 2"
    "4 --stages 4 --schedule zbv --micro-batches 8"
    "2 --stages 2 --tensor-parallel 1 --post-validation"
    "4 --stages 2 --tensor-parallel 2"
    "4 --stages 2 --context-parallel 2"
    "4 --stages 2 --context-parallel 2 --context-method ring"
    "4 --stages 2 --data-parallel 2 --zero 1"
    "4 --stages 4 --schedule weipipe --micro-batches 8"
    "4 --stages 4 --schedule fsdp --micro-batches 4"
    "4 --stages 4 --schedule helix --micro-batches 8"
    "2 --stages 2 --schedule sppo --slices 4 --micro-batches 2 --offload full --offload-dir $work"
)
same="--model llama-tiny --data $work/text --seq 64 --steps 3 --clip 0.5"
for i in "${!alike[@]}"; do
    for transport in mpi starpu; do
        note "$transport-$i" "${alike[i]%% *}" $same ${alike[i]#* } --transport $transport
    done
done
make_runs
for i in "${!alike[@]}"; do
    what="processes: ${alike[i]}"
    agree "$what" near "$work/starpu-$i.jsonl" "$work/mpi-$i.jsonl" 0
    starpipe train $same ${alike[i]#* } --dry-run --json > "$work/planned"
    is_planned "$what" "starpu-$i" bytes_sent bytes_sent
    grep -q '"transport":"StarPU-MPI over ' "$work/starpu-$i.jsonl" || fail "$what: $(head -n 1 "$work/starpu-$i.jsonl")"
    stages_of "$work/starpu-$i.jsonl" polling_ms | tail -n 1 | grep -q '[1-9]' || fail "$what: no polling_ms"
done

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
