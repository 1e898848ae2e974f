#!/bin/bash
# The commands as a script sees them: help, versions, list, show, info, --dry-run, and the log with
# the names and the numbers that others rely on.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 20011 > "$work/text"

# says WHAT PATTERN COMMAND...: exit status 0, nothing on stderr, a line of stdout that matches.
says()
{
    local what=$1 pattern=$2

    shift 2
    if ! "$@" > "$work/stdout" 2> "$work/stderr"; then
        fail "$what: failed: $(head -n 2 "$work/stderr")"
    elif [ -s "$work/stderr" ]; then
        fail "$what: $(head -n 2 "$work/stderr") on stderr"
    elif ! grep -Eq -- "$pattern" "$work/stdout"; then
        fail "$what: nothing like '$pattern' in: $(head -n 5 "$work/stdout")"
    fi
}

# valid WHAT FILE: JSON documents, one a line if FILE ends in .jsonl.
valid()
{
    command -v python3 > /dev/null || return 0
    python3 - "$2" 2> "$work/stderr" << END || fail "$1 is no JSON: $(tail -n 1 "$work/stderr")"
import json, sys
text = open(sys.argv[1]).read()
for part in text.splitlines() if sys.argv[1].endswith(".jsonl") else [text]:
    json.loads(part)
END
}

# has WHAT FILE KEYS...: every key occurs in FILE.
has()
{
    local what=$1 file=$2 key

    shift 2
    for key; do
        grep -q "\"$key\":" "$file" || fail "$what: no \"$key\""
    done
}

# ---- help and versions

# One version for all, which configure.ac has.
version=$(sed -n 's/^PACKAGE_VERSION = //p' "$builddir/Makefile")
says "--version" "^starpipe ${version//./\\.}\$" starpipe --version
says "info" "^starpipe ${version//./\\.}\$" starpipe info
says "info, JSON" "\"version\": *\"$version\"" starpipe info --format json
says "the manual" "^\.TH .*\"starpipe $version\"" starpipe train --help=man
grep -qx "Version: $version" "$builddir/starpipe.pc" || fail "starpipe.pc has another version than $version"
grep -m 1 '^## ' "$here/../../CHANGELOG.md" | grep -qF "[$version]" || fail "CHANGELOG.md does not begin with $version"
says "--help" '^ *train ' starpipe --help
says "help" '^ *show ' starpipe help
for size in 16M 16MiB 16777216 16384k 17MB; do
    says "--memory-limit $size" '^verified' starpipe train --model gpt-tiny --dry-run --memory-limit $size
done
for command in train list show plan diff calibrate info; do
    says "$command --help" "^usage: starpipe $command" starpipe $command --help
    grep -q -- '^  --help' "$work/stdout" || fail "$command --help does not list --help"
done
for option in schedule stages micro-batches micro-batch-size seq chunks slices model recompute \
    offload memory-limit plugin; do
    for command in train show; do
        says "$command --help" "^  --$option( |\$)" starpipe $command --help
    done
done
for option in data tokens token-bytes order steps lr warmup weight-decay beta1 beta2 eps clip seed dtype \
    device threads scheduler log save save-every resume dump-grads trace dry-run progress lr-schedule lr-min \
    decay keep overwrite shard-size eval eval-every eval-tokens; do
    says "train --help" "^  --$option( |\$)" starpipe train --help
done
bf16=$(starpipe info | sed -n 's/^bf16: *//p')
case $bf16 in AMX | AVX512-BF16 | emulated) ;; *) fail "info says of bf16: '$bf16'" ;; esac
if starpipe info | grep -q '^GEMM: *oneDNN'; then
    DNNL_MAX_CPU_ISA=AVX2 starpipe info | grep -q '^bf16: *emulated' ||
        fail "info finds bf16 in a CPU that has AVX2 alone"
fi
says "info" '^StarPU: +1\.[0-9]+' starpipe info
for word in starpipe GEMM transport CUDA hwloc workers; do
    grep -q "^$word" "$work/stdout" || fail "info does not speak of $word"
done

