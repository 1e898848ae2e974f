#!/bin/bash
# Slices that several stages compute together, the stages in one process and in several: losses and first
# gradients of one stage within 1e-5, both model styles, uneven parts; with activations on disk the same
# bits as without; buffers as planned, which do not grow.
#
# gpt-tiny ties its tables: the gradient of one table is the sum of two replicas, to each of which every
# stage adds.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 20011 > "$work/text"
mkdir "$work/disk"
common="--data $work/text --eps 1e-3 --offload-dir $work/disk"

# train OUT COMMAND...
train()
{
    local out=$work/$1

    shift
    quiet "$*" "$@" $common --log "$out.jsonl" --dump-grads "$out.safetensors"
}

# check WHAT OUT REFERENCE
check()
{
    agree "$1" near --part "$work/$2.jsonl" "$work/$3.jsonl" 1e-5
    agree "$1, gradients" near "$work/$2.safetensors" "$work/$3.safetensors" 1e-5
}

# against_one STAGES SLICES OPTIONS...: in one process and in 2 .. STAGES, against one stage.
against_one()
{
    local stages=$1 slices=$2 n what="$1 stages, $2 slices, $4"
    local ours="train --schedule sppo:multiplex --stages $1 --slices $2"

    [ $4 = llama-tiny ] && [ $2 -eq 8 ] && ours="$ours --partition-slices 3,3,3,3,1,3,3,12"
    shift 2
    train one starpipe train --schedule 1f1b --stages 1 "$@" || return
    for ((n = 1; n <= stages; n++)); do
        if [ $n -eq 1 ]; then
            train here starpipe $ours "$@" && check "$what" here one && buffers "$what" starpipe $ours "$@"
        elif [ -n "$mpi" ]; then
            train here mpi $n $ours "$@" && check "$what, $n processes" here one
            [ $n -lt $stages ] || buffers "$what, $n processes" mpi $n $ours "$@"
            train away mpi $n $ours "$@" --offload full &&
                same_bits "$what, $n processes, offloaded" away here
        fi
    done
}

# buffers WHAT COMMAND...: those of $work/here.jsonl do not grow from the fourth step on (pools keep three
# of a size, and may be asked for one a step), and on every stage they are 0.6 to 1 of what --dry-run plans
# for activations and workspace.
buffers()
{
    local what=$1 sizes

    shift
    sizes=$(stages_of "$work/here.jsonl" buffer_bytes | tail -n +4 | sort -u)
    [ "$(echo "$sizes" | wc -l)" -eq 1 ] || fail "$what: the buffers grow"
    [ "$(stages_of "$work/here.jsonl" live_activation_bytes | tail -n 1 | tr -d ' 0')" = "" ] ||
        fail "$what: activations alive after the last step"
    "$@" $common --dry-run | awk -v measured="$sizes" 'BEGIN { n = split(measured, got, " ") }
        NF == 6 && $1 ~ /^[0-9]+$/ {
            share = got[++k] / (($5 + $6) * 1048576)
            printf "%.2f ", share
            bad += share < 0.6 || share > 1
        }
        END { print "of the planned buffers"; exit bad || k == 0 || k != n }' ||
        fail "$what: buffers of $sizes bytes are not what was planned"
}

same_bits()
{
    cmp "$work/$2.safetensors" "$work/$3.safetensors" || fail "$1: other gradients"
    [ "$(steps_of "$work/$2.jsonl" loss)" = "$(steps_of "$work/$3.jsonl" loss)" ] ||
        fail "$1: other losses"
}

mpi=
have_mpi && mpi=yes
against_one 2 2 --model gpt-tiny --seq 48 --micro-batches 1 --steps 6
against_one 3 5 --model llama-tiny --seq 60 --micro-batches 2 --steps 6
against_one 4 8 --model gpt-tiny --seq 101 --micro-batches 1 --steps 6
# a slice of one token, that nobody shares; recomputed, keys and values stay
against_one 3 8 --model llama-tiny --seq 31 --micro-batches 1 --steps 6 --recompute every=2
finish
