#!/bin/bash
# Four stages, in one process and in two to four, against one stage: losses and first gradients
# within 1e-5, trained weights within 1e-4; two runs of one command give the same bits.
#
# Both presets have six layers, so that four stages are uneven; gpt-tiny ties its tables, and a
# step with a wrong replica would show in the losses after it.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 20011 > "$work/text"

# train OUT STEPS COMMAND...: writes $work/OUT.jsonl, OUT.safetensors and OUT/.
# A large epsilon: where a gradient is zero but for rounding (key biases), AdamW's usual one turns
# the rounding into steps of full size.
train()
{
    local out=$work/$1 steps=$2

    shift 2
    quiet "$*" "$@" --data "$work/text" --seq 32 --micro-batches 8 --steps "$steps" --eps 1e-3 \
        --log "$out.jsonl" --dump-grads "$out.safetensors" --save "$out" --overwrite
}

# check WHAT OUT REFERENCE
check()
{
    agree "$1" near --part "$work/$2.jsonl" "$work/$3.jsonl" 1e-5
    agree "$1, gradients" near "$work/$2.safetensors" "$work/$3.safetensors" 1e-5
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

four="--stages 4 --schedule 1f1b"
for model in gpt-tiny llama-tiny; do
    train one 20 starpipe train --model $model --stages 1
    train four 20 starpipe train --model $model $four
    check "$model, 4 stages" four one
    agree "$model, 4 stages, weights" near "$work/four/model.safetensors" \
        "$work/one/model.safetensors" 1e-4
    train again 20 starpipe train --model $model $four
    same_bits "$model, 4 stages" four again
done

if have_mpi; then
    # Here one, four and again are of llama-tiny.
    train two 20 mpi 2 train --model llama-tiny $four
    check "llama-tiny, 2 processes" two one
    agree "llama-tiny, 2 processes, weights" near "$work/two/model.safetensors" \
        "$work/one/model.safetensors" 1e-4
    train three 6 mpi 3 train --model llama-tiny $four
    check "llama-tiny, 3 processes" three one

    train one 20 starpipe train --model gpt-tiny --stages 1
    train two 20 mpi 2 train --model gpt-tiny $four
    check "gpt-tiny, 2 processes" two one
    agree "gpt-tiny, 2 processes, weights" near "$work/two/model.safetensors" \
        "$work/one/model.safetensors" 1e-4
    train again 20 mpi 2 train --model gpt-tiny $four
    same_bits "gpt-tiny, 2 processes" two again
    train three 6 mpi 3 train --model gpt-tiny $four
    check "gpt-tiny, 3 processes" three one
    train each 10 mpi 4 train --model gpt-tiny $four
    check "gpt-tiny, 4 processes" each one
fi
finish
