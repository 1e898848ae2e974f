#!/bin/bash
# Messages between processes over NCCL, with StarPU and MPI as they are and what stands for CUDA and NCCL:
# random programs on two to four processes, whose orders cross and whose buffers are few; sends that wait and
# sends that do not; GPUs whose streams share one queue. A process without NCCL, or MPI without threads, is
# told in one line.
. "$(dirname "$0")/../common.sh"

have_mpi || exit 77
ranks=$builddir/tests/transport/nccl_ranks
[ -x "$ranks" ] || { echo "skipped: no headers of NCCL"; exit 77; }
export STARPU_NCPU=1 STARPU_WORKERS_NOBIND=1 STARPU_SILENT=1

# programs WHAT RANKS SEEDS MESSAGES
programs()
{
    if timeout -k 5 120 $MPIRUN -np "$2" "$ranks" "$3" "$4" > "$work/out" 2>&1; then
        echo "$1: $(tail -n 1 "$work/out")"
    else
        fail "$1, $2 processes: $(tail -n 3 "$work/out")"
    fi
}

for n in 2 3 4; do
    programs "sends wait" $n 4 150
done
FAKE_NCCL_EAGER=20000 FAKE_NCCL_DELAY_US=300 programs "sends do not wait, late" 3 4 150
SP_FAKE_GPU_QUEUES=1 programs "one queue" 3 4 150

# says WHAT PATTERN RANKS: it fails with such a line.
says()
{
    if timeout -k 5 60 $MPIRUN -np "$3" "$ranks" 1 10 > "$work/out" 2>&1; then
        fail "$1: it ran"
    elif ! grep -Eq -- "$2" "$work/out"; then
        fail "$1: nothing like '$2' in: $(head -n 3 "$work/out")"
    else
        echo "$1: $(grep -E -m 1 -- "$2" "$work/out")"
    fi
}

SP_NCCL_LIBRARY=libno-such-nccl.so says "no library" "NCCL cannot be loaded: libno-such-nccl.so" 2
FAKE_NCCL_VERSION=21708 says "an old one" "NCCL 21708, at least 21801 is needed" 2
finish
