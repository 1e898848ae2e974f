#!/bin/bash
# Sixty commands that people type in their first ten minutes, right and wrong: the exit status of each, and a line that
# it prints. They run in order, in one directory, as one person would type them.
. "$(dirname "$0")/../common.sh" || exit 1

cd "$work" || exit 1
make_text 20011 > book.txt
export XDG_CACHE_HOME=$work # without a description of this machine

typed=0
# try STATUS PATTERN COMMAND...: what it prints on both streams has a line that matches; a refusal is one line.
try()
{
    local wanted=$1 pattern=$2 status

    shift 2
    typed=$((typed + 1))
    timeout -k 2 120 "$STARPIPE" "$@" > output 2> errors < /dev/null
    status=$?
    if [ $status -ne "$wanted" ]; then
        fail "starpipe $*: exit status $status, not $wanted: $(head -n 1 errors)"
    elif [ "$pattern" = '^$' ] && [ -s output -o -s errors ] || [ "$pattern" != '^$' ] && ! cat output errors | grep -Eq -- "$pattern"; then
        fail "starpipe $*: no line like '$pattern':"
        cat output errors | head -n 5 | cut -c 1-200
    elif [ "$wanted" -eq 2 ] && { [ -s output ] || [ "$(wc -l < errors)" -ne 1 ]; }; then
        fail "starpipe $*: a refusal is one line on stderr: $(cat output errors | head -n 3)"
    fi
}

# ---- what is this?
try 2 "no command.*starpipe --help"
try 0 "^ +train " --help
try 0 "^ +train " -h
try 0 "^ +train " help
try 0 "^starpipe [0-9]+\.[0-9]+" --version
try 0 "^starpipe [0-9]+\.[0-9]+" -V
try 0 "^starpipe [0-9]+\.[0-9]+" version
try 2 "did you mean train" trian
try 2 "did you mean show" shwo --stages 4
try 2 "unknown command 'frobnicate'" frobnicate
try 0 "usage: starpipe train" help train
try 0 "usage: starpipe train" train --help
try 0 "usage: starpipe train" train -h
try 2 "unknown command 'trian'" help trian
try 2 "command" --schedule 1f1b
try 0 "cores" info
try 0 "^zbv " list

# ---- the first pictures
try 0 "bubble" show
try 0 "makespan" show --schedule zbv --stages 4 --micro-batches 8
try 2 "use --layers or --model" show --schedule helix --stages 4 --format svg
try 0 "<svg" show --schedule helix --stages 4 --layers 8 --format svg
try 0 "^$" show --schedule 1f1b --format html --output page.html
grep -qi "<!doctype html" page.html || fail "show --output: page.html is no page"
try 0 '"makespan"' show --format json
try 2 "did you mean" show --schedule zbvv
try 2 "text\|json" show --format yaml
try 2 "did you mean --schedule" show --shedule zbv
try 2 "stages" show --stages 0
try 2 "needs a value" show --stages

# ---- the first training
try 2 "which model" train --data book.txt
try 2 "what to train on" train --model gpt-tiny
try 2 "book.tx" train --model gpt-tiny --data book.tx
try 2 "did you mean" train --model gpt-tinny --data book.txt
try 0 "step 3/3" train --model gpt-tiny --data book.txt --stages 2 --steps 3 --threads 1
try 0 "step 1/1" train --model gpt-tiny --data book.txt --steps 1
try 2 "steps" train --model gpt-tiny --data book.txt --steps -1
try 2 "lr" train --model gpt-tiny --data book.txt --lr fast
try 2 "did you mean --lr|no option --learning-rate" train --model gpt-tiny --data book.txt --learning-rate 1e-3
try 2 "dtype" train --model gpt-tiny --data book.txt --dtype fp16
if "$STARPIPE" info | grep -q '^CUDA: *no'; then
    try 2 "this build has no CUDA kernels" train --model gpt-tiny --data book.txt --device cuda
fi
try 2 "layers" train --model gpt-tiny --data book.txt --stages 64
try 2 "memory limit 1.00 MiB: stage 0 needs" train --model gpt-tiny --data book.txt --memory-limit 1M --stages 2
try 0 "step 2/2" train --model gpt-tiny --data book.txt --memory-limit 1G --stages 2 --steps 2 --threads 1
try 2 "memory-limit" train --model gpt-tiny --data book.txt --memory-limit lots
try 2 "-keep.*--save" train --model gpt-tiny --data book.txt --keep 3
try 2 "-save-every.*--save" train --model gpt-tiny --data book.txt --save-every 3
try 2 "-eval-every.*--eval" train --model gpt-tiny --data book.txt --eval-every 3
try 2 "-zero" train --model gpt-tiny --data book.txt --zero 1
try 2 "tensor-parallel" train --model gpt-tiny --data book.txt --tensor-parallel 2
try 0 "predicted" train --model gpt-tiny --data book.txt --stages 2 --dry-run
try 0 "memory: all stages need 0.01 GiB, .* has .*: fits" train --model gpt-tiny --data book.txt --stages 2 --dry-run
try 0 "memory: stage 0, the fullest, needs .* a device of it has .*: does not fit" train --model gpt3-7b --seq 16384 --dry-run --hardware h20-ib
try 0 "predicted_step_ms" train --model gpt-tiny --data book.txt --stages 2 --dry-run --format json

# ---- kept, stopped, looked at
try 0 "saved step 4" train --model gpt-tiny --data book.txt --steps 4 --save run --save-every 2 --log run.jsonl --trace pictures --threads 1
try 2 "another run|--overwrite" train --model gpt-tiny --data book.txt --steps 4 --save run
try 0 "step 6/6" train --resume run --steps 6
cp run/step-000006/state.json before.json
try 0 "" train --resume run # which has nothing to do
cmp -s run/step-000006/state.json before.json || fail "a run that had nothing to do writes another state.json"
try 0 "saved step 6 in copy/step-000006" train --resume run --save copy
grep -q "$(grep -o '"loss": *[0-9.]*' before.json)" copy/step-000006/state.json || fail "a copy of a run has another loss"
try 2 "nowhere" train --resume nowhere
try 0 "step" watch --once run.jsonl
try 0 "bubble" report pictures
try 2 "starpipe watch" report run.jsonl
try 2 "starpipe report" watch --once pictures/trace.json
try 0 "" diff run.jsonl run.jsonl
try 2 "nothing.safetensors" diff nothing.safetensors run.jsonl

# ---- for a cluster
try 0 "helix|1f1b" plan --model gpt3-1.3b --seq 4096 --stages 4 --micro-batches 8 --hardware a800-ib
try 2 "did you mean h100-ib" plan --model gpt3-1.3b --stages 4 --hardware h100
try 2 "seq" plan --model gpt3-1.3b --seq 10Q

echo "$typed commands"
[ "$typed" -ge 60 ] || fail "fewer than sixty commands"
finish
