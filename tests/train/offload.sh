#!/bin/bash
# Activations on disk: peaks within the limit and near the plan, a disk that is full or fails. That no bit
# changes is checked by tests/parity/slices.sh.
. "$(dirname "$0")/../common.sh" || exit 1

CC=${CC:-cc}
make_text 30011 > "$work/text"
dir=$work/disk
mkdir "$dir"
plain="train --data $work/text --schedule sppo"
small="$plain --offload-dir $dir"

# ---- within the limit

# A model whose keys and values are a small part of what it keeps.
mkdir "$work/model"
cat > "$work/model/config.json" << END
{"model_type": "llama", "vocab_size": 256, "hidden_size": 96, "num_hidden_layers": 6,
 "num_attention_heads": 6, "num_key_value_heads": 1, "intermediate_size": 256,
 "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
 "tie_word_embeddings": false}
END
limit=32
whole="--model $work/model --slices 16 --partition-slices length --micro-batches 1 --seq 4096"
long="$small $whole"

# number FILE KEY: its last value.
number()
{
    grep -o "\"$2\":[^,}]*" "$1" | tail -n 1 | cut -d : -f 2 | tr -d '[]'
}

# kept_to WHAT: planned and buffers of the last log; no more buffers than planned, nothing alive after the step.
kept_to()
{
    planned=$(number "$work/log.jsonl" planned_bytes)
    buffers=$(number "$work/log.jsonl" most_buffer_bytes)
    [ "$buffers" -le "$planned" ] || fail "$1: more buffers than planned"
    [ "$(number "$work/log.jsonl" live_activation_bytes)" = 0 ] || fail "$1: alive after the step"
}

quiet "no limit" starpipe $plain $whole --steps 1 --log "$work/none.jsonl" --dump-grads "$work/none.safetensors"
all=$(number "$work/none.jsonl" peak_activation_bytes)
echo "activations: $((all >> 20)) MiB, limit $limit MiB"
[ "$all" -ge $((4 * limit << 20)) ] || fail "the activations are not 4 times the limit"
for mode in full adaptive; do
    quiet "$mode, $limit MiB" starpipe $long --steps 2 --offload $mode --offload-keys stay \
        --memory-limit ${limit}MiB --log "$work/log.jsonl" || continue
    [ "$(losses "$work/none.jsonl")" = "$(losses "$work/log.jsonl" | head -n 1)" ] ||
        fail "$mode: other losses"
    kept_to $mode
    before=$(number "$work/log.jsonl" resident_before_bytes)
    resident=$(number "$work/log.jsonl" most_resident_bytes)
    echo "$mode: planned $((planned >> 10)) KiB, buffers $((buffers >> 10)) KiB, resident" \
        "$((resident >> 10)) KiB, $((before >> 10)) KiB of it before"
    [ "$planned" -le $((limit << 20)) ] || fail "$mode: planned more than the limit"
    [ $((buffers * 10)) -ge $((planned * 8)) ] || fail "$mode: far less than planned"
    [ $mode = full ] || [ $((planned * 10)) -ge $((limit * 9 << 20)) ] ||
        fail "$mode: the limit is not used"
    # the program's own pages and the kernels' buffers come to some MiB
    [ $((resident - before)) -le $((planned + (16 << 20))) ] || fail "$mode: resident above the plan"
    [ "$(number "$work/log.jsonl" bytes_offloaded)" = "$(number "$work/log.jsonl" bytes_brought_back)" ] ||
        fail "$mode: not all came back"
done
[ -z "$(ls -A "$dir")" ] || fail "files are left: $(ls "$dir")"

# ---- keys and values leave too

