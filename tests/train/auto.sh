#!/bin/bash
# Orders searched again after warm-up at the costs that the run measured: said, taken over by every
# process, and the losses of one stage before and after.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 9973 > "$work/text"

# train OUT COMMAND...
train()
{
    local out=$work/$1

    shift
    quiet "$*" "$@" --data "$work/text" --model gpt-tiny --seq 24 --micro-batches 8 --steps 8 \
        --eps 1e-3 --log "$out.jsonl"
}

train one starpipe train --stages 1
# searches NAME COMMAND...
searches()
{
    local name=$1

    shift
    rm -f "$work/auto.jsonl"
    train auto "$@" --stages 4
    tr '\r' '\n' < "$work/output" | grep -a "after step 3: zb.p:auto.* searched at the costs measured" ||
        fail "$name: no order was searched after step 3"
    agree "$name" near "$work/auto.jsonl" "$work/one.jsonl" 1e-5
}

searches "zb1p:auto" starpipe train --schedule zb1p:auto
searches "zb2p:auto,limit=3" starpipe train --schedule zb2p:auto,limit=3 --scheduler ready
searches "zb1p:auto, the vocabulary cut" starpipe train --schedule zb1p:auto --vocabulary-parallel
searches "zb2p:auto, no barrier" starpipe train --schedule zb2p:auto --post-validation
if have_mpi; then
    searches "zb1p:auto, 2 processes" mpi 2 train --schedule zb1p:auto
    searches "zb2p:auto, 4 processes" mpi 4 train --schedule zb2p:auto
fi

# Searched within --memory-limit: every stage fits, by holding less, at the price of a bubble.
last=999999
for limit in 14 9 7 5; do
    quiet "limit of $limit MiB" starpipe train --model gpt-tiny --seq 128 --stages 4 \
        --micro-batches 8 --schedule zb2p:auto --memory-limit ${limit}MiB --dry-run || continue
    now=$(awk -v limit=$limit 'NF == 6 && $1 ~ /^[0-9]+$/ {
        if ($4 + $5 + $6 > limit)
            exit 1
        sum += 100 * $5
    } END { print sum }' "$work/output") || fail "a stage holds more than $limit MiB"
    echo "limit of $limit MiB: activations of all stages $now/100 MiB"
    [ "$now" -gt 0 ] && [ "$now" -lt "$last" ] || fail "$now at $limit MiB, before that $last"
    last=$now
done

# Forwards that come earlier for the head's sake are within the limit, too.
for limit in 14 9 7; do
    quiet "limit of $limit MiB, the vocabulary cut" starpipe train --model gpt-tiny --seq 128 --stages 4 \
        --micro-batches 8 --schedule zb2p:auto --vocabulary-parallel --memory-limit ${limit}MiB --dry-run || continue
    awk -v limit=$limit 'NF == 6 && $1 ~ /^[0-9]+$/ && $4 + $5 + $6 > limit { exit 1 }' "$work/output" ||
        fail "a stage holds more than $limit MiB with the vocabulary cut"
done
finish
