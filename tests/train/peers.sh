#!/bin/bash
# Activations parked on other stages (--offload-peers): no bit changes, the fullest stage keeps less, buffers and bytes on the
# wire are those of the dry run, with a process a stage and with two.
. "$(dirname "$0")/../common.sh" || exit 1
have_mpi || exit 77

make_text 20011 > "$work/text"

# number_of FILE KEY: of all stages, in the last line that has it.
number_of()
{
    grep -o "\"$2\": \{0,1\}[0-9]*" "$1" | tail -n 4 | grep -o '[0-9]*$' | tr '\n' ' '
}

# parked RANKS OPTIONS...: four stages with parked activations and without.
parked()
{
    local ranks=$1 what="$* on $1 processes" same kept away
    shift
    same="train --data $work/text --stages 4 --seq 32 --steps 3 $*"
    quiet "$what" mpi "$ranks" $same --log "$work/kept.jsonl" --dump-grads "$work/kept.safetensors" || return
    quiet "$what, parked" mpi "$ranks" $same --offload-peers --log "$work/parked.jsonl" \
        --dump-grads "$work/parked.safetensors" || return
    [ "$(losses "$work/kept.jsonl")" = "$(losses "$work/parked.jsonl")" ] || fail "$what: other losses"
    cmp "$work/kept.safetensors" "$work/parked.safetensors" || fail "$what: other gradients"
    mpi "$ranks" $same --offload-peers --dry-run --json > "$work/dry.json"
    for key in buffer_bytes bytes_sent; do
        [ "$(number_of "$work/parked.jsonl" $key)" = "$(number_of "$work/dry.json" $key)" ] ||
            fail "$what: $key $(number_of "$work/parked.jsonl" $key), planned $(number_of "$work/dry.json" $key)"
    done
    kept=$(number_of "$work/kept.jsonl" peak_activation_bytes | tr ' ' '\n' | sort -n | tail -n 1)
    away=$(number_of "$work/parked.jsonl" peak_activation_bytes | tr ' ' '\n' | sort -n | tail -n 1)
    [ "$away" -lt "$kept" ] || fail "$what: the fullest stage keeps $away of $kept bytes"
}

parked 4 --schedule 1f1b --model gpt-tiny --micro-batches 8
parked 4 --schedule 1f1b --model llama-tiny --micro-batches 8 --dtype bf16 --recompute selective
parked 2 --schedule 1f1b --model gpt-tiny --micro-batches 6
parked 4 --schedule interleaved --model llama-tiny --micro-batches 8

# Parked beside evicted, by a limit that takes both.
mkdir "$work/model" "$work/disk"
cat > "$work/model/config.json" << END
{"model_type": "llama", "vocab_size": 256, "hidden_size": 96, "num_hidden_layers": 8,
 "num_attention_heads": 6, "num_key_value_heads": 1, "intermediate_size": 256,
 "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
 "tie_word_embeddings": false}
END

# together RANKS OFFLOAD OPTIONS...: no bit changes, buffers keep to the plan, every tier gets the bytes that were planned.
together()
{
    local ranks=$1 what="$* on $1 processes" same offload=$2
    shift 2
    same="train --data $work/text --model $work/model --seq 512 --stages 4 --steps 2 $*"
    quiet "$what, kept" mpi "$ranks" $same --log "$work/kept.jsonl" --dump-grads "$work/kept.safetensors" || return
    quiet "$what" mpi "$ranks" $same --offload $offload --offload-peers --offload-dir "$work/disk" \
        --log "$work/parked.jsonl" --dump-grads "$work/parked.safetensors" || return
    [ "$(losses "$work/kept.jsonl")" = "$(losses "$work/parked.jsonl")" ] || fail "$what: other losses"
    cmp "$work/kept.safetensors" "$work/parked.safetensors" || fail "$what: other gradients"
    mpi "$ranks" $same --offload $offload --offload-peers --dry-run --json > "$work/dry.json"
    python3 - "$work/kept.jsonl" "$work/parked.jsonl" "$work/dry.json" << 'END' || fail "$what: not as planned"
import json, sys
kept, parked = ([json.loads(line) for line in open(name)] for name in sys.argv[1:3])
dry = json.load(open(sys.argv[3]))
offload, before, after = parked[0]["offload"], kept[-1]["stages"], parked[-1]["stages"]
away, planned = offload["parked_bytes"], offload["planned_bytes"]
assert sum(away) > 0 and sum(offload["leaving_bytes"]) > 0, (away, offload["leaving_bytes"])
more = [b["bytes_sent"] - a["bytes_sent"] for a, b in zip(before, after)]
assert sum(more) == 2 * sum(away) and all(m >= a for m, a in zip(more, away)), (more, away)
for s, stage in enumerate(after):
    assert stage["bytes_sent"] == dry["stages"][s]["bytes_sent"] and away[s] == dry["tiers"][s]["parked_bytes"]
    assert stage["bytes_offloaded"] == stage["bytes_brought_back"] == offload["leaving_bytes"][s]
    assert stage["live_activation_bytes"] == 0
processes = parked[0]["processes"]
for r in range(processes): # buffers are those of a process
    first = r * len(after) // processes
    bound = sum(planned[first:(r + 1) * len(after) // processes])
    assert 0.6 * bound <= after[first]["most_buffer_bytes"] <= bound, (r, after[first]["most_buffer_bytes"], bound)
print("planned", planned, "buffers", [x["most_buffer_bytes"] for x in after], "parked", away, "evicted",
      offload["leaving_bytes"])
END
}

together 4 "adaptive --memory-limit 23M" --schedule 1f1b --micro-batches 8
together 4 "adaptive --memory-limit 20M" --schedule 1f1b --micro-batches 8 --recompute selective
together 4 full --schedule 1f1b --micro-batches 8 --dtype bf16
together 4 "adaptive --memory-limit 26M" --schedule interleaved --micro-batches 8
together 2 "adaptive --memory-limit 24M" --schedule 1f1b --micro-batches 6

few="train --data $work/text --model gpt-tiny --seq 32 --stages 2 --micro-batches 4 --offload-peers"
refused "offload-peers is not available with helix" $few --schedule helix
refused "needs [0-9.]+ MiB .*raise the limit" $few --recompute auto --memory-limit 1M --hardware h100-ib
refused "offload-peers is not available with --slices" $few --schedule sppo --slices 4
refused "offload-peers is not available with --vocabulary-parallel" $few --vocabulary-parallel
refused "offload-peers is not available with orders that are searched again" $few --schedule zb1p:auto
refused "offload-peers is not available with --post-validation" $few --post-validation
finish
