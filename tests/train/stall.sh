#!/bin/bash
# A healthy run is not taken for a stalled one: when its processes are stopped for a while, while
# rank 0 saves on a slow disk, and while it samples. One whose process stops outside of the steps is; of
# steps see robust.sh.
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

# ---- a process that stops outside of the steps

# stops FUNCTION RANK PATTERN: there, of two; the other one says so, and the run ends.
stops()
{
    local name=$1-$2

    LD_PRELOAD=$work/hang_at.so HANG_AT=$1 HANG_RANK=$2 timeout -s KILL 30 $MPIRUN -np 2 "$STARPIPE" \
        train $base --steps 3 --stages 2 --save "$work/$name.saved" --stall-timeout 2 \
        > "$work/$name.out" 2>&1 < /dev/null
    status=$?
    echo "stopped in $1, rank $2: $(grep -m 1 '^starpipe: ' "$work/$name.out")"
    [ $status -ne 0 ] && [ $status -ne 137 ] && grep -Eq "^starpipe: $3" "$work/$name.out" ||
        echo "status $status, $(tail -n 3 "$work/$name.out")" > "$work/$name.failed"
}

if have_mpi && $CC -shared -fPIC -o "$work/hang_at.so" "$here/hang_at.c" -ldl 2> /dev/null; then
    stops MPI_Init_thread 1 'nothing moved for 6 s while joining the other processes' &
    stops renameat 0 'rank 1: nothing moved for 2 s while saving step 3, waiting for rank 0' &
    stops MPI_Finalize 1 'rank 0: nothing moved for 6 s while leaving the other processes' &
    wait
    for failed in "$work"/*.failed; do
        [ ! -e "$failed" ] || fail "${failed##*/}: $(cat "$failed")"
    done
fi

# ---- a setting of StarPU-MPI under which its thread never rests

if have_mpi; then
    STARPU_MPI_DRIVER_CALL_FREQUENCY=1 quiet "STARPU_MPI_DRIVER_CALL_FREQUENCY=1" mpi 2 train $base --stages 2 \
        --steps 2
fi

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