# More threads than there are cores: one line, and it goes on.
many=$(($(nproc) + 1))
starpipe train --model gpt-tiny --dry-run --threads $many > "$work/stdout" 2> "$work/stderr" ||
    fail "--threads $many is refused"
[ "$(wc -l < "$work/stderr")" -eq 1 ] && grep -q "warning: --threads $many: this process has $(nproc) core" "$work/stderr" ||
    fail "--threads $many: $(cat "$work/stderr")"
says "--threads of all cores" '^verified' starpipe train --model gpt-tiny --dry-run --threads $(nproc)

# ---- reproduce

says "reproduce" '^  helixpipe' starpipe reproduce --help
says "reproduce helixpipe" '^  HelixPipe, naive FILO, 7B on 8 stages: p=8, m=16, L=32 +63 +63 ' starpipe reproduce helixpipe
says "reproduce helixpipe" '^  two-fold, p=4, m=8, L=8, comm 0.5 +329 ' starpipe reproduce helixpipe
starpipe reproduce helixpipe > /dev/full 2> "$work/stderr"
[ $? -eq 1 ] && grep -q "cannot write" "$work/stderr" || fail "reproduce does not say that it cannot write"

# ---- --format and --output, alike in all commands; --json is --format json

mkdir "$work/results"
starpipe show --schedule 1f1b --stages 2 --micro-batches 2 --format perfetto --output "$work/record.json" ||
    fail "show --output"
# Each prints the same into a file, and JSON by either name.
while read -r command; do
    starpipe $command > "$work/stdout" 2> "$work/stderr" || fail "$command: $(cat "$work/stderr")"
    starpipe $command --output "$work/results/file" > "$work/stdout" || fail "$command --output"
    [ ! -s "$work/stdout" ] || fail "$command --output prints too"
    starpipe $command > "$work/stdout"
    cmp -s "$work/stdout" "$work/results/file" || fail "$command --output writes something else"
    starpipe $command --format json > "$work/results/long.json" || fail "$command --format json"
    starpipe $command --json > "$work/results/short.json" || fail "$command --json"
    cmp "$work/results/long.json" "$work/results/short.json" || fail "$command --json is not --format json"
    valid "$command --json" "$work/results/long.json"
    starpipe $command --output /dev/full 2> "$work/stderr"
    [ $? -eq 1 ] && grep -q 'cannot write /dev/full' "$work/stderr" || fail "$command --output /dev/full"
    refused 'cannot .*No such file or directory' $command --output "$work/none/deep"
done << END
list
plan --model gpt-tiny --seq 64 --micro-batches 4 --schedule 1f1b
train --model gpt-tiny --dry-run
show --schedule gpipe --stages 2 --micro-batches 2
report $work/record.json
compare $work/record.json $work/record.json
info
info --hardware h200
reproduce survey
END
echo kept > "$work/results/file"
refused 'plugin /none.so' list --format json --output "$work/results/file" --plugin /none.so
[ "$(cat "$work/results/file")" = kept ] || fail "a refused command wrote its --output"
cp "$work/record.json" "$work/results/record.json"
refused 'report: --output .* is also RECORD' report "$work/results/record.json" --output "$work/results/record.json"
cmp "$work/record.json" "$work/results/record.json" || fail "report wrote over what it reads"

# ---- list

for name in naive gpipe 1f1b; do
    says "list" "^$name +[a-z]" starpipe list
done
says "list, options" '^zb1p .*\[group=\.\. limit=\.\. budget=\.\. auto\]$' starpipe list
says "list --json" '"name": *"1f1b"' starpipe list --json
cp "$work/stdout" "$work/list.json"
valid "list --json" "$work/list.json"
has "list --json" "$work/list.json" name summary family
[ "$(grep -c '"name"' "$work/list.json")" -eq "$(starpipe list | wc -l)" ] ||
    fail "list and list --json have different lengths"

# ---- show

