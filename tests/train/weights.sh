#!/bin/bash
# The weights of a model directory: read from one file or from shards, refused in another form, and
# said to be random where there are none. Saved in shards they give the same numbers.
. "$(dirname "$0")/../common.sh" || exit 1

golden=$SP_TESTDATA/golden
on="--tokens $golden/tokens.bin --seq 16 --micro-batches 4"
dir=$work/model
announced='^model: .*; initial weights: '

# ---- announced

make_text 5003 > "$work/text"
tiny="train --data $work/text --seq 16 --steps 1"
said "a preset" "${announced}random, seed 0 \(gpt-tiny is a preset\)$" $tiny --model gpt-tiny
said "another seed" "${announced}random, seed 7 \(preset:gpt-tiny is a preset\)$" $tiny \
    --model preset:gpt-tiny --seed 7
said "one file" "$announced$golden/llama/model.safetensors$" train $on --steps 1 \
    --model "$golden/llama"
mkdir "$dir"
cp "$golden/llama/config.json" "$dir"
said "no weights" "${announced}random, seed 0 \($dir has a config.json and no weights\)$" \
    train $on --steps 1 --model "$dir"

# ---- as others write them

# alike WHAT: the model in $dir has the losses of the one it was made of.
alike()
{
    quiet "$1" starpipe train $on --steps 2 --model "$dir" --log "$work/other.jsonl"
    agree "$1" near "$work/whole.jsonl" "$work/other.jsonl" 0
}
cp "$golden/llama/model.safetensors" "$dir"
quiet "the model" starpipe train $on --steps 2 --model "$dir" --log "$work/whole.jsonl"
sed 's/"silu"/"swish"/; s/^{/{"best_metric": NaN, "window": [0.0, -Infinity], "big": 1000000000000000019884624838656,/' \
    "$golden/llama/config.json" > "$dir/config.json"
alike "numbers of Python in config.json"
cp "$golden/llama-tied/config.json" "$golden/llama-tied/model.safetensors" "$dir"
quiet "a tied model" starpipe train $on --steps 2 --model "$dir" --log "$work/whole.jsonl"
python3 - "$dir/model.safetensors" << 'END' || fail "no other form of a file"
import array, json, struct, sys
b = open(sys.argv[1], "rb").read()
n, = struct.unpack("<Q", b[:8])
out, data = {}, b""
for name, t in json.loads(b[8:8 + n]).items():
    if name == "__metadata__":
        continue
    x = array.array("f", b[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]])
    wide = array.array("d", x).tobytes()
    name = "lm_head.weight" if name.endswith("embed_tokens.weight") else name
    out[name] = {"dtype": "F64", "shape": t["shape"], "data_offsets": [len(data), len(data) + len(wide)]}
    data += wide
head = json.dumps(out).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head + data)
END
alike "F64, and a tied table under the head's name"
rm "$dir/model.safetensors"
cp "$golden/llama/config.json" "$dir"

# ---- refused before work

on_dir="train $on --steps 1 --model $dir"
touch "$dir/pytorch_model.bin"
refused "$dir holds no model.safetensors, but pytorch_model.bin, .*safe_serialization" $on_dir
refused "pytorch_model.bin" $on_dir --dry-run
rm "$dir/pytorch_model.bin"
cp "$golden/llama/model.safetensors" "$dir/weights.safetensors"
refused "weights.safetensors, .*must be called model.safetensors" $on_dir
ln -s nowhere "$dir/model.safetensors"
refused "model.safetensors: cannot be opened: No such file" $on_dir
rm "$dir/model.safetensors"
echo '{"weight_map": {"lm_head.weight": "../model.safetensors"}}' \
    > "$dir/model.safetensors.index.json"
refused "index.json: tensor lm_head.weight .*no name of a file here" $on_dir
rm "$dir"/*.json
mkfifo "$dir/config.json"
refused "config.json: not a regular file" $on_dir
refused "shard-size without --save" $tiny --model gpt-tiny --shard-size 1GB
refused "'5 GB' is not a size" $tiny --model gpt-tiny --save "$work/none" --shard-size "5 GB"
mkdir "$work/deep"
sed 's/"n_layer": *[0-9]*/"n_layer": 400/' "$golden/gpt2/config.json" > "$work/deep/config.json"
refused "--shard-size 1 makes 480[0-9] files, at most 4096" train $on --model "$work/deep" \
    --save "$work/none" --shard-size 1
