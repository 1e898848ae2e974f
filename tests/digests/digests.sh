#!/bin/bash
# Every task, message and buffer that a run asks StarPU for, and every action of its plan, beside those that are recorded
# (recorded.txt, on so many cores as its first line says: stages share them): of every 16th layout; of all with SP_LONG. With
# offload the actions alone: runs plan at rates that they measure. RECORD=FILE LAYOUTS=FILE writes such a file instead, of
# layouts.py's lines with two words before each.
. "$(dirname "$0")/../common.sh" || exit 1

stream=$(dirname "$STARPIPE")/tests/digests/.libs/stream.so
[ -f "$stream" ] || { echo "skipped: no $stream"; exit 77; }
recorded=${LAYOUTS:-$here/recorded.txt}
cores=$(nproc)
if [ -z "${RECORD:-}" ] && ! grep -qx "cores $cores" "$recorded"; then
    echo "skipped: this machine has $cores cores, $(head -n 1 "$recorded") were recorded"
    exit 77
fi
make_text 4096 > "$work/text"

# digest NUMBER PROCESSES OPTIONS...: in $work/NUMBER.said, a line for all processes.
digest()
{
    local at=$1 processes=$2 launch=()

    shift 2
    [ "$processes" -eq 1 ] || launch=($MPIRUN -np "$processes")
    if timeout -k 5 120 "${launch[@]}" env LD_PRELOAD="$stream" DIGESTS="$work/$at" "$STARPIPE" train --data "$work/text" \
        --steps 2 --threads 1 --eps 1e-3 "$@" > "$work/$at.out" 2>&1 < /dev/null; then
        for ((rank = 0; rank < processes; rank++)); do cat "$work/$at.$rank"; done | tr '\n' ' ' |
            sha256sum | cut -c1-16 > "$work/$at.said"
    else
        tail -n 1 "$work/$at.out" > "$work/$at.said"
    fi
    rm -f "$work/$at".[0-9]* "$work/$at.out"
}

# actions OPTIONS...: a hash of those that `show` prints of a layout; some options are those of runs.
actions()
{
    local options=" $*"

    options=$(sed -E 's/ --(clip|mlp-chunk|logit-rows) [0-9.]+//g' <<< "$options")
    # shellcheck disable=SC2086
    "$STARPIPE" show --actions $options 2>&1 | sed -n '/^actions of stage/,$p' | sha256sum | cut -c1-12
}

line=0 every=16 jobs=0 RECORD=${RECORD:-}
[ -n "${SP_LONG:-}$RECORD" ] && every=1
while read -r want acts processes options; do
    [ "$want" != cores ] || continue
    line=$((line + 1))
    [ $((line % every)) -eq 0 ] || [ "$every" -eq 1 ] || continue
    said=$(actions $options)
    [ -n "$RECORD" ] || [ "$said" = "$acts" ] || fail "other actions ($said): $options"
    [ -n "$RECORD" ] || [[ $options != *--offload* ]] || continue
    [ "$processes" -eq 1 ] || have_mpi || continue
    echo "$line $want $said $processes $options" >> "$work/list"
    digest "$line" "$processes" $options &
    jobs=$((jobs + 1))
    [ $((jobs % 2)) -eq 1 ] && [ "$processes" -eq 1 ] || wait
done < "$recorded"
wait
[ -n "$RECORD" ] && echo "cores $cores" > "$RECORD"
while read -r at want acts processes options; do
    said=$(cat "$work/$at.said")
    if [ -n "$RECORD" ]; then
        echo "$said $acts $processes $options" >> "$RECORD"
    elif [ "$said" != "$want" ]; then
        fail "other tasks, messages or buffers ($said): $processes $options"
    fi
done < "$work/list"
echo "$jobs of $line layouts"
finish
