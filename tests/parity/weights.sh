#!/bin/bash
# Families in which weights travel, and their bytes on the wire: see cases_weights.c.
. "$(dirname "$0")/run.sh" || exit 1

parity weights 2 3 4
finish
