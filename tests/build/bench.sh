#!/bin/bash
# Every benchmark is built, starts and prints figures; those in Python that train are no more than read.
. "$(dirname "$0")/../common.sh" || exit 1

quiet "make bench" env -u MAKEFLAGS -u MAKELEVEL make -C "$builddir" bench || finish

# prints PATTERN PROGRAM ARGUMENTS...: at sizes that take a moment.
prints()
{
    local pattern=$1 name=$2

    shift 2
    if ! timeout -k 2 120 "$builddir/bench/$name" "$@" > "$work/output" 2> "$work/errors"; then
        fail "$name: $(head -n 2 "$work/errors")"
    elif ! grep -Eq -- "$pattern" "$work/output"; then
        fail "$name: nothing like '$pattern' in: $(head -n 3 "$work/output")"
    fi
}

cd "$work" || exit 1
prints 'cross-entropy .* GFLOP/s' kernels/kernels --quick 1
prints 'adamw .* GB/s' kernels/streams --quick 1
prints 'us' overhead/overhead 2 10
prints 'traced|built without' overhead/fxt 32 2 2
"$builddir/bench/kernels/kernels" none > /dev/null 2>&1 && fail "kernels: 'none' is taken for a number of threads"

python3 "$here/../../bench/ready/simulated.py" zb1p --starpipe "$STARPIPE" --stages 4 --seeds 1 > "$work/output" 2>&1
grep -Eq '^\| zb1p( \| [0-9.]+( \([0-9.]+\))?){9} \|$' "$work/output" || fail "ready/simulated.py: $(tail -n 2 "$work/output")"

python3 "$here/../../bench/plan/rows.py" --starpipe "$STARPIPE" --layouts 12 --seed 3 > "$work/output" 2>&1 ||
    fail "plan/rows.py: $(tail -n 3 "$work/output")"
grep -Eq '^1[2-9] rows of .*: (1[2-9]) as train says, [1-9]' "$work/output" || fail "plan/rows.py: $(tail -n 2 "$work/output")"

find "$here/../../bench" -name '*.py' | while read -r file; do
    python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$file" 2> "$work/errors" ||
        echo "$file: $(tail -n 1 "$work/errors")"
done > "$work/wrong"
[ ! -s "$work/wrong" ] || fail "$(head -n 3 "$work/wrong")"
finish
