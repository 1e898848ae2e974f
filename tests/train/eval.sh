#!/bin/bash
# --eval: the loss on held-out tokens, without any effect on the run: losses, norms and checkpoints have
# the bits of a run without it; in one process and in several, with a barrier between steps and without.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 20011 > "$work/text"
make_text 30011 | tail -c 5000 > "$work/held"

# train OUT COMMAND...
train()
{
    local out=$work/$1

    shift
    rm -rf "$out"
    "$@" --model gpt-tiny --data "$work/text" --seq 32 --micro-batches "${M:-4}" --steps 6 --lr 3e-3 \
        --warmup 2 --save "$out" --log "$out.jsonl" > "$out.out" 2> "$out.err" ||
        fail "$*: $(tail -n 3 "$out.err")"
}

# same NAME COMMAND...: the run with and without an evaluation every two steps.
same()
{
    local name=$1 file key

    shift
    train without "$@"
    train with "$@" --eval "$work/held" --eval-every 2
    for key in loss grad_norm; do
        [ "$(steps_of "$work/with.jsonl" $key)" = "$(steps_of "$work/without.jsonl" $key)" ] ||
            fail "$name: another $key with --eval"
    done
    for file in model optimizer-m optimizer-v; do
        cmp -s "$work/with"/step-*/$file.safetensors "$work/without"/step-*/$file.safetensors ||
            fail "$name: $file.safetensors differs with --eval"
    done
    sed -n 's/.*"eval_step":\([0-9]*\),"eval_loss":\([0-9.]*\),"eval_tokens":\([0-9]*\).*/\1 \2 \3/p' \
        "$work/with.jsonl" > "$work/evals"
    [ "$(cut -d ' ' -f 1 "$work/evals" | tr '\n' ' ')" = "2 4 6 " ] ||
        fail "$name: evaluated after steps $(cut -d ' ' -f 1 "$work/evals" | tr '\n' ' ')"
    echo "$name: $(cut -d ' ' -f 2 "$work/evals" | tr '\n' ' ')on held-out tokens, all else as without"
    agree "$name, evaluated as one stage does" awk 'NR == FNR { want[FNR] = $2; next }
        { d = $2 / want[FNR] - 1; if (d < 0) d = -d; if (d > worst) worst = d }
        END { print "worst relative error " worst; exit !(NR > FNR && worst < 1e-5) }' \
        "$work/one.evals" "$work/evals"
}

train one starpipe train --eval "$work/held" --eval-every 2
sed -n 's/.*"eval_step":\([0-9]*\),"eval_loss":\([0-9.]*\),"eval_tokens":\([0-9]*\).*/\1 \2 \3/p' \
    "$work/one.jsonl" > "$work/one.evals"
[ "$(cut -d ' ' -f 3 "$work/one.evals" | sort -u)" = 4999 ] ||
    fail "an evaluation does not predict each token but the first: $(cut -d ' ' -f 3 "$work/one.evals" | sort -u)"
grep -q '^step 2/6  evaluation loss [0-9.]*  (4999 tokens in' "$work/one.out" ||
    fail "the evaluation is not told"

same "zb1p, no barrier" starpipe train --stages 2 --schedule zb1p --clip 1 --post-validation
if have_mpi; then
    same "wzb2, 2 processes, no barrier" mpi 2 train --stages 2 --schedule wzb2 --post-validation
fi

# Nothing to train: the weights as they are. On the first step's tokens that is the first step's loss.
quiet "--steps 0" starpipe train --model gpt-tiny --data "$work/text" --seq 32 --micro-batches 4 --steps 0 \
    --log "$work/log" --eval "$work/text" --eval-tokens 128
is=$(sed -n 's/.*"eval_step":0,"eval_loss":\([0-9.]*\),.*/\1/p' "$work/log")
[ "${is:-none}" = "$(steps_of "$work/one.jsonl" loss | head -n 1)" ] || fail "--steps 0: loss ${is:-none}"

# ---- how many tokens, and when

# evals STEPS TOKENS ARGUMENTS...: one at the end of so many steps, of so many tokens.
evals()
{
    local steps=$1 tokens=$2 is

    shift 2
    quiet "$*" starpipe train --model gpt-tiny --data "$work/text" --seq 32 --micro-batches 4 --steps $steps \
        --log "$work/log" --eval "$work/held" "$@"
    is=$(sed -n 's/.*"eval_step":\([-0-9]*\).*"eval_tokens":\([0-9]*\).*/\1 \2/p' "$work/log" | tr '\n' ' ')
    [ "$is" = "$steps $tokens " ] || fail "$*: evaluations (step, tokens) $is, not one of $tokens"
}

evals 3 129 --eval-tokens 129
evals 0 4999 --eval-tokens 1000000
evals 0 4999
head -c 100 "$work/held" > "$work/short"
evals 0 99 --eval "$work/short"
head -c 1 "$work/held" > "$work/one-byte"
refused 'one-byte has one token' train --model gpt-tiny --data "$work/text" --eval "$work/one-byte"

# ---- the same tokens in every layout: the last step has whole sequences too few, and one that is cut

# layout COMMAND...: the loss on 701 tokens, whose last sequence has 29 of 32.
layout()
{
    quiet "$*" "$@" --model gpt-tiny --data "$work/text" --seq 32 --steps 0 --log "$work/log" --eval "$work/held" \
        --eval-tokens 701
    sed -n 's/.*"eval_loss":\([0-9.]*\),"eval_tokens":\([0-9]*\).*/\1 \2/p' "$work/log"
}

layout starpipe train --micro-batches 1 > "$work/want"
{
    layout starpipe train --micro-batches 64
    layout starpipe train --micro-batches 3 --micro-batch-size 5
    layout starpipe train --stages 2 --schedule zbv --micro-batches 4
    layout starpipe train --stages 2 --schedule 1f1b --micro-batches 4 --vocabulary-parallel
    layout starpipe train --stages 2 --schedule seq1f1b --slices 3 --micro-batches 4
    layout starpipe train --stages 2 --schedule weipipe --micro-batches 4
    if have_mpi > /dev/null; then
        layout mpi 2 train --micro-batches 3 --data-parallel 2
        layout mpi 2 train --micro-batches 3 --tensor-parallel 2
        layout mpi 2 train --micro-batches 3 --context-parallel 2
    fi
} > "$work/layouts"
agree "701 tokens in $(wc -l < "$work/layouts") layouts" awk 'NR == 1 { want = $1; next }
    $2 != 701 { print "of " $2 " tokens"; exit 1 }
    { d = $1 / want - 1; if (d < 0) d = -d; if (d > worst) worst = d; n++ }
    END { print "worst relative difference " worst; exit !(n > 5 && worst < 1e-6) }' "$work/want" "$work/layouts"
refused 'eval-every 2 without --eval|--eval-every without --eval' train --model gpt-tiny \
    --data "$work/text" --eval-every 2
refused 'cannot read data .*missing' train --model gpt-tiny --data "$work/text" --eval "$work/missing"
finish