# keys LIMIT OPTIONS...: right gradients, and no more memory than planned.
keys()
{
    local limit=$1

    shift
    quiet "keys leave, $*" starpipe $long --steps 2 --offload "$@" --memory-limit $limit --log "$work/log.jsonl" \
        --dump-grads "$work/keys.safetensors" || return
    quiet "gradients, $*" starpipe diff --tolerance 1e-5 "$work/none.safetensors" "$work/keys.safetensors"
    kept_to "keys leave, $*"
    out=$(number "$work/log.jsonl" bytes_offloaded)
    in=$(number "$work/log.jsonl" bytes_brought_back)
    echo "keys leave, $*: planned $((planned >> 10)) KiB, buffers $((buffers >> 10)) KiB, $((out >> 10)) KiB out," \
        "$((in >> 10)) KiB back"
    [ "$in" -gt "$out" ] || fail "keys leave, $*: nothing visited"
}
keys 32MiB full
refused "needs [0-9.]+ MiB" $long --steps 1 --offload full --offload-keys stay --memory-limit 1MiB
stays=$(sed 's/.*needs \([0-9]*\)[.0-9]* MiB.*/\1/' "$work/stderr")
refused "needs [0-9.]+ MiB" $long --steps 1 --offload full --memory-limit 1MiB
leaves=$(sed 's/.*needs \([0-9]*\)[.0-9]* MiB.*/\1/' "$work/stderr")
[ "$leaves" -lt "$stays" ] || fail "keys that leave save nothing: $leaves and $stays MiB"
# a limit below what is needed where they stay: those of some slices leave
keys $(((stays + leaves + 1) / 2))MiB adaptive

# where they cannot
refused "offload-keys without --offload .* has no effect" $plain $whole --steps 1 --offload-keys leave
refused "slice by slice" $small --model gpt-tiny --slices 2 --micro-batches 1 --seq 128 --steps 1 --offload full \
    --offload-keys leave
refused "sppo:multiplex: more than stages" $small --model gpt-tiny --slices 4 --micro-batches 1 --seq 128 --steps 1 \
    --stages 4 --schedule sppo:multiplex --offload full --offload-keys leave

# shared PROCESSES STAGES TOLERANCE OPTIONS...: slices that stages share. Right gradients; bytes and memory as planned.
shared()
{
    local processes=$1 stages=$2 tolerance=$3 run type=f32

    shift 3
    [[ "$*" != *bf16* ]] || type=bf16
    run="--model $work/model --data $work/text --seq 1024 --micro-batches 1 --stages $stages --slices 16
        --partition-slices length --schedule sppo:multiplex --offload full --offload-keys leave"
    [ -f "$work/one.$type.safetensors" ] ||
        quiet "one stage, $type" starpipe train --model $work/model --data "$work/text" --seq 1024 --micro-batches 1 \
            --stages 1 --steps 1 --dtype $type --dump-grads "$work/one.$type.safetensors"
    said "shared slices, planned, $*" '^stage 0: keys and values of [0-9]+ slices leave too' train $run "$@" --dry-run
    cp "$work/stdout" "$work/planned"
    quiet "shared slices, $*" mpi $processes train $run "$@" --steps 2 --offload-dir "$dir" --log "$work/log.jsonl" \
        --dump-grads "$work/keys.safetensors" || return
    quiet "gradients, $*" starpipe diff --tolerance $tolerance "$work/one.$type.safetensors" "$work/keys.safetensors"
    python3 - "$work/log.jsonl" "$work/planned" << 'END' || fail "shared slices, $*: not as planned"
import json, re, sys
log = [json.loads(line) for line in open(sys.argv[1])]
text = open(sys.argv[2]).read()
planned, stages = log[0]["offload"]["planned_bytes"], log[-1]["stages"]
keys = [[float(x) for x in m] for m in re.findall(r"([\d.]+) MiB out, ([\d.]+) MiB back", text)]
out = [float(x) for x in re.findall(r"^ +\d+ +[\d.]+ +([\d.]+)  ", text, re.M)][-len(keys):] # the last table
assert len(out) == len(keys) == len(stages), (out, keys)
for stage, most, leaves, (write, read) in zip(stages, planned, out, keys):
    left, back = (stage[key] / 2**20 for key in ("bytes_offloaded", "bytes_brought_back"))
    assert abs(left - leaves) < .006 and abs(back - left - (read - write)) < .02, (left, back, leaves, write, read)
    assert 0.6 * most < stage["most_buffer_bytes"] <= most and not stage["live_activation_bytes"], (stage, most)
print("shared slices: buffers of", [f"{100 * s['most_buffer_bytes'] // m} %" for s, m in zip(stages, planned)], "planned")
END
}
if have_mpi; then
    shared 4 4 1e-5
    shared 2 2 1e-5 --recompute full
    shared 2 2 1e-5 --recompute full --slices 5 --partition-slices flops
    shared 4 2 1e-5 --recompute no-attention --tensor-parallel 2 --sequence-parallel off
    shared 2 2 2e-2 --dtype bf16
