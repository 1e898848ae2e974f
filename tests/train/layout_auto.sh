#!/bin/bash
# --schedule auto: the choice and its reason, the losses of the same layout given by hand, a run that goes on with the
# choice, contenders that have turns, the second look with another layout for the rest of the run, a machine that is measured first, refusals.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 9973 > "$work/text"
layout="--model gpt-tiny --seq 64 --micro-batches 4"
model="$layout --eps 1e-3"
laptop="$here/../../src/plan/machine/named/laptop.json"

# train OUT COMMAND...: with a log; what is printed is in $work/output.
train()
{
    local out=$work/$1.jsonl

    shift
    rm -f "$out"
    quiet "$*" "$@" --data "$work/text" --log "$out" --progress plain
}

# chosen WHAT: the two lines of the choice.
chosen()
{
    grep -Eq '^auto: [a-z0-9:=,-]+ on [0-9]+ stages?( of [0-9]+ chunks?)?( in each of [0-9]+ pipelines)?,.* [0-9]+ micro-batch(es)? of [0-9]+, .*recompute [a-z-]+.*: [0-9.]+ ms a step predicted$' "$work/output" ||
        fail "$1: no choice: $(grep -a auto "$work/output")"
    grep -Eq '^auto: (next best .* [0-9.]+ ms, [+-][0-9]+ %|no other layout is faster); chosen among [0-9]+ layouts? in [0-9.]+ s$' "$work/output" ||
        fail "$1: no reason: $(grep -a auto "$work/output")"
    grep '^auto:' "$work/output"
}

# given DIR: the options of the layout that a checkpoint keeps, as they would be typed.
given()
{
    sed -n 's/.*"\(--[a-z-]*\)": *"\([^"]\{1,\}\)".*/\1 \2/p' "$(ls -d "$1"/step-* | tail -n 1)/state.json" |
        grep -E '^--(schedule|stages|micro-batches|micro-batch-size|chunks|slices|recompute|(data|tensor|context)-parallel|zero) ' |
        grep -Ev -- '^--(zero|chunks) 0$'
}

# ---- a choice is what it would be by hand ---------------------------------------------------------

# chooses NAME COMMAND...: and the run that goes on with the choice.
chooses()
{
    local name=$1

    shift
    rm -rf "$work/run"
    train auto "$@" $model --schedule auto --hardware "$laptop" --steps 4 --save "$work/run" || return
    chosen "$name"
    given "$work/run" > "$work/options"
    grep -q '^--schedule auto' "$work/options" && fail "$name: the checkpoint says auto"
    train hand "$@" --model gpt-tiny --seq 64 --eps 1e-3 $(cat "$work/options") --hardware "$laptop" --steps 4 || return
    agree "$name, by hand" near "$work/auto.jsonl" "$work/hand.jsonl" 1e-12
    quiet "$name, resumed" "$@" --resume "$work/run" --steps 6 --progress plain || return
    grep -q '^auto' "$work/output" && fail "$name: chosen again: $(grep '^auto' "$work/output")"
    given "$work/run" > "$work/again"
    diff "$work/options" "$work/again" || fail "$name: a resumed run has another layout"
}

chooses "1 process" starpipe train
quiet "chosen anew" starpipe train --resume "$work/run" --steps 8 --schedule auto --hardware "$laptop" --progress plain
chosen "chosen anew"
have_mpi && chooses "2 processes" mpi 2 train

# ---- the second look ------------------------------------------------------------------------------

