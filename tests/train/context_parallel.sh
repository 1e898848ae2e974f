#!/bin/bash
# Processes that share the tokens of sequences: losses, gradients, bytes on the wire and activations are those of one
# process on the same samples, whatever the schedule; what does not fit is refused, and a process that stops ends the
# run.
. "$(dirname "$0")/../common.sh" || exit 1
have_mpi || exit 77
. "$(dirname "$0")/grid.sh"

exact=yes context=yes
two="--context-parallel 2" four="--context-parallel 4" ring="--context-method ring" both="--context-method ulysses=2,ring"
grid 1 4 gpt-tiny 2 $four --stages 1
grid 1 4 llama-tiny 4 $two --stages 2 --schedule zb2p --recompute no-attention --post-validation
grid 1 4 llama-tiny 4 $four --stages 1 --schedule zb1p --recompute full # more processes than key and value heads
grid 2 8 gpt-tiny 4 $two --stages 2 --schedule 1f1b --zero 1
grid 1 4 gpt-tiny 4 $two --stages 2 --schedule fsdp --micro-batch-size 1
grid 1 6 llama-tiny 3 $two --stages 3 --schedule weipipe:flow=line --recompute no-attention
one=sppo slices=4 grid 1 4 llama-tiny 2 $two --stages 2 --schedule sppo
one=sppo slices=3 grid 1 4 gpt-tiny 2 $four --stages 1 --schedule seq1f1b # slices that 4 do not divide by themselves
# parts of slices, which are also cut at multiples of the processes that share tokens
multiplex="--schedule sppo:multiplex"
one=sppo slices=3 grid 1 8 gpt-tiny 2 $two --stages 4 $multiplex --recompute full
one=sppo slices=3 grid 1 8 llama-tiny 2 $four --stages 2 $multiplex --recompute selective
every="--micro-batch-size 2" one=sppo slices=5 grid 1 6 llama-tiny 2 $two --stages 3 $multiplex --recompute no-attention
one=sppo slices=3 grid 1 8 llama-tiny 2 $two --tensor-parallel 2 --sequence-parallel off --stages 2 $multiplex
one=sppo slices=3 grid 1 4 gpt-tiny 16 $two --stages 2 $multiplex --partition-slices 12,10,10
one=sppo slices=2 grid 2 8 llama-tiny 2 $two --stages 2 $multiplex --recompute every=2 --zero 1
grid 1 4 llama-tiny 2 $four $ring --stages 1
grid 1 4 gpt-tiny 4 $two $ring --stages 2 --schedule zb2p --recompute no-attention --post-validation
grid 2 4 llama-tiny 4 $two $ring --stages 1 --schedule zb1p --recompute full --zero 1
grid 1 6 llama-tiny 3 $two $ring --stages 3 --schedule wzb1 --chunks 2
one=sppo slices=3 grid 1 4 gpt-tiny 2 $four $ring --stages 1 --schedule sppo
grid 1 4 llama-tiny 2 $four $both --stages 1 --recompute full
grid 1 8 llama-tiny 4 $four $both --stages 2 --schedule 1f1b --recompute selective
grid 1 8 gpt-tiny 4 $four $both --stages 2 --schedule zbv --recompute no-attention
grid 2 8 llama-tiny 2 $four $both --stages 1 --schedule zb1p --zero 1
grid 1 8 gpt-tiny 2 --context-parallel 8 --context-method ulysses,ring --stages 1 # 4 heads: rings of 2
grid 1 8 llama-tiny 2 --context-parallel 8 --context-method ulysses=4,ring --stages 1 # more than key and value heads
one=sppo slices=3 grid 1 8 llama-tiny 2 $four $both --stages 2 --schedule sppo
grid 1 8 llama-tiny 4 $four $both --stages 2 --schedule helix:qkv=weights --recompute full
grid 1 8 gpt-tiny 4 $four $both --stages 2 --schedule helix:qkv=activations --slices 2
grid 1 4 llama-tiny 4 $two --stages 2 --schedule helix:qkv=weights
grid 1 4 gpt-tiny 4 $two $ring --stages 2 --schedule helix:qkv=activations --slices 2 --recompute full
grid 1 8 llama-tiny 4 $four --stages 2 --schedule helix:qkv=weights --recompute full
exact=no
for method in ulysses ring; do # SPPO as published: Ulysses in a stage, slices, activations on disk
    one=sppo slices=4 grid 1 4 llama-tiny 2 $two --context-method $method --stages 2 --schedule sppo \
        --recompute selective --offload full --offload-dir "$work"
