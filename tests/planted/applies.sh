#!/bin/bash
# Each patch of this folder still applies: whether its bug is caught is what make check-planted tells, in minutes.
. "$(dirname "$0")/../common.sh" || exit 1

command -v patch > /dev/null || { echo "skipped: no patch"; exit 77; }
n=0
for patch in "$here"/*.patch; do
    n=$((n + 1))
    patch -d "$here/../.." -p1 -s -f --dry-run < "$patch" > "$work/said" 2>&1 ||
        fail "$(basename "$patch") does not apply: $(head -n 1 "$work/said")"
    test=$(sed -n 's/^Caught by: \([^ ]*\).*/\1/p' "$patch")
    case $test in
    *.sh) [ -f "$here/../../$test" ] ;;
    tests/*) [ -d "$here/../../${test%/*}" ] ;;
    *) false ;;
    esac || fail "$(basename "$patch"): no test '$test'"
done
echo "$n patches"
finish
