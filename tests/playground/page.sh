#!/bin/bash
# The page of the playground without a browser: linked for this machine with nothing but what is compiled to WebAssembly
# too, it prints what the command prints, and refuses what that refuses.
. "$(dirname "$0")/../common.sh" || exit 1

page=$builddir/tests/playground/page
cd "$work" || exit 1

# ---- what it is linked from

# Objects of kernels have a name of their own. The page has those that know nothing of a processor.
kernels=$(grep -o 'libsp_kernels_la-[a-z0-9_]*\.o' "$page.map" | sort -u)
[ "$kernels" = libsp_kernels_la-flops.o ] ||
    fail "the page calls kernels, which are not compiled to WebAssembly: $kernels"
# What hashes files wants a library that is not compiled to WebAssembly.
! grep -q 'libsp_tokenizer\.a(' "$page.map" || fail "the page calls tokenizers, whose libraries are not compiled either"
for file in $(cd "$here/../.." && grep -rl 'xxhash.h' src --include='*.c' | grep -v '^src/model/tokenizer/'); do
    ! grep -q "libsp_pure.a($(basename "$file" .c).o)" "$page.map" || fail "the page calls $file, which hashes files"
done

# ---- what it prints

# same WORDS...
same()
{
    local status

    starpipe "$@" > command.out 2> command.err
    status=$?
    "$page" "$@" > page.out 2> page.err
    [ $? -eq $status ] || fail "$*: exit status is not $status: $(cat page.err)"
    cmp -s command.out page.out || fail "$*: the page prints something else"
    cmp -s command.err page.err || fail "$*: the page says $(cat page.err), not $(cat command.err)"
}

same list
for name in $(starpipe list | cut -d ' ' -f 1); do
    same show --schedule "$name" --stages 4 --micro-batches 8 --layers 16 --format json
done
same show --schedule 1f1b --stages 4 --micro-batches 8 --model gpt3-7b --seq 16384 --hardware h200 --format svg
same show --schedule 1f1b --stages 4 --micro-batches 8 --model gpt3-7b --data-parallel 2 --format text
same show --schedule 1fb1 --stages 4 --micro-batches 8
same show --schedule zbv --stages 0
# Plans, and what is shown of their layouts, whose words are those of their commands.
while read -r -a words; do
    same plan "${words[@]}" --format json
done < "$here/questions"
mkdir my-model
echo '{"model_type": "llama", "num_hidden_layers": 8, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 172, "vocab_size": 256, "max_position_embeddings": 64, "rms_norm_eps": 1e-5}' > my-model/config.json
same plan --model my-model --seq 64 --micro-batches 8 --format picture
same plan --model my-model --seq 64 --micro-batches 8 --nodes 3
same plan --model gpt3-7b --seq 0
same plan --model gpt3-7b --seq 4096 --micro-batches 64 --memory-limit 1GiB --top 3
rm -f progress
"$page" plan --model gpt3-7b --seq 4096 --micro-batches 64 --format json > page.out || fail "plan: exit status $?"
python3 - << 'END' || fail "what plan tells while it searches: $(cut -c 1-300 progress)"
import json
tried, answer = open("progress").read().split(" ", 1)
answer, last = json.loads(answer), json.load(open("page.out"))
assert int(tried) > 20 and answer["complete"] is False and last["complete"] is True, tried
rows, found = answer["shown"]["rows"], last["layouts"]
assert len(rows) > 4 and "<svg" in answer["chart"] and rows[0]["lines"].startswith("mpirun -np 8 starpipe train"), rows[0]
assert rows[0]["layout"]["step_ms"] < 1.2 * found[0]["step_ms"] and rows[0]["layout"].keys() == found[0].keys()
END
"$page" choices > page.out || fail "choices: exit status $?"
grep -q '"gpt-tiny"' page.out && grep -q '"h200"' page.out || fail "choices: $(cat page.out)"
"$page" train 2> page.err && fail "the page trains"
grep -q "no command 'train'" page.err || fail "train: $(cat page.err)"
finish
