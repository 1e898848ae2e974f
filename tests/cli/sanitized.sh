#!/bin/bash
# The program under AddressSanitizer and UndefinedBehaviorSanitizer: a table of command lines, none of which may have a
# report. For a build configured with --enable-sanitizers=all; make check-sanitize makes one.
. "$(dirname "$0")/../common.sh" || exit 1

if ! ldd "$STARPIPE" | grep -q libasan; then
    echo "skipped: $STARPIPE was built without sanitizers"
    exit 77
fi
have_mpi > /dev/null 2>&1 && ranks=$MPIRUN || ranks=
cd "$work" || exit 1
make_text 6007 > text
printf '{"name": "cut' > cut.json
printf '{"model_type": "gpt2", "n_layer": 2, "n_embd": 18, "n_head": 3, "vocab_size": 257, "n_positions": 40,
    "n_inner": 54, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new"}' > odd.json
mkdir odd thin hostile
cp odd.json odd/config.json
printf '{"model_type": "llama", "num_hidden_layers": 3, "hidden_size": 7, "num_attention_heads": 3, "head_dim": 2,
    "num_key_value_heads": 1, "intermediate_size": 11, "vocab_size": 259, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu"}' > thin/config.json
printf '{"model_type": "llama", "num_hidden_layers": 1e18, "hidden_size": 64, "vocab_size": 2147483647}' > hostile/config.json

cp -r "$SP_TESTDATA/tokenizers/gpt2" words
sed 's/257/706/; s/{/{"eos_token_id": 700, /' odd.json > words/config.json

# ---- the runs: what each is, the exit status that it must have, and its words after `starpipe`; those that begin with
# a number of processes run under MPI. Later ones take what earlier ones leave behind.

few="train --data text --seq 21 --micro-batches 3 --steps 2 --threads 1 --seed 1"
cat > runs << END
plain 0 $few --model gpt-tiny --stages 2 --log plain.jsonl --trace plain --dump-grads grads.safetensors
threads 0 $few --model odd --stages 1 --threads 2 --seq 40 --micro-batch-size 3
bf16, odd sizes 0 $few --model odd --stages 2 --dtype bf16 --micro-batch-size 3 --logit-rows 5
bf16, odd widths 0 $few --model thin --stages 1 --dtype bf16 --seq 5 --recompute selective
bf16, slices 0 $few --model llama-tiny --schedule seq1f1b --slices 3 --stages 2 --dtype bf16
slices that share attention 0 $few --model gpt-tiny --schedule slimpipe --slices 6 --stages 3
zero bubble, recompute 0 $few --model llama-tiny --schedule zb1p --stages 2 --recompute full --post-validation
both ways 0 $few --model gpt-tiny --schedule dualpipe --stages 2 --micro-batches 4 --recompute selective
stages without layers 0 $few --model gpt-tiny --schedule zb1p --stages 3 --partition 0,8,0 --vocabulary-parallel
measured layers 0 $few --model gpt-tiny --stages 2 --partition balanced --scheduler ready
parts of layers 0 $few --model gpt-tiny --schedule helix --stages 2 --micro-batches 4 --dtype bf16
weights that travel 0 $few --model odd --schedule weipipe --stages 2 --micro-batches 2 --dtype bf16
shards 0 $few --model odd --schedule fsdp --stages 2 --micro-batches 2
versions of weights 0 $few --model llama-tiny --schedule pipedream --stages 2 --clip 0
two versions of weights 0 $few --model llama-tiny --schedule pipedream-2bw --stages 2 --micro-batches 4 --clip 0
offload 0 $few --model gpt-tiny --stages 2 --offload full --offload-dir . --log offload.jsonl --trace offload
offload of keys 0 $few --model odd --schedule sppo --slices 5 --stages 2 --offload full --offload-keys leave --offload-dir .
documents 0 $few --model gpt-tiny --stages 2 --document-separator 32
saved 0 $few --model odd --stages 2 --save run --save-every 1 --save-async --eval text --eval-every 1 --sample 5 --prompt a
resumed 0 $few --model odd --stages 1 --resume run --steps 3 --order shuffled
from the model saved 0 $few --model run --stages 2 --dtype bf16
text, by a tokenizer 0 $few --model words --stages 2 --document-separator eos --save said --eval text --sample 5
text from a model 0 sample said --prompt a --tokens 9 --top-k 5 --top-p 0.9
text, greedy 0 sample said --prompt <|endoftext|> --special-tokens --tokens 40 --temperature 0 --dtype bf16 --format json
bytes from a model 0 sample run --tokens 60
processes 0 2 $few --model gpt-tiny --stages 2 --trace ranks --log ranks.jsonl
data-parallel 0 2 $few --model odd --stages 1 --data-parallel 2 --micro-batches 1 --zero 1
tensor-parallel 0 2 $few --model gpt-tiny --stages 1 --tensor-parallel 2
context-parallel 0 2 $few --model gpt-tiny --stages 1 --context-parallel 2 --seq 24
planned alone 0 train --data text --model gpt2-124m --stages 4 --schedule zbv --seq 512 --dry-run
chosen 0 $few --model gpt-tiny --stages 2 --schedule adapipe --dry-run
show 0 show --schedule zb1p:auto --stages 4 --micro-batches 8 --format json
show, a model 0 show --schedule sppo --slices 8 --stages 4 --model gpt3-7b --seq 65536 --hardware h200 --format html
show, pictures 0 show --schedule hanayo --stages 4 --format svg
show, an order 0 show --schedule dualpipev --stages 2 --micro-batches 4 --format csv
plan 0 plan --model gpt3-1.3b --seq 8192 --stages 4 --micro-batches 8 --hardware h200
list 0 list
info 0 info
help 0 train --help
report 0 report plain/trace.json
report, offload 0 report --format json offload/trace.json
report, processes 0 report ranks
compare 0 compare plain/trace.json ranks/trace.json
diff 0 diff plain.jsonl plain.jsonl
watch 0 watch --once plain.jsonl
edited: no steps 2 report cut.json
edited: far times 2 report far.json
edited: many layers 2 report layers.json
edited: no stages 2 report empty.json
edited: a cut log 0 watch --once cut.jsonl
hostile model 2 $few --model hostile --stages 1
no weights 2 sample words --prompt a
hostile machine 2 plan --model gpt-tiny --stages 2 --hardware cut.json
hostile order 2 show --schedule csv:cut.json
hostile options 2 show --schedule 1f1b --stages 65536 --micro-batches 65536 --chunks 65536
hostile checkpoint 2 $few --resume hostile
END

