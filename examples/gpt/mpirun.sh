#!/bin/sh
# A script of this folder in two processes, a stage each: mpirun.sh gpt2-124m.sh [MODEL_DIR [TEXT...]]
script=$(dirname "$0")/${1:?which script}
shift
LAUNCH="${MPIRUN:-mpirun --oversubscribe --bind-to none} -np 2" exec sh "$script" "$@"
