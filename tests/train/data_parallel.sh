#!/bin/bash
# Pipelines side by side: losses, gradients and bytes on the wire are those of one process on the same samples,
# whatever the schedule; checkpoints go from one grid to another; what does not fit is refused, and a process
# that stops ends the run.
. "$(dirname "$0")/../common.sh" || exit 1
have_mpi || exit 77

. "$(dirname "$0")/grid.sh"

exact=yes # a process a stage
grid 2 4 gpt-tiny 4 --stages 2 --schedule 1f1b                      # a tied table on two stages
grid 3 3 llama-tiny 2 --stages 1 --schedule gpipe                   # no power of two
grid 2 4 gpt-tiny 4 --stages 2 --schedule chimera                   # replicas in a pipeline
grid 2 6 llama-tiny 3 --stages 3 --schedule weipipe:flow=line --recompute full --post-validation
grid 2 4 gpt-tiny 4 --stages 2 --schedule fsdp
grid 2 4 llama-tiny 4 --stages 2 --schedule helix
one=sppo slices=2 grid 2 4 gpt-tiny 2 --stages 2 --schedule sppo:multiplex
grid 2 4 llama-tiny 4 --stages 2 --schedule zb2p --post-validation
grid 2 4 gpt-tiny 4 --stages 2 --schedule 1f1b --zero 1
grid 3 3 llama-tiny 2 --stages 1 --schedule gpipe --zero 1          # parts of unequal length
grid 2 6 llama-tiny 3 --stages 3 --schedule weipipe:flow=line --chunks 2 --recompute full --post-validation --zero 1
grid 2 4 gpt-tiny 4 --stages 2 --schedule fsdp --zero 1             # parts of shards
grid 2 4 gpt-tiny 4 --stages 2 --schedule chimera --zero 1
grid 2 4 llama-tiny 4 --stages 2 --schedule zb2p --post-validation --zero 1
for zero in 2 3; do
    grid 2 4 gpt-tiny 4 --stages 2 --schedule 1f1b --zero $zero
    grid 3 3 llama-tiny 2 --stages 1 --schedule gpipe --recompute every=3 --zero $zero
    grid 2 4 gpt-tiny 4 --stages 2 --schedule zbv --zero $zero          # gradients wait for W
    one=seq1f1b slices=2 grid 2 4 llama-tiny 2 --stages 2 --schedule sppo --zero $zero
    one=sppo slices=2 context=yes grid 2 4 gpt-tiny 2 --stages 2 --schedule sppo:multiplex --zero $zero
    for ship in qkv=activations qkv=weights qkv=published ship=attention; do # shards that are shipped
        context=yes grid 2 4 llama-tiny 4 --stages 2 --schedule helix:$ship --zero $zero
    done
done
context=yes grid 3 6 gpt-tiny 4 --stages 2 --schedule helix:ship=attention --zero 3 --vocabulary-parallel --post-validation
one=seq1f1b slices=2 context=yes grid 2 4 gpt-tiny 4 --stages 2 --schedule helix:qkv=weights --zero 3 --recompute full
grid 2 4 gpt-tiny 4 --stages 2 --schedule dualpipe --zero 3         # replicas, pairs of ops
grid 2 4 llama-tiny 4 --stages 2 --schedule zb2p --post-validation --zero 3
grid 2 4 gpt-tiny 4 --stages 2 --schedule 1f1b --vocabulary-parallel --zero 3
one=seq1f1b slices=2 grid 2 4 gpt-tiny 2 --stages 2 --schedule slimpipe --zero 3
exact=no # stages share processes
grid 2 2 gpt-tiny 4 --stages 4 --schedule zb1p --partition 0,5,0,3
grid 2 4 llama-tiny 4 --stages 4 --schedule helix:ship=attention --zero 3
one=sppo slices=5 grid 2 4 llama-tiny 2 --stages 4 --schedule sppo:multiplex --zero 3
[ -z "${SP_LONG:-}" ] || for name in $(starpipe list | cut -d ' ' -f 1); do
    case $name in seq1f1b | slimpipe | terapipe | sppo) slices=2 one=sppo ;; *) slices=1 one=1f1b ;; esac
    grid 4 8 gpt-tiny 4 --stages 2 --schedule "$name"
    grid 4 8 gpt-tiny 4 --stages 2 --schedule "$name" --zero 1
