#!/bin/bash
# Files that a run reads and writes: data that change under it, headers of token files, a log that is gone
# on with after a kill, outputs that are inputs, a standard output that cannot be written.
. "$(dirname "$0")/../common.sh" || exit 1

golden=$SP_TESTDATA/golden
make_text 20011 > "$work/text"
base="train --model gpt-tiny --data $work/text --seq 32 --micro-batches 2"

# words N...: as little-endian int32.
words()
{
    local n

    for n; do
        printf "\\x$(printf %02x $((n & 255)))\\x$(printf %02x $((n >> 8 & 255)))"
        printf "\\x$(printf %02x $((n >> 16 & 255)))\\x$(printf %02x $((n >> 24 & 255)))"
    done
}

# ---- data that end under a run

# truncated WHAT COMMAND...: ends soon with status 1 and says where the data end.
truncated()
{
    local what=$1 run status

    shift
    cp "$work/text" "$work/shrinks"
    rm -f "$work/log"
    timeout -k 2 60 "$@" --data "$work/shrinks" --steps 1000000 --log "$work/log" \
        > "$work/stdout" 2> "$work/stderr" < /dev/null &
    run=$!
    children="$children $run"
    wait_for 30 has_lines "$work/log" 4 || fail "$what: no 4 steps"
    : > "$work/shrinks"
    wait_for 20 gone $run || fail "$what: still there"
    wait $run
    status=$?
    echo "$what: exit status $status, $(grep -h "^starpipe: " "$work/stderr" | head -n 1)"
    [ $status -eq 1 ] || fail "$what: exit status $status"
    grep -q "^starpipe: data $work/shrinks: ends at byte 0, it had 20011 when it was opened" \
        "$work/stderr" || fail "$what: $(head -n 3 "$work/stderr")"
}

truncated "truncated data" "$STARPIPE" $base
[ "$(wc -l < "$work/stderr")" -eq 1 ] || fail "truncated data: $(wc -l < "$work/stderr") lines"
have_mpi && truncated "truncated data, 2 processes" $MPIRUN -np 2 "$STARPIPE" $base --stages 2

# ---- tokens of 4 bytes, headers: the same losses as without

tokens=$((($(wc -c < "$golden/tokens.bin")) / 2))
od -An -v -tu2 -w2 "$golden/tokens.bin" > "$work/numbers"
words $(cat "$work/numbers") > "$work/wide.bin"
{ words 20240520 1 $tokens; head -c 1012 /dev/zero; cat "$golden/tokens.bin"; } > "$work/gpt2.bin"
{ words 20240801 7 $tokens; head -c 1012 /dev/zero; cat "$work/wide.bin"; } > "$work/llama3.bin"
small="train --model $golden/gpt2 --seq 16 --steps 2"
quiet "uint16" starpipe $small --tokens "$golden/tokens.bin" --log "$work/uint16.jsonl"
for file in wide gpt2 llama3; do
    width=
    [ $file != wide ] || width="--token-bytes 4"
    quiet "$file" starpipe $small --tokens "$work/$file.bin" $width --log "$work/$file.jsonl"
    agree "$file" near "$work/$file.jsonl" "$work/uint16.jsonl" 0
done

quiet "a text for many tokens" starpipe train --dry-run --model gpt2-124m --data "$work/text"
grep -q "^starpipe: warning: --data gives byte tokens 0..255, the vocabulary of gpt2-124m is 50257" \
    "$work/output" || fail "no warning that most tokens are not in a text"

mkdir "$work/drops"
sed 's/"model_type"/"resid_pdrop": 0.25, &/; s/"resid_pdrop": 0.0,//' "$golden/gpt2/config.json" > "$work/drops/config.json"
quiet "dropout" starpipe train --dry-run --model "$work/drops" --seq 16
[ "$(grep -c "asks for dropout of 0.25; it is trained without" "$work/output")" = 1 ] || fail "no warning of dropout: $(cat "$work/output")"

# ---- a log that is gone on with

