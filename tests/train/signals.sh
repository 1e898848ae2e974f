#!/bin/bash
# SIGTERM, SIGINT, a closed terminal and a reader that is gone end a run after its step; it is saved
# and exits 0, or 1 without --save. SIGUSR1 saves and goes on. In one process and under launchers.
# Where the suite runs in the background it is deaf to interrupts, which a shell cannot undo.
if [ -z "${SP_HEARS:-}" ] && env --default-signal=INT true 2> /dev/null; then
    SP_HEARS=1 exec env --default-signal=INT,HUP bash "$0"
fi
. "$(dirname "$0")/../common.sh" || exit 1

make_text 20011 > "$work/text"
train="$STARPIPE train --model gpt-tiny --data $work/text --seq 32 --micro-batches 4 --stages 2"
endless="$train --steps 1000000"
save="--save $work/saved"

# start WHAT LINES COMMAND...: in the background, with a log, until that has so many lines. In $run.
start()
{
    what=$1
    rm -rf "$work/log" "$work/saved"
    set -m
    "${@:3}" --log "$work/log" > "$work/stdout" 2> "$work/stderr" < /dev/null &
    run=$!
    set +m
    children="$children $run"
    wait_for 60 started "$2" && has_lines "$work/log" "$2" && return
    fail "$what: not $2 lines in the log: $(last)"
    kill -9 $run 2> /dev/null
    return 1
}

last()
{
    cat "$work/stdout" "$work/stderr" | tr '\r' '\n' | tail -n 3 | cut -c 1-200
}

started()
{
    has_lines "$work/log" "$1" || gone $run
}

# ended STATUS [SECONDS]: the run has come to its end, within so many seconds.
ended()
{
    wait_for "${2:-40}" gone $run || { fail "$what: it goes on"; kill -9 $run; }
    wait $run 2> /dev/null
    status=$?
    echo "$what: status $status, $(ls -d "$work"/saved/step-* 2> /dev/null | sed 's,.*/,,')"
    [ $status -eq "$1" ] || fail "$what: status $status, not $1: $(last)"
}

# says OUT ERR: how many lines about the end there are on stdout, how many of ours on stderr.
says()
{
    local out err

    out=$(grep -c 'ended by .* saved to .*--resume' "$work/stdout")
    err=$(grep -c '^starpipe: ' "$work/stderr")
    [ "$out" -eq "$1" ] && [ "$err" -eq "$2" ] ||
        fail "$what: $out and $err lines: $(last)"
}

# The newest checkpoint is of the last step, and a run goes on from it.
saved()
{
    local last steps

    last=$(steps_of "$work/log" step | tail -n 1)
    [ -d "$work/saved/step-$(printf %06d "$last")" ] ||
        fail "$what: step $last was the last, saved: $(ls "$work/saved")"
    [ -z "${1:-}" ] || quiet "$what: resume" starpipe train --resume "$work/saved" \
        --data "$work/text" --seq 32 --micro-batches 4 --steps $((last + 1))
}

# The processes of the program, whatever has started them.
ranks()
{
    ps -eo pid=,args= | awk -v name="$STARPIPE" -v mine="$work/log" \
        '$2 == name && index($0, mine) { print $1 }'
}

grew()
{
    has_lines "$work/log" $((lines + 5))
}

asked_twice()
{
    [ "$(grep -c "SIGUSR1: saved step" "$work/stdout")" -eq 1 ]
}

# ---- one process

# Twice at once is once.
if start "SIGTERM, saved" 4 $endless $save; then
    kill -TERM $run
    kill -TERM $run 2> /dev/null
    ended 0
    says 1 0
    saved resumable
fi

if start "SIGINT, not saved" 4 $endless --post-validation; then
    kill -INT $run
    ended 1
    says 0 1
    grep -q '^starpipe: ended by SIGINT .*nothing was saved' "$work/stderr" || fail "$what: no reason"
fi

# A limit on processor time says so again each second.
if start "SIGXCPU, saved" 4 $endless $save; then
    kill -XCPU $run
    ended 0
    says 1 0
    grep -q "ended by SIGXCPU " "$work/stdout" || fail "$what: no reason: $(last)"
    saved
fi

