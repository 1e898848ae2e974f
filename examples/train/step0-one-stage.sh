#!/bin/sh
# A GPT on a text file. Tokens are bytes; one stage, so nothing to pipeline.
. "$(dirname "$0")/common.sh"
"$starpipe" train $common --stages 1