four="--stages 4 --micro-batches 8"
says "show" '^makespan +33, bubble 27\.27 %' starpipe show --schedule 1f1b $four --width 100
says "show json" '"makespan": *33\.0' starpipe show --schedule 1f1b $four --format json
cp "$work/stdout" "$work/show.json"
valid "show json" "$work/show.json"
has "show json" "$work/show.json" schedule stages micro_batches chunks slices layers stage_map \
    ranks times makespan span idle bubble_ratio peak_live messages
[ "$(tr -d ' \n' < "$work/show.json" | sed 's/.*"peak_live":\[\([0-9,]*\)\].*/\1/')" = 4,3,2,1 ] ||
    fail "show json: peak_live is not 4 3 2 1"
says "show csv" '^0F0,0F1,0F2,0F3,0B0,0F4,' starpipe show --schedule 1f1b $four --format csv
[ "$(wc -l < "$work/stdout")" -eq 4 ] || fail "show csv: not four rows"
says "show svg" '<svg ' starpipe show --schedule gpipe $four --format svg
grep -q '</svg>' "$work/stdout" || fail "show svg: it does not end"
boxes=$(grep -o '<rect' "$work/stdout" | wc -l)
[ "$boxes" -ge 64 ] || fail "show svg: $boxes boxes for 64 ops"
starpipe show --schedule gpipe $four --format svg --output "$work/show.svg" ||
    fail "show --output"
cmp "$work/stdout" "$work/show.svg" || fail "show --output writes something else"
echo "show: json, csv and svg ($boxes boxes) as expected"

# ---- train --dry-run

train="train --model gpt-tiny --data $work/text --stages 4 --seq 24 --micro-batches 8"
says "--dry-run" 'verified: 64 ops, 48 messages; nothing was submitted' env XDG_CACHE_HOME="$work" "$STARPIPE" $train --dry-run \
    --log "$work/dry/log" --save "$work/dry" --trace "$work/dry"
[ ! -e "$work/dry" ] || fail "--dry-run wrote something"
grep -Eq 'predicted on laptop \(described, not measured here: starpipe calibrate .*\): step [0-9.e+]+ ms, bubble [0-9.]+ %' \
    "$work/stdout" || fail "--dry-run: no prediction"
[ "$(awk 'NF == 6 && $1 ~ /^[0-9]+$/ { printf "%s,", $2 }' "$work/stdout")" = 2,2,2,2, ] ||
    fail "--dry-run: eight layers are not dealt 2 2 2 2"
says "--dry-run on three stages" 'nothing was submitted' starpipe $train --stages 3 --dry-run
[ "$(awk 'NF == 6 && $1 ~ /^[0-9]+$/ { printf "%s,", $2 }' "$work/stdout")" = 3,3,2, ] ||
    fail "--dry-run: eight layers are not dealt 3 3 2"
# A file of orders says how many stages there are: each has as many threads as those of 1f1b.
starpipe show --schedule 1f1b --stages 2 --micro-batches 4 --format csv > "$work/order.csv" || fail "show --format csv"
for order in "csv:$work/order.csv" "1f1b --stages 2 --micro-batches 4"; do
    starpipe train --model gpt-tiny --seq 24 --hardware laptop --dry-run --schedule $order | grep '^predicted'
done > "$work/stdout"
[ "$(wc -l < "$work/stdout")" -eq 2 ] && [ "$(sort -u "$work/stdout" | wc -l)" -eq 1 ] ||
    fail "another prediction for the order from a file: $(cat "$work/stdout")"
says "--dry-run without data" 'nothing was submitted' starpipe train --model gpt3-7b --stages 8 \
    --seq 131072 --recompute full --dry-run

# ---- the log

