#!/bin/bash
# A run that cannot go on ends soon, with what it knows: a killed process, a stopped one, a loss
# that is no number, an interrupt.
# Where the suite runs in the background it is deaf to interrupts, which a shell cannot undo.
if [ -z "${SP_HEARS:-}" ] && env --default-signal=INT true 2> /dev/null; then
    SP_HEARS=1 exec env --default-signal=INT bash "$0"
fi
. "$(dirname "$0")/../common.sh" || exit 1

make_text 20011 > "$work/text"
base="train --model gpt-tiny --data $work/text --seq 32 --micro-batches 4"
endless="$base --steps 1000000 --log $work/log"

# Wall-clock milliseconds.
now()
{
    echo $(($(date +%s%N) / 1000000))
}

started()
{
    has_lines "$work/log" 4 || gone $run
}

# start COMMAND...: in the background, until it has trained some steps; its number is in $run.
start()
{
    rm -f "$work/log"
    set -m # otherwise the shell makes it deaf to interrupts
    "$@" > "$work/stdout" 2> "$work/stderr" < /dev/null &
    run=$!
    set +m
    children="$children $run"
    wait_for 60 started && has_lines "$work/log" 4 && return
    fail "no 4 steps in 60 s: $*"
    tail -n 5 "$work/stderr"
    kill -9 $run 2> /dev/null
    return 1
}

# ended WHAT SECONDS: within this time from now on; exit status in $status, time in $took.
ended()
{
    local begin

    begin=$(now)
    if ! wait_for "$2" gone $run; then
        fail "$1: still there after $2 s"
        kill -9 $run
    fi
    took=$(($(now) - begin))
    wait $run 2> /dev/null
    status=$?
    [ $status -ne 0 ] || fail "$1: exit status 0"
}

# The processes of the program that the launcher $run started, one a line.
ranks()
{
    ps -o pid=,ppid=,comm= | awk -v parent=$run '$2 == parent { print $1 }'
}

still_there()
{
    for pid in $pids; do
        kill -0 "$pid" 2> /dev/null && return 1
    done
    return 0
}

# ---- one process

# Decay by a factor of -1e12 a step: the weights overflow in the third or fourth.
diverging="--steps 200 --lr 1e6 --weight-decay 1e6 --clip 0"
for options in "--stages 1" "--stages 3 --schedule gpipe"; do
    timeout -k 2 30 "$STARPIPE" $base $options $diverging \
        > "$work/stdout" 2> "$work/stderr"
    status=$?
    echo "$options, diverging: exit status $status, $(head -n 1 "$work/stderr" | cut -c 1-100)"
    [ $status -eq 1 ] && [ "$(wc -l < "$work/stderr")" -eq 1 ] &&
        grep -q '^starpipe: step [0-9]*: loss .*diverged' "$work/stderr" ||
        fail "$options, diverging: status $status, $(head -n 3 "$work/stderr")"
done

if start "$STARPIPE" $endless --stages 2; then
    kill -INT $run
    ended "interrupt" 5
    echo "interrupt: ended in $took ms with exit status $status"
    # Every line of the log that is complete is one of a step.
    sed '1d;$d' "$work/log" | grep -vq '^{"step":.*}$' && fail "the log holds half a line"
fi

# ---- several processes

have_mpi || finish

for try in 1 2 3; do
    timeout -k 2 60 $MPIRUN -np 3 "$STARPIPE" $base --stages 3 $diverging \
        > "$work/stdout" 2> "$work/stderr" < /dev/null
    status=$?
    lines=$(cat "$work/stdout" "$work/stderr" | grep -c 'starpipe: ')
    echo "3 processes, diverging: exit status $status, $lines lines of ours"
    [ $status -eq 1 ] && [ "$lines" -eq 1 ] && grep -q '^starpipe: step .*diverged' "$work/stderr" ||
        fail "3 processes, diverging: status $status, $lines lines: $(grep starpipe: "$work/stderr")"
done

if start $MPIRUN -np 4 "$STARPIPE" $endless --stages 4; then
    pids=$(ranks)
    victim=$(echo "$pids" | sed -n 3p)
    [ "$(echo "$pids" | wc -l)" -eq 4 ] || fail "4 processes, but I see $pids"
    kill -9 "$victim"
    ended "a killed process" 10
    wait_for 5 still_there || fail "a killed process: others are left of $pids"
    words=$(cat "$work/stdout" "$work/stderr" | grep -i 'rank' | head -n 1)
    echo "a killed process: ended in $took ms with exit status $status: $words"
    grep -Eiq "rank 2.*(signal 9|killed)|(signal 9|killed).*rank 2" "$work/stdout" "$work/stderr" ||
        fail "no message names rank 2: $(tail -n 5 "$work/stderr")"
fi

# A process that is stopped between two steps leaves no op to wait for: then once more.
for try in 1 2 3; do
    start $MPIRUN -np 2 "$STARPIPE" $endless --micro-batches 24 --stages 4 --stall-timeout 4 || break
    pids=$(ranks)
    kill -STOP "$(echo "$pids" | sed -n 2p)"
    ended "a stopped process" 25
    wait_for 5 still_there || fail "a stopped process: some are left of $pids"
    echo "a stopped process: ended in $took ms with exit status $status"
    grep '^starpipe: ' "$work/stderr"
    grep -q '^starpipe: rank 0: nothing moved for 4 s' "$work/stderr" ||
        fail "the stall is not reported"
    [ "$took" -ge 3500 ] || fail "it ended too early to have waited 4 s"
    named='stage [01] waits for [FB][0-9]*\.0, op [0-9]* of 48 of '
    grep -q "^starpipe: $named" "$work/stderr" && break
done
grep -q "^starpipe: $named" "$work/stderr" || fail "no op is named that stage 0 or 1 waits for"

if start $MPIRUN -np 2 "$STARPIPE" $endless --stages 2; then
    pids=$(ranks)
    kill -INT $run
    ended "interrupted launcher" 10
    wait_for 5 still_there || fail "interrupted launcher: some are left of $pids"
    echo "interrupted launcher: ended in $took ms with exit status $status"
fi
finish
