#!/bin/bash
# What a run writes while it goes on: a line rewritten in place on a terminal, plain lines elsewhere,
# also where a launcher gives the program a terminal of its own; what it says before and after, and --report.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 5003 > "$work/text"
train="train --model gpt-tiny --data $work/text --seq 16 --micro-batches 4 --stages 2 --steps 8"
train="$train --eval $work/text --eval-tokens 64 --eval-every 4"

# plain WHAT FILE: without escape sequences and carriage returns, and with something in it.
plain()
{
    grep -q 'step 8/8  loss' "$2" || fail "$1: no last step"
    LC_ALL=C grep -q "[$(printf '\033\r')]" "$2" && fail "$1: escape sequences or carriage returns"
    echo "$1: $(grep -c '^step' "$2") lines of steps"
}

# rewritten WHAT FILE
rewritten()
{
    grep -q "$(printf '\rstep 8/8  loss')" "$2" || fail "$1: no line is rewritten"
    echo "$1: a line rewritten in place"
}

starpipe $train > "$work/pipe" 2>&1 || fail "$(tail -n 1 "$work/pipe")"
plain "auto, no terminal" "$work/pipe"
starpipe $train --progress line > "$work/line" || fail "--progress line"
rewritten "--progress line, no terminal" "$work/line"
refused 'progress' $train --progress fancy

# script gives it a terminal.
if command -v script > /dev/null; then
    TERM=xterm script -qec "$STARPIPE $train" /dev/null > "$work/terminal" < /dev/null ||
        fail "on a terminal"
    rewritten "auto, on a terminal" "$work/terminal"
    TERM=xterm script -qec "$STARPIPE $train --progress plain | cat" /dev/null > "$work/terminal" \
        < /dev/null || fail "--progress plain"
    tr -d '\r' < "$work/terminal" > "$work/no-cr" # the terminal's own
    plain "--progress plain, on a terminal" "$work/no-cr"

    # What ends the run is said on a line of its own, not behind the one that is rewritten.
    TERM=xterm script -qec "$STARPIPE ${train/--steps 8/--steps 100} --lr 1e6 --clip 0" /dev/null > "$work/terminal" \
        < /dev/null
    tr -d '\r' < "$work/terminal" | grep -aq '^starpipe: step [0-9]*: loss .* the run has diverged' ||
        fail "a message behind the line: $(tail -n 2 "$work/terminal" | cat -v)"
fi

if have_mpi; then
    mpi 2 $train 2>&1 | cat > "$work/mpi"
    plain "auto, mpirun into a pipe" "$work/mpi"
    mpi 2 $train --progress line 2>&1 | cat > "$work/mpi"
    rewritten "--progress line, mpirun into a pipe" "$work/mpi"
    if command -v script > /dev/null; then
        TERM=xterm script -qec "$MPIRUN -np 2 $STARPIPE $train" /dev/null > "$work/terminal" \
            < /dev/null || fail "mpirun on a terminal"
        rewritten "auto, mpirun on a terminal" "$work/terminal"
        TERM=xterm script -qec "$MPIRUN -np 2 $STARPIPE $train | cat" /dev/null > "$work/terminal" \
            < /dev/null || fail "mpirun into a pipe on a terminal"
        tr -d '\r' < "$work/terminal" > "$work/no-cr"
        plain "auto, mpirun into a pipe, on a terminal" "$work/no-cr"
    fi
fi

# ---- before and after: three lines each, a line for what was saved, nothing that was not asked for

