#!/bin/bash
# Slices that stages share, and activations on disk: see cases_slices.c.
. "$(dirname "$0")/run.sh" || exit 1

parity slices 2 3 4
finish
