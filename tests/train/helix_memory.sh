#!/bin/bash
# Activations of HelixPipe in real runs (the paper's figure 10 on a small model): 4bsh m L/p numbers
# on every stage with recomputation without attention, all stages alike, and what was planned;
# 1F1B's stages hold less and less.
. "$(dirname "$0")/../common.sh" || exit 1

b=1 s=256 h=64 layers=8
make_text 20011 > "$work/text"

# peaks NAME STAGES MICRO-BATCHES OPTIONS...: of every stage, measured, as "1 2 3"
peaks()
{
    local name=$1 p=$2 m=$3

    shift 3
    rm -f "$work/log"
    quiet "$name" starpipe train --model gpt-tiny --data "$work/text" --stages "$p" \
        --micro-batches "$m" --micro-batch-size $b --seq $s --steps 2 --log "$work/log" "$@" ||
        return 1
    stages_of "$work/log" peak_activation_bytes | tail -n 1
}

# helix STAGES FOLD MICRO-BATCHES LOWEST HIGHEST SHIPPED TENSORS OPTIONS...: percent of the formula, of so many bsh a layer
helix()
{
    local p=$1 m=$3 schedule=helix:fold=$2,$6 more=("${@:8}") got mib want

    got=$(peaks helix "$p" "$m" --schedule "$schedule" "${more[@]}") || return
    echo "$got" | awk -v what="$schedule ${more[*]}, $p stages, $m micro-batches" -v low="$4" -v high="$5" -v n="$7" \
        -v formula=$((4 * $7 * b * s * h * m * layers / p)) '{
        most = least = $1
        for (i = 1; i <= NF; i++) {
            most = $i > most ? $i : most
            least = $i < least ? $i : least
        }
        printf "%s: %.3f to %.3f of %dbsh m L/p\n", what, least / formula, most / formula, n
        exit !(100 * least >= low * formula && 100 * most <= high * formula &&
               most <= 1.05 * least)
    }' || fail "helix on $p stages: $got bytes are not within the formula, or not alike"
    mib=$(echo "$got" | awk '{ for (i = 1; i <= NF; i++) printf "%.2f ", $i / 1048576 }')
    want=$(starpipe train --dry-run --model gpt-tiny --stages "$p" --micro-batches "$m" \
        --micro-batch-size $b --seq $s --schedule "$schedule" "${more[@]}" |
        awk 'NF == 6 && $1 ~ /^[0-9]+$/ { printf "%s ", $5 }')
    [ "$mib" = "$want" ] || fail "helix on $p stages: planned $want MiB, measured $mib"
}

# A block and attention of one stage share o: 1/p of the attentions, so 1/(4p) less than the formula,
# beside 1/h more for each statistic: log-sum-exp, heads/(4h).
helix 4 2 8 90 110 qkv=weights 4
helix 4 1 8 90 110 qkv=weights 4
helix 8 1 8 90 110 qkv=weights 4
helix 2 2 8 85 110 qkv=weights 4
# Where attention runs again, what it wrote is kept for the block alone, or, with its product beside it, not at all.
helix 4 2 8 95 110 qkv=weights 3 --recompute full
helix 2 1 4 95 105 ship=attention 2 --recompute full --slices 2
# Slices hold no more: their keys and values are gone until the backward.
helix 4 1 8 90 110 qkv=weights 4 --slices 4
helix 2 1 4 95 105 ship=attention 3 --slices 3
# All of attention keeps x and o, an MLP r.
helix 4 2 8 95 105 ship=attention 3
helix 2 1 4 95 105 ship=attention 3

# With `bounded` a stage holds a loop of p*F micro-batches and a quarter at most, however many there are.
for what in "4 1 qkv=weights 4" "2 2 ship=attention 3"; do
    set -- $what
    of_loop=$(($4 * 4 * b * s * h * $2 * layers))
    for loops in 1 4 8; do
        got=$(peaks "bounded, $loops loops" "$1" $((loops * $1 * $2)) --schedule "helix:bounded,fold=$2,$3") || continue
        echo "$got" | awk -v what="helix:bounded,fold=$2,$3, $1 stages, $loops loops" -v n="$4" -v loop=$of_loop '{
            for (i = 1; i <= NF; i++)
                most = $i > most ? $i : most
            printf "%s: %.3f of %dbsh p F L/p\n", what, most / loop, n
            exit !(most <= 1.03 * 1.25 * loop)
        }' || fail "bounded helix holds $got bytes, a loop is $of_loop"
    done
done

# ---- chunked MLP: u, n2, g and du, which recomputation brings back and a backward makes, are there a chunk at a time

# buffers NAME OPTIONS...: of every stage, measured; and planned workspace
buffers()
{
    quiet "$1" starpipe train --model gpt-tiny --data "$work/text" --micro-batches 4 --micro-batch-size $b \
        --seq $s --steps 2 --log "$work/log" "${@:2}" || return 1
    stages_of "$work/log" buffer_bytes | tail -n 1
}

rows=16
inside=$((4 * b * s * (h + 3 * 4 * h))) # n2(h), u(4h), g(4h), du(4h)
for layout in "--schedule helix:fold=1 --stages 2" "--schedule helix --stages 2" \
    "--schedule 1f1b --stages 2 --recompute no-attention" "--schedule gpipe --stages 1 --recompute full"; do
    whole=$(buffers "$layout" $layout) && cut=$(buffers "$layout, chunks" $layout --mlp-chunk $rows) || continue
    set -- $cut
    for bytes in $whole; do
        echo "$layout: buffers of $bytes bytes, $1 with chunks, $((bytes - $1)) less, $inside of the inside of an MLP"
        [ $((bytes - $1)) -eq $inside ] || fail "$layout: $((bytes - $1)) bytes less, not $inside"
        shift
    done
done

# 1F1B holds p - i micro-batches of 16bsh, helix m/p of them times 4bsh, the same on all stages.
echo "$(peaks 1f1b 4 8 --schedule 1f1b) $(peaks helix 4 8 --schedule helix:qkv=weights)" |
    awk '{
        printf "MiB by stage: 1f1b"
        for (i = 1; i <= 4; i++) printf " %.2f", $i / 1048576
        printf ", helix"
        for (i = 5; i <= 8; i++) printf " %.2f", $i / 1048576
        printf "; 1f1b has %.1f times as much on its first stage as on its last\n", $1 / $4
        exit !($1 > 3 * $4 && $1 > $5)
    }' || fail "1f1b's skew is not there"
finish