# A machine whose tasks take 30 ms of the runtime: it wants one large micro-batch, which leaves half of a pipeline idle.
sed 's/"launch_s": [^,]*/"launch_s": 30e-3/; s/"name": "laptop"/"name": "liar"/' "$laptop" > "$work/liar.json"
looks="--model gpt-tiny --seq 256 --micro-batches 8 --eps 1e-3 --steps 28"
train one starpipe train $looks --stages 1 --threads 1
# moves NAME COMMAND...: what is measured while others want the cores may speak for the first layout, so more than once.
moves()
{
    local name=$1 try
    local moved='^auto: at the rates measured .* is predicted to be .* % faster: .* ms; tries it$'

    shift
    mkdir -p "$work/tmp"
    for try in 1 2 3 4; do
        rm -rf "$work/run"
        TMPDIR=$work/tmp train auto "$@" $looks --schedule auto --stages 2 --hardware "$work/liar.json" || return
        grep -q "$moved" "$work/output" && grep -q "^auto: goes on with .* micro-batches of" "$work/output" && break
    done
    chosen "$name"
    grep -Eq '^auto: after 20 steps: .* takes [0-9.]+ ms, predicted [0-9.]+ \([+-][0-9]+ %\)' "$work/output" ||
        fail "$name: no second look: $(grep -a '^auto' "$work/output")"
    grep -q "$moved" "$work/output" || fail "$name: it stays: $(grep -a '^auto' "$work/output")"
    grep -q "^auto: goes on with .* micro-batches of" "$work/output" || fail "$name: it goes back: $(grep -a '^auto' "$work/output")"
    [ "$(grep -c '"plan"' "$work/auto.jsonl")" -ge 2 ] || fail "$name: the log has one layout"
    agree "$name" near "$work/auto.jsonl" "$work/one.jsonl" 1e-5
    [ -z "$(find "$work/tmp" -name '.layout*')" ] || fail "$name: weights are left in TMPDIR"
}

moves "another layout, 1 process" starpipe train
moves "another layout, saved" starpipe train --save "$work/run"
[ -z "$(find "$work/run" -name '.layout*')" ] || fail "weights are left in --save DIR"
given "$work/run" | grep -qx -- '--stages 2' || fail "the checkpoint has no layout"
[ "$(given "$work/run" | sed -n 's/--micro-batches //p')" -gt 1 ] || fail "the checkpoint has the first layout"
have_mpi && moves "another layout, 2 processes" mpi 2 train
# Where nothing else is open, it stays.
train fixed starpipe train $looks --schedule auto --hardware "$laptop" --seq 32 --stages 1 --threads 1 \
    --micro-batches 2 --micro-batch-size 1 --steps 21 &&
    grep '^auto: at the rates measured no layout is predicted to be 5 % faster$' "$work/output" ||
    fail "no second look: $(grep -a '^auto' "$work/output")"

# ---- contenders -----------------------------------------------------------------------------------

# tries NAME COMMAND...: layouts that are predicted to be nearly as fast have turns of the same training; a run that goes on
# from the midst of them has the layout that was chosen, and one that ends there ends well.
tries()
{
    local name=$1 steps=$2 many="--model gpt-tiny --seq 128 --micro-batches 8 --eps 1e-3"

    shift 2
    rm -rf "$work/run"
    train hand starpipe train $many --schedule 1f1b --stages 1 --threads 1 --steps "$steps" || return
    TMPDIR=$work/tmp train auto "$@" $many --schedule auto --hardware "$laptop" --steps "$steps" --save "$work/run" || return
    agree "$name" near "$work/auto.jsonl" "$work/hand.jsonl" 1e-5
    [ -z "$(find "$work/run" "$work/tmp" -name '.layout*')" ] || fail "$name: weights are left"
}