log=$work/run.jsonl
quiet "first part" starpipe $base --steps 4 --save "$work/ck" --log "$log"
# as a run that was killed in its seventh step, after the checkpoint of the fourth, leaves it
sed -n 's/"step":4/"step":5/p' "$log" >> "$log"
sed -n 's/"step":4/"step":6/p' "$log" >> "$log"
sed -n 's/"step":4/"step":7/p' "$log" | head -c 100 >> "$log"
quiet "resumed" starpipe $base --resume "$work/ck" --steps 7 --log "$log"
[ "$(steps_of "$log" step | tr '\n' ' ')" = "1 2 3 4 5 6 7 " ] ||
    fail "steps in the log: $(steps_of "$log" step | tr '\n' ' ')"
[ "$(grep -c '"plan"' "$log")" -eq 2 ] || fail "no two plans in the log"
quiet "whole run" starpipe $base --steps 7 --log "$work/whole.jsonl"
sed '2,$ { /"plan"/d }' "$log" > "$work/joined.jsonl"
agree "log of two runs" near "$work/joined.jsonl" "$work/whole.jsonl" 0
cp "$work/text" "$work/notes"
refused "notes exists and is no log of starpipe; remove it first" $base --log "$work/notes"
refused "notes exists and is no log of starpipe" $base --resume "$work/ck" --steps 9 --log "$work/notes"
cmp -s "$work/text" "$work/notes" || fail "a file that is no log was touched"

# ---- a log that another run writes, or that another program holds

"$STARPIPE" $base --steps 1000000 --log "$work/live" > /dev/null 2>&1 &
run=$!
children="$children $run"
wait_for 30 has_lines "$work/live" 4 || fail "a running log: no 4 steps"
refused "--log $work/live: another run writes it" $base --steps 2 --log "$work/live"
if have_mpi; then
    mpi 2 $base --stages 2 --steps 2 --log "$work/live" > "$work/stdout" 2> "$work/stderr"
    status=$?
    [ $status -eq 2 ] && [ "$(grep -c '^starpipe: .*another run writes it' "$work/stderr")" -eq 1 ] ||
        fail "a running log, 2 processes: status $status, $(head -n 2 "$work/stderr")"
fi
before=$(steps_of "$work/live" step | wc -l)
wait_for 10 has_lines "$work/live" $((before + 10)) || fail "a running log: it does not go on"
kill -9 $run
wait $run 2> /dev/null
[ "$(steps_of "$work/live" step | head -n $before | tail -n 1)" -eq $before ] ||
    fail "a running log: it was cut"
quiet "the log of a run that was killed" starpipe $base --steps 2 --log "$work/live"
if command -v flock > /dev/null; then
    flock "$work/live" sleep 20 &
    children="$children $!"
    sleep 0.3
    refused "--log $work/live: another run writes it \(process [0-9]*, flock\)|its lock is taken" $base \
        --steps 2 --log "$work/live"
    kill $!
fi
# two that begin at the same time
for k in 1 2; do
    starpipe $base --steps 40 --seed $k --log "$work/both" > "$work/both.$k" 2>&1 &
done
wait $(jobs -p | tail -n 2)
[ "$(grep -c '"plan"' "$work/both")" -eq 1 ] && [ "$(steps_of "$work/both" step | wc -l)" -eq 40 ] ||
    fail "two runs at once: $(wc -l < "$work/both") lines, $(grep -h starpipe: "$work/both".*)"

# ---- names that are no UTF-8

odd=$work/$(printf 'mod\351l')
cp -R "$golden/gpt2" "$odd"
cp "$golden/tokens.bin" "$odd/tokens.bin"
on_odd="--tokens $odd/tokens.bin --seq 16"
quiet "names that are no UTF-8" starpipe train --model "$odd" $on_odd --steps 2 --log "$work/odd.jsonl" \
    --save "$odd.saved" --trace "$odd.trace"