fi

# Memory then depends on the length of a slice, not on that of the sequence.
mkdir "$work/longer"
sed 's/8192/65536/; s/"num_key_value_heads": 1/"num_key_value_heads": 6/' "$work/model/config.json" > "$work/longer/config.json"
for seq in 8192 65536; do
    for keys in stay leave; do
        starpipe train --dry-run --json --model "$work/longer" --schedule sppo:multiplex --stages 3 --micro-batches 1 \
            --slices $((seq / 512)) --partition-slices length --seq $seq --offload full --offload-keys $keys |
            grep -o '"\(activations\|workspace\)_bytes": [0-9]*' | cut -d ' ' -f 2 |
            awk 'NR % 2 { sum = $1; next } { sum += $1; most = sum > most ? sum : most } END { print most }' \
                > "$work/most.$seq.$keys"
    done
done
echo "sppo:multiplex, 8192 and 65536 tokens, bytes: keys stay" $(cat "$work"/most.*.stay) leave $(cat "$work"/most.*.leave)
[ $(($(< "$work/most.65536.leave") * 10)) -le $(($(< "$work/most.8192.leave") * 11)) ] &&
    [ $(($(< "$work/most.65536.leave") * 3)) -le "$(< "$work/most.65536.stay")" ] ||
    fail "sppo:multiplex: memory grows with the sequence"

# What is printed of it.
said "rows of --offload" '^ +0 +[0-9.]+ +[0-9.]+ +(100 % ){3}stays$' $small --model gpt-tiny --slices 4 --stages 2 \
    --offload full --dry-run
grep -q '^offload full: activations leave memory after their forward and return for their backward$' "$work/stdout" ||
    fail "--offload does not say what happens"
grep -Eq '^stage 1: keys and values of 3 slices leave too, .* MiB out, .* MiB back$' "$work/stdout" ||
    fail "--offload does not say how much of keys and values leaves"

# The smallest limit that is named works, a little less does not.
refused "needs [0-9.]+ MiB with all activations away" $long --steps 1 --offload full --memory-limit 12MiB
least=$(sed 's/.*needs \([0-9.]*\) MiB.*/\1/' "$work/stderr")
quiet "the least limit, $least MiB" starpipe $long --dry-run --offload full --memory-limit "${least}MiB"
refused "needs $least" $long --dry-run --offload full \
    --memory-limit "$(awk "BEGIN { print $least - 0.02 }")MiB"

# ---- never more than planned, with short slices and all that is recomputed

# within STAGES OPTIONS...: buffers and the plan in the log, of a process.
within()
{
    local stages=$1 planned buffers

    shift
    quiet "$*" starpipe $small --model gpt-tiny --stages $stages --steps 2 "$@" --log "$work/log.jsonl" ||
        return
    planned=$(grep -o '"planned_bytes":[^]]*' "$work/log.jsonl" | tr -c '0-9\n' ' ' |
        awk '{ for (i = 1; i <= NF; i++) sum += $i } END { print sum }')
    buffers=$(number "$work/log.jsonl" most_buffer_bytes)
    [ "$buffers" -le "$planned" ] || fail "$*: $buffers bytes of buffers, $planned planned"
    echo "$*: $((buffers * 100 / planned)) % of the plan"
}

for recompute in none selective no-attention full every=2; do
    within 1 --seq 512 --micro-batch-size 4 --micro-batches 1 --slices 8 --recompute $recompute \
        --offload adaptive --memory-limit 28MiB
