#!/bin/bash
# A model of 7 billion parameters on sequences of 131072 tokens: in at most a minute and 2 GiB.
. "$(dirname "$0")/sim.sh" || exit 1
need_sim

large="--model gpt3-7b --seq 131072 --dtype bf16 --stages 8 --micro-batches 16"
for name in 1f1b zbv helix fsdp; do
    begin=$(date +%s)
    sim simulate --json --schedule $name $large > "$work/json" || fail "$name"
    seconds=$(($(date +%s) - begin))
    bytes=$(figure resident_bytes < "$work/json")
    echo "$name: $(figure tasks < "$work/json") tasks, $seconds s, $((${bytes:-0} / 1048576)) MiB"
    [ $seconds -le 60 ] || fail "$name: $seconds s"
    holds "${bytes:-0} > 0 && ${bytes:-0} <= 2 * 1024 ^ 3" || fail "$name: $bytes bytes"
done
finish
