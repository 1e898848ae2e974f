#!/bin/bash
# Checkpoints: a resumed run goes on as if it had never stopped, on any number of stages and
# processes; a save that is killed never damages the checkpoint before it; what lies beside a model is
# saved with it; what cannot be written is said in one line.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 20011 > "$work/text"
# A large epsilon: see tests/train/parity.sh.
base="--model gpt-tiny --data $work/text --seq 32 --micro-batches 4 --eps 1e-3"

# The steps that a directory holds, and what its links point to.
holds()
{
    (cd "$1" && echo step-*)
}

# ---- resume

quiet "whole run" starpipe train $base --stages 2 --steps 9 --log "$work/whole.jsonl" \
    --save "$work/whole"
quiet "first part" starpipe train $base --stages 2 --steps 5 --save "$work/part" --save-every 2
[ "$(holds "$work/part")" = "step-000004 step-000005" ] ||
    fail "not the last step and the one before it: $(holds "$work/part")"
for file in config.json model.safetensors; do
    [ "$(readlink "$work/part/$file")" = "step-000005/$file" ] || fail "$file is no link to step 5"
done

# resume WHAT TOLERANCE COMMAND...: steps 5 to 8 from part/, kept as it is.
resume()
{
    local what="resumed, $1" tolerance=$2

    shift 2
    rm -rf "$work/more" "$work/more.jsonl"
    cp -a "$work/part" "$work/more"
    quiet "$what" "$@" $base --resume "$work/more" --steps 9 --log "$work/more.jsonl" \
        --save "$work/more" || return
    agree "$what" near --part "$work/more.jsonl" "$work/whole.jsonl" $tolerance
    [ "$(steps_of "$work/more.jsonl" step | tr '\n' ' ')" = "6 7 8 9 " ] ||
        fail "$what: steps $(steps_of "$work/more.jsonl" step | tr '\n' ' ')"
    [ "$(holds "$work/more")" = "step-000005 step-000009" ] || fail "$what: $(holds "$work/more") are left"
}

if resume "same stages" 0 starpipe train --stages 2; then
    for file in model optimizer-m optimizer-v; do
        cmp "$work/more/step-000009/$file.safetensors" "$work/whole/step-000009/$file.safetensors" ||
            fail "$file of the resumed run has other bits"
    done
fi
resume "one stage" 1e-6 starpipe train --stages 1
resume "five stages, gpipe" 1e-6 starpipe train --stages 5 --schedule gpipe --recompute full
resume "three workers of two chunks that come by" 1e-6 starpipe train --stages 3 --schedule wzb1 --chunks 2
resume "three stages, the vocabulary cut" 1e-6 starpipe train --stages 3 --vocabulary-parallel
have_mpi && resume "2 processes" 1e-6 mpi 2 train --stages 4

# ---- a saved directory as --model: the links and the step itself hold the same, trained weights

