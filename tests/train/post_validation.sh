#!/bin/bash
# Steps without a barrier between them: with no clipping, with some steps clipped and undone, and
# with all of them, the trained weights have the bits that a run with barriers gives.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 20011 > "$work/text"

# train OUT COMMAND...
train()
{
    local out=$work/$1

    shift
    "$@" --model gpt-tiny --data "$work/text" --seq 32 --micro-batches "${M:-6}" --steps 12 --lr 3e-3 \
        --warmup 4 --save "$out" > "$out.out" 2> "$out.err" || fail "$*: $(tail -n 3 "$out.err")"
}

# same NAME LEAST MOST COMMAND...: the run with and without a barrier; how many steps are undone.
same()
{
    local name=$1 least=$2 most=$3 undone file

    shift 3
    rm -rf "$work/with" "$work/without"
    train with "$@"
    train without "$@" --post-validation
    undone=$(sed -n 's/^post-validation: \([0-9]*\) of .*/\1/p' "$work/without.out")
    [ "${undone:--1}" -ge "$least" ] && [ "$undone" -le "$most" ] ||
        fail "$name: ${undone:-no} steps undone, not $least to $most"
    for file in model optimizer-m optimizer-v; do
        cmp -s "$work/with"/step-*/$file.safetensors "$work/without"/step-*/$file.safetensors ||
            fail "$name: $file.safetensors differs"
    done
    echo "$name: $undone steps undone, 3 files with the same bits"
}

same "1f1b, never clipped" 0 0 starpipe train --stages 4 --schedule 1f1b --clip 1e9
same "1f1b, clipping off" 0 0 starpipe train --stages 4 --schedule 1f1b --clip 0
same "1f1b, some clipped" 1 10 starpipe train --stages 4 --schedule 1f1b --clip 3
same "zb1p, all clipped" 11 11 starpipe train --stages 4 --schedule zb1p --clip 0.1
same "zb2p, ready" 11 11 starpipe train --stages 3 --schedule zb2p --clip 0.1 --scheduler ready
same "gpipe, recompute" 11 11 starpipe train --stages 2 --schedule gpipe --clip 0.1 \
    --recompute full
same "interleaved" 11 11 starpipe train --stages 2 --schedule interleaved --clip 0.1
same "dualpipe" 11 11 starpipe train --stages 2 --schedule dualpipe --clip 0.1
same "seq1f1b" 11 11 starpipe train --stages 2 --schedule seq1f1b --slices 3 --clip 0.1
M=8 same "wzb2, never clipped" 0 0 starpipe train --stages 4 --schedule wzb2 --clip 0
M=8 same "wzb2, some clipped" 1 10 starpipe train --stages 4 --schedule wzb2 --clip 3
M=8 same "wzb2:owner=each" 11 11 starpipe train --stages 4 --schedule wzb2:owner=each --clip 0.1 \
    --recompute full
if have_mpi; then
    M=8 same "wzb2, 4 processes" 1 10 mpi 4 train --stages 4 --schedule wzb2 --clip 3
    M=8 same "wzb2:owner=each, 3 processes" 11 11 mpi 3 train --stages 4 \
        --schedule wzb2:owner=each --clip 0.1
    # Norms that are taken ahead overtake ops where order is loose; reports are of whole ops.
    M=15 same "wzb2:owner=each, ready, 3 processes" 11 11 mpi 3 train --stages 5 --seq 8 \
        --schedule wzb2:owner=each --scheduler ready --clip 0.1 --threads 1 --log "$work/log"
    [ "$(stages_of "$work/log" live_activation_bytes | sort -u)" = "0 0 0 0 0" ] ||
        fail "wzb2:owner=each, ready: activations alive in a report"
    same "zb1p, 2 processes" 11 11 mpi 2 train --stages 4 --schedule zb1p --clip 0.1
    same "zbv, 2 processes" 11 11 mpi 2 train --stages 4 --schedule zbv --clip 0.1
    M=8 same "dualpipe, 4 processes" 11 11 mpi 4 train --stages 4 --schedule dualpipe --clip 0.1
    # Half of the processes have no norms to add up; their reports wait for the ops all the same.
    M=8 same "chimera, 2 processes" 11 11 mpi 2 train --stages 4 --schedule chimera --clip 0.1 \
        --log "$work/log"
    [ "$(stages_of "$work/log" live_activation_bytes | sort -u)" = "0 0 0 0" ] ||
        fail "chimera, 2 processes: activations alive in a report"
    same "seq1f1b, 2 processes" 11 11 mpi 2 train --stages 2 --schedule seq1f1b --slices 3 \
        --clip 0.1
fi
finish
