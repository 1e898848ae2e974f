#!/bin/bash
# Every schedule, both model styles (gpt-tiny ties its tables), two and four stages, in one process
# and in several: losses of two steps and gradients of the first within 1e-5 of one stage.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 9973 > "$work/text"
names=$(starpipe list | cut -d' ' -f1)
[ "$(wc -w <<< "$names")" -ge 18 ] || fail "only these schedules: $names"

# train OUT COMMAND...: losses of two steps, the second after an update, and first gradients
train()
{
    local out=$work/$1

    shift
    quiet "$*" "$@" --data "$work/text" --seq 24 --micro-batches 8 --steps 2 --eps 1e-3 \
        --log "$out.jsonl" --dump-grads "$out.safetensors"
}

# check MODEL NAME STAGES COMMAND...
check()
{
    local model=$1 name=$2 stages=$3 slices=1 what

    shift 3
    case $name in seq1f1b | terapipe | sppo) slices=3 ;; esac
    what="$name, $model, $stages stages${1:+, $2 processes}"
    [ $# -gt 0 ] || set -- starpipe
    rm -f "$work/run.jsonl" "$work/run.safetensors"
    train run "$@" train --model "$model" --schedule "$name" --stages "$stages" \
        --slices "$slices"
    agree "$what" near "$work/run.jsonl" "$work/$model.jsonl" 1e-5
    agree "$what, gradients" near "$work/run.safetensors" \
        "$work/$model.safetensors" 1e-5
}

for model in gpt-tiny llama-tiny; do
    train $model starpipe train --model $model --stages 1
    for name in $names; do
        check $model "$name" 2
        check $model "$name" 4
    done
done
if have_mpi; then
    for name in $names; do
        check gpt-tiny "$name" 2 mpi 2
        check llama-tiny "$name" 4 mpi 2
        check gpt-tiny "$name" 4 mpi 4
    done
fi
finish
