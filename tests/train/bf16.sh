#!/bin/bash
# --dtype bf16 in long runs: the optimizer's weights stay f32, so that a run resumed gives the same bits,
# a step undone and done again the same losses, and the losses of 200 steps lie on those of f32. What
# every schedule computes in bf16 is checked by tests/parity/bf16.sh.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 9973 > "$work/text"

# a run in two pieces, the bits of one; rings of weights round gradients at random, alike in every step
for schedule in 1f1b weipipe; do
    run="--model gpt-tiny --data $work/text --seq 24 --micro-batches 4 --stages 2 --dtype bf16 \
        --schedule $schedule --overwrite"
    quiet "six steps" starpipe train $run --steps 6 --save "$work/whole"
    quiet "three steps" starpipe train $run --steps 3 --save "$work/parts"
    quiet "three more" starpipe train ${run% --*} --steps 6 --save "$work/parts" --resume "$work/parts"
    cmp "$work/whole/model.safetensors" "$work/parts/model.safetensors" ||
        fail "a resumed run of $schedule in bf16 has other weights"
done

# sent SCHEDULE: bytes that all workers send in a step.
sent()
{
    starpipe train --dry-run --json --model gpt-tiny --seq 24 --stages 4 --micro-batches 8 \
        --dtype bf16 --schedule "$1" | grep -o '"bytes_sent": *[0-9]*' |
        awk '{ sum += $2 } END { printf "%d", sum }'
}

# gradients that travel with two chunks of weights, in two bytes an element: 6 instead of 8. Embedding, head and the
# last norm are gathered and their gradients scattered, in f32, by all alike
for flow in ring line; do
    wide=$(sent "weipipe:flow=$flow,gradients=f32") run=$(sent "weipipe:flow=$flow")
    ends=$((run - 3 * (wide - run)))
    echo "weipipe:flow=$flow sends $run bytes, $wide with gradients in f32, $ends of them for the ends"
    [ "$run" -lt "$wide" ] && [ "$ends" -eq "${ends_before:=$ends}" ] && [ "$ends" -gt 0 ] ||
        fail "flow=$flow: not 6 bytes where it sent 8"
done

# a step undone and done again where clipping proves needed
for late in "" --post-validation; do
    # shellcheck disable=SC2086 # one word or none
    quiet "wzb2 $late" starpipe train --model llama-tiny --data "$work/text" --seq 24 \
        --schedule wzb2 --stages 2 --micro-batches 4 --dtype bf16 --steps 4 --clip 0.5 $late \
        --log "$work/clip$late.jsonl"
done
agree "post-validation" near "$work/clip--post-validation.jsonl" "$work/clip.jsonl" 0

# many rounds: a gradient that comes by its owner goes home, so that what is rounded is of one round
many="--model gpt-tiny --data $work/text --seq 24 --micro-batch-size 1 --micro-batches 64 --steps 1 --dtype bf16"
quiet "one stage" starpipe train $many --dump-grads "$work/one.safetensors"
for flow in ring line; do
    quiet "16 rounds" starpipe train $many --schedule weipipe:flow=$flow --stages 4 \
        --dump-grads "$work/$flow.safetensors"
    starpipe diff --tolerance 1e-2 "$work/one.safetensors" "$work/$flow.safetensors" > "$work/output" ||
        fail "16 rounds of weipipe:flow=$flow: $(tail -n 1 "$work/output")"
done

# curve NAME OPTIONS...: the losses of 200 steps
curve()
{
    local name=$1

    shift
    quiet "200 steps: $name" starpipe train --model gpt-tiny --data "$work/text" --seq 32 \
        --micro-batches 2 --steps 200 --warmup 10 --log "$work/$name.jsonl" "$@"
    grep -o '"loss": *[0-9.]*' "$work/$name.jsonl" > "$work/$name"
}

# the same curve; norms of single gradients swing more
curve f32
curve bf16 --dtype bf16
curve ring --dtype bf16 --schedule weipipe --stages 2
for name in bf16 ring; do
    paste "$work/f32" "$work/$name" | awk -F'[:"\t ]+' '
        { n++; d = $5 / $3 - 1; d = d < 0 ? -d : d; if (d > worst) worst = d }
        END { printf "200 losses: %d, worst difference %.2g\n", n, worst; exit !(n == 200 && worst < 2e-2) }' ||
        fail "the losses of 200 steps in bf16 leave those of f32: $name"
done
finish
