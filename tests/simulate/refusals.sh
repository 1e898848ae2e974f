#!/bin/bash
# What is refused: to simulate, by the program that runs; to run, by the one that simulates; and what is not
# simulated.
. "$(dirname "$0")/sim.sh" || exit 1

if [ "$(basename "$STARPIPE")" = starpipe ]; then
    refused "quickstart sim.*starpipe-sim" simulate --schedule 1f1b
    refused "none of whole" simulate --share half
    finish
fi

refused "trains? with build/starpipe" train --model gpt-tiny --data "$0" --steps 1
refused "offload full" simulate --offload full
refused "memory-limit" simulate --memory-limit 1GiB
refused "layers" simulate --model gpt-tiny --layers 8
refused "'speed' is not one of" simulate --link speed=1
refused "sharing=twice is none of queued, fair, free" simulate --link sharing=twice
refused "give --model too" simulate --hardware h100-ib
refused "give one of the two" simulate --model gpt-tiny --hardware h100-ib --cost f=1
refused "cost" simulate --cost f=-1
refused "no schedule|unknown schedule" simulate --schedule nothing
finish