# lines FILE PATTERN...: each in turn is that of a line, and there are no others.
lines()
{
    local file=$1 n=0 pattern

    shift
    for pattern; do
        n=$((n + 1))
        sed -n "${n}p" "$file" | grep -Eq -- "^$pattern$" || fail "line $n is no '$pattern': $(sed -n "${n}p" "$file")"
    done
    [ "$(wc -l < "$file")" -eq $# ] || fail "$(wc -l < "$file") lines, not $#: $(tail -n 1 "$file")"
}

saves="--save $work/saved --save-every 6 --log $work/log"
starpipe $train $saves > "$work/all" 2> "$work/stderr" || fail "a run that saves: $(cat "$work/stderr")"
[ ! -s "$work/stderr" ] || fail "a run that saves: $(cat "$work/stderr")"
grep -v '^step [0-9]*/8  loss' "$work/all" > "$work/out"
figure='[0-9]+\.[0-9]'
lines "$work/out" "model: gpt-tiny, 0\.449 M parameters, 64 tokens a step; initial weights: random, seed 0 \(.*\)" \
    "plan: 1f1b, 2 stages on [12] CPU workers? of [0-9]+ threads?, 4 micro-batches of 1 x 16 tokens, f32" \
    "saves: $work/saved, every 6 steps and at the end" \
    "step 4/8  evaluation loss .*" "saved step 6 in $work/saved/step-000006, $figure MB" \
    "step 8/8  evaluation loss .*" "saved step 8 in $work/saved/step-000008, $figure MB" \
    "done: 8 steps in $figure s, $figure ms each, [0-9]+ tokens/s, bubble $figure % \(of 1f1b itself $figure %\); loss $figure+, evaluation $figure+" \
    "time: stages compute [0-9]+ % of a step and wait [0-9]+ % for .*" \
    "next: $STARPIPE watch $work/log   or   $STARPIPE train --resume $work/saved --steps 16"
# the commands that it names
sed -n 's/^next: //p' "$work/out" | sed 's/   or   /\n/' > "$work/next"
while read -r command; do
    sh -c "$command" > "$work/then" 2>&1 || fail "'$command': $(tail -n 1 "$work/then")"
done < "$work/next"
grep -q '^model: .*; weights of .*/saved/step-000008$' "$work/then" && grep -q '^done: steps 9 to 16 in ' "$work/then" ||
    fail "resumed: $(cat "$work/then")"
starpipe train --resume "$work/saved" --steps 17 | grep -q '^done: step 17 in ' || fail "resumed for one step"
starpipe $train --stages 1 --save-async --save "$work/async" --save-every 2 --keep 0 > "$work/out" || fail "--save-async"
[ "$(sed -n 's/^saved step \([0-9]*\) in .*/\1/p' "$work/out" | tr '\n' ' ')" = "2 4 6 8 " ] ||
    fail "--save-async: $(grep saved "$work/out")"
grep -q '^time: the stage computes [0-9]* % of a step' "$work/out" || fail "one stage: $(tail -n 2 "$work/out")"

# ---- --report: figures that add up, and a picture

export XDG_CACHE_HOME="$work" # without a description of this machine
starpipe $train --report > "$work/out" || fail "--report"
plain "--report" "$work/out"
grep -Eq '^step [1-8], typical of the last 5 \([0-9.]+ ms; [0-9.]+ to [0-9.]+\): bubble [0-9.]+ % measured, [0-9.]+ % expected of 1f1b$' \
    "$work/out" || fail "no typical step: $(grep typical "$work/out")"
grep -q '^predicted' "$work/out" && fail "a prediction for a machine that nobody measured or named"
starpipe $train --report --hardware laptop | grep -q '^predicted on laptop: [0-9.]* ms, bubble' ||
    fail "no prediction for the machine that was named"
awk '/^where it went/ { on = 1; next } on && /^=/ { ms = $(NF - 1); bubble = $NF; on = 0 }
    on { sum += $(NF - 1); points += $NF; rows++ }
    END { d = sum - ms; e = points - bubble; printf "%d rows: %.2f of %.2f ms, %.1f of %.1f points\n", \
          rows, sum, ms, points, bubble
          exit !(rows == 5 && d * d < 0.0016 && e * e < 0.1) }' "$work/out" ||
    fail "the split by cause does not add up"
[ "$(grep -c '^stage [01]  .*% idle' "$work/out")" -eq 2 ] || fail "no picture with --report"
[ "$(awk 'length > 100' "$work/out" | grep -c '^stage\|^1f1b')" -eq 0 ] || fail "the picture is too wide"
finish
