#!/bin/bash
# A share of embedding and head on every stage: see cases_vocabulary.c.
. "$(dirname "$0")/run.sh" || exit 1

parity vocabulary 2 3 4
finish
