#!/bin/bash
# Checkpoints: a resumed run goes on as if it had never stopped, on any number of stages and
# processes; a save that is killed never damages the checkpoint before it; what cannot be written
# is said in one line.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 20011 > "$work/text"
# A large epsilon: see tests/train/parity.sh.
base="--model gpt-tiny --data $work/text --seq 32 --micro-batches 4 --eps 1e-3"

# The steps that a directory holds, and what its links point to.
holds()
{
    (cd "$1" && echo step-*)
}

# ---- resume

quiet "whole run" starpipe train $base --stages 2 --steps 9 --log "$work/whole.jsonl" \
    --save "$work/whole"
quiet "first part" starpipe train $base --stages 2 --steps 5 --save "$work/part" --save-every 2
[ "$(holds "$work/part")" = "step-000004 step-000005" ] ||
    fail "not the last step and the one before it: $(holds "$work/part")"
for file in config.json model.safetensors; do
    [ "$(readlink "$work/part/$file")" = "step-000005/$file" ] || fail "$file is no link to step 5"
done

# resume WHAT TOLERANCE COMMAND...: steps 5 to 8 from part/, kept as it is.
resume()
{
    local what="resumed, $1" tolerance=$2

    shift 2
    rm -rf "$work/more" "$work/more.jsonl"
    cp -a "$work/part" "$work/more"
    quiet "$what" "$@" $base --resume "$work/more" --steps 9 --log "$work/more.jsonl" \
        --save "$work/more" || return
    agree "$what" near --part "$work/more.jsonl" "$work/whole.jsonl" $tolerance
    [ "$(steps_of "$work/more.jsonl" step | tr '\n' ' ')" = "6 7 8 9 " ] ||
        fail "$what: steps $(steps_of "$work/more.jsonl" step | tr '\n' ' ')"
    [ "$(holds "$work/more")" = "step-000005 step-000009" ] || fail "$what: $(holds "$work/more") are left"
}

if resume "same stages" 0 starpipe train --stages 2; then
    for file in model optimizer-m optimizer-v; do
        cmp "$work/more/step-000009/$file.safetensors" "$work/whole/step-000009/$file.safetensors" ||
            fail "$file of the resumed run has other bits"
    done
fi
resume "one stage" 1e-6 starpipe train --stages 1
resume "five stages, gpipe" 1e-6 starpipe train --stages 5 --schedule gpipe --recompute full
resume "three workers of two chunks that come by" 1e-6 starpipe train --stages 3 --schedule wzb1 --chunks 2
resume "three stages, the vocabulary cut" 1e-6 starpipe train --stages 3 --vocabulary-parallel
have_mpi && resume "2 processes" 1e-6 mpi 2 train --stages 4

# ---- a saved directory as --model: the links and the step itself hold the same, trained weights

for dir in part part/step-000005; do
    quiet "--model $dir" starpipe train $base --model "$work/$dir" --steps 1 --lr 0 \
        --log "$work/${dir##*/}.jsonl"
    echo "--model $dir: loss $(steps_of "$work/${dir##*/}.jsonl" loss)," \
        "untrained $(steps_of "$work/whole.jsonl" loss | head -n 1)"
done
agree "--model DIR" near "$work/part.jsonl" "$work/step-000005.jsonl" 0
awk -v a="$(steps_of "$work/part.jsonl" loss)" -v b="$(steps_of "$work/whole.jsonl" loss | head -n 1)" \
    'BEGIN { exit !(a < b - 0.1) }' || fail "--model DIR did not take the trained weights"

# A new run in the directory of an older, longer one takes --overwrite; --resume goes on with the new run.
cp -a "$work/whole" "$work/reused"
quiet "reused directory" starpipe train $base --stages 2 --steps 3 --save "$work/reused" --overwrite
quiet "reused directory, resumed" starpipe train $base --stages 2 --steps 5 \
    --resume "$work/reused" --log "$work/reused.jsonl"
[ "$(steps_of "$work/reused.jsonl" step | tr '\n' ' ')" = "4 5 " ] ||
    fail "reused directory: resumed at step $(steps_of "$work/reused.jsonl" step | head -n 1)"

# ---- killed while saving

has_temporary()
{
    [ -n "$(find "$1" -name '*.tmp*' 2> /dev/null | head -n 1)" ]
}

# Steps are short and saves are not; kills.sh has those in the middle of a run.
small="--model gpt-tiny --data $work/text --seq 8 --micro-batches 1 --stages 2"
killed=$work/killed before=1
quiet "start" starpipe train $small --steps 1 --save "$killed"

# Killed while it saves a step, a run goes on from the one before it.
for i in 1 2 3 4 5 6; do
    "$STARPIPE" train $small --resume "$killed" --steps $((before + 1)) --save "$killed" \
        > "$work/output" 2>&1 &
    children=$!
    wait_for 20 has_temporary "$killed" || gone $children
    sleep 0.00$((i * 3 % 10))
    kill -9 $children 2> /dev/null
    wait $children 2> /dev/null
    [ ! -e "$killed/step-00000$((before + 1))" ] || before=$((before + 1)) # it came too late
    quiet "kill $i" starpipe train $small --resume "$killed" --steps $((before + 1)) || break
done

# ---- nothing can be written

# refused WHAT STATUS PATTERN COMMAND...: one line on stderr.
refused()
{
    local what=$1 want=$2 pattern=$3 status

    shift 3
    "$@" > "$work/output" 2> "$work/stderr"
    status=$?
    echo "$what: $(head -n 1 "$work/stderr")"
    [ $status -eq $want ] || fail "$what: exit status $status, not $want"
    [ "$(wc -l < "$work/stderr")" -eq 1 ] && grep -q "^starpipe: .*$pattern" "$work/stderr" ||
        fail "$what: $(wc -l < "$work/stderr") lines: $(head -n 3 "$work/stderr")"
}

# Files no larger than 200 blocks of a KiB: a write beyond fails, as on a full disk.
on_full_disk()
{
    (trap '' XFSZ && ulimit -f 200 && starpipe "$@")
}

touch "$work/file"
refused "a file in the place of the directory" 2 "$work/file: Not a directory" \
    starpipe train $base --steps 1 --save "$work/file"
refused "a file on the way to the directory" 2 "$work/file/deep: Not a directory" \
    starpipe train $base --steps 1 --save "$work/file/deep"
refused "full disk" 1 "safetensors.*File too large" \
    on_full_disk train $small --resume "$killed" --steps $((before + 1)) --save "$killed"
quiet "resumed after a full disk" starpipe train $small --resume "$killed" --steps $((before + 1)) \
    --log "$work/after.jsonl"
[ "$(steps_of "$work/after.jsonl" step)" = $((before + 1)) ] || fail "a full disk cost a checkpoint"
if [ -w /dev/full ]; then
    refused "--log on a full disk" 1 "log /dev/full" \
        starpipe train $base --steps 1 --log /dev/full
    refused "--dump-grads on a full disk" 1 "/dev/full" \
        starpipe train $base --steps 1 --dump-grads /dev/full
fi
finish
