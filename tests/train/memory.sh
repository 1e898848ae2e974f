#!/bin/bash
# Activations: the measured peak of every stage against the formula and against the plan that
# --dry-run prints; nothing alive after a step; buffers and the process flat over steps.
. "$(dirname "$0")/../common.sh" || exit 1

p=4 m=7 b=2 s=128 h=64 layers=8
make_text 20011 > "$work/text"
layout="--model gpt-tiny --data $work/text --stages $p --micro-batches $m --micro-batch-size $b \
    --seq $s"

# GPT-2's layer keeps 16bsh floats a micro-batch. Not in the formula: the statistics of two norms
# and the attention's log-sum-exp, 8bs (0.8 %), and the head's input on the last stage, bsh (3 %).
# LIVE: micro-batches alive at the peak of each stage.
formula()
{
    local schedule=$1 live=$2 i=0 bytes expected

    quiet "$schedule" starpipe train $layout --schedule $schedule --steps 2 --log "$work/log" ||
        return
    for bytes in $(stages_of "$work/log" peak_activation_bytes | tail -n 1); do
        set -- $live
        shift $i
        expected=$((4 * 16 * b * s * h * layers / p * $1))
        echo "$schedule, stage $i: peak $bytes bytes, $1 micro-batches are $expected"
        [ $((100 * bytes)) -ge $((90 * expected)) ] &&
            [ $((100 * bytes)) -le $((110 * expected)) ] ||
            fail "$schedule, stage $i: $bytes is not within 10 % of $expected"
        i=$((i + 1))
    done
    [ $i -eq $p ] || fail "$schedule: $i stages in the log"
}

formula 1f1b "4 3 2 1"
formula gpipe "7 7 7 7"

# planned MODE: what --dry-run plans for each stage, in MiB.
planned()
{
    starpipe train $layout --recompute "$1" --dry-run |
        awk 'NF == 6 && $1 ~ /^[0-9]+$/ { printf "%s ", $5 }'
}

last=
for mode in none selective no-attention full every=2; do
    quiet "$mode" starpipe train $layout --recompute $mode --steps 3 --log "$work/log" || continue
    peaks=$(stages_of "$work/log" peak_activation_bytes | tail -n 1)
    mib=$(echo "$peaks" | awk '{ for (i = 1; i <= NF; i++) printf "%.2f ", $i / 1048576 }')
    echo "--recompute $mode: peak $mib MiB"
    [ "$mib" = "$(planned $mode)" ] || fail "$mode: planned $(planned $mode), measured $mib"
    [ "$(stages_of "$work/log" live_activation_bytes | sort -u)" = "0 0 0 0" ] ||
        fail "$mode: activations alive after a step"
    if [ -n "$last" ]; then
        echo "$last $peaks" | awk -v p=$p '{ for (i = 1; i <= p; i++) if ($(i + p) >= $i) exit 1 }' ||
            fail "$mode does not take less than the mode before: $peaks, not $last"
    fi
    last=$peaks
done

# auto LIMIT LAYERS: what is chosen within a limit, kept to; the same losses as with nothing computed again.
auto()
{
    quiet "auto, $1" starpipe train $layout --recompute auto --memory-limit $1 --steps 2 --log "$work/auto" || return
    echo "--recompute auto within $1: $(grep -o "layers [-saf]*" "$work/output")"
    grep -q "recompute auto: layers $2 " "$work/output" || fail "auto, $1: not $2"
    peaks=$(stages_of "$work/auto" peak_activation_bytes | tail -n 1)
    mib=$(echo "$peaks" | awk '{ for (i = 1; i <= NF; i++) printf "%.2f ", $i / 1048576 }')
    plan=$(starpipe train $layout --recompute auto --memory-limit $1 --dry-run |
        awk 'NF == 6 && $1 ~ /^[0-9]+$/ { printf "%s ", $5 }')
    [ "$mib" = "$plan" ] || fail "auto, $1: planned $plan, measured $mib"
    [ "$(losses "$work/none")" = "$(losses "$work/auto")" ] || fail "auto, $1: other losses"
}
quiet "none" starpipe train $layout --recompute none --steps 2 --log "$work/none"
auto 1GiB "--------"
auto 7MiB "[saf][-saf]*--" # the last stage holds one micro-batch, the first four
auto 6MiB "[saf][saf][-saf]*"
refused "needs [0-9.]+ MiB" train $layout --recompute auto --memory-limit 1MiB
refused "give --memory-limit" train $layout --recompute auto
refused "parts of layers" train $layout --schedule helix --micro-batches 8 --recompute auto --memory-limit 1GiB