done
within 2 --seq 512 --micro-batch-size 4 --micro-batches 1 --slices 8 --recompute no-attention --offload full
within 2 --seq 512 --micro-batch-size 2 --micro-batches 2 --slices 8 --recompute no-attention --offload full \
    --schedule sppo:multiplex
within 1 --seq 512 --micro-batch-size 8 --micro-batches 1 --slices 32 --offload adaptive --memory-limit 48MiB
within 1 --seq 256 --micro-batches 1 --slices 32 --offload full
within 1 --seq 128 --micro-batches 1 --slices 4 --offload full

# ---- workers that keep micro-batches from end to end, whose weights come by

# worker OPTIONS...: the same bits as without, everything back, and no more buffers than planned, in 4 processes.
worker()
{
    local run="--model gpt-tiny --data $work/text --stages 4 --seq 64 --micro-batches 8 --steps 2"

    quiet "$*" mpi 4 train $run --schedule "$@" --log "$work/stays.jsonl" || return
    quiet "$*, offloaded" mpi 4 train $run --schedule "$@" --offload full --offload-dir "$dir" \
        --log "$work/log.jsonl" || return
    [ "$(losses "$work/stays.jsonl")" = "$(losses "$work/log.jsonl")" ] || fail "$*: other losses"
    python3 - "$work/stays.jsonl" "$work/log.jsonl" << 'END' || fail "$*: not as planned"
import json, sys
stays, leaves = ([json.loads(line) for line in open(name)] for name in sys.argv[1:])
planned = leaves[0]["offload"]["planned_bytes"]
for before, stage, most in zip(stays[-1]["stages"], leaves[-1]["stages"], planned):
    assert 0 < stage["bytes_offloaded"] == stage["bytes_brought_back"] and stage["live_activation_bytes"] == 0
    assert stage["most_buffer_bytes"] <= most and stage["peak_activation_bytes"] < before["peak_activation_bytes"]
END
}

if have_mpi; then
    worker weipipe
    worker weipipe:flow=line --micro-batches 7 --recompute selective
    worker wzb1 --recompute full
    worker wzb2 --chunks 2
    worker tawpipe:node=2 --dtype bf16
    worker fsdp
    worker fsdp:order=breadth --recompute no-attention
fi

# ---- the optimizer's state

# Three steps, saved; then three more, on another grid. Nothing that is written may differ.
moments="train --data $work/text --model llama-tiny --seq 64 --micro-batches 4 --dtype bf16"
rm -rf "$work/kept" "$work/evicted"
for way in kept evicted; do
    option=
    [ $way = kept ] || option="--offload-optimizer --offload-dir $dir"
    quiet "$way" starpipe $moments --stages 2 --schedule zbv $option --steps 3 --save "$work/$way" --log "$work/$way.jsonl"
    quiet "$way, resumed" starpipe $moments --stages 1 --schedule sppo --slices 4 --offload full $option --steps 6 \
        --resume "$work/$way" --save "$work/$way" --log "$work/$way.jsonl"
    [ "$(number "$work/$way.jsonl" live_activation_bytes)" = 0 ] || fail "$way: alive after the step"
done
[ "$(losses "$work/kept.jsonl")" = "$(losses "$work/evicted.jsonl")" ] || fail "an evicted optimizer: other losses"
for file in model optimizer-m optimizer-v; do
    cmp "$work"/{kept,evicted}/step-000006/$file.safetensors || fail "an evicted optimizer: other weights or moments"
done
# every step but the first brings back what the update before wrote: three f32 of each parameter
parameters=$(($(number "$work/evicted.jsonl" parameters)))
more=$(($(number "$work/evicted.jsonl" bytes_brought_back) - $(number "$work/kept.jsonl" bytes_brought_back)))
[ $more -ge $((12 * parameters)) ] && [ $more -le $((13 * parameters)) ] ||
    fail "an evicted optimizer: $more bytes came back for $parameters parameters"
