#!/bin/sh
# GPT-2 124M on two pipeline stages: a little pretraining from random weights on C, then fine-tuning of
# what it saved on prose: gpt2-124m.sh [MODEL_DIR [TEXT...]]
# A MODEL_DIR with weights, such as the real GPT-2, needs no pretraining. TEXT is for the fine-tuning.
. "$(dirname "$0")/common.sh"
model=${1:-$here/gpt2}
[ $# -eq 0 ] || shift
# The table of 50257 tokens, a third of the parameters, is cut in two, so that the stages take the same time; the
# gradients of the weights fill the bubble.
size="--stages 2 --schedule zb1p --vocabulary-parallel --micro-batches 4 --micro-batch-size 1"
seq=256
eval_tokens=4096
rate=${LR:-3e-5}

if ! has_weights "$model"; then
    seq=64 # many small steps: few tokens have to do
    split_code
    train pretrained code --model "$model" --steps "${STEPS:-130}" --lr 1e-3 --warmup 10 \
        --lr-schedule cosine --lr-min 1e-4 --save "$out/pretrained" --overwrite
    expect "after pretraining, of C" "$(held_out pretrained)" 5.5 0.3
    model=$out/pretrained
    rate=3e-4
fi

# Its prose or yours: what the model knows before, and after.
[ $# -gt 0 ] && split prose "$@" || split_prose
train before prose --model "$model" --steps 0
echo "held-out loss before the fine-tuning: $(held_out before)"
train tuned prose --model "$model" --steps "${TUNE_STEPS:-30}" --lr "$rate" --warmup 5 \
    --lr-schedule linear --save "$out/tuned" --overwrite
expect "after the fine-tuning" "$(held_out tuned)" 6.15 0.4
write_text "$out/tuned" "The pipeline"
