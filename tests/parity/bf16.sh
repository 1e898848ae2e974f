#!/bin/bash
# Every schedule in bf16, against one stage in bf16 and in f32: see cases_bf16.c.
. "$(dirname "$0")/run.sh" || exit 1

parity bf16 2 4
finish
