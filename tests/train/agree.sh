#!/bin/bash
# Processes that are told different things, or read different files, are refused before anything starts:
# the line names the option or the file, and both values.
. "$(dirname "$0")/../common.sh" || exit 1

have_mpi || exit 77
make_text 5003 > "$work/text"
make_text 5004 > "$work/other"
mkdir "$work/node0" "$work/node1"
for node in 0 1; do
    make_text 5003 > "$work/node$node/data"
    cp -R "$SP_TESTDATA/golden/llama" "$work/node$node/model"
done
base="train --model gpt-tiny --data $work/text --seq 8 --stages 2 --steps 1 --dry-run"

# disagree WHAT PATTERN OPTIONS...: those of rank 1.
disagree()
{
    local what=$1 pattern=$2 status

    shift 2
    timeout -k 5 60 $MPIRUN -np 1 "$STARPIPE" $base : -np 1 "$STARPIPE" $base "$@" > "$work/output" 2>&1
    status=$?
    [ $status -eq 2 ] && [ "$(grep -c 'starpipe: ' "$work/output")" -eq 1 ] &&
        grep -Eq "^starpipe: rank 1: .*$pattern" "$work/output" ||
        fail "$what: status $status, wanted '$pattern': $(grep starpipe: "$work/output" | head -n 2)"
}

disagree "lr" "--lr is 0.01 here and 0.001 on rank 0" --lr 0.01
disagree "seed" "--seed is 3 here and 0 on rank 0" --seed 3
disagree "order" "--order is shuffled here and sequential on rank 0" --order shuffled
disagree "steps" "--steps is 2 here and 1 on rank 0" --steps 2
disagree "save" "--save is x here and not given on rank 0" --save x
disagree "gradients" "--dump-grads is x here and not given" --dump-grads x
disagree "seq" "--seq is 16 here and 8 on rank 0" --seq 16
disagree "type" "--dtype is bf16 here and f32 on rank 0" --dtype bf16
disagree "data" "--data is 5004 bytes .*here and 5003 bytes .* on rank 0" --data "$work/other"
disagree "model" "--model is llama of 8 layers.* here and gpt2 of 8 layers.* on rank 0" --model llama-tiny
timeout -k 5 60 $MPIRUN -np 1 "$STARPIPE" $base : -np 1 env STARPU_FXT_TRACE=1 "$STARPIPE" $base > "$work/output" 2>&1
[ $? -eq 2 ] && grep -q 'rank 1: STARPU_FXT_TRACE is 1 here and 0 on rank 0' "$work/output" ||
    fail "one that is traced: $(grep starpipe: "$work/output" | head -n 2)"
disagree "one that does not parse" "no option --nonsense" --nonsense

# Each machine has files of its own: the contents count, not the path.
one="$STARPIPE train --tokens $SP_TESTDATA/golden/tokens.bin --seq 8 --stages 2 --steps 1 --model model"
nodes()
{
    timeout -k 5 60 $MPIRUN -np 1 -wdir "$work/node0" $one "$@" : -np 1 -wdir "$work/node1" $one "$@" \
        > "$work/output" 2>&1
}
nodes --offload full --offload-dir "$work/node0" || fail "equal files: $(grep starpipe: "$work/output")"
mkdir "$work/node0/results"
nodes --dry-run --output results/plan && grep -q verified "$work/node0/results/plan" ||
    fail "a result on the machine of rank 0: $(grep starpipe: "$work/output")"
printf '\001' | dd of="$work/node1/model/model.safetensors" bs=1 seek=20000 conv=notrunc 2> /dev/null
nodes && fail "one weight is another on rank 1, and nobody said so"
grep -q "rank 1: model.safetensors is .* bytes (digest" "$work/output" ||
    fail "another weight: $(grep starpipe: "$work/output")"
finish
