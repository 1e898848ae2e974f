#!/bin/bash
# Activations parked on other stages (--offload-peers): no bit changes, the fullest stage keeps less, buffers and bytes on the
# wire are those of the dry run, with a process a stage and with two.
. "$(dirname "$0")/../common.sh" || exit 1
have_mpi || exit 77

make_text 20011 > "$work/text"

# Options of runs with four stages, after the number of processes.
parked=(
    "4 --schedule 1f1b --model gpt-tiny --micro-batches 8"
    "4 --schedule 1f1b --model llama-tiny --micro-batches 8 --dtype bf16 --recompute selective"
    "2 --schedule 1f1b --model gpt-tiny --micro-batches 6"
    "4 --schedule interleaved --model llama-tiny --micro-batches 8"
)
for i in "${!parked[@]}"; do
    parked[i]+=" --data $work/text --stages 4 --seq 32 --steps 3"
    note "kept-$i" ${parked[i]}
    note "parked-$i" ${parked[i]} --offload-peers
done

# Parked beside evicted, by a limit that takes both.
mkdir "$work/model" "$work/disk"
cat > "$work/model/config.json" << END
{"model_type": "llama", "vocab_size": 256, "hidden_size": 96, "num_hidden_layers": 8,
 "num_attention_heads": 6, "num_key_value_heads": 1, "intermediate_size": 256,
 "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
 "tie_word_embeddings": false}
END
together=(
    "4 --schedule 1f1b --micro-batches 8"
    "4 --schedule 1f1b --micro-batches 8 --recompute selective"
    "4 --schedule 1f1b --micro-batches 8 --dtype bf16"
    "4 --schedule interleaved --micro-batches 8"
    "2 --schedule 1f1b --micro-batches 6"
)
limits=(adaptive:23M adaptive:20M full adaptive:26M adaptive:24M)
for i in "${!together[@]}"; do
    limit=${limits[i]}
    together[i]+=" --data $work/text --model $work/model --seq 512 --stages 4 --steps 2"
    note "alone-$i" ${together[i]}
    together[i]+=" --offload-peers --offload ${limit/:/ --memory-limit }"
    note "together-$i" ${together[i]} --offload-dir "$work/disk"
done
make_runs

# same_bits WHAT A B: losses and gradients of two runs.
same_bits()
{
    [ "$(losses "$work/$2.jsonl")" = "$(losses "$work/$3.jsonl")" ] || fail "$1: other losses"
    cmp "$work/$2.safetensors" "$work/$3.safetensors" || fail "$1: other gradients"
}

# number_of FILE KEY: of all stages, in the last line that has it.
number_of()
{
    grep -o "\"$2\": \{0,1\}[0-9]*" "$1" | tail -n 4 | grep -o '[0-9]*$' | tr '\n' ' '
}

# most_kept RUN: by the fullest stage.
most_kept()
{
    number_of "$work/$1.jsonl" peak_activation_bytes | tr ' ' '\n' | sort -n | tail -n 1
}

for i in "${!parked[@]}"; do
    what="processes: ${parked[i]}"
    same_bits "$what" "kept-$i" "parked-$i"
    mpi ${parked[i]%% *} train ${parked[i]#* } --offload-peers --dry-run --json > "$work/dry.json"
    for key in buffer_bytes bytes_sent; do
        [ "$(number_of "$work/parked-$i.jsonl" $key)" = "$(number_of "$work/dry.json" $key)" ] ||
            fail "$what: $key $(number_of "$work/parked-$i.jsonl" $key), planned $(number_of "$work/dry.json" $key)"
    done
    [ "$(most_kept "parked-$i")" -lt "$(most_kept "kept-$i")" ] ||
        fail "$what: the fullest stage keeps $(most_kept "parked-$i") of $(most_kept "kept-$i") bytes"
done

# Buffers keep to the plan, every tier gets the bytes that were planned.
for i in "${!together[@]}"; do
    what="processes: ${together[i]}"
    same_bits "$what" "alone-$i" "together-$i"
    mpi ${together[i]%% *} train ${together[i]#* } --dry-run --json > "$work/dry.json"
    python3 - "$work/alone-$i.jsonl" "$work/together-$i.jsonl" "$work/dry.json" << 'END' || fail "$what: not as planned"
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
done

few="train --data $work/text --model gpt-tiny --seq 32 --stages 2 --micro-batches 4 --offload-peers"
refused "offload-peers is not available with helix" $few --schedule helix
refused "needs [0-9.]+ MiB .*raise the limit" $few --recompute auto --memory-limit 1M --hardware h100-ib
refused "offload-peers is not available with --slices" $few --schedule sppo --slices 4
refused "offload-peers is not available with --vocabulary-parallel" $few --vocabulary-parallel
refused "offload-peers is not available with orders that are searched again" $few --schedule zb1p:auto
refused "offload-peers is not available with --post-validation" $few --post-validation
finish
