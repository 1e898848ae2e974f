#!/bin/sh
# + checkpoints: Hugging Face files (config.json, model.safetensors) and the optimizer's state.
# The second half runs on another number of stages and gives the same losses.
. "$(dirname "$0")/common.sh"
"$starpipe" train $common --stages 2 >/dev/null
losses | tail -n 3 >"$work/whole"
"$starpipe" train $common --stages 2 --steps 3 --save "$work/half"
"$starpipe" train $common --stages 3 --resume "$work/half"
losses | tail -n 3 >"$work/resumed"
same_losses "$work/whole" "$work/resumed"