[ ! -e "$work/none" ] || fail "a refused run made its output directory"
mkdir "$work/gpt-tiny"
cp "$golden/gpt2/config.json" "$work/gpt-tiny"
(cd "$work" && refused "say ./gpt-tiny for the directory" $tiny --model gpt-tiny; exit $failures) ||
    fail "a directory named like a preset"

# Two nodes, and only one of them has the weights.
if have_mpi; then
    mkdir -p "$work/node0/m" "$work/node1/m"
    cp "$golden/llama/config.json" "$golden/llama/model.safetensors" "$work/node0/m"
    cp "$golden/llama/config.json" "$work/node1/m"
    one="$STARPIPE train $on --model m --steps 1 --stages 2"
    timeout -k 5 60 $MPIRUN -np 1 -wdir "$work/node0" $one : -np 1 -wdir "$work/node1" $one \
        > "$work/output" 2>&1
    status=$?
    [ $status -eq 2 ] && [ "$(grep -c 'starpipe: ' "$work/output")" -eq 1 ] &&
        grep -q "the number of files with initial weights is 0 here and 1 on rank 0" "$work/output" ||
        fail "weights on one node: status $status, $(grep starpipe: "$work/output" | head -n 2)"
fi

# ---- shards

links()
{
    (cd "$1" && for name in *.json *.safetensors; do
        [ "${name#\*}" = "$name" ] && echo "$name=$(readlink "$name")"
    done | sort | sed 's/step-0*//' | tr '\n' ' ')
}

run="train $on --model $golden/gpt2"
quiet "whole run" starpipe $run --steps 4 --stages 2 --log "$work/whole.jsonl" --save "$work/whole"
quiet "first part" starpipe $run --steps 2 --stages 2 --save "$work/part" --shard-size 6KB
n=$(find "$work/part" -maxdepth 1 -name 'model-*.safetensors' | wc -l)
[ "$n" -gt 2 ] || fail "$n shards of at most 6 KB"
[ -z "$(find "$work/part/" -name 'model-*' -size +13 -o -name model.safetensors)" ] ||
    fail "larger shards, or the whole: $(ls -l "$work/part")"
cp -a "$work/part" "$work/more"
said "shards" "$announced$work/part/model.safetensors.index.json, $n shards$" train $on \
    --model "$work/part" --steps 1 --lr 0 --log "$work/links.jsonl"
quiet "the step itself" starpipe train $on --model "$work/part/step-000002" --steps 1 --lr 0 \
    --log "$work/step.jsonl"
quiet "unsharded" starpipe $run --steps 2 --stages 2 --save "$work/one"
quiet "unsharded, read" starpipe train $on --model "$work/one" --steps 1 --lr 0 \
    --log "$work/one.jsonl"
agree "shards or one file" near "$work/links.jsonl" "$work/one.jsonl" 0
agree "links or step" near "$work/links.jsonl" "$work/step.jsonl" 0

# A model that a run saved is what was saved: its checksums say so, from the run's directory and from the step's.
cp -a "$work/one" "$work/flipped"
weights=$work/flipped/step-000002/model.safetensors
size=$(wc -c < "$weights")
byte=$((255 - $(od -An -tu1 -j$((size - 4)) -N1 "$weights")))
printf "\\$(printf %o $byte)" | dd of="$weights" bs=1 seek=$((size - 4)) conv=notrunc 2> /dev/null
for dir in "$work/flipped" "$work/flipped/step-000002"; do
    refused "model.safetensors: damaged: tensor .* has checksum .*remove checksums.json" train $on --model "$dir" --steps 1
