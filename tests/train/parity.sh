#!/bin/bash
# The command from its options to its files: four stages, in one process and in two, write the losses,
# first gradients and trained weights of one stage, and two runs of one command the same bits. What
# schedules compute is checked by tests/parity, which starts the program once for many of them.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 20011 > "$work/text"

# train OUT COMMAND...: writes $work/OUT.jsonl, OUT.safetensors and OUT/.
# A large epsilon: where a gradient is zero but for rounding (key biases), AdamW's usual one turns
# the rounding into steps of full size.
train()
{
    local out=$work/$1

    shift
    quiet "$*" "$@" train --model gpt-tiny --data "$work/text" --seq 32 --micro-batches 8 --steps 20 \
        --eps 1e-3 --log "$out.jsonl" --dump-grads "$out.safetensors" --save "$out" --overwrite \
        --schedule 1f1b --stages "$stages"
}

same_bits()
{
    local file

    steps_of "$work/$2.jsonl" loss > "$work/a"
    steps_of "$work/$3.jsonl" loss > "$work/b"
    cmp -s "$work/a" "$work/b" || fail "$1: the losses of two runs differ"
    for file in model optimizer-m optimizer-v; do
        cmp -s "$work/$2"/step-*/$file.safetensors "$work/$3"/step-*/$file.safetensors ||
            fail "$1: $file.safetensors of two runs differs"
    done
    cmp -s "$work/$2.safetensors" "$work/$3.safetensors" ||
        fail "$1: the gradients of two runs differ"
    echo "$1, twice: $(wc -l < "$work/a") losses and 4 files have the same bits"
}

stages=1
train one starpipe
stages=4
train four starpipe
agree "4 stages" near "$work/four.jsonl" "$work/one.jsonl" 1e-5
agree "4 stages, gradients" near "$work/four.safetensors" "$work/one.safetensors" 1e-5
agree "4 stages, weights" near "$work/four/model.safetensors" \
    "$work/one/model.safetensors" 1e-4
train again starpipe
same_bits "4 stages" four again
if have_mpi; then
    train two mpi 2
    same_bits "2 processes and one" four two
fi
finish
