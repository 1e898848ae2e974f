# What the shell tests share; they begin by sourcing it.
#
# From the environment: STARPIPE (the program), SP_TESTDATA (tests/data), SP_TMP (where scratch
# directories go), MPIRUN (the launcher with its options, empty: none). Exit: 0 ok, 1 failed, 77
# skipped.

set -u
export LC_ALL=C
# The program places its threads itself.
unset OMP_NUM_THREADS

here=$(cd "$(dirname "$0")" && pwd)
STARPIPE=${STARPIPE:-./starpipe}
STARPIPE=$(cd "$(dirname "$STARPIPE")" && pwd)/$(basename "$STARPIPE")
builddir=$(dirname "$STARPIPE")
SP_TESTDATA=${SP_TESTDATA:-$here/../data}
if [ -z "${MPIRUN+set}" ] && command -v mpirun > /dev/null; then
    MPIRUN="env PMIX_MCA_psec=^munge mpirun --oversubscribe --bind-to none" # see m4/sp_mpi.m4
fi
MPIRUN=${MPIRUN:-}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

[ -x "$STARPIPE" ] || { echo "$STARPIPE: no such program"; exit 1; }
work=${SP_TMP:-$builddir/tests/tmp}/$(basename "$0" .sh).$$
mkdir -p "$work" || exit 1
export STARPU_HOME="${STARPU_HOME:-$work}"
children=
trap 'for pid in $children; do kill -9 $pid 2> /dev/null; done; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# Sources may be read-only; copies of them are not.
cp()
{
    command cp "$@" && chmod -R u+w "${!#}"
}

failures=0
fail()
{
    echo "FAIL: $*"
    failures=$((failures + 1))
}

# The end of a test.
finish()
{
    [ "$failures" -eq 0 ] || echo "$failures failed"
    [ "$failures" -eq 0 ]
    exit
}

# Runs the program; nothing may hang.
starpipe()
{
    timeout -k 2 120 "$STARPIPE" "$@"
}

# mpi N ARGUMENTS: the program in N processes.
mpi()
{
    local n=$1

    shift
    timeout -k 5 120 $MPIRUN -np "$n" "$STARPIPE" "$@"
}

# note RUN RANKS OPTIONS...: a run of `train` in so many processes for make_runs, unless it is noted; it writes its log,
# $work/RUN.jsonl, and the gradients of its first step, RUN.safetensors.
note()
{
    [ ! -e "$work/$1.jsonl" ] || return 0
    : > "$work/$1.jsonl"
    echo "train ${*:3} --log $work/$1.jsonl --dump-grads $work/$1.safetensors" >> "$work/runs-$2"
}

# make_runs: what is noted; processes are started once for all runs in as many.
make_runs()
{
    local runs

    for runs in "$work"/runs-*; do
        timeout -k 5 $((120 * $(wc -l < "$runs"))) $MPIRUN -np "${runs##*-}" "$builddir/tests/train/trainers" "$runs" \
            > "$work/output" 2>&1 || { fail "runs in ${runs##*-} processes" && tail -n 20 "$work/output"; }
        rm "$runs"
    done
}

have_mpi()
{
    if [ -z "$MPIRUN" ]; then
        echo "skipped: no mpirun"
        return 1
    elif starpipe info | grep -q 'built without MPI'; then
        echo "skipped: $STARPIPE was built without MPI"
        return 1
    fi
}

# quiet WHAT COMMAND...: runs it with its output put aside, shown where it fails.
quiet()
{
    local what=$1 status

    shift
    "$@" > "$work/output" 2>&1 && return
    status=$?
    fail "$what: exit status $status"
    tail -n 5 "$work/output" | cut -c 1-300
    return $status
}

# said WHAT PATTERN ARGUMENTS...: of the program; nothing on stderr, a line of stdout that matches. Both
# are in $work then.
said()
{
    local what=$1 pattern=$2

    shift 2
    if ! starpipe "$@" > "$work/stdout" 2> "$work/stderr" ||
        grep -qv 'warning: --dtype bf16: this CPU multiplies no bf16' "$work/stderr"; then
        fail "$what: $(head -n 2 "$work/stderr")"
    elif ! grep -Eq -- "$pattern" "$work/stdout"; then
        fail "$what: nothing like '$pattern' in: $(head -n 3 "$work/stdout" | cut -c 1-200)"
    fi
}