done
grid 1 4 llama-tiny 4 $two --stages 2 --schedule helix:qkv=weights --recompute none --offload full --offload-dir "$work"
one=sppo slices=5 grid 1 6 gpt-tiny 2 $two --stages 3 $multiplex --recompute full --offload full --offload-dir "$work"
exact=yes
every="--document-separator 32" # words
grid 1 4 llama-tiny 2 $four --stages 1 --micro-batch-size 1
grid 1 4 gpt-tiny 2 $four $ring --stages 1 --recompute full
grid 1 4 llama-tiny 2 $four $both --stages 1
one=sppo slices=3 grid 1 4 gpt-tiny 2 $two --stages 2 --schedule sppo
one=sppo slices=3 grid 1 4 llama-tiny 2 $two $ring --stages 2 --schedule sppo
one=sppo slices=3 grid 1 8 llama-tiny 2 $four --stages 2 $multiplex
one=sppo slices=3 grid 1 8 gpt-tiny 2 $two --stages 4 $multiplex
every=
exact=no
grid 1 4 gpt-tiny 4 $two --stages 2 --schedule dualpipev # an upper bound is planned where ops overlap
grid 2 4 llama-tiny 2 $two --stages 4 --schedule 1f1b --partition 2,0,6,0 --zero 1 # stages share processes
[ -z "${SP_LONG:-}" ] || for name in $(starpipe list | cut -d ' ' -f 1); do
    case $name in
    slimpipe) continue ;; # refused
    seq1f1b | terapipe | sppo) slices=2 one=sppo ;;
    *) slices=1 one=1f1b ;;
    esac
    grid 1 8 llama-tiny 4 $four --stages 2 --schedule "$name"
    grid 2 8 gpt-tiny 4 $two --stages 2 --schedule "$name" --zero 1
    grid 1 8 gpt-tiny 4 $four $ring --stages 2 --schedule "$name"
    grid 1 8 llama-tiny 4 $four $both --stages 2 --schedule "$name"
done
one= slices=
make_grids

# ---- several sequences in a micro-batch, and the same at another place

train="train --data $work/text --seq 32 --stages 1 --micro-batches 2 --micro-batch-size 3 --steps 2 --document-separator 32"
for model in gpt-tiny llama-tiny; do
    quiet "$model alone" starpipe $train --model $model --log "$work/one.jsonl"
    quiet "$model, heads" mpi 4 $train --model $model $four --log "$work/grid.jsonl" --save "$work/saved-$model"
    agree "$model, 3 sequences, heads: losses" near "$work/grid.jsonl" "$work/one.jsonl" 1e-5
    quiet "$model, ring" mpi 4 $train --model $model $four $ring --log "$work/grid.jsonl"
    agree "$model, 3 sequences, ring: losses" near "$work/grid.jsonl" "$work/one.jsonl" 1e-5
    quiet "$model resumed" starpipe $train --steps 3 --resume "$work/saved-$model" --log "$work/more.jsonl"
done

# Outputs are kept rounded, and merged so in every turn.
train="--data $work/text --seq 64 --micro-batches 2 --steps 2 --model llama-tiny --dtype bf16"
note bf16 1 $train --stages 1
note bf16-slices 1 $train --stages 1 --schedule sppo --slices 3
for method in ulysses ring ulysses=2,ring; do
    note "bf16-$method" 4 $train --stages 1 $four --context-method $method
