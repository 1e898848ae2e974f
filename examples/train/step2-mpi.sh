#!/bin/sh
# + MPI processes. Stage s runs on process floor(s R / p); only activations and their gradients
# travel. On a cluster: mpirun or srun with one process a node or a GPU.
. "$(dirname "$0")/common.sh"
command -v mpirun >/dev/null || { echo "no mpirun here"; exit 77; }
"$starpipe" info | grep -q 'built without MPI' && { echo "built without MPI"; exit 77; }
"$starpipe" train $common --stages 4 --schedule 1f1b >/dev/null
losses >"$work/one"
# Two processes share this machine's cores, whatever their number.
mpirun -np 2 --oversubscribe --bind-to none "$starpipe" train $common --stages 4 --schedule 1f1b
losses >"$work/two"
same_losses "$work/one" "$work/two"
