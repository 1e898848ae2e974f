#!/bin/bash
# What a run saved is never lost or taken for another's: directories belong to one run, damaged
# checkpoints are refused, older ones stay until a newer has proven good, and whatever moment the machine
# stops at, the newest whole step is found. SP_LONG=1 takes more flips and kills.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 20011 > "$work/text"
mkdir "$work/model"
echo '{"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 1, "n_positions": 16, "vocab_size": 256}' \
    > "$work/model/config.json"
echo '{"version": "1.0"}' > "$work/model/tokenizer.model"
base="train --model $work/model --data $work/text --seq 8 --micro-batches 2 --stages 2 --eps 1e-3"

holds()
{
    (cd "$1" && echo step-*)
}

# ---- a directory belongs to one run

quiet "a run" starpipe $base --steps 4 --save "$work/a" --save-every 1 --keep 2
[ "$(holds "$work/a")" = "step-000002 step-000003 step-000004" ] || fail "--keep 2 left $(holds "$work/a")"
refused "holds step 4 of another run; go on from it with --resume" $base --steps 9 --save "$work/a"
refused "holds step 4, later than the resumed step 3" $base --steps 9 --save "$work/a" \
    --resume "$work/a/step-000003"
[ "$(holds "$work/a")" = "step-000002 step-000003 step-000004" ] || fail "a refused run left $(holds "$work/a")"
quiet "an older step, elsewhere" starpipe $base --steps 4 --resume "$work/a/step-000003" --save "$work/b"
cmp "$work/a/step-000004/model.safetensors" "$work/b/step-000004/model.safetensors" ||
    fail "another step 4 from step 3"
rm "$work/a/model.safetensors" "$work/a/config.json"
quiet "without the links" starpipe $base --steps 5 --resume "$work/a" --log "$work/log"
[ "$(steps_of "$work/log" step)" = 5 ] || fail "without the links: $(steps_of "$work/log" step)"
quiet "overwritten" starpipe $base --steps 1 --save "$work/a" --overwrite
[ "$(holds "$work/a")" = "step-000001 step-000002.replaced step-000003.replaced step-000004.replaced" ] ||
    fail "--overwrite left $(holds "$work/a")"
quiet "overwritten, and proven" starpipe $base --steps 2 --save "$work/a" --resume "$work/a"
[ "$(holds "$work/a")" = "step-000001 step-000002" ] || fail "a proven step left $(holds "$work/a")"
cp -R "$work/model" "$work/mine"
refused "holds a model \(config.json\) that no run saved" $base --steps 1 --save "$work/mine"

"$STARPIPE" $base --steps 1000000 --save "$work/c" --save-every 1 > "$work/output" 2>&1 &
children=$!
wait_for 20 test -e "$work/c/config.json" || fail "no first step: $(tail -n 1 "$work/output")"
refused "another run is writing it \(process $children on " $base --steps 1 --resume "$work/c" --save "$work/c"
kill -9 $children
wait $children 2> /dev/null
quiet "after its end" starpipe $base --steps 1 --save "$work/c" --overwrite

# ---- beside the next steps

for async in "" --save-async; do
    quiet "saved $async" starpipe $base --steps 12 --save "$work/d$async" --save-every 1 $async
done
for file in model optimizer-m optimizer-v; do
    cmp "$work/d/step-000012/$file.safetensors" "$work/d--save-async/step-000012/$file.safetensors" ||
        fail "--save-async: another $file"
done
for dir in d d--save-async; do
    [ "$(holds "$work/$dir")" = "step-000011 step-000012" ] || fail "$dir: left $(holds "$work/$dir")"
done

# ---- a run that is told otherwise, or that diverges

starpipe $base --steps 13 --resume "$work/d" --lr 0.5 --seq 16 --order shuffled > "$work/stdout" 2> "$work/stderr"
grep -q "told otherwise: now --seq 16 (was 8), --lr 0.5 (was 0.001), --order shuffled (was sequential)$" \
    "$work/stderr" || fail "told otherwise: $(cat "$work/stderr")"
