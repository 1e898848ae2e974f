#!/bin/bash
# Messages take their latency and their bytes over what the links leave them.
. "$(dirname "$0")/sim.sh" || exit 1
need_sim

# ---- a delay is the list simulation's comm

for name in naive gpipe 1f1b interleaved bfs zb1p zbv v-half v-min dualpipe chimera hanayo; do
    options="--schedule $name --stages 4 --micro-batches 8 --layers 16 --cost comm=0.25"
    same "$name, comm" "$(simulated $options)" "$(listed $options)"
done
for name in seq1f1b terapipe sppo; do
    options="--schedule $name --slices 4 --stages 4 --micro-batches 8 --cost comm=0.25"
    same "$name, comm of slices" "$(simulated $options)" "$(listed $options)"
done
options="--schedule helix --stages 4 --micro-batches 8 --layers 16 --cost comm=0.25"
same "helix, comm" "$(simulated $options)" "$(listed $options)"
options="--schedule 1f1b --stages 4 --micro-batches 8"
same "latency" "$(simulated $options --link latency=0.25)" "$(listed $options --cost comm=0.25)"

# ---- one message at a time on each side of a device, and the links of a machine

for name in naive gpipe 1f1b interleaved bfs zb1p zbv v-half chimera; do
    options="--schedule $name --stages 4 --micro-batches 8 --layers 16 --cost comm=0.1,wire=0.3"
    same "$name, wire" "$(simulated $options)" "$(listed $options)"
done
for name in 1f1b interleaved zb1p zbv dualpipe hanayo fsdp; do
    options="--schedule $name --model gpt3-7b --seq 65536 --dtype bf16 --stages 8 --micro-batches 16"
    same "$name, h100-ib" "$(simulated $options)" "$(listed $options)"
done
options="--schedule 1f1b --model gpt3-7b --seq 16384 --dtype bf16 --stages 16 --micro-batches 32"
options="$options --hardware a800-nvlink-eth"
same "1f1b, two nodes" "$(simulated $options)" "$(listed $options)"

# ---- of each message: when it was ready, when it arrived

command -v python3 > /dev/null || finish
cat > "$work/messages.py" << 'END'
import json, sys
kind, latency, bandwidth = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
messages = [m for m in json.load(sys.stdin)["messages"]]
alone = lambda m: latency + m[2] / bandwidth
assert len(messages) > 100, len(messages)
least = min((m[4] - m[3]) / alone(m) for m in messages)
assert least > 0.9999, f"a message took {least} of what it takes alone"
late = sum((m[4] - m[3]) / alone(m) > 1.001 for m in messages)
if kind == "free":
    assert late == 0, f"{late} messages waited"
else:
    assert late > 0, "no message waited for another"
if kind == "queued":
    for side in (0, 1):
        end = {}
        for m in sorted(messages, key=lambda m: m[4]):
            start = m[4] - alone(m)
            assert start >= end.get(m[side], -1) - 1e-6, f"two at once: {m}"
            end[m[side]] = m[4] - latency
print(f"{kind}: {len(messages)} messages, {late} waited")
END

# Shards of all workers travel at once.
for kind in free fair queued; do
    sim simulate --json --schedule fsdp --stages 4 --micro-batches 8 --layers 8 \
        --link latency=0.01,bandwidth=1e6,sharing=$kind > "$work/json" || fail "fsdp, $kind"
    python3 "$work/messages.py" $kind 0.01 1e6 < "$work/json" || fail "links that are $kind"
done

# ---- nodes

within()
{
    simulated --schedule 1f1b --stages 4 --micro-batches 8 --link "$1"
}
near=$(within devices=2,node_latency=0,latency=1)
far=$(within latency=1)
none=$(within latency=0)
echo "nodes of two: $near, of one: $far, one node: $none"
holds "$none < $near && $near < $far" || fail "nodes: $none, $near, $far"
half=$(within bandwidth=1e5,sharing=fair,duplex=half)
full=$(within bandwidth=1e5,sharing=fair)
holds "$half > $full" || fail "half duplex takes $half, full $full"

[ -s "$work/errors" ] && fail "on stderr: $(head -n 3 "$work/errors")"
finish
