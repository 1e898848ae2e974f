#!/bin/bash
# Steps without a barrier between them: see cases_barriers.c.
. "$(dirname "$0")/run.sh" || exit 1

parity barriers 2 3 4
finish
