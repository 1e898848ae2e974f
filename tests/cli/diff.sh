#!/bin/bash
# diff: what is the same, what differs and where, for files, shards, checkpoints and logs; refusals.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 20011 > "$work/text"
cd "$work" || exit 1
runs=0

# run NAME OPTIONS...: a run whose gradients, log and checkpoint have that name.
run()
{
    local name=$1

    shift
    quiet "$name" starpipe train --model llama-tiny --data text --seq 24 --micro-batches 4 --steps 3 \
        --eps 1e-3 --dump-grads "$name.safetensors" --log "$name.jsonl" --save "$name" "$@"
}

# differs STATUS PATTERN ARGUMENTS...: exit status, a line of stdout that matches, nothing on stderr.
differs()
{
    local want=$1 pattern=$2 status

    shift 2
    starpipe diff "$@" > stdout 2> stderr
    status=$?
    runs=$((runs + 1))
    if [ $status -ne "$want" ] || [ -s stderr ] || ! grep -Eq -- "$pattern" stdout; then
        fail "diff $*: status $status, wanted $want and '$pattern': $(head -n 4 stdout stderr)"
    fi
}

run one --stages 1
run again --stages 1
run four --stages 4 --schedule zbv
run other --stages 1 --seed 7
run shards --stages 1 --shard-size 500KB
[ -e shards/model.safetensors.index.json ] || fail "--shard-size made no shards"

# ---- the same

differs 0 '^[0-9]+ tensors, all of the same bits$' one.safetensors again.safetensors
differs 0 '^optimizer-v.safetensors:$' one again
[ "$(grep -c 'all of the same bits' stdout)" -eq 3 ] || fail "a checkpoint is not three files"
differs 0 '^[0-9]+ tensors, all of the same bits$' one shards
differs 0 'same bits' one/model.safetensors shards/model.safetensors.index.json
differs 0 'same bits' one/model.safetensors shards/model.safetensors
differs 0 'same bits' one/step-000003 again
differs 0 '^0 of 3 steps beyond 0; ' one.jsonl again.jsonl

# ---- within a tolerance

differs 0 '^0 of [0-9]+ tensors beyond 1e-05; worst ' four.safetensors one.safetensors --tolerance 1e-5
differs 0 '^0 of 3 steps beyond 1e-05; ' four.jsonl one.jsonl --tolerance=1e-5
differs 1 '^first that differs: model\.embed_tokens\.weight, most at \[[0-9]+, [0-9]+\]: ' other one
differs 1 '^last that differs: lm_head\.weight, most at ' other.safetensors one.safetensors
differs 1 '^[0-9]+ of [0-9]+ tensors beyond 0.1; ' --tolerance 0.1 other one --worst 2
[ "$(grep -c '^model\.layers.*\]' stdout)" -le 6 ] || fail "--worst 2 printed more than two of three files"
differs 1 '^first that differs: step 1, loss ' other.jsonl one.jsonl --tolerance 1e-3

# ---- one bit, the tensor and the step that have it

cp one.safetensors flipped.safetensors
size=$(wc -c < flipped.safetensors)
printf '\x7f' | dd of=flipped.safetensors bs=1 seek=$((size - 2)) conv=notrunc 2> /dev/null
differs 1 '^1 of [0-9]+ tensors differ$' one.safetensors flipped.safetensors
differs 1 '^first that differs: lm_head\.weight, most at \[255, 63\]: ' one.safetensors flipped.safetensors
grep -Eq '^lm_head\.weight +\[256, 64\] +1 ' stdout || fail "not one element of lm_head: $(cat stdout)"
printf '\xff\xff\xff\xff' | dd of=flipped.safetensors bs=1 seek=$((size - 4)) conv=notrunc 2> /dev/null
differs 1 'relative difference inf$' one.safetensors flipped.safetensors --tolerance 1e9
sed '/"step":2,/s/"loss":/"loss":1/' one.jsonl > changed.jsonl
differs 1 '^first that differs: step 2, loss ' one.jsonl changed.jsonl
differs 1 '^1 of 3 steps beyond 0.5; ' one.jsonl changed.jsonl --tolerance 0.5

# ---- a log of a version that counted steps from 0, and one that a newer version went on with

cat > old.jsonl << 'EOF'
{"plan":"1f1b","schedule":"1f1b","stages":2}
{"step":0,"loss":5.5,"grad_norm":7.25}
{"step":1,"loss":4.5,"grad_norm":6.5}
{"step":2,"loss":4.25,"grad_norm":6.25}
{"eval_step":2,"eval_loss":4.5,"eval_tokens":10,"eval_ms":1.5}
EOF
cat > new.jsonl << 'EOF'
{"plan":"1f1b","first_step":1,"schedule":"1f1b","stages":2}
{"step":1,"loss":5.5,"grad_norm":7.25}
{"step":2,"loss":4.5,"grad_norm":6.5}
{"step":3,"loss":4.0,"grad_norm":6.25}
EOF
differs 1 '^first that differs: step 3, loss 4.25 and 4, ' old.jsonl new.jsonl
differs 0 '^0 of 3 steps beyond 0.1; ' old.jsonl new.jsonl --tolerance 0.1
{ head -n 3 old.jsonl && head -n 1 new.jsonl && tail -n 1 new.jsonl; } > both.jsonl
differs 0 '^0 of 3 steps beyond 0; ' both.jsonl new.jsonl