# The copies of --save-async are counted, too; what is asked for twice is refused after the memory.
mkdir "$work/wide"
echo '{"model_type": "gpt2", "n_layer": 8, "n_embd": 768, "n_head": 12, "n_positions": 64, "vocab_size": 256}' \
    > "$work/wide/config.json"
wide="train --model $work/wide --data $work/text --stages 1 --micro-batches 1 --seq 16 --threads 1 --save $work/s \
    --log $work/l --dump-grads $work/l"
(
    ulimit -v 1500000
    refused "is also --dump-grads" $wide
    refused "copies for --save-async [0-9.]+\), .* has room for .* try no --save-async" $wide --save-async
    exit "$failures"
) || fail "the memory of --save-async"

# A ring of weights whose W come in the turn after their B holds what one chunk brings back; where all W come after all B,
# nothing would be saved, and recomputing is refused.
if have_mpi; then
    for mode in none full; do
        quiet "wzb1, $mode" mpi 4 train $layout --schedule wzb1 --micro-batches 8 --recompute $mode --steps 2 \
            --log "$work/wzb1.$mode"
    done
    held=$(for mode in none full; do stages_of "$work/wzb1.$mode" buffer_bytes | tail -n 1; done | tr '\n' ' ')
    echo "wzb1, buffers of 4 workers with --recompute none and full: $held"
    echo "$held" | awk '{ for (i = 1; i <= 4; i++) if ($(i + 4) > 0.6 * $i) exit 1 }' ||
        fail "wzb1 saves too little by recomputing: $held"
fi
refused "would save no memory" train $layout --schedule wzb2 --micro-batches 8 --recompute full

# flat WHAT: the buffers of steps 3 to the last.
flat()
{
    local sizes

    sizes=$(stages_of "$work/log" buffer_bytes | tail -n +2 | sort -u)
    echo "$1, buffers from the second step on: $sizes bytes"
    [ "$(echo "$sizes" | wc -l)" -eq 1 ] && [ -n "$sizes" ] || fail "$1: the buffers grow"
    [ "$(stages_of "$work/log" live_activation_bytes | tail -n 1 | tr -d ' 0')" = "" ] ||
        fail "$1: activations alive after the last step"
}

resident()
{
    sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$1/status"
}

# The process itself, over many more steps: a leak of 1 KiB a step would show.
rm -f "$work/log"
"$STARPIPE" train $layout --micro-batches 3 --seq 16 --steps 100000 --log "$work/log" > /dev/null 2>&1 &
children=$!
if wait_for 30 has_lines "$work/log" 100; then
    before=$(resident $children)
    first=$(wc -l < "$work/log")
    wait_for 30 has_lines "$work/log" 600
    after=$(resident $children)
    steps=$(($(wc -l < "$work/log") - first))
    echo "resident: $before KiB at step $first, $after KiB $steps steps later"
    [ $steps -ge 450 ] || fail "only $steps steps in 30 s"
    [ "$after" -le $((before + 384)) ] || fail "the process grows: $before KiB, then $after KiB"
else
    fail "no 100 steps in 30 s"
fi
kill -9 $children
wait $children 2> /dev/null
sed -i '$d' "$work/log" # the kill may have cut it
flat "one process"

if have_mpi; then
    quiet "2 processes" mpi 2 train $layout --seq 16 --steps 31 --log "$work/log"
    flat "2 processes"
fi
finish
