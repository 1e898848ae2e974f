#!/bin/bash
# Activations parked on other stages (--offload-peers): no bit changes, the fullest stage keeps less, buffers and bytes on the
# wire are those of the dry run, with a process a stage and with two.
. "$(dirname "$0")/../common.sh" || exit 1
have_mpi || exit 77

make_text 20011 > "$work/text"

# number_of FILE KEY: of all stages, in the last line that has it.
number_of()
{
    grep -o "\"$2\": \{0,1\}[0-9]*" "$1" | tail -n 4 | grep -o '[0-9]*$' | tr '\n' ' '
}

# parked RANKS OPTIONS...: four stages with parked activations and without.
parked()
{
    local ranks=$1 what="$* on $1 processes" same kept away
    shift
    same="train --data $work/text --stages 4 --seq 32 --steps 3 $*"
    quiet "$what" mpi "$ranks" $same --log "$work/kept.jsonl" --dump-grads "$work/kept.safetensors" || return
    quiet "$what, parked" mpi "$ranks" $same --offload-peers --log "$work/parked.jsonl" \
        --dump-grads "$work/parked.safetensors" || return
    [ "$(losses "$work/kept.jsonl")" = "$(losses "$work/parked.jsonl")" ] || fail "$what: other losses"
    cmp "$work/kept.safetensors" "$work/parked.safetensors" || fail "$what: other gradients"
    mpi "$ranks" $same --offload-peers --dry-run --json > "$work/dry.json"
    for key in buffer_bytes bytes_sent; do
        [ "$(number_of "$work/parked.jsonl" $key)" = "$(number_of "$work/dry.json" $key)" ] ||
            fail "$what: $key $(number_of "$work/parked.jsonl" $key), planned $(number_of "$work/dry.json" $key)"
    done
    kept=$(number_of "$work/kept.jsonl" peak_activation_bytes | tr ' ' '\n' | sort -n | tail -n 1)
    away=$(number_of "$work/parked.jsonl" peak_activation_bytes | tr ' ' '\n' | sort -n | tail -n 1)
    [ "$away" -lt "$kept" ] || fail "$what: the fullest stage keeps $away of $kept bytes"
}

parked 4 --schedule 1f1b --model gpt-tiny --micro-batches 8
parked 4 --schedule 1f1b --model llama-tiny --micro-batches 8 --dtype bf16 --recompute selective
parked 2 --schedule 1f1b --model gpt-tiny --micro-batches 6
parked 4 --schedule interleaved --model llama-tiny --micro-batches 8

few="train --data $work/text --model gpt-tiny --seq 32 --stages 2 --micro-batches 4 --offload-peers"
refused "offload-peers is not available with helix" $few --schedule helix
refused "offload-peers is not available with --slices" $few --schedule sppo --slices 4
refused "offload-peers is not available with --vocabulary-parallel" $few --vocabulary-parallel
refused "offload-peers is not available with orders that are searched again" $few --schedule zb1p:auto
refused "offload-peers is not available with --post-validation" $few --post-validation
finish