# ---- as JSON: the same of all kinds, and the same exit status

# json STATUS CHECK ARGUMENTS...: what a check in Python says of the object d and its first part p.
json()
{
    local want=$1 check=$2 status

    shift 2
    starpipe diff --json "$@" > stdout 2> stderr
    status=$?
    runs=$((runs + 1))
    starpipe diff --format json --output written "$@" > printed 2>> stderr
    [ $? -eq $status ] && cmp -s stdout written && [ ! -s printed ] || fail "diff $* --output"
    [ $status -eq "$want" ] && [ ! -s stderr ] || fail "diff --json $*: status $status: $(head -n 2 stderr)"
    python3 -c 'import json, sys
d = json.load(open("stdout"))
p = d["parts"][0]
assert d["same"] == (sys.argv[1] == "0") and eval(sys.argv[2]), d' "$want" "$check" || fail "diff --json $*"
}
if command -v python3 > /dev/null; then
    json 0 'p["compared"] > 10 and p["beyond"] == 0 and p["first"] is None and p["worst"] == []' \
        one.safetensors again.safetensors
    json 0 'len(d["parts"]) == 3' one again
    json 1 'p["beyond"] == p["compared"] and p["last"] == "lm_head.weight" and len(p["worst"]) == 2 and d["tolerance"] == 0' \
        other.safetensors one.safetensors --worst 2
    json 1 'p["first"] == "lm_head.weight" and p["worst"][0]["relative"] is None' one.safetensors flipped.safetensors
    json 0 'p["compared"] == 3 and p["first"] is None' one.jsonl again.jsonl
    json 1 'p["beyond"] == 1 and p["first"] is not None and p["worst_loss"] > 0' one.jsonl changed.jsonl
    sed '/"step":2,/s/"grad_norm":[^,]*/"grad_norm":0/' one.jsonl > zero.jsonl
    json 1 'p["beyond"] == 1 and p["first"] == 2 and p["worst_loss"] == 0 and p["worst_grad_norm"] is None' one.jsonl zero.jsonl
    head -n 3 one.jsonl > part.jsonl
    json 1 'p["only_in_b"] == 1 and p["only_in_a"] == 0' part.jsonl one.jsonl
fi

# ---- only in one

head -n 3 one.jsonl > part.jsonl
differs 1 '^1 of the steps 1 to 3 of one.jsonl are not in part.jsonl$' part.jsonl one.jsonl
differs 0 '^0 of 2 steps beyond 0; ' --part part.jsonl one.jsonl
differs 1 'are not in part.jsonl' --part one.jsonl part.jsonl
quiet "gpt" starpipe train --model gpt-tiny --data text --steps 1 --dump-grads gpt.safetensors
differs 1 '^only in gpt.safetensors: transformer.wte.weight$' gpt.safetensors one.safetensors
mkdir weights && cp one/step-000003/model.safetensors weights
differs 1 '^only in one/step-000003: optimizer-m.safetensors$' weights one
differs 0 'same bits' --part weights one

# ---- refused

refused 'diff: A is missing' diff
refused 'diff: B is missing' diff one
refused "diff: 'more' is not an option" diff one again more
refused 'worst is for tensors' diff --worst 3 one.jsonl again.jsonl
cp one.jsonl kept.jsonl
refused 'diff: --output kept.jsonl is also A' diff kept.jsonl one.jsonl --output kept.jsonl
cmp -s one.jsonl kept.jsonl || fail "diff wrote over what it reads"
refused 'diff: nothing: no such file' diff one nothing
refused 'diff: one is a directory and one.jsonl is a log: give two of one kind' diff one one.jsonl
refused 'diff: .* holds no weights' diff one "$SP_TESTDATA"
refused 'text: a header of' diff text text
printf '{"step":0,"loss":1,"grad_norm":1}\n{"step":2,"loss":1,"grad_norm":1}\n' > gap.jsonl
refused 'diff: gap.jsonl, line 2: step 3 follows step 1' diff gap.jsonl gap.jsonl
printf '{"step":0,"loss":null,"grad_norm":1}\n' > null.jsonl
refused 'diff: null.jsonl, line 1: a step needs numbers' diff null.jsonl null.jsonl
head -n 1 one.jsonl > plan.jsonl
refused 'diff: plan.jsonl holds no step' diff plan.jsonl one.jsonl
head -c 1000 one.safetensors > short.safetensors
refused 'short.safetensors' diff one.safetensors short.safetensors
echo "$runs comparisons as expected"
finish
