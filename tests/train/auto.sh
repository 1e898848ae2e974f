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
    tr '\r' '\n' < "$work/output" | grep -a "step 2: zb.p:auto.* searched at the costs measured" ||
        fail "$name: no order was searched after step 2"
    agree "$name" compare_losses "$work/auto.jsonl" "$work/one.jsonl" 1e-5
}

searches "zb1p:auto" starpipe train --schedule zb1p:auto
searches "zb2p:auto,limit=3" starpipe train --schedule zb2p:auto,limit=3 --scheduler ready
searches "zb2p:auto, no barrier" starpipe train --schedule zb2p:auto --post-validation
if have_mpi; then
    searches "zb1p:auto, 2 processes" mpi 2 train --schedule zb1p:auto
    searches "zb2p:auto, 4 processes" mpi 4 train --schedule zb2p:auto
fi
finish
