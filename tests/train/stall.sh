#!/bin/bash
# A healthy run is not taken for a stalled one: when its processes are stopped for a while, while
# rank 0 saves on a slow disk, and while it samples. That a stalled one is: see robust.sh.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 20011 > "$work/text"
base="--model gpt-tiny --data $work/text --seq 32 --micro-batches 4"

started()
{
    has_lines "$1" 4 || gone $2
}

# The processes of the program that launcher $1 started, or itself.
ranks()
{
    local pids

    pids=$(ps -o pid=,ppid=,comm= | awk -v parent="$1" '$2 == parent { print $1 }')
    echo ${pids:-$1}
}

# ---- stopped for 4 s, with a timeout of 2 s

# start NAME COMMAND...: an endless run with its log in NAME.
runs=
start()
{
    local name=$1 run

    shift
    "$@" $base --steps 1000000 --stall-timeout 2 --log "$work/$name" > "$work/$name.out" 2>&1 \
        < /dev/null &
    run=$!
    children="$children $run"
    runs="$runs $name:$run"
    wait_for 60 started "$work/$name" $run
}

start one "$STARPIPE" train
have_mpi && start two $MPIRUN -np 2 "$STARPIPE" train --stages 2
pids=
for run in $runs; do
    pids="$pids $(ranks ${run#*:})"
done
children="$children $pids"
kill -STOP $pids
for run in $runs; do
    eval "before_${run%:*}=$(wc -l < "$work/${run%:*}")"
done
sleep 4
kill -CONT $pids
for run in $runs; do
    name=${run%:*} before=before_${run%:*}
    wait_for 10 has_lines "$work/$name" $((${!before} + 20)) ||
        fail "$name: no 20 more steps after a pause: $(grep starpipe: "$work/$name.out")"
    echo "$name: stopped at step ${!before}, later at step $(wc -l < "$work/$name")"
done
kill -9 $pids
wait 2> /dev/null

# ---- phases in which only rank 0 has something to do

if $CC -shared -fPIC -o "$work/slow_disk.so" "$here/slow_disk.c" -ldl 2> /dev/null; then
    export SLOW_MS=3500 LD_PRELOAD=$work/slow_disk.so
else
    echo "no shared library could be made: no slow disk"
fi
long="--steps 3 --save-every 2 --save $work/saved --sample 6000 --stall-timeout 2"
if have_mpi; then
    quiet "a slow disk and a long sample, 2 processes" mpi 2 train $base --stages 2 $long
else
    quiet "a slow disk and a long sample" starpipe train $base $long
fi
finish
