#!/bin/bash
# plan: layouts that fit before those that do not and the fastest first, what is given kept, its refusals;
# --slices auto; SPPO's table 3 as show prints it.
. "$(dirname "$0")/../common.sh" || exit 1

# rows: SP PP N and the rest of each layout in $work/stdout.
rows()
{
    awk '$1 ~ /^[0-9]+$/ && NF >= 8' "$work/stdout"
}

# ---- layouts

long="plan --model gpt3-7b --seq 131072 --nodes 1 --per-node 8"
said "plan" '^recommended: --schedule sppo --stages [0-9]+ --slices [0-9]+, ' $long
rows | awk '{ n++; if ($1 * $2 != 8 || 131072 / $1 / $3 > 16384 || $4 < 0.998 * last) bad = 1; last = $4 }
    END { exit bad || n != 8 }' || fail "plan: $(rows)"
said "plan --top" '^recommended' $long --top 3
[ "$(rows | wc -l)" -eq 3 ] || fail "plan --top 3: $(rows | wc -l) layouts"
said "plan --stages --slices" 'recommended: --schedule sppo --stages 4 --slices 12, 2 devices a stage' \
    $long --stages 4 --slices 12
[ "$(rows | wc -l)" -eq 1 ] || fail "plan, one layout: $(rows)"
said "plan, a limit" 'recommended' $long --memory-limit 80GiB --offload adaptive --top 64
rows | awk '{ fits = !/does not fit/; if (fits != ($8 <= 80.001) || (fits && hidden)) exit 1; hidden = !fits }' ||
    fail "plan, a limit: $(rows)"
said "plan, too low a limit" '^nothing fits' $long --memory-limit 1GiB
said "plan, in f32" 'in f32' $long --stages 4 --slices 12
f32=$(rows | awk '{ print $8 }')
said "plan --dtype" 'in bf16' $long --stages 4 --slices 12 --dtype bf16
rows | awk -v f32="$f32" '{ n++; r = $8 / f32 } END { exit !(n == 1 && r > 0.5 && r < 0.6) }' ||
    fail "long sequences take $f32 GiB in f32, in bf16: $(rows)"
refused "none of f32|bf16" plan --model gpt-tiny --seq 64 --dtype f16
said "plan --json" '"fits"' $long --json
python3 - "$work/stdout" << 'END' || fail "plan --json"
import json, sys
plan = json.load(open(sys.argv[1]))
assert plan["seq"] == 131072 and plan["dtype"] == "f32" and len(plan["layouts"]) == 8
for l in plan["layouts"]:
    assert set(l) == {"sp", "pp", "n", "step_s", "bubble_ratio", "stall_s", "memory_bytes", "fits"}
    assert l["sp"] * l["pp"] == 8 and l["step_s"] > 0 and 0 <= l["bubble_ratio"] < 1
END

refused "which model" plan
refused "has 512 positions" plan --model gpt-tiny
refused "does not cut sequences" plan --model gpt-tiny --seq 256 --schedule 1f1b
refused "do not make 3 stages" plan --model gpt-tiny --seq 256 --stages 3
refused "are more than the 8 layers" plan --model gpt-tiny --seq 256 --nodes 9 --per-node 1
refused "at most 64" plan --model gpt-tiny --seq 64 --slices 65
refused "want none, full or adaptive" plan --model gpt-tiny --seq 64 --offload some
refused "tflops" plan --model gpt-tiny --seq 64 --tflops 0
refused "per-node" plan --model gpt-tiny --seq 64 --per-node -1

# ---- multiplexed slices: what cannot be shared out is left out, or refused with the reason

said "multiplex" 'recommended: --schedule sppo:multiplex --stages 4 --slices 4' plan --schedule sppo:multiplex \
    --model gpt3-7b --seq 131072 --per-node 8 --slices 4
said "multiplex, short" '^recommended' plan --schedule sppo:multiplex --model gpt-tiny --seq 64 --per-node 8
said "multiplex, many slices" '^recommended' plan --schedule sppo:multiplex --model gpt3-7b --seq 131072 \
    --per-node 8 --slices 240
rows | awk '$2 > 4 { exit 1 }' || fail "240 slices on more than 4 stages: $(rows)"
refused "can be shared out to these stages" plan --schedule sppo:multiplex --model gpt3-7b --seq 131072 \
    --per-node 20 --stages 20
refused "makes 65537 parts" show --schedule sppo:multiplex --stages 2 --slices 65536 --micro-batches 1
refused "ops, at most" show --schedule sppo:multiplex --stages 30 --slices 29 --micro-batches 6000
refused "at most 2147483647 tokens" plan --model gpt3-7b --seq 131072 --micro-batch-size 16385

# ---- --slices auto

make_text 5003 > "$work/text"
said "--slices auto" 'slices of [0-9]+( [0-9]+)+ tokens' train --model gpt-tiny --data "$work/text" --schedule sppo \
    --stages 2 --seq 256 --micro-batches 1 --slices auto --dry-run
said "show --slices auto" '^peak' show --model gpt3-1.3b --schedule sppo --stages 4 --seq 131072 --slices auto
refused "does not cut sequences" train --model gpt-tiny --data "$work/text" --schedule 1f1b --slices auto
refused "or auto" train --model gpt-tiny --data "$work/text" --schedule sppo --slices many

# ---- table 3

said "table 3" '^without multiplex: makespan 4.125, bubble 27.27 %; with it 3.125, 4.00 %: 24.2 % less$' \
    show --schedule sppo:multiplex --stages 4 --slices 8 --micro-batches 1
sed -n '/^slices of/,/^right by/p' "$work/stdout" | sed 's/ *$//' > "$work/table"
diff - "$work/table" << 'END' || fail "another table 3"
slices of    stage 0             stage 1             stage 2             stage 3
left         {0,1,2}             {0,1}               {0}                 -
steady       {3,4,5,6,7}         {2,3,4,5,6}         {1,2,3,4,5}         {0,1,2,3,4}
right        -                   {7}                 {6,7}               {5,6,7}
left  by     {0,1,2,3}           {1,2,3}             {2,3}               -
right by     -                   {0,1}               {0,1,2}             {0,1,2,3}
END
starpipe show --schedule sppo:multiplex --stages 4 --slices 8 --micro-batches 1 --format json |
    python3 -c 'import json, sys
t = json.load(sys.stdin)["multiplex"]
assert [len(s["left"]) for s in t] == [3, 2, 1, 0] and [len(s["right"]) for s in t] == [0, 1, 2, 3]
assert t[0]["left_stages"] == [0, 1, 2, 3] and t[3]["right_stages"] == [0, 1, 2, 3]' || fail "table 3 in JSON"
refused "at least 3 slices on 4 stages" show --schedule sppo:multiplex --stages 4 --slices 2
refused "at most 30" show --schedule sppo:multiplex --stages 31 --slices 64
refused "at most 16 stages" train --model gpt3-1.3b --data "$work/text" --schedule sppo:multiplex \
    --stages 20 --slices 20 --seq 1024 --micro-batches 1
refused "can be shared out" train --model gpt-tiny --data "$work/text" --schedule sppo:multiplex \
    --stages 4 --slices auto --seq 14
refused "parts with multiplex" train --model gpt3-1.3b --data "$work/text" --schedule sppo:multiplex \
    --stages 8 --slices 240 --seq 4096 --micro-batches 1
finish