# refused PATTERN ARGUMENTS...: exit status 2, one line on stderr, nothing on stdout.
refused()
{
    local pattern=$1 status

    shift
    starpipe "$@" > "$work/stdout" 2> "$work/stderr"
    status=$?
    if [ $status -ne 2 ] || [ "$(wc -l < "$work/stderr")" -ne 1 ] || [ -s "$work/stdout" ] ||
        ! grep -Eq -- "^starpipe: .*$pattern" "$work/stderr"; then
        fail "starpipe $*: status $status, wanted '$pattern': $(head -n 2 "$work/stderr")"
    fi
}

# refused_in N PATTERN ARGUMENTS...: of N processes: exit status 2, one line of ours among those of the launcher.
refused_in()
{
    local n=$1 pattern=$2 status lines

    shift 2
    timeout -k 2 20 $MPIRUN -np "$n" "$STARPIPE" "$@" > "$work/stdout" 2> "$work/stderr" < /dev/null
    status=$?
    lines=$(cat "$work/stdout" "$work/stderr" | grep -c 'starpipe: ')
    if [ $status -ne 2 ] || [ "$lines" -ne 1 ] ||
        ! grep -Eq "^starpipe: .*$pattern" "$work/stderr"; then
        fail "$n processes: starpipe $*"
        echo "  exit status $status, $lines lines of ours, wanted: $pattern"
        grep starpipe: "$work/stdout" "$work/stderr" | head -n 5 | cut -c 1-300
    fi
}

# near [--part] A B TOLERANCE: what `diff` says of two logs, files of tensors or checkpoints.
near()
{
    starpipe diff "${@:1:$#-1}" --tolerance "${!#}"
}

# agree WHAT COMMAND...: a comparison whose last line is printed after WHAT.
agree()
{
    local what=$1 status

    shift
    "$@" > "$work/agree" 2>&1
    status=$?
    echo "$what: $(tail -n 1 "$work/agree")"
    [ $status -eq 0 ] && return
    fail "$what: $1 has exit status $status"
    head -n 4 "$work/agree"
    return 1
}

# make_text BYTES: English-looking, the same on every machine, without a period.
make_text()
{
    awk -v want="$1" 'BEGIN {
        split("the a this one some of in at to from stage chunk slice bubble layer token water " \
              "river runs holds sends waits asks keeps drops early later twice never and or but",
              word, " ")
        x = 20231
        for (n = 0; n < want; n += length(out)) {
            x = (x * 16807) % 2147483647
            out = word[1 + int(x / 64) % 34]
            x = (x * 16807) % 2147483647
            out = out (int(x / 64) % 7 == 0 ? int(x / 4096) % 1000 ".\n" : " ")
            printf "%s", substr(out, 1, want - n)
        }
    }'
}

# steps_of LOG KEY: a field of each step, one a line.
steps_of()
{
    sed -n '/"step":/s/.*"'"$2"'":\([^,}]*\).*/\1/p' "$1"
}

# losses LOG: the loss and the norm of the gradients of each step, one line a step.
losses()
{
    grep -o '"loss":[^,]*,"grad_norm":[^,]*' "$1"
}

# stages_of LOG KEY: a field of all stages, one line a step.
stages_of()
{
    awk -v key="\"$2\":" '/"step":/ {
        line = $0
        out = ""
        while (i = index(line, key)) {
            line = substr(line, i + length(key))
            match(line, /^[^,}]*/)
            out = out " " substr(line, 1, RLENGTH)
        }
        print substr(out, 2)
    }' "$1"
}

# wait_for SECONDS COMMAND...: until it succeeds; 1 if it never does.
wait_for()
{
    local tries=$(($1 * 50))

    shift
    while ! "$@"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.02
    done
}

has_lines()
{
    [ -e "$1" ] && [ "$(wc -l < "$1")" -ge "$2" ]
}

gone()
{
    ! kill -0 "$1" 2> /dev/null
}
