#!/bin/bash
# What a dry run counts is what the run has: buffers and messages of layouts drawn at random; of 300 with SP_LONG.
. "$(dirname "$0")/../common.sh" || exit 1

have_mpi || { echo "skipped: no MPI"; exit 77; }
layouts=14
[ -z "${SP_LONG:-}" ] || layouts=300
python3 "$here/counted.py" "$STARPIPE" --layouts "$layouts" --mpirun "$MPIRUN" || fail "a dry run counts otherwise"
finish