if start "SIGUSR1, then SIGHUP" 4 $endless $save --post-validation; then
    kill -USR1 $run
    wait_for 10 asked_twice || fail "$what: not saved: $(last)"
    lines=$(wc -l < "$work/log")
    wait_for 10 grew || fail "$what: it does not go on"
    kill -HUP $run
    ended 0
    says 0 0
    saved
fi

# The step takes longer than this test.
long="$endless --micro-batch-size 16 --seq 128 --micro-batches 200"
if start "SIGTERM twice" 1 $long $save; then
    kill -TERM $run
    sleep 2.1
    gone $run && fail "$what: the step was not that long"
    kill -TERM $run
    begin=$(date +%s%N)
    ended 143
    took=$((($(date +%s%N) - begin) / 1000000))
    [ $took -lt 2000 ] || fail "$what: it took $took ms"
fi

# ---- where there is no step to end

# hangs FUNCTION PATTERN: it never comes back from there; SIGTERM ends it all the same.
hangs()
{
    what="SIGTERM in $1"
    LD_PRELOAD=$work/hang_at.so HANG_AT=$1 HANG_SPINS=1 $train --steps 3 > "$work/stdout" \
        2> "$work/stderr" < /dev/null &
    run=$!
    children="$children $run"
    sleep 1.5
    gone $run && fail "$what: it did not hang"
    kill -TERM $run
    ended 1 8
    grep -q "^starpipe: ended by SIGTERM while $2" "$work/stderr" || fail "$what: $(last)"
}

if ${CC:-cc} -shared -fPIC -o "$work/hang_at.so" "$here/hang_at.c" -ldl 2> /dev/null; then
    hangs starpu_init "starting StarPU"
    hangs starpu_task_wait_for_all "training step 1: nothing moved for 3 s"
else
    echo "no shared library could be made: nothing hangs"
fi

# ---- nobody reads standard output

