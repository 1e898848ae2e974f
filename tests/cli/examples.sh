#!/bin/bash
# The steps of examples/train; one that needs MPI skips itself where there is none.
. "$(dirname "$0")/../common.sh" || exit 1

for step in "$here"/../../examples/train/step*.sh; do
    name=$(basename "$step" .sh)
    STARPIPE_EXAMPLES=$work/$name timeout -k 5 120 sh "$step" > "$work/$name.out" 2>&1
    case $? in
    0) echo "$name: $(grep -c . "$work/$name.out") lines" ;;
    77) echo "$name: skipped: $(tail -n 1 "$work/$name.out")" ;;
    *)
        tail -n 20 "$work/$name.out"
        fail "$name"
        ;;
    esac
done
finish
