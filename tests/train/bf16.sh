#!/bin/bash
# --dtype bf16: losses and gradients of every schedule within 2e-2 of one f32 stage; and within 1e-5 of
# one bf16 stage, because the same kernels run on the same numbers, unless a tensor is rounded at other
# places: gradients of keys once a slice, g = gelu(u) again from a rounded u under selective recompute.
# Activations and what travels of them take half the bytes; the optimizer's weights stay f32: a run
# resumed gives the same bits, and the losses of 200 steps lie on those of f32.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 9973 > "$work/text"
names=$(starpipe list | cut -d' ' -f1)

# train OUT DTYPE COMMAND...: losses of two steps, the second after an update, and first gradients
train()
{
    local out=$work/$1 dtype=$2

    shift 2
    rm -f "$out.jsonl" "$out.safetensors"
    quiet "$*" "$@" --dtype "$dtype" --data "$work/text" --seq 24 --micro-batches 8 --steps 2 \
        --eps 1e-3 --log "$out.jsonl" --dump-grads "$out.safetensors"
}

options=

# check MODEL NAME STAGES COMMAND...
check()
{
    local model=$1 name=$2 stages=$3 slices=1 bar=1e-5 what

    shift 3
    case $name in seq1f1b | terapipe | sppo*) slices=3 bar=1e-2 ;; esac
    case $options in *selective*) bar=1e-2 ;; esac
    what="$name $options, $model, $stages stages: $*"
    # shellcheck disable=SC2086 # the options are words
    train run bf16 "$@" train --model "$model" --schedule "$name" --stages "$stages" \
        --slices "$slices" $options
    # adapipe chooses by measured times, and may choose selective recompute
    sed -n 's/^adapipe.*: layers \([^(]*\)(.*/\1/p' "$work/output" | grep -q s && bar=1e-2
    agree "$what, f32" near "$work/run.jsonl" "$work/$model.f32.jsonl" 2e-2
    agree "$what, f32 gradients" near "$work/run.safetensors" \
        "$work/$model.f32.safetensors" 2e-2
    agree "$what, bf16 gradients" near "$work/run.safetensors" \
        "$work/$model.bf16.safetensors" $bar
}

# sum KEY FILE: of all stages in the last step
sum()
{
    tail -n 1 "$2" | grep -o "\"$1\": *[0-9]*" | awk -F: '{ n += $2 } END { print n + 0 }'
}

# halves WHAT KEY: from f32 to bf16, statistics and log-sum-exps stay
halves()
{
    local full low

    full=$(sum "$2" "$work/full.jsonl") low=$(sum "$2" "$work/low.jsonl")
    [ "$full" -gt 0 ] || fail "$1: no $2 in the log"
    awk -v full="$full" -v low="$low" 'BEGIN { exit !(low >= full / 2 && low < 0.53 * full) }' ||
        fail "$1: $2 is $low in bf16, $full in f32"
}

for model in gpt-tiny llama-tiny; do
    for dtype in f32 bf16; do
        train $model.$dtype $dtype starpipe train --model $model --stages 1
    done
    for name in $names sppo:multiplex; do
        check $model "$name" 2 starpipe
    done
done
for recompute in selective no-attention full every=2; do
    options="--recompute $recompute"
    check gpt-tiny 1f1b 2 starpipe
    check llama-tiny seq1f1b 2 starpipe
done
options="--offload full --offload-dir $work"
check gpt-tiny sppo 2 starpipe
options=
if have_mpi; then
    for name in 1f1b dualpipev helix weipipe wzb1 wzb2 fsdp sppo sppo:multiplex; do
        check gpt-tiny "$name" 4 mpi 2
    done
    check llama-tiny helix:qkv=weights 4 mpi 4
    train full f32 mpi 2 train --model llama-tiny --schedule 1f1b --stages 2
    train low bf16 mpi 2 train --model llama-tiny --schedule 1f1b --stages 2
    halves "1f1b, 2 processes" bytes_sent
    halves "1f1b, 2 processes" peak_activation_bytes
fi

# a run in two pieces, the bits of one
run="--model gpt-tiny --data $work/text --seq 24 --micro-batches 4 --stages 2 --dtype bf16"
quiet "six steps" starpipe train $run --steps 6 --save "$work/whole"
quiet "three steps" starpipe train $run --steps 3 --save "$work/parts"
quiet "three more" starpipe train $run --steps 6 --save "$work/parts" --resume "$work/parts"
cmp "$work/whole/model.safetensors" "$work/parts/model.safetensors" ||
    fail "a resumed run in bf16 has other weights"

# a step undone and done again where clipping proves needed
for late in "" --post-validation; do
    # shellcheck disable=SC2086 # one word or none
    quiet "wzb2 $late" starpipe train --model llama-tiny --data "$work/text" --seq 24 \
        --schedule wzb2 --stages 2 --micro-batches 4 --dtype bf16 --steps 4 --clip 0.5 $late \
        --log "$work/clip$late.jsonl"
done
agree "post-validation" near "$work/clip--post-validation.jsonl" "$work/clip.jsonl" 0

# the same curve; norms of single gradients swing more
for dtype in f32 bf16; do
    quiet "200 steps in $dtype" starpipe train --model gpt-tiny --data "$work/text" --seq 32 \
        --micro-batches 2 --steps 200 --warmup 10 --dtype $dtype --log "$work/curve.$dtype.jsonl"
    grep -o '"loss": *[0-9.]*' "$work/curve.$dtype.jsonl" > "$work/curve.$dtype"
done
paste "$work/curve.f32" "$work/curve.bf16" | awk -F'[:"\t ]+' '
    { n++; d = $5 / $3 - 1; d = d < 0 ? -d : d; if (d > worst) worst = d }
    END { printf "200 losses: %d, worst difference %.2g\n", n, worst; exit !(n == 200 && worst < 2e-2) }' ||
    fail "the losses of 200 steps in bf16 leave those of f32"
finish