[ "$(steps_of "$work/odd.jsonl" step | wc -l)" -eq 2 ] || fail "names that are no UTF-8: the log"
quiet "names that are no UTF-8, resumed" starpipe train --resume "$odd.saved" $on_odd --steps 4
for command in "train --dry-run --json $on_odd" "plan --json --seq 16 --simulated" "show --format json --seq 16"; do
    quiet "names that are no UTF-8: ${command%% *}" starpipe $command --model "$odd" --stages 1
done
quiet "names that are no UTF-8: report" starpipe report "$odd.trace" --format json

# ---- outputs that are inputs: refused, and nothing is touched

cp -R "$golden/gpt2" "$work/model"
ln "$work/text" "$work/hard"
ln -s "$work/model" "$work/link"
starpipe show --format csv --stages 2 --micro-batches 2 > "$work/order.csv"
# sums FILE: of what a command could destroy.
sums()
{
    find "$work/text" "$work/model" "$work/ck" "$work/order.csv" -type f -exec cksum {} + | sort > "$1"
}
sums "$work/before"
on_model="train --model $work/model --tokens $golden/tokens.bin --seq 16"
refused "--log $work/hard is also --data $work/text: it would be overwritten" $base --log "$work/hard"
refused "--dump-grads $work/text is also --data: it would be" $base --dump-grads "$work/text"
refused "config.json is also --model" $on_model --log "$work/link/config.json"
refused "is also --model" $on_model --dump-grads "$work/model/model.safetensors"
refused "--save $work/model/[a-z.]* is also --model" $on_model --save "$work/model"
refused "is also --resume" $base --resume "$work/ck" --steps 9 --dump-grads "$work/ck/model.safetensors"
refused "order.csv is also --schedule" $base --schedule "csv:$work/order.csv" --log "$work/order.csv"
refused "order.csv is also --schedule" show --schedule "csv:$work/order.csv" --output "$work/order.csv"
refused "x is also --dump-grads $work/./x: one would overwrite" $base --log "$work/x" \
    --dump-grads "$work/./x"
refused "no word for" show --schedule helix --layers 8 --format csv --output "$work/order.csv"
sums "$work/after"
cmp -s "$work/before" "$work/after" ||
    fail "refused commands changed files: $(diff "$work/before" "$work/after" | head -n 4)"

# ---- pipes that nobody reads

mkfifo "$work/pipe"
mkdir "$work/pictures"
for option in log dump-grads; do
    refused "cannot write $work/pipe: it is a FIFO" $base --$option "$work/pipe"
done
refused "cannot write $work/pipe: it is a FIFO" show --output "$work/pipe"
mkfifo "$work/pictures/expected.svg"
refused "expected.svg: it is a FIFO" $base --trace "$work/pictures"

# ---- standard output

if [ -w /dev/full ]; then
    for command in "--help" "--version" "list" "list --json" "info" "show" "plan --model gpt-tiny --seq 128" \
        "reproduce helixpipe" "reproduce --help" "train --help" "$base --steps 1" "$base --dry-run"; do
        starpipe $command > /dev/full 2> "$work/stderr"
        [ $? -eq 1 ] && [ "$(wc -l < "$work/stderr")" -eq 1 ] &&
            grep -q "cannot write standard output: No space left on device" "$work/stderr" ||
            fail "$command on a full disk: $(head -n 2 "$work/stderr")"
    done
fi
# The first file that is opened does not become the standard output that was closed.
rm -f "$work/log"
starpipe $base --steps 2 --log "$work/log" >&- 2> "$work/stderr"
[ $? -eq 1 ] && grep -q "cannot write standard output: Bad file" "$work/stderr" ||
    fail "closed standard output: $(head -n 2 "$work/stderr")"
starpipe $base --steps 2 --log "$work/log" >&- 2>&- <&-
[ "$(grep -c '^{.*}$' "$work/log")" -eq 3 ] && [ "$(wc -l < "$work/log")" -eq 3 ] ||
    fail "closed standard output: something else is in the log"
finish
