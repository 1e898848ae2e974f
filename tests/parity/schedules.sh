#!/bin/bash
# Every schedule against one stage: see cases_schedules.c.
. "$(dirname "$0")/run.sh" || exit 1

parity schedules 2 3 4
finish
