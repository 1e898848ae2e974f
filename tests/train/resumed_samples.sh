#!/bin/bash
# Runs that are killed at any moment and go on each time with other micro-batches, sizes of them and pipelines take
# every sample of the data once a pass, in the order of a run that was never killed. SP_LONG=1: 300 kills.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 323 > "$work/text" # 40 samples
small="train --model gpt-tiny --data $work/text --seq 8 --lr 1e-4 --threads 1"
kills=${SP_LONG:+150}
kills=${kills:-4}
saved=$work/saved
RANDOM=20011
export SP_SAMPLES=1

# The samples of all steps of a log, one a line.
samples_of()
{
    sed -n 's/.*"samples":\[\([0-9,]*\)\].*/\1/p' "$1" | tr ',' '\n'
}

begun()
{
    grep -aqs "step [0-9]" "$work/run"
}

# layout: another one each time, with its launcher.
layout()
{
    pipelines=$((1 + i % 2)) # one and two in turn
    have_mpi > /dev/null || pipelines=1
    launch=
    [ $pipelines -eq 1 ] || launch="$MPIRUN -np 2"
    options="--micro-batches $((1 + RANDOM % 3)) --micro-batch-size $((1 + RANDOM % 2)) --data-parallel $pipelines"
}

for order in sequential shuffled; do
    rm -rf "$saved" "$work/log"
    quiet "$order, never killed" starpipe $small --order $order --steps 1200 --micro-batches 1 \
        --log "$work/whole.jsonl"
    samples_of "$work/whole.jsonl" > "$work/whole"
    quiet "$order, start" starpipe $small --order $order --steps 1 --save "$saved" --log "$work/log"
    layouts=
    for i in $(seq "$kills"); do
        rm -f "$work/run"
        layout
        layouts="$layouts $options"
        # as a run of its own that saves and logs where the first did
        $launch "$STARPIPE" $small --order $order $options --resume "$saved" --save "$saved" --log "$work/log" \
            --save-every 1 --steps 1000000 > "$work/run" 2>&1 &
        run=$!
        children=$run
        wait_for 30 begun || fail "$order, kill $i: $(tail -n 1 "$work/run")"
        sleep 0.$((RANDOM % 3))$((RANDOM % 10))
        pgrep -f "^$STARPIPE train .*--save $saved" | xargs -r kill -9 2> /dev/null
        wait_for 20 gone $run || fail "$order, kill $i: the run goes on"
        wait $run 2> /dev/null
        # few enough for the list: begin anew
        [ "$(samples_of "$work/log" | wc -l)" -lt 900 ] && [ "$i" -lt "$kills" ] && continue
        layout
        step=$(ls "$saved" | sed -n 's/^step-0*\([0-9]*\)$/\1/p' | sort -n | tail -n 1)
        quiet "$order, after kill $i" $launch "$STARPIPE" train --resume "$saved" $options --steps $((step + 5))
        samples_of "$work/log" > "$work/seen"
        n=$(wc -l < "$work/seen")
        [ "$n" -gt 20 ] || fail "$order: only $n samples were taken"
        head -n "$n" "$work/whole" | cmp - "$work/seen" ||
            fail "$order, kill $i: other samples than without kills, with$layouts"
        echo "$order: $i kills, $n samples as without"
        [ "$i" -lt "$kills" ] || break
        rm -rf "$saved" "$work/log"
        layouts=
        quiet "$order, start" starpipe $small --order $order --steps 1 --save "$saved" --log "$work/log"
    done
done

# ---- what is told is what is computed: the same gradients as of a run on the tokens from there on

quiet "12 samples" starpipe $small --lr 0 --micro-batches 4 --steps 3 --save "$work/twelve"
tail -c +$((12 * 8 + 1)) "$work/text" > "$work/rest"
quiet "the next 6" starpipe $small --lr 0 --data "$work/rest" --micro-batches 6 --steps 1 \
    --dump-grads "$work/want.safetensors"
next="--resume $work/twelve --data $work/text --micro-batches 3 --steps 4 --dump-grads $work/got.safetensors"
quiet "resumed by one" starpipe train $next --micro-batch-size 2
agree "6 samples from the 13th on, by one" near "$work/got.safetensors" "$work/want.safetensors" 1e-5
if have_mpi > /dev/null; then
    quiet "resumed by two" mpi 2 train $next --data-parallel 2
    agree "the same, by two pipelines" near "$work/got.safetensors" "$work/want.safetensors" 1e-5
fi

# ---- sequences of another length: no token twice

quiet "sequences of 12" starpipe train --resume "$work/twelve" --data "$work/text" --seq 12 --micro-batches 2 \
    --steps 4 --log "$work/longer.jsonl"
[ "$(samples_of "$work/longer.jsonl" | tr '\n' ' ')" = "8 9 " ] || # 12 x 8 tokens were seen
    fail "samples of 12 tokens after 12 of 8: $(samples_of "$work/longer.jsonl" | tr '\n' ' ')"
finish
