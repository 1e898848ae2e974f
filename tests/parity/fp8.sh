#!/bin/bash
# Every schedule in fp8, against one stage in fp8: see cases_fp8.c.
. "$(dirname "$0")/run.sh" || exit 1

parity fp8 2
finish
