#!/bin/sh
# A Llama of 11 M parameters (grouped queries, rotary positions, SwiGLU) on two pipeline stages: pretraining
# from random weights on C, then fine-tuning of what it saved on prose: llama.sh [MODEL_DIR [TEXT...]]
# A MODEL_DIR with weights, such as a real Llama or Qwen, needs no pretraining. TEXT is for the fine-tuning.
. "$(dirname "$0")/common.sh"
model=${1:-$here/llama}
[ $# -eq 0 ] || shift
# Each stage has two chunks of layers, and weight gradients fill the bubble.
size="--stages 2 --schedule zbv --micro-batches 8 --micro-batch-size 1"
seq=256
eval_tokens=8192
rate=${LR:-3e-5}

if ! has_weights "$model"; then
    split_code
    train pretrained code --model "$model" --steps "${STEPS:-200}" --lr 2e-3 --warmup 20 \
        --lr-schedule cosine --lr-min 2e-4 --save "$out/pretrained" --overwrite
    expect "after pretraining, of C" "$(held_out pretrained)" 3.95 0.5
    model=$out/pretrained
    rate=6e-4
fi

# Its prose or yours: what the model knows before, and after.
[ $# -gt 0 ] && split prose "$@" || split_prose
train before prose --model "$model" --steps 0
echo "held-out loss before the fine-tuning: $(held_out before)"
train tuned prose --model "$model" --steps "${TUNE_STEPS:-40}" --lr "$rate" --warmup 5 \
    --lr-schedule linear --save "$out/tuned" --overwrite
expect "after the fine-tuning" "$(held_out tuned)" 4.7 0.6
write_text "$out/tuned" "The pipeline"
