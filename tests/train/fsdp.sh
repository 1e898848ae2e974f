#!/bin/bash
# Fully sharded data parallelism on two, three and four workers, both model styles: losses of several
# steps and gradients of one stage within 1e-5; in one process and over MPI the same bits; the bytes
# that every worker sends are those of the shards, whatever the length of sequences; a worker holds a
# part of the parameters and the activations of one micro-batch; checkpoints are whole.
. "$(dirname "$0")/travel.sh" || exit 1

# Numbers of the blocks of a layer, and of tokens, positions, final norm and head (src/model/params.h).
h=64
gpt_tiny="$((2 * h)) $((3 * h * h + 3 * h)) $((9 * h * h + 8 * h)) $((256 * h)) $((512 * h)) $((2 * h)) 0"
llama_tiny="$h $((2 * h * h)) $((h * h + h + 3 * h * 172)) $((256 * h)) 0 $h $((256 * h))"

# formula SCHEDULE P M UNITS BLOCKS...: bytes that each worker sends in a step. Of every unit that is gathered,
# of the gradients of its own backwards, and of embedding and head twice, a shard to each other worker.
formula()
{
    awk -v schedule="$1" -v P="$2" -v m="$3" -v V="$4" -v L=8 -v sizes="${*:5}" '
    function shard(n) { return int((int((n + P - 1) / P) + 7) / 8) * 8 }
    function layers(c) { return int(L / V) + (c < L % V) }
    BEGIN {
        split(sizes, n, " ")
        layer = shard(n[1]) + shard(n[2]) + shard(n[3])
        sent = 2 * (shard(n[4]) + shard(n[5]) + shard(n[6]) + shard(n[7]))
        rounds = schedule ~ /breadth/ ? 1 : m / P # a unit of all rounds at once
        for (g = 0; g < rounds; g++) {
            for (c = g ? 2 : 0; c < V; c++) sent += layers(c) * layer # units 0 and 1 are still there
            for (c = V - 3; c >= 0; c--) sent += layers(c) * layer    # as are the last two
            for (c = 0; c < V; c++) sent += layers(c) * layer         # gradients
        }
        for (r = 0; r < P; r++) printf "%s%.0f", r ? " " : "", 4 * (P - 1) * sent
    }'
}

# check MODEL WORKERS MICRO-BATCHES UNITS SCHEDULE [OPTIONS]
check()
{
    local model=$1 P=$2 m=$3 V=$4 schedule=$5 what sizes want got longer

    shift 5
    what="$schedule, $model, $P workers, $m micro-batches, $V units${*:+, $*}"
    set -- train --model "$model" --stages "$P" --schedule "$schedule" "$@"
    [ "$V" = 8 ] || set -- "$@" --chunks "$V" # a layer each if nothing is said
    train run "$m" 20 starpipe "$@" --seq 24
    agree "$what" near "$work/run.jsonl" "$work/$model.$m.jsonl" 1e-5
    agree "$what, gradients" near "$work/run.safetensors" \
        "$work/$model.$m.safetensors" 1e-5
    have_mpi || return
    train apart "$m" 3 mpi "$P" "$@" --seq 24
    cmp -s "$work/run.safetensors" "$work/apart.safetensors" ||
        fail "$what: $P processes have other gradients than one"
    [ "$(steps_of "$work/run.jsonl" loss | head -n 3)" = "$(steps_of "$work/apart.jsonl" loss)" ] ||
        fail "$what: $P processes have other losses than one"
    case $model in gpt-tiny) sizes=$gpt_tiny ;; *) sizes=$llama_tiny ;; esac
    want=$(formula "$schedule" "$P" "$m" "$V" $sizes)
    got=$(stages_of "$work/apart.jsonl" bytes_sent | sort -u)
    echo "$what: bytes sent $got"
    [ "$got" = "$want" ] || fail "$what: bytes sent $got, the formula says $want"
    train longer "$m" 1 mpi "$P" "$@" --seq 96
    longer=$(stages_of "$work/longer.jsonl" bytes_sent)
    [ "$longer" = "$want" ] || fail "$what: with longer sequences bytes sent are $longer"
}

for model in gpt-tiny llama-tiny; do
    for m in 4 8 9; do
        train $model.$m $m 20 starpipe train --model $model --stages 1 --seq 24
    done
