#!/bin/bash
# --partition by measured times: the losses and first gradients of one stage; the balanced one is said,
# deals out all layers and leaves fewer to a stage with a heavy head; what cannot be is refused. Layers
# dealt out by hand are in tests/parity/schedules.sh.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 20011 > "$work/text"
mkdir "$work/heavy"
cat > "$work/heavy/config.json" << 'END'
{"model_type": "llama", "num_hidden_layers": 8, "hidden_size": 32, "num_attention_heads": 4,
 "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 8192,
 "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
 "tie_word_embeddings": true, "hidden_act": "silu"}
END

# train OUT COMMAND...: writes $work/OUT.jsonl, OUT.safetensors and the output.
train()
{
    local out=$work/$1

    shift
    quiet "$*" "$@" --data "$work/text" --model "$work/heavy" --seq 32 --micro-batches 6 --steps 3 \
        --eps 1e-3 --log "$out.jsonl" --dump-grads "$out.safetensors"
    cp "$work/output" "$out.said"
}

check()
{
    agree "$1" near --part "$work/$2.jsonl" "$work/one.jsonl" 1e-5
    agree "$1, gradients" near "$work/$2.safetensors" "$work/one.safetensors" 1e-5
}

# said_counts OUT STAGES: the partition that was said is one, of 8 layers, and the last stage, whose
# head is worth several layers, has one layer.
said_counts()
{
    local line

    line=$(sed -n 's/^partition \([0-9,]*\) .*/\1/p' "$work/$1.said")
    echo "$1: $(grep '^partition' "$work/$1.said")"
    echo "$line" | awk -F, -v stages="$2" '{
        for (i = 1; i <= NF; i++)
            sum += $i
        exit !(NF == stages && sum == 8 && $NF == 1 && $1 >= 1)
    }' || fail "$1: partition '$line' of 8 layers over $2 stages"
}

train one starpipe train --stages 1
train balanced starpipe train --stages 4 --partition balanced --scheduler ready
check "balanced" balanced
said_counts balanced 4
if have_mpi; then
    train mpi mpi 3 train --stages 3 --partition balanced
    check "balanced, 3 processes" mpi
    said_counts mpi 3
fi

# adapipe under a limit: layers that recompute differently on stages of unequal size.
tiny="--model gpt-tiny --seq 128 --stages 4 --schedule adapipe"
limit=$(starpipe train $tiny --memory-limit 1KiB --dry-run 2>&1 |
    sed -n 's/.*(\([0-9]*\) bytes).*/\1/p')

# tiny OUT COMMAND...
tiny()
{
    local out=$work/$1

    shift
    quiet "$*" "$@" --data "$work/text" --model gpt-tiny --seq 128 --micro-batches 8 --steps 3 \
        --eps 1e-3 --log "$out.jsonl" --dump-grads "$out.safetensors"
    cp "$work/output" "$out.said"
}

# adapts NAME COMMAND...: like one stage, and with layers that recompute, each its way
adapts()
{
    local name=$1 layers

    shift
    rm -f "$work/adapipe.jsonl"
    tiny adapipe "$@" --schedule adapipe --stages 4
    agree "$name" near --part "$work/adapipe.jsonl" "$work/one.jsonl" 1e-5
    agree "$name, gradients" near "$work/adapipe.safetensors" \
        "$work/one.safetensors" 1e-5
    layers=$(sed -n 's/^adapipe.*: layers \([-sfa ]*\) (.*/\1/p' "$work/adapipe.said")
    echo "$name: layers $layers"
    [ "$(echo "$layers" | tr -d ' ' | wc -c)" -eq 9 ] || fail "$name: not 8 layers"
    case $layers in *[sfa]*) ;; *) fail "$name: no layer recomputes" ;; esac
}

[ "${limit:-0}" -gt 1000000 ] || fail "adapipe: no least limit is named"
tiny one starpipe train --stages 1
adapts "adapipe, least limit" starpipe train --memory-limit "$limit"
adapts "adapipe, 5 % more" starpipe train --memory-limit $((limit * 105 / 100))
adapts "adapipe, 30 % more" starpipe train --memory-limit $((limit * 130 / 100)) --scheduler ready
if have_mpi; then
    adapts "adapipe, 2 processes" mpi 2 train --memory-limit $((limit * 105 / 100))
fi

# refuse WORDS OPTIONS...
refuse()
{
    local words=$1 status

    shift
    starpipe train --model "$work/heavy" --data "$work/text" --seq 32 --stages 4 "$@" \
        > "$work/output" 2>&1
    status=$?
    [ $status -eq 2 ] || fail "$*: exit status $status, 2 expected"
    [ "$(wc -l < "$work/output")" -eq 1 ] || fail "$*: more than one line"
    grep -q -- "$words" "$work/output" || fail "$*: said $(cat "$work/output")"
}

refuse "want even, balanced" --partition balancd
refuse "3 counts" --partition 3,3,2
refuse "9 layers" --partition 3,3,2,1
refuse "not a number of layers" --partition 8,-1,1,0
refuse "every stage of slimpipe wants a layer, and part 0 has none" --schedule slimpipe --slices 4 --partition 0,4,4,0
refuse "every stage of weipipe wants a layer, and part 3 has none" --schedule weipipe --micro-batches 4 --partition 2,3,3,0
refuse "deals the layers out by itself" --schedule helix --partition 0,4,4,0
refuse "leaves a stage without any" --partition 0,4,4,0 --offload full
refuse "use at most 8 stages" --stages 9
refuse "not a number of layers" --partition 3,,3,2
refuse "deals the layers out itself" --schedule adapipe --partition 2,2,2,2
refuse "chooses what is recomputed" --schedule adapipe --recompute full
refuse "however they are dealt out" $tiny --memory-limit $((limit - 1))
refuse "no partition of 8 layers" --partition balanced --memory-limit 1MiB
finish