done
mkdir "$work/taken" # without the optimizer's state
cp "$work/one/step-000002/"{config.json,model.safetensors,checksums.json} "$work/taken"
quiet "a copy of the model" starpipe train $on --model "$work/taken" --steps 0
sed -i 's/{/{ /' "$work/taken/config.json"
refused "taken/config.json: damaged: it has .* bytes" train $on --model "$work/taken" --steps 1
rm "$work/taken/checksums.json" "$work/flipped/step-000002/checksums.json"
quiet "changed on purpose" starpipe train $on --model "$work/taken" --steps 0
quiet "weights changed on purpose" starpipe train $on --model "$work/flipped" --steps 0

# Resumed, with other shards, fewer, and then one file: links of the earlier form go.
quiet "resumed" starpipe train $on --resume "$work/more" --steps 3 --stages 2 --save "$work/more" \
    --shard-size 20KB
grep -q "$announced" "$work/output" && fail "a resumed run speaks of initial weights"
k=$(find "$work/more" -maxdepth 1 -name 'model-*.safetensors' | wc -l)
[ "$k" -gt 1 ] && [ "$k" -lt "$n" ] || fail "$k shards of 20 KB after $n of 6"
said "other shards" "$announced.*index.json, $k shards$" train $on --model "$work/more" --steps 0
quiet "resumed again" starpipe train $on --resume "$work/more" --steps 4 --stages 2 \
    --save "$work/more" --log "$work/last.jsonl"
agree "resumed from shards" near --part "$work/last.jsonl" "$work/whole.jsonl" 0
cmp "$work/more/model.safetensors" "$work/whole/model.safetensors" ||
    fail "resumed from shards: other weights"
[ "$(links "$work/more")" = "config.json=4/config.json fp8.json=4/fp8.json golden.json=4/golden.json model.safetensors=4/model.safetensors " ] ||
    fail "other links are left: $(links "$work/more")"

# Links that cannot all be replaced: what is there is no model, rather than one of two steps.
cp -a "$work/part" "$work/half"
second=$(cd "$work/part" && echo model-00002-of-*)
mkdir "$work/half/.$second.new"
starpipe train $on --resume "$work/half" --steps 3 --save "$work/half" --shard-size 6KB \
    > "$work/output" 2>&1
[ $? -eq 1 ] && grep -q "^starpipe: cannot replace .*$second" "$work/output" ||
    fail "a link that cannot be replaced: $(tail -n 1 "$work/output")"
refused "its index, .* is missing" train $on --steps 1 --model "$work/half"
cp -a "$work/part" "$work/other"
rm "$work/other/$second"
mkdir "$work/other/$second"
refused "holds a model \($second\) that no run saved" train $on --resume "$work/other" --steps 3 --save "$work/other"
refused "a directory with the name of a file" train $on --steps 3 --save "$work/other" --resume "$work/other" --overwrite
quiet "resumed nevertheless" starpipe train $on --resume "$work/half" --steps 3

# Killed in a save of shards: the step before is whole, and the links are no model of two steps.
small="--model gpt-tiny --data $work/text --seq 8 --stages 2 --shard-size 600KB"
saved=$work/killed
quiet "start" starpipe train $small --steps 1 --save "$saved"
has_temporary()
{
    [ -n "$(find "$1" -name '*.tmp*' 2> /dev/null | head -n 1)" ]
}
for i in 1 2 3; do
    "$STARPIPE" train $small --resume "$saved" --steps 100000 --save "$saved" --save-every 1 \
        > "$work/output" 2>&1 &
    children=$!
    wait_for 20 has_temporary "$saved" || fail "kill $i: no save began"
    sleep 0.0$((i * 37 % 100))
    kill -9 $children
    wait $children 2> /dev/null
    quiet "resumed after kill $i" starpipe train --resume "$saved" --data "$work/text" --seq 8 --steps 0
    starpipe train $small --model "$saved" --steps 0 --save "$work/again" --overwrite > "$work/output" 2>&1 ||
        grep -Eq "which are its weights|its index, .* is missing" "$work/output" ||
        fail "kill $i: $(head -n 2 "$work/output")"
    [ ! -e "$saved/model.safetensors.index.json" ] ||
        [ "$(cd "$saved" && readlink model* | cut -d / -f 1 | sort -u | wc -l)" -eq 1 ] ||
        fail "kill $i: links to several steps: $(links "$saved")"
done
finish