for dir in part part/step-000005; do
    quiet "--model $dir" starpipe train $base --model "$work/$dir" --steps 1 --lr 0 \
        --log "$work/${dir##*/}.jsonl"
    echo "--model $dir: loss $(steps_of "$work/${dir##*/}.jsonl" loss)," \
        "untrained $(steps_of "$work/whole.jsonl" loss | head -n 1)"
done
agree "--model DIR" near "$work/part.jsonl" "$work/step-000005.jsonl" 0
awk -v a="$(steps_of "$work/part.jsonl" loss)" -v b="$(steps_of "$work/whole.jsonl" loss | head -n 1)" \
    'BEGIN { exit !(a < b - 0.1) }' || fail "--model DIR did not take the trained weights"

# A new run in the directory of an older, longer one takes --overwrite; --resume goes on with the new run.
cp -a "$work/whole" "$work/reused"
quiet "reused directory" starpipe train $base --stages 2 --steps 3 --save "$work/reused" --overwrite
quiet "reused directory, resumed" starpipe train $base --stages 2 --steps 5 \
    --resume "$work/reused" --log "$work/reused.jsonl"
[ "$(steps_of "$work/reused.jsonl" step | tr '\n' ' ')" = "4 5 " ] ||
    fail "reused directory: resumed at step $(steps_of "$work/reused.jsonl" step | head -n 1)"

# ---- what lies beside a model goes with it

beside=$work/beside was=$work/as-it-was
companions="README.md generation_config.json tokenizer.model vocab.json"
mkdir -p "$beside/folder" "$work/blobs" "$was"
cat > "$beside/config.json" << 'EOF'
{
  "_name_or_path": "somebody/tiny", "architectures": ["GPT2Model"],
  "bos_token_id": 50256, "initializer_range": 0.020000000000000004,
  "dtype": "bfloat16", "torch_dtype": null, "model_type": "gpt2",
  "big": 123456789012345678901234567890, "limits": [-Infinity, NaN, 1e999],
  "n_embd": 8, "n_head": 1, "n_layer": 2, "n_positions": 32, "vocab_size": 256,
  "task_specific_params": {"text-generation": {"dtype": "bfloat16", "max_length": 50}}
}
EOF
sed 's/GPT2Model/GPT2LMHeadModel/; s/^  "dtype": "bfloat16", "torch_dtype": null/  "dtype": "float32", "torch_dtype": "float32"/' \
    "$beside/config.json" > "$work/config.want"
echo '{"bos_token_id": 50256, "temperature": 0.6}' > "$beside/generation_config.json"
echo '{"version": "1.0"}' > "$beside/tokenizer.model"
echo '# A model' > "$beside/README.md"
echo '{"a": 0}' > "$work/blobs/9f3b"
ln -s ../blobs/9f3b "$beside/vocab.json"
for file in $companions; do cp "$beside/$file" "$was"; done
tiny="train --data $beside/text --seq 8 --micro-batches 2 --stages 2"
cp "$work/text" "$beside/text"
quiet "weights" starpipe $tiny --model "$beside" --steps 1 --save "$work/weights"
cp "$work/weights/model.safetensors" "$beside"
# none of them: data, what cannot be copied, weights in other forms, and what is hidden or half written
mkfifo "$beside/fifo"
truncate -s 67108865 "$beside/large"
for file in pytorch_model.bin last.ckpt .hidden tokenizer.model.tmp-1-0 step-000099 step-000009.tmp; do echo x > "$beside/$file"; done

# has_companions DIR...: a step or a run has them, as they were, and nothing else.
has_companions()
{
    local dir file sums

    for dir; do
        [ -e "$dir/config.json" ] || fail "$dir: no model"
        [ -e "$dir/config.json" ] || continue
        sums=$(dirname "$(readlink -f "$dir/config.json")")/checksums.json
        (cd "$dir" && ls -A) | grep -v '^config.json\|^model\|^optimizer-\|^state.json\|^checksums.json\|^step-\|^.lock' |
            cmp - <(printf '%s\n' $companions) || fail "$dir has $(ls -A "$dir" | tr '\n' ' ')"
        for file in $companions; do
            cmp "$was/$file" "$dir/$file" || fail "$dir: another $file"
            grep -q "\"$file\"" "$sums" || fail "$dir: no checksum of $file"
        done
        cmp "$work/config.want" "$dir/config.json" || fail "$dir: another config.json"
    done
}

for way in "" --save-async; do
    starpipe $tiny --model "$beside" --steps 3 --save "$work/with$way" --save-every 1 --keep 1 $way \
        > "$work/output" 2> "$work/stderr" || fail "companions $way: $(head -n 2 "$work/stderr")"
    grep -v bf16 "$work/stderr" | cmp - <(echo "starpipe: warning: $beside/large is not saved with the model (it has more than 64 MiB)") ||
        fail "companions $way: $(cat "$work/stderr")"
    [ "$(holds "$work/with$way")" = "step-000002 step-000003" ] || fail "companions $way: $(holds "$work/with$way")"
    has_companions "$work/with$way" "$work/with$way"/step-*
done
rm "$beside/large" "$beside/fifo"

# A run that goes on has those of its step, here and elsewhere; what a user has put there stays.
rm "$work/with/README.md" "$work/with/vocab.json"
echo mine > "$work/with/README.md"
mkdir "$work/with/vocab.json"
echo mine > "$work/with/step-000003/notes"
mv "$beside/tokenizer.model" "$work"
quiet "resumed" starpipe train --resume "$work/with" --steps 6
quiet "resumed elsewhere" starpipe train --resume "$work/with--save-async" --steps 4 --save "$work/other"
has_companions "$work/with/step-000006" "$work/other" "$work/other/step-000004"
[ "$(holds "$work/with")" = "step-000003.removed step-000005 step-000006" ] || fail "resumed: $(holds "$work/with")"
[ "$(ls "$work/with/step-000003.removed")" = notes ] || fail "removed: $(ls "$work/with/step-000003.removed")"
[ "$(cat "$work/with/README.md")" = mine ] && [ -d "$work/with/vocab.json" ] || fail "the user's own is gone"
[ "$(readlink "$work/with/tokenizer.model")" = step-000006/tokenizer.model ] || fail "no link: $(ls -l "$work/with")"
echo '{"version": "2.0"}' > "$work/with/step-000006/tokenizer.model"
refused "step-000006/tokenizer.model: damaged: it has checksum" train --resume "$work/with" --steps 7
rm "$work/with/step-000006/tokenizer.model"
refused "step-000006/tokenizer.model: cannot be opened" train --resume "$work/with" --steps 7

# A step of a version that knew of none.
cp -r "$work/other" "$work/older"
(cd "$work/older/step-000004" && rm $companions checksums.json &&
    sed -i -z 's/,\n  "files": \[[^]]*\]//; s/"format": 2/"format": 1/' state.json)
grep -q '"files"' "$work/older/step-000004/state.json" && fail "an older version that knew of some"
quiet "of an older version" starpipe train --resume "$work/older" --steps 5 --save "$work/older"
[ "$(cd "$work/older" && find . -name '*.json' | sort | tr '\n' ' ')" = \
    "./config.json ./step-000004/config.json ./step-000004/state.json ./step-000005/checksums.json ./step-000005/config.json ./step-000005/state.json " ] ||
    fail "of an older version: $(find "$work/older" | tr '\n' ' ')"

# The run that it began from makes way for it; a log of that is none of the model's.
quiet "over itself" starpipe $tiny --model "$work/other" --steps 2 --save-every 1 --save "$work/other" --overwrite \
    --log "$work/other/log.jsonl"
has_companions "$work/other"/step-00000[12]
quiet "over itself again" starpipe $tiny --model "$work/other" --steps 1 --save "$work/other" --overwrite
has_companions "$work/other/step-000001"

# The directory goes while the run does.
mv "$work/tokenizer.model" "$beside"
cp -a "$beside" "$work/going"
"$STARPIPE" $tiny --model "$work/going" --steps 1000000 --save "$work/gone" --save-every 1 > "$work/output" 2>&1 &
children=$!
wait_for 20 test -e "$work/gone/config.json" || fail "no first step: $(tail -n 1 "$work/output")"
rm -rf "$work/going"
first=$(readlink "$work/gone/config.json")
later()
{
    [ "$(readlink "$work/gone/config.json")" != "$first" ]
}
wait_for 20 later && wait_for 20 later || fail "no later step: $(tail -n 1 "$work/output")"
kill -TERM $children
wait $children || fail "its model's directory went: $(tail -n 1 "$work/output")"
rm -f "$work/gone/text" "$work/gone"/step-*/text # data of another name, which went along
has_companions "$work/gone"
if have_mpi; then
    quiet "companions, 2 processes" mpi 2 $tiny --model "$beside" --steps 1 --save "$work/with-mpi"
    has_companions "$work/with-mpi/step-000001"
fi

# ---- killed while saving

has_temporary()
{
    [ -n "$(find "$1" -name '*.tmp*' 2> /dev/null | head -n 1)" ]
}

# Steps are short and saves are not; kills.sh has those in the middle of a run.
small="--model gpt-tiny --data $work/text --seq 8 --micro-batches 1 --stages 2"
killed=$work/killed before=1
quiet "start" starpipe train $small --steps 1 --save "$killed"

# Killed while it saves a step, a run goes on from the one before it.
for i in 1 2 3 4 5 6; do
    "$STARPIPE" train $small --resume "$killed" --steps $((before + 1)) --save "$killed" \
        > "$work/output" 2>&1 &
    children=$!
    wait_for 20 has_temporary "$killed" || gone $children
    sleep 0.00$((i * 3 % 10))
    kill -9 $children 2> /dev/null
    wait $children 2> /dev/null
    [ ! -e "$killed/step-00000$((before + 1))" ] || before=$((before + 1)) # it came too late
    quiet "kill $i" starpipe train $small --resume "$killed" --steps $((before + 1)) || break
done

# ---- nothing can be written

# refused WHAT STATUS PATTERN COMMAND...: one line on stderr.
refused()
{
    local what=$1 want=$2 pattern=$3 status

    shift 3
    "$@" > "$work/output" 2> "$work/stderr"
    status=$?
    echo "$what: $(head -n 1 "$work/stderr")"
    [ $status -eq $want ] || fail "$what: exit status $status, not $want"
    [ "$(wc -l < "$work/stderr")" -eq 1 ] && grep -q "^starpipe: .*$pattern" "$work/stderr" ||
        fail "$what: $(wc -l < "$work/stderr") lines: $(head -n 3 "$work/stderr")"
}

# Files no larger than 200 blocks of a KiB: a write beyond fails, as on a full disk.
on_full_disk()
{
    (trap '' XFSZ && ulimit -f 200 && starpipe "$@")
}

touch "$work/file"
refused "a file in the place of the directory" 2 "$work/file: Not a directory" \
    starpipe train $base --steps 1 --save "$work/file"
refused "a file on the way to the directory" 2 "$work/file/deep: Not a directory" \
    starpipe train $base --steps 1 --save "$work/file/deep"
refused "full disk" 1 "safetensors.*File too large" \
    on_full_disk train $small --resume "$killed" --steps $((before + 1)) --save "$killed"
quiet "resumed after a full disk" starpipe train $small --resume "$killed" --steps $((before + 1)) \
    --log "$work/after.jsonl"
[ "$(steps_of "$work/after.jsonl" step)" = $((before + 1)) ] || fail "a full disk cost a checkpoint"
if [ -w /dev/full ]; then
    refused "--log on a full disk" 1 "log /dev/full" \
        starpipe train $base --steps 1 --log /dev/full
    refused "--dump-grads on a full disk" 1 "/dev/full" \
        starpipe train $base --steps 1 --dump-grads /dev/full
fi
finish