head -c 9000 "$work/text" > "$work/short"
starpipe $base --steps 13 --resume "$work/d" --data "$work/short" > "$work/stdout" 2> "$work/stderr"
grep -q "now other data$" "$work/stderr" || fail "other data: $(cat "$work/stderr")"
for async in "" --save-async; do
    cp -a "$work/d" "$work/e$async"
    starpipe $base --steps 100 --resume "$work/e$async" --save "$work/e$async" --save-every 1 --lr 1e6 \
        --clip 0 $async > "$work/stdout" 2> "$work/stderr"
    [ $? -eq 1 ] && grep -q "the run has diverged" "$work/stderr" || fail "no divergence: $(tail -n 1 "$work/stderr")"
    set -- "$work/e$async"/step-*
    [ $# -eq 2 ] && [ "$2" != "${2%.diverged}" ] || fail "diverged $async: $(holds "$work/e$async")"
    quiet "after divergence" starpipe $base --steps 1 --resume "$work/e$async"
done

# ---- damaged: every flipped bit is refused, or changes no value

flips=${SP_LONG:+1000}
flips=${flips:-60}
"$builddir/tests/train/flip_bits" "$work/d/step-000012" "$flips" 7 || fail "flipped bits"
cp -a "$work/d" "$work/f"
moments=$work/f/step-000012/optimizer-v.safetensors
byte=$((255 - $(od -An -tu1 -j9000 -N1 "$moments"))) # whatever it is: another
printf "\\$(printf %o $byte)" | dd of="$moments" bs=1 seek=9000 conv=notrunc 2> /dev/null
refused "optimizer-v.safetensors: damaged: tensor transformer.* has checksum .* take another checkpoint" \
    $base --steps 13 --resume "$work/f"
rm "$work/f/step-000012/checksums.json"
refused "checksums.json is missing" $base --steps 13 --resume "$work/f"

# ---- --resume alone: with all that the run was told, from wherever it is started

mkdir "$work/there"
(cd "$work" && quiet "told much" starpipe train --model gpt-tiny --data text --seq 8 --micro-batches 3 --stages 2 \
    --schedule zb1p --steps 2 --lr 2e-3 --warmup 3 --seed 7 --order shuffled --save g --save-every 1 --keep 0 \
    --log g.jsonl --eval short --eval-every 1 --document-separator 10) || fail "told much"
(cd "$work" && starpipe train --model gpt-tiny --data text --seq 8 --micro-batches 3 --stages 2 --schedule zb1p \
    --steps 5 --lr 2e-3 --warmup 3 --seed 7 --order shuffled --log whole.jsonl --eval short --eval-every 1 \
    --document-separator 10) > "$work/output" 2>&1 || fail "told all at once: $(tail -n 1 "$work/output")"
for steps in 3 5; do
    (cd "$work/there" && starpipe train --resume ../g --steps $steps) > "$work/stdout" 2> "$work/stderr" ||
        fail "--resume alone, to step $steps: $(cat "$work/stderr")"
done
[ ! -s "$work/stderr" ] || fail "--resume alone: $(cat "$work/stderr")"
grep -q '^goes on from ../g/step-000003, at sample 9, with --steps 5 (was 3)$' "$work/stdout" ||
    fail "--resume alone: $(head -n 1 "$work/stdout")"
near "$work/g.jsonl" "$work/whole.jsonl" 0 > "$work/output" || fail "--resume alone: $(tail -n 1 "$work/output")"
[ "$(grep -c '"eval_step"' "$work/g.jsonl")" -eq 5 ] || fail "--resume alone: evaluated $(grep -c eval_step "$work/g.jsonl") times"
[ -d "$work/g/step-000005" ] && [ -d "$work/g/step-000001" ] || fail "--resume alone: saved $(ls "$work/g")"
# how it saves counts where it saves: not from an older step, of which nothing is saved unless that is asked for
quiet "--keep of a run that saves" starpipe train --resume "$work/g" --steps 5 --keep 0
refused "keep without --save DIR has no effect" train --resume "$work/g/step-000003" --steps 5 --keep 1
# what is given again counts instead, and is named
starpipe train --resume "$work/g" --steps 6 --stages 3 --lr 1e-3 --schedule 1f1b --micro-batches 1 > "$work/stdout" \
    2> "$work/stderr" || fail "given again: $(cat "$work/stderr")"
grep -q 'told otherwise: now --lr 0.001 (was 0.002), steps of 1 samples (were 3)$' "$work/stderr" ||
    fail "given again: $(cat "$work/stderr")"
grep -q 'at sample 15, with --steps 6 (was 5), --schedule 1f1b (was zb1p), --stages 3 (was 2), --micro-batches 1 (was 3)$' \
    "$work/stdout" || fail "given again: $(head -n 1 "$work/stdout")"
# values that are easily lost: a token 0, an end of a line, commas that end no name, a machine named like a directory
mkdir "$work/laptop"
(cd "$work" && starpipe train --model gpt-tiny --data text --seq 8 --micro-batches 2 --steps 2 --save h --log h,1.jsonl \
    --document-separator 0 --sample 2 --prompt $'a\nb' --hardware laptop) > "$work/output" 2>&1 ||
    fail "easily lost: $(tail -n 1 "$work/output")"
(cd "$work/there" && starpipe train --resume ../h --steps 3) > "$work/stdout" 2> "$work/stderr" ||
    fail "easily lost: $(cat "$work/stderr")"
[ ! -s "$work/stderr" ] || fail "easily lost: $(cat "$work/stderr")"
grep -A 1 "^sample:$" "$work/stdout" | grep -q "^a$" || fail "easily lost: $(tail -n 3 "$work/stdout")"
[ "$(steps_of "$work/h,1.jsonl" step | tr '\n' ' ')" = "1 2 3 " ] || fail "easily lost: $(ls "$work")"
# the stored text is no file of tokens
starpipe train --resume "$work/g" --tokens "$SP_TESTDATA/golden/tokens.bin" --steps 5 > "$work/stdout" 2> "$work/stderr"
grep -q 'warning: --eval .*/short is left out: it has text' "$work/stderr" || fail "text as tokens: $(cat "$work/stderr")"
# on data of its own, or from an older step, it is another run, which leaves this one as it is
find "$work/g" | sort > "$work/before"
lines=$(wc -l < "$work/g.jsonl")
quiet "on data of its own" starpipe train --resume "$work/g" --data "$work/short" --steps 7 2> /dev/null
quiet "an older step" starpipe train --resume "$work/g/step-000003" --steps 4
find "$work/g" | sort | cmp -s - "$work/before" || fail "another run wrote into that of the first"
[ "$(wc -l < "$work/g.jsonl")" -eq "$lines" ] || fail "another run wrote into the log of the first"

# ---- the machine stops at any moment

if $CC -shared -fPIC -o "$work/record_files.so" "$here/record_files.c" -ldl 2> /dev/null; then
    # recorded WHAT OPTIONS...: a run into root; one after the other are one record
    recorded()
    {
        local what=$1

        shift
        RECORD_ROOT=$work/root RECORD_TO=$work/record LD_PRELOAD=$work/record_files.so \
            quiet "recorded, $what" starpipe $base --stages 1 --save "$work/root" "$@"
    }
    stopped()
    {
        "$builddir/tests/train/crash_states" "$work/record" "$work/root" "$state" > "$work/output" ||
            fail "stopped, $1: $(head -n 1 "$work/output" | cut -c 1-300)"
        echo "stopped at every moment, $1: $(tail -n 1 "$work/output")"
        rm -rf "$work/record" "$work/root"
        mkdir "$work/record"
    }
    mkdir "$work/record"
    state=$work/state
    [ ! -w /dev/shm ] || state=$(mktemp -d /dev/shm/starpipe-state-XXXXXX)
    recorded "two steps" --steps 2 --save-every 1
    recorded "replaced" --steps 1 --overwrite
    stopped "with --overwrite"
    recorded "shards" --steps 2 --save-every 1 --shard-size 4KB
    recorded "the same step again" --steps 2 --resume "$work/root"
    stopped "in shards, and one step twice"
    rm -rf "$state"
fi
finish
