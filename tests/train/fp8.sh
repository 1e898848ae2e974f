#!/bin/bash
# --dtype fp8 in long runs: what is rounded depends on nothing that a run would have to keep, so that one
# that is killed and resumed gives the same bits, as do recomputation and offload; groups round their own
# shares; the losses of 200 steps lie on those of bf16; a run that diverges ends. What every schedule
# computes in fp8 is checked by tests/parity/fp8.sh.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 9973 > "$work/text"
run="--model gpt-tiny --data $work/text --seq 24 --micro-batches 4 --dtype fp8 --threads 1"

saved()
{
    [ -n "$(find "$work/parts" -name 'step-*[0-9]' 2> /dev/null)" ]
}

# a run in two pieces, the first of which is killed, the bits of one
for schedule in 1f1b weipipe; do
    own="$run --stages 2 --schedule $schedule"
    rm -rf "${work:?}/parts" "${work:?}/whole"
    "$STARPIPE" train $own --steps 600 --save "$work/parts" --save-every 2 > "$work/output" 2>&1 &
    wait_for 100 saved || fail "$schedule: nothing was saved: $(tail -n 1 "$work/output")"
    kill -9 $! && wait $! 2> /dev/null
    steps=$(find "$work/parts" -name 'step-*[0-9]' | sed 's/.*step-0*//' | sort -n | tail -n 1)
    quiet "$((steps + 3)) steps" starpipe train $own --steps $((steps + 3)) --save "$work/whole"
    quiet "three more of what was killed" starpipe train $own --steps $((steps + 3)) --save "$work/parts" \
        --resume "$work/parts"
    cmp "$work/whole/model.safetensors" "$work/parts/model.safetensors" ||
        fail "$schedule: a run that was killed after step $steps and resumed has other weights"
done

# like OPTIONS: the bits of one stage, of a model whose stages share no table.
run="${run/gpt-tiny/llama-tiny}"
quiet "one stage" starpipe train $run --steps 3 --log "$work/one.jsonl" --dump-grads "$work/one.safetensors"
like()
{
    quiet "$*" starpipe train $run --steps 3 --log "$work/like.jsonl" --dump-grads "$work/like.safetensors" "$@"
    agree "$*: losses" near "$work/one.jsonl" "$work/like.jsonl" 0
    agree "$*: gradients" near "$work/like.safetensors" "$work/one.safetensors" 0
}
like --recompute full
like --recompute no-attention
like --stages 2 --schedule zbv
like --stages 2 --offload full --offload-dir "$work"
like --optimizer-device cpu --offload-optimizer

# groups: shares of an operand have scales of their own, each at least as fine as that of the whole
if have_mpi; then
    for group in "0.2 --tensor-parallel 2" "0.2 --context-parallel 2" "1e-5 --data-parallel 2 --micro-batches 2"; do
        # shellcheck disable=SC2086 # the options are words
        quiet "$group" mpi 2 train $run --stages 1 --steps 1 ${group#* } --dump-grads "$work/group.safetensors"
        agree "${group#* }: gradients" near "$work/group.safetensors" "$work/one.safetensors" "${group%% *}"
    done
fi

# curve NAME OPTIONS...: the losses of 200 steps
curve()
{
    local name=$1

    shift
    quiet "200 steps: $name" starpipe train --model gpt-tiny --data "$work/text" --seq 32 \
        --micro-batches 2 --micro-batch-size 4 --steps 200 --warmup 10 --log "$work/$name.jsonl" "$@"
    grep -o '"loss": *[0-9.]*' "$work/$name.jsonl" > "$work/$name"
}
curve bf16 --dtype bf16
curve fp8 --dtype fp8
paste "$work/bf16" "$work/fp8" | awk -F'[:"\t ]+' '
    { n++; d = $5 / $3 - 1; d = d < 0 ? -d : d; if (d > worst) worst = d; a += $3; b += $5 }
    END { printf "200 losses: %d, worst difference %.2g, of the mean %.2g\n", n, worst, b / a - 1
          exit !(n == 200 && worst < 2e-2 && b / a < 1.003 && b / a > 0.997) }' ||
    fail "the losses of 200 steps in fp8 leave those of bf16"
finish
