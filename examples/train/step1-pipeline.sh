#!/bin/sh
# + four stages in one process. Micro-batches flow through them in the order of 1F1B; weights,
# data and so losses do not depend on the number of stages.
. "$(dirname "$0")/common.sh"
"$starpipe" train $common --stages 1 >/dev/null
losses >"$work/one"
"$starpipe" train $common --stages 4 --schedule 1f1b
losses >"$work/four"
same_losses "$work/one" "$work/four"
