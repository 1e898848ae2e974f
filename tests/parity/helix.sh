#!/bin/bash
# HelixPipe against one stage, and its bytes on the wire: see cases_helix.c.
. "$(dirname "$0")/run.sh" || exit 1

parity helix 2 3 4 4:starpu
finish
