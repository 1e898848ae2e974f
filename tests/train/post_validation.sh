#!/bin/bash
# --post-validation from its options to its files: what is said of the steps that were undone, and the bits
# of the files that a run with barriers writes. Other schedules are in tests/parity/barriers.sh.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 20011 > "$work/text"

# train OUT COMMAND...
train()
{
    local out=$work/$1

    shift
    "$@" --report --model gpt-tiny --data "$work/text" --seq 32 --micro-batches 6 --steps 12 --lr 3e-3 \
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
same "1f1b, some clipped" 1 10 starpipe train --stages 4 --schedule 1f1b --clip 3
if have_mpi; then
    same "zb1p, 2 processes" 11 11 mpi 2 train --stages 4 --schedule zb1p --clip 0.1
fi
finish