done
one= slices=

# A gradient of one micro-batch is summed in the order of --zero 1; those of several in that of --zero 2.
sums=("1 2 1 1f1b" "1 3 1 1f1b" "2 3 4 1f1b" "1 2 1 helix:qkv=weights" "1 3 1 helix:ship=attention"
    "2 3 4 helix:qkv=weights" "2 3 4 helix:ship=attention")
for run in "${sums[@]}"; do
    read -r a b m schedule <<< "$run"
    for zero in $a $b; do
        note "sums-$schedule-$m-$zero" 4 --data "$work/text" --model gpt-tiny --seq 32 --steps 3 --data-parallel 2 \
            --stages 2 --micro-batches $m --schedule $schedule --zero $zero
    done
done
make_grids
for run in "${sums[@]}"; do
    read -r a b m schedule <<< "$run"
    cmp -s "$work/sums-$schedule-$m-$a.safetensors" "$work/sums-$schedule-$m-$b.safetensors" ||
        fail "$schedule, $m micro-batches: --zero $a and $b have other gradients"
done

# ---- what is saved and evaluated

grid="train --data $work/text --seq 32 --eval $work/text --eval-tokens 500 --eval-every 2 --steps 4"
quiet "saved by 2 x 2" mpi 4 $grid --model llama-tiny --data-parallel 2 --stages 2 --micro-batches 2 \
    --zero 3 --save "$work/saved" --save-every 2 --keep 0 --log "$work/whole.jsonl"
quiet "resumed by 1" starpipe $grid --stages 1 --micro-batches 4 --resume "$work/saved/step-000002" \
    --log "$work/resumed-1.jsonl"
quiet "resumed by 4 x 1" mpi 4 $grid --data-parallel 4 --stages 1 --micro-batches 1 --zero 1 --post-validation \
    --resume "$work/saved/step-000002" --log "$work/resumed-4.jsonl"
quiet "resumed by 2 x 1" mpi 2 $grid --data-parallel 2 --stages 1 --micro-batches 2 --zero 3 --schedule sppo \
    --slices 2 --resume "$work/saved/step-000002" --log "$work/resumed-2.jsonl"
for log in resumed-1 resumed-4 resumed-2; do
    agree "$log" near --part "$work/$log.jsonl" "$work/whole.jsonl" 1e-5
    for key in eval_loss eval_tokens; do
        a=$(tail -n 1 "$work/whole.jsonl" | grep -o "\"$key\":[0-9]*\.\{0,1\}[0-9]\{0,4\}")
        b=$(tail -n 1 "$work/$log.jsonl" | grep -o "\"$key\":[0-9]*\.\{0,1\}[0-9]\{0,4\}")
        [ -n "$a" ] && [ "$a" = "$b" ] || fail "$log: $key is '$b', was '$a'"
    done
done

# Processes of a grid that are killed leave a checkpoint for another grid.
shot="--model llama-tiny --data $work/text --seq 32"
quiet "not killed" starpipe train $shot --stages 1 --micro-batches 4 --steps 24 --log "$work/whole.jsonl"
killed "helix with --zero 3 killed" 4 $shot --data-parallel 2 --stages 2 --micro-batches 2 --schedule helix:qkv=weights \
    --zero 3 --save "$work/shot" --save-every 1
quiet "resumed by 2 x 1" mpi 2 train --resume "$work/shot" --data-parallel 2 --stages 1 --micro-batches 2 --zero 2 \
    --schedule 1f1b --steps 24 --log "$work/resumed.jsonl"
# differences of rounding have grown in so many steps
agree "resumed after SIGKILL" near --part "$work/resumed.jsonl" "$work/whole.jsonl" 1e-4

# ---- what ZeRO costs and saves

