#!/bin/bash
# Messages between processes over MPI: random ones on two to four processes, over shared memory and over
# TCP, and through StarPU-MPI; a large one goes on while the worker of either side computes, whether MPI copies
# it in one piece or in many.
. "$(dirname "$0")/../common.sh"

have_mpi || exit 77
ranks=$builddir/tests/transport/message_ranks
[ -x "$ranks" ] || { echo "skipped: built without StarPU"; exit 77; }
export STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1

# messages WHAT RANKS ARGUMENTS
messages()
{
    local what=$1 n=$2

    shift 2
    if timeout -k 5 60 $MPIRUN -np "$n" "$ranks" "$@" > "$work/out" 2>&1; then
        sed "s/^/$what: /" "$work/out"
    else
        fail "$what, $n processes: $(tail -n 3 "$work/out")"
    fi
}

for n in 2 3 4; do
    messages "in one piece" $n 10 100
    messages "through StarPU-MPI" $n 10 100 starpu
done
messages "in one piece" 2 overlap
export OMPI_MCA_btl_vader_single_copy_mechanism=none
messages "in many pieces" 2 10 100
messages "in many pieces" 2 overlap
unset OMPI_MCA_btl_vader_single_copy_mechanism
export OMPI_MCA_btl=self,tcp
messages "over TCP" 3 10 100
messages "over TCP, through StarPU-MPI" 3 10 100 starpu
messages "over TCP" 2 overlap
timeout -k 5 60 $MPIRUN -np 2 "$ranks" 1 10 serialized > "$work/out" 2>&1 && fail "StarPU-MPI beside one thread ran"
grep -q '^starpipe: --transport starpu: .*MPI_THREAD_MULTIPLE' "$work/out" || fail "one thread: $(tail -n 3 "$work/out")"
finish
