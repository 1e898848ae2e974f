#!/bin/bash
# What a run writes while it goes on: a line rewritten in place on a terminal, plain lines elsewhere,
# also where a launcher gives the program a terminal of its own; the picture and the table at the end.
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
    grep -q 'stage 1 .* idle' "$work/terminal" || fail "no picture on a terminal"
    TERM=xterm script -qec "$STARPIPE $train --progress plain | cat" /dev/null > "$work/terminal" \
        < /dev/null || fail "--progress plain"
    tr -d '\r' < "$work/terminal" > "$work/no-cr" # the terminal's own
    plain "--progress plain, on a terminal" "$work/no-cr"

    # What ends the run is said on a line of its own, not behind the one that is rewritten.
    TERM=xterm script -qefc "exec $STARPIPE ${train/--steps 8/--steps 1000000} --seed 77" "$work/terminal" \
        < /dev/null > /dev/null &
    run=$!
    children=$run
    wait_for 30 grep -aqs 'step [0-9]*/' "$work/terminal" || fail "interrupted: no step"
    pkill -INT -f "^$STARPIPE train .* --seed 77$"
    wait $run
    tr -d '\r' < "$work/terminal" | grep -aq '^starpipe: ended by SIGINT after step' ||
        fail "interrupted: $(tail -n 2 "$work/terminal" | cat -v)"
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

# ---- the end: figures that add up, and the picture where pictures are wanted

starpipe $train --trace "$work/trace" > "$work/out" || fail "--trace"
plain "--trace" "$work/out"
grep -Eq '^step [1-8], typical of the last 5 \([0-9.]+ ms; [0-9.]+ to [0-9.]+\): bubble [0-9.]+ % measured, [0-9.]+ % expected of 1f1b$' \
    "$work/out" || fail "no typical step: $(grep typical "$work/out")"
awk '/^where it went/ { on = 1; next } on && /^=/ { ms = $(NF - 1); bubble = $NF; on = 0 }
    on { sum += $(NF - 1); points += $NF; rows++ }
    END { d = sum - ms; e = points - bubble; printf "%d rows: %.2f of %.2f ms, %.1f of %.1f points\n", \
          rows, sum, ms, points, bubble
          exit !(rows == 5 && d * d < 0.0016 && e * e < 0.1) }' "$work/out" ||
    fail "the split by cause does not add up"
[ "$(grep -c '^stage [01]  .*% idle' "$work/out")" -eq 2 ] || fail "no picture with --trace"
[ "$(awk 'length > 100' "$work/out" | grep -c '^stage\|^1f1b')" -eq 0 ] || fail "the picture is too wide"
finish
