#!/bin/bash
# StarPU is included where it may be, and no files include each other in a circle.
. "$(dirname "$0")/../common.sh" || exit 1

python3 "$here/house.py" "$here/../../src" || fail "src includes what it should not"
finish
