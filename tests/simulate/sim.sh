# What the tests of simulated runs share: `sim` is the program that simulates.
. "$(dirname "$0")/../common.sh" || exit 1

for sim in "$builddir/starpipe-sim" "$builddir/../build-sim/starpipe-sim"; do
    [ -x "$sim" ] && break
done

# For tests that cannot do without.
need_sim()
{
    [ -x "$sim" ] && return
    echo "skipped: no starpipe-sim; ./quickstart sim builds it"
    exit 77
}

sim()
{
    timeout -k 2 300 "$sim" "$@"
}

# figure NAME: a number of the JSON on stdin.
figure()
{
    sed -n "s/^ \"$1\": \([-+.eE0-9]*\),*\$/\1/p"
}

# listed ARGUMENTS..., simulated ARGUMENTS...: the makespan of the list simulation, of the simulated run.
listed()
{
    sim show --format json "$@" 2>> "$work/errors" | figure makespan
}

simulated()
{
    sim simulate --json "$@" 2>> "$work/errors" | figure makespan
}

# holds CONDITION: of awk, on numbers.
holds()
{
    awk "BEGIN { exit !($1) }"
}

# same WHAT A B: two numbers within 0.1 %.
same()
{
    if [ -z "$2" ] || [ -z "$3" ]; then
        fail "$1: no figure: $(head -n 2 "$work/errors")"
    elif holds "($2 - $3) ^ 2 > ($3 / 1000) ^ 2"; then
        fail "$1: $2 and $3 differ"
    else
        echo "$1: $2, $3"
    fi
}