# Leaks that are ours for sure: allocated by a function of ours itself. Libraries that MPI and hwloc load and close
# again leave some without a name.
own_leaks()
{
    grep -A 1 -E '^ +#0 .* in (__interceptor_)?(malloc|calloc|realloc|strdup|strndup|asprintf|posix_memalign|aligned_alloc)' \
        "$@" | grep -E '#1 .*/src/[a-z]+/'
}

edit()
{
    case $1 in
    far.json) sed 's/"dur":[-0-9.e+]*/"dur":1e300/' plain/trace.json ;;
    layers.json) sed 's/"layers":[0-9]*/"layers":2147483647/g' plain/trace.json ;;
    empty.json) sed 's/"stages":/"rooms":/' plain/trace.json ;;
    cut.jsonl) head -c 900 plain.jsonl ;;
    esac
}

ran=0
while IFS= read -r line; do
    what=${line%% [012] *}
    rest=${line#"$what" }
    wanted=${rest%% *}
    read -r -a words <<< "${rest#* }"
    launcher=()
    if [[ ${words[0]} = [0-9]* ]]; then
        [ -n "$ranks" ] || continue
        read -r -a launcher <<< "$ranks -np ${words[0]}"
        words=("${words[@]:1}")
    fi
    for word in "${words[@]}"; do
        case $word in far.json | layers.json | empty.json | cut.jsonl) edit "$word" > "$word" ;; esac
    done
    timeout -k 5 120 "${launcher[@]}" "$STARPIPE" "${words[@]}" > output 2> errors < /dev/null
    status=$?
    ran=$((ran + 1))
    if [ ${#launcher[@]} -gt 0 ] || [ "${words[0]}" = info ] && grep -q 'ERROR: LeakSanitizer' errors &&
        ! own_leaks errors > /dev/null; then
        sed -i 's/ERROR: LeakSanitizer/of others/' errors
        status=$wanted
    fi
    if grep -qE 'runtime error:|ERROR: (Address|Leak)Sanitizer|AddressSanitizer:DEADLYSIGNAL' errors output; then
        fail "$what: $(grep -hE 'runtime error:|ERROR: ' errors output | head -n 1)"
        grep -hE '^ +#[0-9]+ .*[ /](src|tests)/[a-z_/]+\.c' errors output | head -n 6
    elif [ $status -ne "$wanted" ]; then
        fail "$what: exit status $status, $wanted expected: $(tail -n 1 errors)"
    fi
done < runs
echo "$ran runs in $SECONDS s"
finish
