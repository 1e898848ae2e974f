#!/bin/bash
# Nothing that was saved is lost, and nothing half written is left: behind links, when the last step was the
# one that destroyed the model, while another run rotates the steps, on disks that are full and on file
# systems that lack links and locks.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 20011 > "$work/text"
mkdir "$work/model"
echo '{"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 1, "n_positions": 16, "vocab_size": 256}' \
    > "$work/model/config.json"
base="train --model $work/model --data $work/text --seq 8 --micro-batches 2 --stages 1 --eps 1e-3"
cd "$work" || exit 1

holds()
{
    (cd "$1" && echo step-*)
}

# ---- links

quiet "a run" starpipe $base --steps 6 --save run
mkdir victim
cp run/step-000006/* victim
ln -s ../victim run/step-000008.tmp
refused "run/step-000008.tmp is in the way: no directory that a run made" $base --steps 8 --save run --resume run
rm run/step-000008.tmp
mkdir archive
mv run/step-000006 archive
ln -s ../archive/step-000006 run/step-000006
ln -s run/step-000006 latest
quiet "an archived step, through another link" starpipe $base --steps 8 --save run --resume latest/ --save-every 1
[ "$(holds run)" = "step-000006 step-000007 step-000008" ] || fail "an archived step: $(holds run)"
ls victim archive/step-000006 | sort | uniq -c | grep -v " 2 .*json\| 2 .*safetensors\|^ *2 $" | grep -q "json\|safetensors" &&
    fail "behind the links: $(ls victim archive/step-000006 | tr '\n' ' ')"

mkdir -p hub/snapshot
cp -r run/step-000008 hub/blobs
for file in config.json model.safetensors; do ln -s "../blobs/$file" "hub/snapshot/$file"; done
refused "holds a model \(config.json, model.safetensors\) that no run saved" \
    $base --model hub/snapshot --steps 1 --save hub/snapshot
starpipe $base --steps 1 --save hub/snapshot --overwrite > output 2> stderr ||
    fail "--overwrite of a snapshot: $(head -n 2 stderr)"
grep -q "warning: .*--overwrite replaces config.json, model.safetensors" stderr || fail "not named: $(cat stderr)"
cmp hub/blobs/model.safetensors run/step-000008/model.safetensors || fail "--overwrite changed what lies behind a link"

# ---- the last step has destroyed the model

mkdir llama
cat > llama/config.json << 'EOF'
{"model_type": "llama", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
 "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000,
 "hidden_act": "silu", "tie_word_embeddings": false}
EOF
llama=${base/$work\/model/llama}
llama=${llama/--eps 1e-3/}
quiet "good" starpipe $llama --steps 4 --save last
quiet "an update too large" starpipe $llama --steps 5 --lr 1e6 --save last --resume last
[ "$(holds last)" = "step-000004 step-000005" ] || fail "an unproven step took another's place: $(holds last)"
starpipe $llama --steps 9 --save last --resume last > output 2> stderr
[ $? -eq 1 ] && grep -q "^starpipe: step 6: loss .*the run has diverged" stderr && grep -q "put aside as step-000005.diverged; step 4 is the newest: go on from it with --resume last" stderr ||
    fail "a resumed step that diverged: $(tail -n 2 stderr)"
quiet "the step before it" starpipe $llama --steps 6 --save last --resume last
[ "$(holds last)" = "step-000004 step-000006" ] || fail "then: $(holds last)"

"$STARPIPE" $base --steps 1000000 --save ended --save-every 1 > output 2>&1 &
children=$!
third_step() # or a later one: steps come and go
{
    [ "$(ls ended 2> /dev/null | sed -n 's/^step-0*\([0-9]*\)$/\1/p' | sort -n | tail -n 1)" -ge 3 ] 2> /dev/null
}
wait_for 20 third_step || fail "no third step: $(tail -n 1 output)"
kill -TERM $children
wait $children || fail "SIGTERM: exit status $?: $(tail -n 1 output)"
[ "$(holds ended | wc -w)" -eq 2 ] || fail "SIGTERM left $(holds ended)"

# ---- what was verified is what is read

if $CC -shared -fPIC -o exchange_step.so "$here/exchange_step.c" -ldl 2> /dev/null; then
    quiet "another run" starpipe $base --steps 6 --seed 7 --lr 0.01 --save other
    quiet "as it was" starpipe $base --steps 8 --resume victim --save whole
    mkdir taken && cp -r victim taken/step-000006
    EXCHANGE="mv taken/step-000006 taken/old && cp -r other/step-000006 taken/" LD_PRELOAD=$work/exchange_step.so \
        quiet "exchanged" starpipe $base --steps 8 --resume taken --save mixed
    cmp whole/step-000008/model.safetensors mixed/step-000008/model.safetensors ||
        fail "a step that was exchanged after it was verified was read"
fi

# A reader beside a run that rotates its steps: whole, or one line.
"$STARPIPE" $base --steps 1000000 --save live --save-every 1 > output.live 2>&1 &
children=$!
wait_for 20 test -e live/config.json || fail "no first step: $(tail -n 1 output.live)"
for i in 1 2 3 4 5 6 7 8; do
    starpipe $base --steps 1 --resume live > output 2> stderr
    status=$?
    { [ $status -eq 0 ] || [ "$(grep -c ^starpipe: stderr)" -eq 1 ]; } ||
        fail "beside a run that goes on: exit status $status: $(tail -n 2 stderr)"
done
kill -9 $children
wait $children 2> /dev/null

# ---- directories on the way

quiet "--save a/b/c" starpipe $base --steps 1 --save a/b/c --log a/b/c/log/l.jsonl --dump-grads g/h/grads --trace t/u
[ -e a/b/c/step-000001 ] && [ -s a/b/c/log/l.jsonl ] && [ -s g/h/grads ] && [ -s t/u/trace.json ] ||
    fail "not made: $(find a g t | tr '\n' ' ')"
refused "--log run2/step-000002/log is in a step of --save run2" \
    $base --steps 1 --save run2 --log run2/step-000002/log
refused "--dump-grads run/./step-000999.tmp/x is in a step of --save run" \
    $base --steps 9 --save run --resume run --dump-grads run/./step-000999.tmp/x
ln -s run/step-000008 into
refused "--trace into is in a step of --save run" $base --steps 9 --save run --resume run --trace into
[ ! -e run2 ] || fail "a refused run left $(find run2 | tr '\n' ' ')"
refused "is also --dump-grads" $base --steps 1 --log x/y/z --dump-grads x/./y/z
refused "text/l: Not a directory" $base --steps 1 --save x/y --log text/l
[ ! -e x ] || fail "a refused run left $(find x | tr '\n' ' ')"

# ---- no room

# within KIB WHAT PATTERN OPTIONS...: files no larger than so many KiB. One line, exit status 1, no part is left.
within()
{
    local kib=$1 what=$2 pattern=$3

    shift 3
    rm -rf full
    (ulimit -f "$kib" && starpipe $base "$@" 2>&1 > /dev/null | cat > stderr; exit "${PIPESTATUS[0]}")
    local status=$?
    [ $status -eq 1 ] && [ "$(wc -l < stderr)" -eq 1 ] && grep -Eq "^starpipe: .*$pattern" stderr ||
        fail "$what within $kib KiB: exit status $status: $(head -n 2 stderr)"
    [ -z "$(find full -name '*.tmp*' -o -name '.*.new' 2> /dev/null)" ] || fail "$what left $(find full | tr '\n' ' ')"
}

quiet "StarPU's own files" starpipe $base --steps 1
for kib in 5 8 12; do
    within $kib "--save" "full/step-.*: cannot be written: File too large \([0-9]+ bytes are wanted\)" --save full --steps 3
done
within 12 "--save-async" "full/step-.*File too large" --save full --save-every 1 --save-async --steps 3
within 6 "shards" "full/step-.*File too large" --save full --shard-size 4KB --steps 3
within 12 "--dump-grads" "full/g: cannot be written: File too large" --dump-grads full/g --steps 3
within 5 "--trace" "full/t/.*File too large" --trace full/t --steps 3
within 5 "--log" "log full/l: File too large \(a line of" --log full/l --steps 30
[ "$(tail -c 1 full/l | wc -l)" -eq 1 ] || fail "a torn line: $(tail -c 40 full/l)"
within 5 "--offload" "offload file .*File too large" --offload full --offload-dir . --steps 3

(ulimit -f 0 && starpipe $base --steps 1 --save no/room 2>&1 > /dev/null) | cat > stderr
[ "${PIPESTATUS[0]}" -eq 2 ] && grep -q "cannot write no/room/.lock: File too large" stderr && [ ! -e no ] ||
    fail "no room for a lock: $(head -n 2 stderr), $(find no 2> /dev/null | tr '\n' ' ')"

# ---- poor file systems

if $CC -shared -fPIC -o poor_files.so "$here/poor_files.c" -ldl 2> /dev/null; then
    # poor LACKS PATTERN OPTIONS...: the run goes on after one warning.
    poor()
    {
        local lacks=$1 pattern=$2

        shift 2
        POOR_FILES=$lacks LD_PRELOAD=$work/poor_files.so starpipe $base "$@" > output 2> stderr
        local status=$?
        [ $status -eq 0 ] || fail "without $lacks: exit status $status: $(head -n 2 stderr)"
        [ "$(wc -l < stderr)" -eq 1 ] && grep -Eq "^starpipe: warning: .*$pattern" stderr ||
            fail "without $lacks: $(head -n 3 stderr)"
    }

    for errno in 1 13 22 30 38 71 95; do # EPERM, EACCES, EINVAL, EROFS, ENOSYS, EPROTO, EOPNOTSUPP
        rm -rf poor
        POOR_ERRNO=$errno poor links \
            "no symbolic links can be made there \(.*\): poor itself does not load as a model, poor/step-000001 does" \
            --steps 3 --save poor --save-every 1
        [ "$(holds poor)" = "step-000002 step-000003" ] || fail "without links: $(holds poor)"
        rm -rf poor
        POOR_ERRNO=$((errno == 1 ? 37 : errno)) poor locks "poor cannot be locked" --steps 2 --save poor # ENOLCK
    done
    quiet "without links, gone on" starpipe $base --steps 3 --resume poor --save poor
    poor exchange "has run 3 steps already" --steps 3 --resume poor --save poor # saves that step again
    quiet "without exchange, gone on" starpipe $base --steps 4 --resume poor --save poor
fi
finish
