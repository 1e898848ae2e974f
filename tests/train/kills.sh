#!/bin/bash
# Runs that are killed at any moment, one rank or all, most of them during a save, go on from a whole step
# with the losses of a run that was never killed. SP_LONG=1: 200 kills.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 20011 > "$work/text"
# Steps are short and saves are not, so that most kills fall into a save.
mkdir "$work/model"
echo '{"model_type": "gpt2", "n_layer": 4, "n_embd": 64, "n_head": 4, "n_positions": 64, "vocab_size": 256}' \
    > "$work/model/config.json"
head -c 20000 "$work/text" > "$work/model/tokenizer.model"
small="train --model $work/model --data $work/text --seq 8 --micro-batches 2 --stages 2"
kills=${SP_LONG:+200}
kills=${kills:-10}
steps=60
saved=$work/saved
RANDOM=20011

begun()
{
    grep -aqs "step [0-9]" "$work/run"
}

has_temporary()
{
    [ -n "$(find "$saved" -name '*.tmp*' 2> /dev/null | head -n 1)" ]
}

# Waits for a moment in a save; one that was killed before may have left its files.
catch()
{
    { wait_for 30 begun && wait_for 30 has_temporary; } ||
        fail "kill $i: no save began: $(tail -n 1 "$work/run")"
}

# The processes of the run, not its launcher.
ranks()
{
    pgrep -f "^$STARPIPE train .*--save $saved" | grep -vx "$1"
}

quiet "never killed" starpipe $small --steps $steps --log "$work/whole.jsonl"
steps_of "$work/whole.jsonl" loss > "$work/whole"
quiet "start" starpipe $small --steps 1 --save "$saved"
in_save=0 one_rank=0 step=1
for i in $(seq "$kills"); do
    rm -f "$work/run"
    if [ $((i % 2)) -eq 0 ] && have_mpi > /dev/null; then
        $MPIRUN -np 2 "$STARPIPE" $small --resume "$saved" --steps 1000000 --save "$saved" --save-every 1 \
            > "$work/run" 2>&1 &
        run=$!
        catch
        sleep 0.0$((RANDOM % 10))$((RANDOM % 10))
        # one of them, and the launcher ends the other; or all
        if [ $((i % 4)) -eq 0 ]; then
            kill -9 $(ranks $run | sed -n "$((1 + RANDOM % 2))p") 2> /dev/null
            one_rank=$((one_rank + 1))
        else
            kill -9 $(ranks $run) 2> /dev/null
        fi
    else
        "$STARPIPE" $small --resume "$saved" --steps 1000000 --save "$saved" --save-every 1 \
            $([ $((i % 3)) -eq 0 ] && echo --save-async) > "$work/run" 2>&1 &
        run=$!
        catch
        sleep 0.0$((RANDOM % 10))$((RANDOM % 10))
        kill -9 $run
    fi
    children=$run
    if ! wait_for 20 gone $run; then
        fail "kill $i: the run goes on: $(pgrep -af "save $saved" | cut -c 1-60 | tr '\n' ';')"
        kill -9 $(ranks $run) $run 2> /dev/null
        break
    fi
    wait $run 2> /dev/null
    has_temporary && in_save=$((in_save + 1))
    before=$step
    rm -f "$work/more.jsonl"
    quiet "resumed after kill $i" starpipe $small --resume "$saved" --steps $steps \
        --log "$work/more.jsonl" || break
    step=$(steps_of "$work/more.jsonl" step | head -n 1)
    step=$((${step:-0} - 1)) # that it went on from
    [ "$step" -ge "$before" ] || fail "kill $i: went on from step $step, $before was saved"
    steps_of "$work/more.jsonl" loss | cmp - <(tail -n "+$((step + 1))" "$work/whole") ||
        fail "kill $i: other losses after step $step"
    # As the steps run out, the kills begin anew.
    if [ "$step" -gt $((steps * 2 / 3)) ]; then
        rm -rf "$saved"
        quiet "start" starpipe $small --steps 1 --save "$saved"
        step=1
    fi
done
for dir in "$saved" "$saved"/step-??????; do # whole: what a kill left of others may have lost it
    cmp "$work/model/tokenizer.model" "$dir/tokenizer.model" || fail "$dir has another tokenizer"
done
echo "$kills kills, $one_rank of one rank, $in_save in a save: resumed with the same losses"
[ $in_save -gt 0 ] || fail "no kill fell into a save"
finish
