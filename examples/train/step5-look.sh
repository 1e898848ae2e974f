#!/bin/sh
# + looking: the order as it is planned, then a typical step as it ran beside what the schedule alone
# would make of it, and the loss on other text than the run has trained on.
. "$(dirname "$0")/common.sh"
"$starpipe" show --schedule 1f1b --stages 4 --micro-batches 8
tail -c 5000 "$text" >"$work/held.txt"
"$starpipe" train $common --stages 4 --schedule 1f1b --trace "$work/pictures" --sample 80 \
    --eval "$work/held.txt"
ls -l "$work/pictures/measured.svg" "$work/pictures/expected.svg"
