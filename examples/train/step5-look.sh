#!/bin/sh
# + looking: the order as it is planned, then the last step as it ran beside what the list
# simulation expects of it.
. "$(dirname "$0")/common.sh"
"$starpipe" show --schedule 1f1b --stages 4 --micro-batches 8
"$starpipe" train $common --stages 4 --schedule 1f1b --trace "$work/pictures" --sample 80
ls -l "$work/pictures/measured.svg" "$work/pictures/expected.svg"