mkdir "$work/wide"
cat > "$work/wide/config.json" << END
{"model_type": "gpt2", "n_layer": 8, "n_head": 4, "n_embd": 256, "n_positions": 64, "vocab_size": 256}
END
wide="train --data $work/text --model $work/wide --seq 64 --stages 1 --micro-batches 1"
quiet "a wide model" starpipe $wide --offload-dir "$dir" --offload-optimizer --steps 3 --log "$work/wide.jsonl"
planned=0
for bytes in $(starpipe $wide --offload-optimizer --dry-run --json |
     grep -o '"\(parameters\|optimizer\|activations\|workspace\)_bytes": [0-9]*' | cut -d ' ' -f 2); do
    planned=$((planned + bytes))
done
buffers=$(number "$work/wide.jsonl" most_buffer_bytes)
echo "optimizer on disk: planned $((planned >> 10)) KiB, buffers $((buffers >> 10)) KiB"
[ $((buffers * 50)) -le $((planned * 51)) ] && [ $((buffers * 50)) -ge $((planned * 45)) ] ||
    fail "an evicted optimizer: buffers of $buffers bytes, planned $planned"
refused "offload-optimizer is not available with --post-validation" $wide --offload-optimizer --post-validation
refused "offload-optimizer is not available with pipedream" $moments --stages 2 --schedule pipedream \
    --clip 0 --offload-optimizer

# ---- disks that are no good

tiny="$small --model gpt-tiny --slices 4 --micro-batches 1 --seq 128 --offload full --offload-keys stay"
refused "$work/nowhere/.*No such file" $tiny --offload-dir "$work/nowhere"
touch "$work/file"
refused "$work/file/.*Not a directory" $tiny --offload-dir "$work/file"
if (ulimit -f 64) 2> /dev/null; then
    (failures=0 && ulimit -f 64 && refused "$dir/.*needs .* MiB" $tiny && [ $failures -eq 0 ]) ||
        fail "a file that cannot grow"
fi
if $CC -shared -fPIC -o "$work/fail_disk.so" "$here/fail_disk.c" -ldl 2> /dev/null; then
    # it fills up, or breaks, in the third step: that is said, and what was saved is whole
    for way in "WRITES cannot write.*: No space left on device" "READS cannot read.*: Input/output error"; do
        rm -rf "$work/saved"
        # of the measurement, and of two steps
        env "FAIL_${way%% *}=$((16 + 2 * 144))" LD_PRELOAD="$work/fail_disk.so" timeout 60 "$STARPIPE" $tiny \
            --steps 40 --save "$work/saved" --save-every 1 > "$work/stdout" 2> "$work/stderr"
        status=$?
        grep -E "offload file $dir/.*: ${way#* }" "$work/stderr" ||
            fail "a bad disk, ${way%% *}: $(head -n 3 "$work/stderr")"
        [ $status -eq 1 ] || fail "a bad disk, ${way%% *}: exit status $status"
        quiet "resumed" starpipe $tiny --resume "$work/saved" --steps 5
    done
    for way in "ENDS=304 it ends before byte [0-9]*, where .* is" \
        "BYTES=304 activations s0 m[0-9.]* l[0-9]*, tensor .*: what came back is not what left"; do
        env SP_CHECK=1 "FAIL_${way%% *}" LD_PRELOAD="$work/fail_disk.so" timeout 60 "$STARPIPE" $tiny \
            --steps 40 > "$work/stdout" 2> "$work/stderr"
        status=$?
        [ $status -eq 1 ] && grep -E "offload.*: ${way#* }" "$work/stderr" ||
            fail "a bad disk, ${way%% *}: exit status $status, $(head -n 3 "$work/stderr")"
    done
    SP_CHECK=1 quiet "checksums of what is offloaded" starpipe $tiny --steps 3
    FAIL_RESERVE=1 LD_PRELOAD=$work/fail_disk.so quiet "a file system that reserves nothing" \
        starpipe $tiny --steps 2
else
    echo "skipped: $CC makes no shared object"
fi
finish
