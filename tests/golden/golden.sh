#!/bin/bash
# Losses, gradient norms and first gradients against PyTorch, within 1e-5: every golden case under
# a set of options that covers schedules, stages, recompute modes and both schedulers.
. "$(dirname "$0")/../common.sh" || exit 1

golden=$SP_TESTDATA/golden
runs=0

# The arrays `losses` and `grad_norms` of a golden.json, which has a number a line, as a log.
log_of_golden()
{
    awk '/^ "[a-z_]*": \[$/ { array = $1; n = 0; next }
        /^ \]/ { array = "" }
        array { sub(",", ""); value[array, n++] = $1 }
        END {
            for (k = 0; ("\"losses\":", k) in value; k++)
                printf "{\"step\": %d, \"loss\": %s, \"grad_norm\": %s}\n", k, value["\"losses\":", k],
                    value["\"grad_norms\":", k]
        }' "$1"
}

# run CASE OPTIONS; `processes`: in so many of them.
run()
{
    local case=$1 launch=starpipe

    shift
    rm -f "$work"/run.*
    [ -z "${processes:-}" ] || launch="mpi $processes"
    quiet "$case $*" $launch train --model "$golden/$case" --tokens "$golden/tokens.bin" \
        --order sequential --seq 16 --micro-batch-size 2 --micro-batches 4 --steps 10 --lr 0.01 \
        --warmup 3 --weight-decay 0.1 --beta1 0.9 --beta2 0.95 --eps 1e-8 --clip 1 \
        --log "$work/run.jsonl" --dump-grads "$work/run.safetensors" "$@" || return
    agree "$case $*" near "$work/run.jsonl" "$work/$case.jsonl" 1e-5
    agree "$case $*" near "$work/run.safetensors" "$golden/$case/grads.safetensors" \
        1e-5
    runs=$((runs + 1))
}

# More threads a stage than there are cores: all stages share one worker.
share="--threads $(nproc)"

for case in gpt2 gpt2-untied llama llama-tied; do
    most=4
    [ $case != llama-tied ] || most=3 # it has three layers
    log_of_golden "$golden/$case/golden.json" > "$work/$case.jsonl"
    run $case --stages 1
    run $case --stages 1 --recompute every=2 --logit-rows 7
    run $case --stages 1 --recompute selective --mlp-chunk 1 --logit-rows 1
    run $case --stages 2 --schedule gpipe --recompute full
    run $case --stages 2 --schedule naive --recompute no-attention --mlp-chunk 31
    run $case --stages 3 --schedule 1f1b --recompute selective --scheduler ready
    run $case --stages 3 --schedule gpipe:backward=fifo --recompute no-attention --mlp-chunk 5
    run $case --stages $most --schedule 1f1b --window 1 $share
    grep -q '"workers":1,' "$work/run.jsonl" || fail "$case: the stages do not share a worker"
    run $case --stages $most --schedule 1f1b --recompute every=2 --scheduler ready
    run $case --stages $most --schedule gpipe --recompute full --logit-rows 13
    run $case --stages $most --schedule zb1p --recompute full --mlp-chunk 5
    run $case --stages 3 --schedule helix # a loop of six, which these four do not fill
    run $case --stages 2 --schedule fsdp --recompute every=2 --mlp-chunk 6
done

# Relatives of Llama: what each has of its own, through the families that treat weights differently.
for case in llama3-rope llama-bias mistral qwen2 qwen3; do
    log_of_golden "$golden/$case/golden.json" > "$work/$case.jsonl"
    run $case --stages 1 --recompute selective --mlp-chunk 5
    run $case --stages 2 --schedule helix:qkv=weights --mlp-chunk 5 --recompute full
    run $case --stages 2 --schedule wzb1 --recompute full
done
run qwen3 --stages 2 --schedule helix:qkv=activations --recompute none
run qwen3 --stages 2 --schedule fsdp --recompute selective
run qwen3 --stages 2 --schedule sppo --slices 3 --recompute full --mlp-chunk 7

# Documents, which slices, recomputation and every family cut at other places.
for case in gpt2-documents llama-documents; do
    log_of_golden "$golden/$case/golden.json" > "$work/$case.jsonl"
    apart="--document-separator 19 --stages 2"
    run $case $apart --schedule 1f1b --recompute selective --scheduler ready
    run $case $apart --schedule zb2p --recompute no-attention --post-validation
    run $case $apart --schedule sppo --slices 3 --recompute full
    run $case $apart --schedule sppo:multiplex --slices 4
    run $case $apart --schedule slimpipe --slices 8
    run $case $apart --schedule sppo --slices 4 --offload full --offload-dir "$work"
    run $case $apart --schedule helix:qkv=weights
    run $case $apart --schedule helix:qkv=activations --recompute no-attention
    run $case $apart --schedule tawpipe --recompute full
    run $case $apart --schedule fsdp
done

# Models whose heads, MLP and vocabulary two processes share.
have_mpi || finish
for case in llama mistral qwen3 llama-documents; do
    apart=
    [ "$case" = "${case%-documents}" ] || apart="--document-separator 19"
    processes=2 run $case $apart --stages 1 --tensor-parallel 2
done
processes=4 run qwen3 --stages 2 --tensor-parallel 2 --schedule zb1p --sequence-parallel off
echo "$runs runs"
finish