done
check gpt-tiny 2 4 8 fsdp
check gpt-tiny 4 8 8 fsdp --recompute no-attention
check gpt-tiny 3 9 3 fsdp --recompute full
check gpt-tiny 4 8 8 fsdp:order=breadth
check llama-tiny 2 8 2 fsdp --recompute selective
check llama-tiny 3 9 5 fsdp
check llama-tiny 4 4 1 fsdp --recompute every=3
check llama-tiny 4 8 8 fsdp
check llama-tiny 3 9 5 fsdp:order=breadth --recompute full

# two workers a process, and a process of two beside one
if have_mpi; then
    train alone 8 1 starpipe train --model gpt-tiny --stages 4 --schedule fsdp --seq 24
    for np in 2 3; do
        train run 8 1 mpi $np train --model gpt-tiny --stages 4 --schedule fsdp --seq 24
        cmp -s "$work/run.safetensors" "$work/alone.safetensors" ||
            fail "4 workers in $np processes have other gradients than in one"
    done
fi

# all workers the activations of a micro-batch (16bshL)
train peaks 8 12 starpipe train --model gpt-tiny --stages 4 --schedule fsdp --seq 128
stages_of "$work/peaks.jsonl" peak_activation_bytes | tail -n 1 |
    awk -v one=$((4 * 16 * 128 * h * 8)) '{
        for (i = 1; i <= NF; i++) {
            printf "%s%.3f", (i > 1 ? " " : "activations of micro-batches: "), $i / one
            bad += $i != $1 || $i / one < 0.95 || $i / one > 1.05
        }
        print ""
        exit bad || NF != 4
    }' || fail "the workers do not keep a micro-batch each"
[ "$(stages_of "$work/peaks.jsonl" live_activation_bytes | sort -u)" = "0 0 0 0" ] ||
    fail "activations alive after a step"

flat "one process" fsdp starpipe
if have_mpi; then
    flat "four processes" fsdp mpi 4
fi

# parameters, gradients and moments are in as many parts as there are workers
starpipe train --dry-run --model gpt-tiny --stages 4 --schedule fsdp --seq 24 --micro-batches 8 |
    awk -v all="$(starpipe train --dry-run --model gpt-tiny --stages 1 --seq 24 --micro-batches 8 |
        awk 'NF == 6 && $1 == "0" { print $4 }')" '
        NF == 6 && $1 ~ /^[0-9]+$/ { bad += $4 > 1.01 * all / 4; n++ }
        END { exit bad || n != 4 }' || fail "a worker has more than a fourth of the parameters"

# a checkpoint of one number of workers goes on with another one
train whole 8 4 starpipe train --model llama-tiny --stages 1 --seq 24
quiet "save" starpipe train --model llama-tiny --stages 3 --schedule fsdp --seq 24 --data "$work/text" \
    --micro-batches 9 --steps 2 --eps 1e-3 --lr 5e-4 --save "$work/saved"
for more in "4 fsdp 8" "2 1f1b 8" "3 fsdp 9"; do
    set -- $more
    quiet "resume on $*" starpipe train --stages "$1" --schedule "$2" --seq 24 --data "$work/text" \
        --micro-batches "$3" --steps 5 --eps 1e-3 --lr 5e-4 --resume "$work/saved" --log "$work/resumed.$1.$2.jsonl"
done
[ "$(steps_of "$work/resumed.4.fsdp.jsonl" loss | head -n 1)" ] &&
    agree "resumed on 4 workers beside 2 stages of 1f1b" near \
        "$work/resumed.4.fsdp.jsonl" "$work/resumed.2.1f1b.jsonl" 1e-5
train straight 9 5 starpipe train --model llama-tiny --stages 3 --schedule fsdp --seq 24
[ "$(steps_of "$work/straight.jsonl" loss | tail -n 3)" = "$(steps_of "$work/resumed.3.fsdp.jsonl" loss)" ] ||
    fail "a resumed run has other losses than one that was not interrupted"

refuse "use --micro-batches 8" --schedule fsdp --micro-batches 10
refuse "use --slices 1" --schedule fsdp --micro-batches 8 --slices 2
refuse "use --chunks 8" --schedule fsdp --micro-batches 8 --chunks 9
refuse "use even" --schedule fsdp --micro-batches 8 --partition balanced
refuse "not available for fsdp" --schedule fsdp --micro-batches 8 --post-validation
refuse "use order=depth or order=breadth" --micro-batches 8 --schedule fsdp:order=wide
refuse "has no option 'unit'" --micro-batches 8 --schedule fsdp:unit=2
finish
