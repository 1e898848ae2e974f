#!/bin/bash
# HelixPipe on two, three and four stages, both model styles, both ways of the QKV product: losses
# and gradients of one stage within 1e-5; in one process and over MPI the same bits; the bytes that
# every stage sends are those of the formula, to the byte.
. "$(dirname "$0")/../common.sh" || exit 1

s=24 layers=8 h=64
make_text 9973 > "$work/text"

# Numbers of a layer's QKV block and the widths of q and of k with v (src/model/presets.c): GPT-2
# has biases, llama-tiny two heads of keys and values for four of queries.
gpt_tiny="$((3 * h * h + 3 * h)) $h $((2 * h))"
llama_tiny="$((2 * h * h)) $h $h"

# train OUT MICRO-BATCHES COMMAND...: $steps steps
steps=2
train()
{
    local out=$work/$1 m=$2

    shift 2
    rm -f "$out.jsonl" "$out.safetensors"
    quiet "$*" "$@" --data "$work/text" --seq $s --micro-batches "$m" --steps $steps --eps 1e-3 \
        --log "$out.jsonl" --dump-grads "$out.safetensors"
}

# formula P M FOLD QKV WEIGHTS Q KV: bytes that each stage sends in a step if all are apart.
# Block to attention and back: the residual, and the product's input with the weights (2bsh + 3h^2)
# or q, k, v (4bsh); attention to block and back: the residual and the output (2bsh).
formula()
{
    awk -v p="$1" -v m="$2" -v f="$3" -v qkv="$4" -v W="$5" -v q="$6" -v kv="$7" \
        -v s=$s -v L=$layers -v h=$h 'BEGIN {
        near = s * h + (qkv == "weights" ? s * h + W : s * (q + kv))
        far = s * (h + q)
        for (i = 0; i < m; i++)
            for (l = 0; l < L; l++) {
                block = l % p; next_block = l + 1 < L ? (l + 1) % p : 0
                at = (l + int(i / f) + 1) % p
                if (block != at) { sent[block] += near; sent[at] += near }
                if (next_block != at) { sent[at] += far; sent[next_block] += far }
            }
        for (r = 0; r < p; r++)
            printf "%s%.0f", r ? " " : "", 4 * sent[r]
    }'
}

# check MODEL STAGES FOLD MICRO-BATCHES QKV [OPTIONS]
check()
{
    local model=$1 p=$2 fold=$3 m=$4 qkv=$5 what sizes want got

    shift 5
    what="helix:fold=$fold,qkv=$qkv, $model, $p stages${*:+, $*}"
    set -- train --model "$model" --stages "$p" --schedule "helix:fold=$fold,qkv=$qkv" "$@"
    train run "$m" starpipe "$@"
    agree "$what" near "$work/run.jsonl" "$work/$model.$m.jsonl" 1e-5
    agree "$what, gradients" near "$work/run.safetensors" \
        "$work/$model.$m.safetensors" 1e-5
    have_mpi || return
    train apart "$m" mpi "$p" "$@"
    cmp -s "$work/run.safetensors" "$work/apart.safetensors" ||
        fail "$what: $p processes have other gradients than one"
    [ "$(steps_of "$work/run.jsonl" loss)" = "$(steps_of "$work/apart.jsonl" loss)" ] ||
        fail "$what: $p processes have other losses than one"
    case $model in gpt-tiny) sizes=$gpt_tiny ;; *) sizes=$llama_tiny ;; esac
    want=$(formula "$p" "$m" "$fold" "$qkv" $sizes)
    got=$(stages_of "$work/apart.jsonl" bytes_sent | sort -u)
    echo "$what: bytes sent $got"
    [ "$got" = "$want" ] || fail "$what: bytes sent $got, the formula says $want"
}

for model in gpt-tiny llama-tiny; do
    for m in 4 8 6; do
        train $model.$m $m starpipe train --model $model --stages 1
    done
    check $model 2 2 4 weights
    check $model 2 2 8 activations
    check $model 3 2 6 activations --recompute none
    check $model 3 1 6 weights --recompute selective
    check $model 4 2 8 weights
    check $model 4 1 4 activations --scheduler ready
done

# several stages a process, and two steps through the smallest window: a buffer of a message that is
# used again too early makes processes wait for each other
if have_mpi; then
    train run 8 starpipe train --model gpt-tiny --stages 4 --schedule helix
    for np in 2 3; do
        train apart 8 mpi $np train --model gpt-tiny --stages 4 --schedule helix
        cmp -s "$work/run.safetensors" "$work/apart.safetensors" ||
            fail "helix, 4 stages: $np processes have other gradients than one"
    done
    train window 15 mpi 4 train --model gpt-tiny --stages 5 --schedule helix:fold=3,qkv=weights \
        --recompute none --window 1 --scheduler ready
    steps=12 train flat 8 mpi 4 train --model gpt-tiny --stages 4 --schedule helix:qkv=weights
    [ "$(stages_of "$work/flat.jsonl" buffer_bytes | tail -n 8 | uniq -c | awk '{ print $1 }')" = 8 ] ||
        fail "the buffers of processes grow: $(stages_of "$work/flat.jsonl" buffer_bytes | sort -u)"
fi

# buffers and activations are the same after every step
steps=30 train flat 8 starpipe train --model gpt-tiny --stages 4 --schedule helix --mlp-chunk 7
[ "$(stages_of "$work/flat.jsonl" live_activation_bytes | sort -u)" = "0 0 0 0" ] ||
    fail "activations alive after a step"
[ "$(stages_of "$work/flat.jsonl" buffer_bytes | tail -n 28 | uniq -c | awk '{ print $1 }')" = 28 ] ||
    fail "the buffers grow: $(stages_of "$work/flat.jsonl" buffer_bytes | sort -u)"

# what does not go together is refused before work
refuse()
{
    local want=$1 status

    shift
    starpipe train --dry-run --model gpt-tiny --stages 4 --seq $s "$@" > "$work/output" 2>&1
    status=$?
    [ $status -eq 2 ] && [ "$(wc -l < "$work/output")" -eq 1 ] && grep -q -- "$want" "$work/output" ||
        fail "$*: exit status $status, $(head -n 2 "$work/output")"
}

refuse "use --micro-batches 8 or 16" --schedule helix --micro-batches 12
refuse "use --micro-batches 8$" --schedule helix --micro-batches 4
refuse "use none, selective or no-attention" --schedule helix --recompute full
refuse "use none, selective or no-attention" --schedule helix --recompute every=2
refuse "use even" --schedule helix --partition balanced
refuse "not available for helix" --schedule helix --post-validation
refuse "use --slices 1" --schedule helix --slices 2
refuse "use at most 8 stages" --schedule helix --stages 9 --micro-batches 18
finish