# What a pipeline's first command exits with is in $first.
into()
{
    local reader=$1

    shift
    rm -rf "$work/saved"
    timeout -k 2 30 "$@" 2> "$work/stderr" | eval "$reader" > /dev/null
    first=${PIPESTATUS[0]}
    what="${*:2} | $reader"
    what=${what//"$work"\//}
}

for reader in "head -n 1" true; do
    into "$reader" $endless $save
    [ $first -eq 0 ] && [ ! -s "$work/stderr" ] && [ -e "$work/saved/config.json" ] ||
        fail "$what: status $first, $(last)"
    into "$reader" $endless
    [ $first -eq 1 ] && [ ! -s "$work/stderr" ] ||
        fail "$what: status $first, $(last)"
done
for args in "train --model gpt-tiny --dry-run" "show --stages 8 --micro-batches 999" list; do
    into true sh -c 'sleep 0.5; exec "$@"' sh "$STARPIPE" $args # what is short would fit into the pipe before
    [ $first -eq 141 ] && [ ! -s "$work/stderr" ] ||
        fail "$what: status $first, $(last)"
done

# A full pipe holds up no step, as one does whose reader ends the run in its own time.
mkfifo "$work/pipe"
exec 7<> "$work/pipe"
quiet "a checkpoint" $train --steps 1 --save "$work/before"
timeout 1 dd if=/dev/zero bs=4096 count=16 >&7 2> /dev/null
if start "SIGTERM with a full pipe" 4 sh -c 'exec "$@" >&7' sh $endless --resume "$work/before" $save
then
    kill -TERM $run
    wait_for 10 test -e "$work/saved/config.json" || fail "$what: not saved"
    cat <&7 > "$work/stdout" &
    reader=$!
    children="$children $reader"
    ended 0
    kill $reader
fi
exec 7>&-

# held_up OUT ERR: OUT is a pipe that is full for ever, ERR may be.
held_up()
{
    what="SIGTERM, nobody reads $1 and $2"
    timeout 1 dd if=/dev/zero bs=4096 count=16 > "$1" 2> /dev/null
    $train --steps 2 > "$1" 2> "$2" < /dev/null &
    run=$!
    children="$children $run"
    sleep 2
    gone $run && fail "$what: it ended before"
    kill -TERM $run
    ended 1 20
}

mkfifo "$work/full"
exec 8<> "$work/full"
held_up "$work/full" "$work/stderr"
grep -q '^starpipe: ended by SIGTERM' "$work/stderr" || fail "$what: $(last)"
held_up "$work/full" "$work/full"
exec 8>&-

# ---- a terminal that is closed: script is killed, which holds the other end of it

terminal()
{
    start "$1" 4 sh -c 'exec script -qfc "$0 $*" /dev/null' "$2 $endless $save" || return
    pid=$(ranks)
    children="$children $pid"
    kill -9 $run
    wait $run 2> /dev/null
    return 0
}

if command -v script > /dev/null; then
    if terminal "a closed terminal" exec; then
        wait_for 20 gone "$pid" || fail "$what: it goes on"
        echo "$what: $(ls "$work/saved" | tail -n 1)"
        saved
    fi
    if terminal "a closed terminal, nohup" "trap '' HUP; exec"; then
        lines=$(wc -l < "$work/log")
        wait_for 10 grew || fail "$what: it does not go on"
        kill -TERM "$pid"
        wait_for 20 gone "$pid" || fail "$what: SIGTERM does not end it"
        echo "$what: $(ls "$work/saved" | tail -n 1)"
        saved
    fi
fi

# ---- several processes

have_mpi || finish

if start "SIGTERM to one of 2" 4 $MPIRUN -np 2 $endless $save; then
    kill -TERM "$(ranks | tail -n 1)"
    ended 0
    says 1 0
    saved resumable
fi
if start "SIGUSR1 to mpirun, SIGINT to one of 2" 4 $MPIRUN -np 2 $endless $save; then
    kill -USR1 $run
    wait_for 10 asked_twice || fail "$what: not saved: $(last)"
    kill -INT "$(ranks | head -n 1)"
    ended 0
    says 1 0
    saved
fi

# Processes do not outlive their mpirun, even where nothing comes back to the program.
both_there()
{
    [ "$(ranks | wc -l)" -eq 2 ]
}

if [ -e "$work/hang_at.so" ]; then
    what="SIGKILL to mpirun"
    LD_PRELOAD=$work/hang_at.so HANG_AT=MPI_Init_thread HANG_RANK=0 HANG_SPINS=1 $MPIRUN -np 2 $endless \
        --log "$work/log" > "$work/stdout" 2> "$work/stderr" < /dev/null &
    run=$!
    wait_for 20 both_there || fail "$what: no two processes: $(last)"
    sleep 0.5
    pids=$(ranks)
    kill -9 $run
    for pid in $pids; do
        wait_for 8 gone "$pid" || { fail "$what: process $pid is left"; kill -9 "$pid"; }
    done
    wait $run 2> /dev/null
fi

# Rank 0 waits in MPI_Init for rank 1, which waits for a file.
catches_usr1()
{
    local pid word mask

    pid=$(ranks | head -n 1)
    [ -n "$pid" ] || return
    while read -r word mask; do
        [ "$word" != SigCgt: ] || [ $((0x$mask & 0x200)) -eq 0 ] || return 0
    done < "/proc/$pid/status"
    return 1
}

few="$train --steps 4 $save"
late='while [ ! -e '$work/go' ]; do sleep 0.05; done; exec "$@"'
rm -rf "$work/saved"
what="SIGUSR1 before all have started"
timeout -k 5 60 $MPIRUN -np 1 $few --log "$work/log" : -np 1 sh -c "$late" sh $few \
    --log "$work/log" > "$work/stdout" 2> "$work/stderr" < /dev/null &
run=$!
children="$children $run"
wait_for 10 catches_usr1 || fail "$what: it would end the process"
kill -USR1 "$(ranks | head -n 1)"
touch "$work/go"
ended 0
grep -q "SIGUSR1: saved step 1 " "$work/stdout" || fail "$what: $(last)"

# ---- Slurm, where it runs

if timeout 5 srun -n 2 --mpi=pmix true 2> /dev/null; then
    if start "SIGTERM by scancel" 4 srun -n 2 --mpi=pmix $endless $save; then
        scancel --signal=TERM "$(squeue -h -u "$(id -u)" -o %A | sort -n | tail -n 1)"
        ended 0
        says 1 0
        saved
    fi
    if start "SIGINT by srun -X, not saved" 4 srun -X -n 2 --mpi=pmix $endless; then
        kill -INT $run
        ended 1
        says 0 1
    fi
fi
finish
