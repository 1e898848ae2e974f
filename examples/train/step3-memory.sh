#!/bin/sh
# + a memory limit. A limit that is too small is refused before anything runs, with what would be
# needed; recomputing activations in the backward makes the same run fit.
. "$(dirname "$0")/common.sh"
limit="--stages 2 --memory-limit 6MiB"
if "$starpipe" train $common $limit; then
    echo "6 MiB should not be enough" >&2
    exit 1
fi
"$starpipe" train $common $limit --recompute full --logit-rows 32
