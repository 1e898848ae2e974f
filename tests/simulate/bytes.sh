#!/bin/bash
# What the messages of a simulated step carry: what the lowered program of `show --model` adds up.
. "$(dirname "$0")/sim.sh" || exit 1
need_sim

# sent COMMAND ARGUMENTS...: bytes of each stage.
sent()
{
    sim "$@" 2>> "$work/errors" | tr -d ' \n' | sed 's/.*"bytes_sent":\[\([^]]*\)\].*/\1/; s/\.0//g'
}

for schedule in 1f1b zbv chimera helix weipipe wzb2 fsdp "seq1f1b --slices 4" "slimpipe --slices 8" "sppo --slices 4" \
    "zb1p --vocabulary-parallel" "seq1f1b --slices 4 --vocabulary-parallel"; do
    for dtype in f32 bf16; do
        options="--schedule $schedule --model gpt2-124m --seq 256 --stages 4 --micro-batches 8 --dtype $dtype"
        run=$(sent simulate --json $options)
        told=$(sent show --format json $options)
        echo "$schedule, $dtype: $run"
        [ "$run" = "$told" ] && holds "${run%%,*} > 0" || fail "$schedule, $dtype: $run, show says $told"
    done
done
[ -s "$work/errors" ] && fail "on stderr: $(head -n 3 "$work/errors")"
finish
