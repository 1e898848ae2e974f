#!/bin/bash
# What families other than layerwise do not go together with is refused before work; shards are parts of
# the parameters, and their checkpoints are whole. What these families compute is checked by
# tests/parity.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 20011 > "$work/text"

# refuse PATTERN OPTIONS...: one line, before anything is done.
refuse()
{
    local want=$1 status

    shift
    starpipe train --dry-run --model gpt-tiny --stages 4 --seq 24 "$@" > "$work/output" 2>&1
    status=$?
    [ $status -eq 2 ] && [ "$(wc -l < "$work/output")" -eq 1 ] && grep -q -- "$want" "$work/output" ||
        fail "$*: exit status $status, $(head -n 2 "$work/output")"
}

quiet "helix, a last loop that is not full" starpipe train --dry-run --model gpt-tiny --stages 4 --seq 24 \
    --schedule helix --micro-batches 11
refuse "use full" --schedule helix --recompute every=2
refuse "use even" --schedule helix --partition balanced
refuse "use at most 8 stages" --schedule helix --stages 9 --micro-batches 18

quiet "weipipe, a last round that is not full" starpipe train --dry-run --model gpt-tiny --stages 4 --seq 24 \
    --schedule weipipe --micro-batches 10
refuse "no use for; use flow=line" --schedule weipipe:node=2
refuse "divides 4, as node=2" --schedule tawpipe:node=3
refuse "use gradients=run or gradients=f32" --schedule wzb2:gradients=bf16
refuse "use --slices 1" --schedule weipipe --slices 2
refuse "use --chunks 1, or flow=line" --schedule weipipe --chunks 2
refuse "use at most 2 stages" --schedule weipipe:flow=line --chunks 3
refuse "use even" --schedule weipipe --partition balanced
refuse "not available for weipipe" --schedule weipipe --post-validation
refuse "not available for wzb1" --schedule wzb1 --post-validation
refuse "use owner=last or owner=each" --schedule wzb2:owner=first
refuse "use --stages 4, or flow=line" --schedule wzb1:flow=ring --stages 3 --micro-batches 9
refuse "weights have gone on" --schedule wzb1 --recompute selective
refuse "use at most 8 stages" --schedule weipipe --stages 9 --micro-batches 18

refuse "use --micro-batches 8" --schedule fsdp --micro-batches 10
refuse "use --slices 1" --schedule fsdp --micro-batches 8 --slices 2
refuse "use --chunks 8" --schedule fsdp --micro-batches 8 --chunks 9
refuse "use even" --schedule fsdp --micro-batches 8 --partition balanced
refuse "not available for fsdp" --schedule fsdp --micro-batches 8 --post-validation
refuse "use order=depth or order=breadth" --micro-batches 8 --schedule fsdp:order=wide
refuse "has no option 'unit'" --micro-batches 8 --schedule fsdp:unit=2

# planned STAGES OPTIONS...: parameters and optimizer of every stage, MiB.
planned()
{
    local stages=$1

    shift
    starpipe train --dry-run --model gpt-tiny --stages "$stages" --seq 24 --micro-batches 8 "$@" |
        awk 'NF == 6 && $1 ~ /^[0-9]+$/ { print $4 }'
}

# parameters, gradients and moments are in as many parts as there are workers
planned 4 --schedule fsdp | awk -v all="$(planned 1)" '
    { bad += $1 > 1.01 * all / 4; n++ }
    END { exit bad || n != 4 }' || fail "a worker has more than a fourth of the parameters"

# a checkpoint of one number of workers goes on with another one
shards="--seq 24 --data $work/text --eps 1e-3 --lr 5e-4"
quiet "save" starpipe train --model llama-tiny --stages 3 --schedule fsdp --micro-batches 9 --steps 2 \
    $shards --save "$work/saved"
for more in "4 fsdp 8" "2 1f1b 8" "3 fsdp 9"; do
    set -- $more
    quiet "resume on $*" starpipe train --stages "$1" --schedule "$2" --micro-batches "$3" --steps 5 \
        $shards --resume "$work/saved" --log "$work/resumed.$1.$2.jsonl"
done
[ "$(steps_of "$work/resumed.4.fsdp.jsonl" loss | head -n 1)" ] &&
    agree "resumed on 4 workers beside 2 stages of 1f1b" near \
        "$work/resumed.4.fsdp.jsonl" "$work/resumed.2.1f1b.jsonl" 1e-5
quiet "not interrupted" starpipe train --model llama-tiny --stages 3 --schedule fsdp --micro-batches 9 \
    --steps 5 $shards --log "$work/straight.jsonl"
[ "$(steps_of "$work/straight.jsonl" loss | tail -n 3)" = "$(steps_of "$work/resumed.3.fsdp.jsonl" loss)" ] ||
    fail "a resumed run has other losses than one that was not interrupted"
finish