done
multiplexed=("4 --stages 2 $two" "8 --stages 2 $four --recompute full" "8 --stages 4 $two")
for i in "${!multiplexed[@]}"; do
    note "bf16-slices-$i" ${multiplexed[i]%% *} $train --slices 3 $multiplex ${multiplexed[i]#* }
done

# ---- bytes of a layer and micro-batch, T in groups of u: heads 4 (1 + 1/r) (u-1)/(u t) T h e, around the ring
# (4 (t/u - 1) + 2 t/u)/t T h e/r; and 4 P log2 t for the gradients

layers=8 h=64 tokens=32 m=2
exchanges=("gpt-tiny 1 2 ulysses 2" "gpt-tiny 1 4 ulysses 4" "llama-tiny 2 2 ulysses 2" "gpt-tiny 1 2 ring 1"
    "gpt-tiny 1 4 ring 1" "llama-tiny 2 2 ring 1" "gpt-tiny 1 4 ulysses=2,ring 2" "llama-tiny 2 4 ulysses=2,ring 2")
for exchange in "${exchanges[@]}"; do
    read -r model r t method u <<< "$exchange"
    note "$model-$t-$method" "$t" --model "$model" --data "$work/text" --seq $tokens --steps 1 --stages 1 \
        --micro-batches $m --context-parallel "$t" --context-method "$method"
done
make_runs
for method in ulysses ring ulysses=2,ring; do
    agree "bf16, $method: gradients" near "$work/bf16-$method.safetensors" "$work/bf16.safetensors" 2e-2
done
for i in "${!multiplexed[@]}"; do
    agree "bf16, multiplexed, ${multiplexed[i]}: gradients" near "$work/bf16-slices-$i.safetensors" \
        "$work/bf16-slices.safetensors" 2e-2
done

# exchanged MODEL HEADS-A-KEY-HEAD T METHOD U: what T members sent.
exchanged()
{
    local r=$2 t=$3 u=$5 p sent rounds of_layer

    rounds=$((t / 2)) # log2 of 2 and 4
    of_layer=$((4 * (r + 1) * (u - 1) * tokens * h * 4 / (r * t * u)))
    [ "$u" -eq "$t" ] || of_layer=$((of_layer + (4 * (t / u - 1) + 2 * t / u) * tokens * h * 4 / (r * t)))
    p=$(starpipe train --model "$1" --seq $tokens --dry-run --json | sed -n 's/.*"optimizer_bytes": \([0-9]*\).*/\1/p')
    sent=$(tail -n 1 "$work/$1-$t-$4.jsonl" | sed 's/.*"bytes_sent":\([0-9]*\).*/\1/')
    formula=$((layers * m * of_layer + p / 2 * rounds))
    echo "$1, $t members, $4: $sent bytes sent by each, $formula by the formula"
    [ "$sent" -eq "$formula" ] || fail "$1, $t members: $sent bytes, not $formula"
}
for exchange in "${exchanges[@]}"; do
    exchanged $exchange
done

# ---- refusals, and a process that stops

few="--model llama-tiny --data $work/text --seq 32 --stages 2 --micro-batches 4"
refused "train: --context-parallel 2 wants 2 processes.*there is 1: mpirun -np 2" train $few $two
refused "context-parallel 3: llama-tiny has 4 heads and 2 of keys and values" train $few --context-parallel 3 --dry-run
refused "context-parallel 2: sequences of 31 tokens" train $few --seq 31 $two --dry-run
refused "document-separator 256: llama-tiny has tokens 0 to 255" train $few --document-separator 256 --dry-run
refused "context-parallel 2 is not available for slimpipe" train $few $two --schedule slimpipe --slices 2 --dry-run
refused "stages of sppo:multiplex share keys already.* take --context-method ulysses" train $few $two $ring \
    --schedule sppo:multiplex --slices 2 --dry-run
refused "slice 0 of 12 tokens cannot be shared out to 4 stages of devices that share tokens" train $few $four --stages 4 \
    --schedule sppo:multiplex --slices 3 --dry-run
refused "context-method ulysses=3,ring: 4 processes.*no groups of 3" train $few $four --context-method ulysses=3,ring --dry-run
refused "context-method rings: want ulysses, ring, .*did you mean ring" train $few $four --context-method rings --dry-run
refused "4 heads and 2 of.*which 8 processes cannot share.*with --context-method ulysses,ring" train $few \
    --context-parallel 8 --context-method ulysses=8,ring --dry-run
refused "sequences of 36 tokens are no multiple of 8" train $few --seq 36 $four $both --dry-run
refused "sequences of 34 tokens are no multiple of 4" train $few --seq 34 $two $ring --dry-run
refused "slice 0 has 15 tokens, no multiple of 2" train $few $two --schedule sppo --slices 2 --partition-slices 15,17 --dry-run
refused "context-parallel 4: 16 slices have 64 parts" train $few $four --schedule sppo --slices 16 --dry-run
timeout 60 $MPIRUN -np 1 "$STARPIPE" train $few $two : -np 1 "$STARPIPE" train $few --data-parallel 2 > "$work/output" 2>&1
grep -Eq "^starpipe: rank 1: --(data|context)-parallel is . here and . on rank 0" "$work/output" || fail "different grids"

killed "a member killed" 4 $few --stages 1 $four
finish
