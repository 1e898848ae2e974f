# The scheduler as a library in a StarPU program that knows nothing of it, through STARPU_SCHED_LIB.
. "$(dirname "$0")/../common.sh"

lib=$builddir/.libs/libstarpipe-sched.so
order=$builddir/examples/scheduler/order
[ -f "$lib" ] || { echo "$lib: no such library"; exit 1; }

# run POLICY LIBRARY: status in $status, output in $work/out.
run()
{
    STARPU_SCHED=$1 STARPU_SCHED_LIB=$2 timeout -k 2 60 "$order" > "$work/out" 2>&1
    status=$?
}

run starpipe "$lib"
[ $status -ne 77 ] || { echo "no two CPU workers here"; exit 77; }
[ $status -eq 0 ] || fail "starpipe: exit $status"
grep -q '^policy starpipe: in program order$' "$work/out" || fail "starpipe: $(cat "$work/out")"

run starpipe-ready "$lib"
grep -q '^policy starpipe-ready: ' "$work/out" || fail "starpipe-ready: $(cat "$work/out")"

# StarPU goes on with a policy of its own; the example says so.
run starpipe "$work/nowhere.so"
[ $status -eq 1 ] || fail "without the library: exit $status"
grep -q '^policy starpipe:' "$work/out" && fail "without the library: $(cat "$work/out")"

finish
