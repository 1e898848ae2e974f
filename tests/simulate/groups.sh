#!/bin/bash
# Stages of several devices: each member is a process with a graph of its own, and what members send each other
# are messages.
. "$(dirname "$0")/sim.sh" || exit 1
need_sim

# ---- where messages take no time a member is as busy as its stage would be alone

for name in $(sim list | sed 's/ .*//'); do
    case "$name" in
    weipipe* | wzb1 | tawpipe) continue ;; # only weight gradients wait for what comes around: makespans.sh
    seq1f1b | slimpipe | terapipe | sppo) slices="--slices 2" ;;
    *) slices= ;;
    esac
    options="--schedule $name --stages 4 --micro-batches 8 --layers 16 $slices"
    same "$name, tensors" "$(simulated $options --seq 32 --tensor-parallel 2)" "$(listed $options)"
done
for group in "--tensor-parallel 2 --sequence-parallel off" "--context-parallel 2" \
    "--context-parallel 2 --context-method ring" "--context-parallel 4 --context-method ulysses=2,ring" "--data-parallel 3" "--data-parallel 2 --zero 1" \
    "--data-parallel 2 --zero 3" \
    "--tensor-parallel 2 --context-parallel 2 --data-parallel 2"; do
    for name in 1f1b zbv helix; do
        options="--schedule $name --stages 4 --micro-batches 8 --layers 16"
        same "$name, $group" "$(simulated $options --seq 32 $group)" "$(listed $options)"
    done
done

# ---- bytes, and between whom

# sent COMMAND ARGUMENTS...: bytes of each stage.
sent()
{
    sim "$@" 2>> "$work/errors" | tr -d ' \n' | sed 's/.*"bytes_sent":\[\([^]]*\)\].*/\1/; s/\.0//g'
}

grids="--tensor-parallel 2 --data-parallel 2 --zero 1,--context-parallel 2,--context-parallel 2 --context-method ring"
grids="$grids,--context-parallel 4 --context-method ulysses=2@ring"
for schedule in 1f1b zbv helix weipipe fsdp "seq1f1b --slices 4" helix:ship=attention "sppo:multiplex --slices 4"; do
    case "$schedule" in *:*) chosen="--data-parallel 2 --zero 3" ;; *) chosen=$grids ;; esac
    while read -r -d , group; do
        options="--schedule $schedule --model gpt2-124m --seq 256 --stages 2 --micro-batches 4 ${group//@/,}"
        run=$(sent simulate --json $options)
        told=$(sent show --format json $options)
        echo "$schedule, $group: $run"
        [ "$run" = "$told" ] && holds "${run%%,*} > 0" || fail "$schedule, $group: $run, show says $told"
    done <<< "$chosen,"
done

# Of a grid of 2 x 2 x 2, a message goes to another stage's same member, or to one that differs in one place.
cat > "$work/grid.py" << 'END'
import json, sys
run = json.load(sys.stdin)
assert run["members"] == 8
kinds = set()
for a, b, *_ in run["messages"]:
    if a // 8 != b // 8:
        assert a % 8 == b % 8, f"from {a} to {b}"
        kinds.add("stages")
        continue
    differs = bin(a % 8 ^ b % 8).count("1")
    assert differs == 1 or (a ^ b) & 1 == 0, f"from {a} to {b}"  # gradients: of all with the same parameters
    kinds.add(a ^ b)
assert {"stages", 1, 2, 4} <= kinds, kinds
print(len(run["messages"]), "messages")
END
if command -v python3 > /dev/null; then
    sim simulate --json --schedule 1f1b --stages 2 --micro-batches 2 --seq 32 --tensor-parallel 2 \
        --context-parallel 2 --data-parallel 2 | python3 "$work/grid.py" || fail "who sends to whom"
fi

# ---- on a machine: what show predicts, less what it does not know: that shares arrive while others are computed

large="--schedule 1f1b --model gpt3-7b --seq 16384 --dtype bf16 --stages 4 --micro-batches 8"
large="$large --hardware a800-nvlink-eth"
near()
{
    sim simulate --json $large $3 --link sharing=fair > "$work/json" 2>> "$work/errors"
    ratio=$(awk "BEGIN { print $(figure makespan < "$work/json") / $(figure predicted_makespan < "$work/json") }")
    summed=$(awk "BEGIN { print $(figure summed < "$work/json") / $(figure makespan < "$work/json") }")
    echo "$3: $ratio of what is predicted; with sums $summed"
    holds "$ratio > $1 && $ratio < $2" || fail "$3: $ratio of what is predicted, not in $1 .. $2"
    holds "$summed > 1" || fail "$3: gradients are summed before they are there"
}
near 0.98 1.005 "--tensor-parallel 2 --sequence-parallel off"
near 0.9 1 "--tensor-parallel 4"
near 0.95 1.005 "--context-parallel 2"
near 0.95 1.1 "--context-parallel 4 --context-method ring"
near 0.95 1.1 "--context-parallel 4 --context-method ulysses=2,ring"
near 0.98 1.005 "--data-parallel 4"

# Members that are in different nodes feel it.
one="--schedule 1f1b --model gpt2-124m --seq 256 --stages 2 --micro-batches 4 --tensor-parallel 2"
slow="node_latency=0,node_bandwidth=1e9,bandwidth=1e7"
inside=$(simulated $one --link devices=4,$slow)
apart=$(simulated $one --link devices=2,$slow)
alone=$(simulated $one --link devices=1,$slow)
echo "all in a node: $inside, a stage: $apart, none: $alone"
holds "1.5 * $inside < $apart && 1.5 * $apart < $alone" || fail "nodes: $inside, $apart, $alone"

[ -s "$work/errors" ] && fail "on stderr: $(head -n 3 "$work/errors")"
finish