# log WHAT COMMAND...: $work/log.jsonl of three steps, with all the fields.
log()
{
    local what=$1 fields

    shift
    quiet "$what" "$@" --steps 3 --lr 1e-3 --warmup 2 --log "$work/log.jsonl"
    valid "$what: log" "$work/log.jsonl"
    [ "$(wc -l < "$work/log.jsonl")" -eq 4 ] || fail "$what: the log has not 4 lines"
    head -n 1 "$work/log.jsonl" > "$work/first"
    has "$what: first line" "$work/first" plan first_step schedule model stages slices micro_batches seq recompute \
        processes versions starpipe starpu
    grep -q '"step":' "$work/first" && fail "$what: the first line is a step"
    tail -n +2 "$work/log.jsonl" | while read -r line; do
        echo "$line" > "$work/line"
        has "$what: step" "$work/line" step loss grad_norm lr tokens tokens_per_s step_ms stages \
            busy_ms idle_ms core_wait_ms comm_wait_ms polling_ms bubble_ratio peak_activation_bytes bytes_sent messages_sent update_ms \
            bytes_offloaded > "$work/missing"
        cat "$work/missing"
        [ ! -s "$work/missing" ]
    done || fail "$what: fields are missing"
    fields=$(stages_of "$work/log.jsonl" bubble_ratio | tail -n 1 | wc -w)
    [ "$fields" -eq 4 ] || fail "$what: $fields stages in a step"
    [ "$(steps_of "$work/log.jsonl" step | tr '\n' ' ')" = "1 2 3 " ] || fail "$what: steps"
    [ "$(steps_of "$work/log.jsonl" tokens | sort -u)" = 192 ] || fail "$what: tokens are not 8 x 24"
    steps_of "$work/log.jsonl" lr | awk '{ want = NR == 1 ? 5e-4 : 1e-3 }
        $1 < 0.999999 * want || $1 > 1.000001 * want { exit 1 }' || fail "$what: lr"
    # busy + idle is the same span for all stages, and the ratio follows.
    tail -n 1 "$work/log.jsonl" | sed 's/{/\n{/g' | grep busy_ms | tr -d '"{}]' | awk -F '[,:]' '{
        for (i = 1; i < NF; i += 2) v[$i] = $(i + 1)
        span = v["busy_ms"] + v["idle_ms"]
        if (NR > 1 && (span - last) ^ 2 > 1e-6) bad = 1
        if ((v["bubble_ratio"] - v["idle_ms"] / span) ^ 2 > 1e-8) bad = 1
        last = span
    } END { exit bad || NR != 4 }' || fail "$what: busy, idle and bubble do not go together"
}

# sent WHAT BYTES...: of each stage, in every step.
sent()
{
    local what=$1 is

    shift
    is=$(stages_of "$work/log.jsonl" bytes_sent | sort -u)
    echo "$what: stages sent $is bytes a step"
    [ "$is" = "$*" ] || fail "$what: expected $*"
}

log "one process" starpipe $train
sent "one process" 0 0 0 0
quiet "--trace" starpipe $train --steps 2 --trace "$work/trace"
for picture in measured expected; do
    grep -q '</svg>' "$work/trace/$picture.svg" || fail "--trace: no $picture.svg"
    grep -q "> *[0-9.]* ms; gpt-tiny, f32, seq [0-9]*, micro-batches of [0-9]*, on CPUs, in 1 process<" "$work/trace/$picture.svg" ||
        fail "--trace: the caption of $picture.svg"
done

if have_mpi; then
    # Each boundary between processes: b s h floats forward and as many backward, a micro-batch;
    # the tied table's gradient, V h floats, from the first stage to the last and back.
    boundary=$((8 * 1 * 24 * 64 * 4)) table=$((256 * 64 * 4))
    log "2 processes" mpi 2 $train
    sent "2 processes" $table $boundary $boundary $table
    log "4 processes" mpi 4 $train
    sent "4 processes" $((boundary + table)) $((2 * boundary)) $((2 * boundary)) \
        $((boundary + table))
    log "2 processes, own head" mpi 2 ${train/gpt-tiny/llama-tiny}
    sent "2 processes, own head" 0 $boundary $boundary 0
    says "mpirun --help" '^usage: starpipe train' mpi 2 train --help
    [ "$(grep -c '^usage' "$work/stdout")" -eq 1 ] || fail "--help is printed by every process"
    says "mpirun --dry-run" 'nothing was submitted' mpi 2 $train --dry-run
    [ "$(grep -c 'nothing was submitted' "$work/stdout")" -eq 1 ] ||
        fail "--dry-run is printed by every process"
fi
finish
