#!/bin/bash
# Random environments: variables of OpenMP, StarPU and launchers, limits, homes that cannot be written, fewer cores. The
# losses and gradient norms keep their bits, or the run is refused with one line; nothing hangs, nothing ends by a signal.
#
# usage: environments.sh [DRAWS [SEED]]; 8 draws, 100 with SP_LONG=1.
. "$(dirname "$0")/../common.sh" || exit 1

draws=${1:-8}
[ -n "${1:-}" ] || [ -z "${SP_LONG:-}" ] || draws=100
RANDOM=${2:-7}
make_text 20011 > "$work/text"
: > "$work/file"
export TMPDIR=$work # where StarPU's directories are looked for
mkdir "$work/locked" && chmod 555 "$work/locked"
base="train --model gpt-tiny --seq 32 --micro-batches 4 --steps 2 --data $work/text --log -"
variants=("--stages 2 --threads 1" "--threads 2" "--stages 2 --threads 2 --dtype bf16")

for i in 0 1 2; do
    starpipe $base ${variants[i]} > "$work/log" 2> "$work/stderr" || fail "${variants[i]}: $(head -n 1 "$work/stderr")"
    losses "$work/log" > "$work/want.$i"
    [ "$(wc -l < "$work/want.$i")" -eq 2 ] || fail "${variants[i]}: no losses"
done

# Each is drawn with one chance in 12; -NAME unsets.
settings=(
    OMP_THREAD_LIMIT=1 OMP_THREAD_LIMIT=2 OMP_MAX_ACTIVE_LEVELS=0 OMP_DYNAMIC=true OMP_NUM_THREADS=1
    OMP_NUM_THREADS=7 OMP_PROC_BIND=true OMP_PROC_BIND=spread OMP_PLACES=cores OMP_PLACES={0} GOMP_CPU_AFFINITY=0-1
    GOMP_CPU_AFFINITY=0 KMP_AFFINITY=compact OMP_WAIT_POLICY=active OMP_NESTED=true
    STARPU_MAIN_THREAD_BIND=1 STARPU_MAIN_THREAD_CPUID=0 STARPU_RESERVE_NCPU=1 STARPU_NCPU=1 STARPU_NCPU=x
    STARPU_WORKERS_CPUID=0 STARPU_WORKERS_COREID=7 STARPU_WORKERS_GETBIND=1 STARPU_SCHED=eager STARPU_SCHED=none
    STARPU_SCHED_LIB=/nonexistent STARPU_PREFETCH=0 STARPU_DISABLE_KERNELS=1 STARPU_LIMIT_CPU_MEM=1
    STARPU_LIMIT_MAX_SUBMITTED_TASKS=2 STARPU_WORKER_TREE=1 STARPU_CALIBRATE=1 STARPU_USE_NUMA=1
    STARPU_MINIMUM_AVAILABLE_MEM=50 STARPU_WATCHDOG_TIMEOUT=1 STARPU_SIMGRID=1 STARPU_BACKOFF_MAX=-3
    STARPU_HOSTNAME=a/b STARPU_MPI_FAKE_SIZE=3 STARPU_MPI_THREAD_CPUID=1 STARPU_PERF_MODEL_DIR=/proc/none
    STARPU_TASK_BREAK_ON_EXEC=1 STARPU_NTHREADS_PER_CORE=2
    -HOME HOME=/proc "HOME=$work/nowhere" HOME= "HOME=$work/file" "HOME=$work/locked" -STARPU_HOME -STARPU_HOME -STARPU_HOME
    STARPU_HOME=/proc XDG_CACHE_HOME=/proc/none "XDG_CACHE_HOME=$work/file" XDG_CACHE_HOME= TMPDIR=/nonexistent
    "TMPDIR=$work/file" PMI_SIZE=2 OMPI_COMM_WORLD_SIZE=2 SLURM_NTASKS=2
    "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1"
)

one_in()
{
    [ $((RANDOM % $1)) -eq 0 ]
}

# What `env` is to do, and the limits and cores of a shell.
draw()
{
    local setting

    words=() limits= cores=
    for setting in "${settings[@]}"; do
        one_in 12 || continue
        case $setting in
            -*) words=(-u "${setting#-}" ${words[@]+"${words[@]}"}) ;;
            SLURM_STEP*) words+=($setting) ;;
            *) words+=("$setting") ;;
        esac
    done
    one_in 4 && limits="ulimit -v $((220000 + RANDOM % 40 * 5000));"
    one_in 6 && limits="$limits ulimit -d $((60000 + RANDOM % 40 * 5000));"
    one_in 8 && limits="$limits ulimit -s $((256 << RANDOM % 6));"
    one_in 3 && command -v taskset > /dev/null && cores="taskset -c 0"
    return 0
}

same=0 refusals=0
for ((n = 0; n < draws; n++)); do
    i=$((RANDOM % 3))
    draw
    what="draw $n: $limits $cores env ${words[*]-} starpipe ${variants[i]}"
    (eval "$limits"; exec timeout -s KILL 60 $cores env ${words[@]+"${words[@]}"} "$STARPIPE" $base ${variants[i]}) \
        > "$work/log" 2> "$work/stderr"
    status=$?
    if [ $status -eq 0 ] && losses "$work/log" | cmp -s - "$work/want.$i"; then
        same=$((same + 1))
    elif [ $status -eq 2 ] && [ "$(grep -v '^starpipe: warning: ' "$work/stderr" | grep -c '^starpipe: ')" -eq 1 ]; then
        refusals=$((refusals + 1))
    else
        fail "$what: status $status, $(losses "$work/log" | tail -n 1) $(grep -v '^$' "$work/stderr" | tail -n 3 | cut -c 1-200)"
    fi
done
echo "$draws environments: $same with the same bits, $refusals refused"
[ -z "$(find "$work" -maxdepth 1 -name 'starpipe-starpu-*')" ] || fail "StarPU's directories are left in $work"
finish
