#!/bin/bash
# --dtype bf16 in long runs: the optimizer's weights stay f32, so that a run resumed gives the same bits,
# a step undone and done again the same losses, and the losses of 200 steps lie on those of f32. What
# every schedule computes in bf16 is checked by tests/parity/bf16.sh.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 9973 > "$work/text"

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