# zero STAGE DTYPE: a log of two pipelines.
zero()
{
    quiet "--zero $1, $2" mpi 2 train --data "$work/text" --model gpt-tiny --seq 32 --steps 3 --data-parallel 2 \
        --stages 1 --micro-batches 2 --zero "$1" --dtype "$2" --log "$work/zero$1.jsonl"
    sent=$(tail -n 1 "$work/zero$1.jsonl" | sed 's/.*"bytes_sent":\([0-9]*\).*/\1/')
}
parameters=$(starpipe train --model gpt-tiny --seq 32 --dry-run --json | sed -n 's/.*"optimizer_bytes": \([0-9]*\).*/\1/p')
parameters=$((parameters / 8))
for dtype in f32:4 bf16:2; do # (d-1)/d P (e_g + e_p)
    zero 1 ${dtype%:*}
    [ "$sent" -eq $((parameters * (4 + ${dtype#*:}) / 2)) ] || fail "$dtype: --zero 1 sent $sent of $parameters parameters"
    zero 0 ${dtype%:*}
    agree "$dtype: a run with --zero 1" near "$work/zero1.jsonl" "$work/zero0.jsonl" 1e-6
done

# resident STAGE: what the process that is largest has of a model of 19 M parameters, in KiB, into $resident.
resident()
{
    rm -f "$work/log"
    timeout 120 $MPIRUN -np 2 "$STARPIPE" train --model "$work/wide" --data "$work/text" --seq 8 --data-parallel 2 \
        --stages 1 --micro-batches 1 --steps 100000 --zero "$1" --log "$work/log" > "$work/resident" 2>&1 &
    children="$children $!"
    wait_for 60 has_lines "$work/log" 4 || fail "--zero $1: no step: $(tail -n 2 "$work/resident")"
    resident=$(pgrep -f "starpipe train --model $work/wide .*--zero $1" | grep -v "^$!$" |
        xargs -I@ sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' /proc/@/status | sort -n | tail -n 1)
    kill $! # timeout passes it on
    wait $! 2> /dev/null
}
mkdir -p "$work/wide"
cat > "$work/wide/config.json" << EOF
{"model_type": "gpt2", "n_layer": 6, "n_head": 8, "n_embd": 512, "n_positions": 64, "vocab_size": 256}
EOF
resident 0
whole=$resident
resident 1
part=$resident
saved=$((6 * 12 * 512 * 512 * 8 / 2 / 1024)) # half of the moments
echo "resident: $whole KiB, with --zero 1 $part, planned $saved less"
[ $((whole - part)) -ge $((saved * 9 / 10)) ] || fail "--zero 1 saves $((whole - part)) KiB, planned $saved"
resident 3
# half of all 16 bytes a parameter, less two whole layers of weights and two of gradients
saved=$(((6 * 16 / 2 - 2 * 8) * 12 * 512 * 512 / 1024))
echo "with --zero 3 $resident, planned $saved less"
[ $((whole - resident)) -ge $((saved * 9 / 10)) ] || fail "--zero 3 saves $((whole - resident)) KiB, planned $saved"

# ---- refusals, and a process that stops

for schedule in "weipipe.*whole chunks of weights" "fsdp.*shards of all layers already"; do
    refused "--zero 3 is not available for $schedule; take --zero 1" train --model gpt-tiny --data "$work/text" --stages 2 \
        --schedule "${schedule%%.*}" --data-parallel 2 --zero 3 --dry-run
done
few="--model gpt-tiny --data $work/text --seq 32 --stages 2 --micro-batches 4"
refused "data-parallel 2 wants 2 processes.*there is 1: mpirun -np 2" train $few --data-parallel 2
for wrong in "3 2 .*there are 3: mpirun -np 4" "6 2 .*6 processes for 4 stages: start at most 4"; do
    read -r ranks d pattern <<< "$wrong"
    mpi "$ranks" train $few --data-parallel "$d" > "$work/output" 2>&1
    [ $? -eq 2 ] && grep -Eq "^starpipe: $pattern" "$work/output" || fail "$ranks processes: $(grep starpipe: "$work/output")"
done
timeout 60 $MPIRUN -np 1 "$STARPIPE" train $few --data-parallel 2 : -np 1 "$STARPIPE" train $few --data-parallel 1 \
    > "$work/output" 2>&1
grep -q "^starpipe: rank 1: --data-parallel is 1 here and 2 on rank 0" "$work/output" || fail "different grids"

killed "a process of the last pipeline killed" 4 $few --stages 1 --data-parallel 4
finish