tries "contenders" 24 starpipe train
grep -Eq '^auto: after 20 steps: .*; tried .* ms' "$work/output" || fail "nothing was tried: $(grep -a '^auto' "$work/output")"
grep -q '^auto: goes on with ' "$work/output" || fail "it does not settle: $(grep -a '^auto' "$work/output")"
[ "$(grep -c '"plan"' "$work/auto.jsonl")" -ge 3 ] || fail "the log has $(grep -c '"plan"' "$work/auto.jsonl") layouts"
tries "ends among contenders" 14 starpipe train
first=$(sed -n 's/^auto: \([a-z0-9:=,-]*\) on .*predicted$/\1/p' "$work/output")
given "$work/run" | grep -qx -- "--schedule $first" || fail "the checkpoint has not $first: $(given "$work/run")"
quiet "from the midst" starpipe train --resume "$work/run" --steps 16 --progress plain
have_mpi && tries "contenders, 2 processes" 24 mpi 2 train
have_mpi && { grep -q '; tried .* ms' "$work/output" || fail "2 processes try nothing: $(grep -a '^auto' "$work/output")"; }
# Without time for changes there are none.
XDG_CACHE_HOME=$work/cache train hurried starpipe train --model gpt-tiny --seq 128 --micro-batches 8 --schedule auto \
    --auto-within 0.1 --hardware "$laptop" --steps 22
grep -q '; tried' "$work/output" && fail "no time, and it tries: $(grep -a '^auto' "$work/output")"

# ---- without a machine ----------------------------------------------------------------------------

mkdir -p "$work/cache"
measures()
{
    XDG_CACHE_HOME=$work/cache train measured starpipe train $model --schedule auto --stages 1 --auto-within 10 --steps 2
    grep '^auto: this machine was measured in ' "$work/output"
}
measures || measures || measures || fail "nothing was measured: $(head -n 1 "$work/output")"
chosen "measured"
XDG_CACHE_HOME=$work/cache quiet "no time to measure" starpipe train $model --schedule auto --auto-within 0.1 --dry-run
grep -q '^auto: this machine could not be measured within --auto-within 0.1' "$work/output" ||
    fail "no time: $(head -n 2 "$work/output")"

# ---- without a run --------------------------------------------------------------------------------

on="--hardware $laptop"
said "a dry run" '^auto: .* ms a step predicted$' train $model --schedule auto $on --dry-run
ms=$(sed -n '1s/.*: \([0-9.]*\) ms a step predicted/\1/p' "$work/stdout")
grep -q "^predicted on laptop.*: step $ms ms," "$work/stdout" || fail "a dry run predicts other than $ms ms"
said "JSON" '^{' train $model --schedule auto $on --dry-run --format json
grep -q '^auto' "$work/stdout" && fail "JSON of a dry run has words"
said "show" '^auto: .* ms a step predicted$' show $layout --schedule auto $on --stages 4
said "show as JSON" '"stages": 4' show --model gpt-tiny --schedule auto $on --stages 4 --format json
[ "$(head -c 1 "$work/stdout")" = "{" ] || fail "JSON of show has words"

for option in "--micro-batch-size 2" "--stages 2" "--recompute full" "--slices 1"; do
    said "$option" '^auto:' train $model --schedule auto $on --dry-run $option
done
grep -q ' slices,' "$work/stdout" && fail "--slices 1 is cut into slices"

# ---- refusals -------------------------------------------------------------------------------------

refused "auto-within 3 has no effect without --schedule auto" train $model --data "$work/text" --auto-within 3
refused "auto-within: 0 is not in" train $model --data "$work/text" --schedule auto --auto-within 0
refused "partition 5,3: --schedule auto" train $model --data "$work/text" --schedule auto --partition 5,3
refused "post-validation goes with some schedules" train $model --data "$work/text" --schedule auto --post-validation
refused "partition-slices flops: --schedule auto may" train $model --data "$work/text" --schedule auto --partition-slices flops
refused "nothing fits: .* which needs least, holds [0-9.]+ MiB on a device that has 1.00" \
    train $model --data "$work/text" --schedule auto $on --memory-limit 1M
refused "99 stages are more than the 8 layers" train $model --data "$work/text" --schedule auto --stages 99
refused "wants 2 processes" train $model --data "$work/text" --schedule auto --data-parallel 2
refused "depends on the model and its machine" show --schedule auto
refused "depends on the model and its machine" show --schedule auto --model gpt-tiny --cost f=1
finish
