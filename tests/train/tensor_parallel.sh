#!/bin/bash
# Processes that share heads, MLP and vocabulary: losses, gradients, bytes on the wire, activations and buffers are those
# of one process on the same samples, whatever the schedule; what does not fit is refused, and a process that stops ends
# the run.
. "$(dirname "$0")/../common.sh" || exit 1
have_mpi || exit 77
. "$(dirname "$0")/grid.sh"

exact=yes context=yes
two="--tensor-parallel 2" four="--tensor-parallel 4" whole="--sequence-parallel off"
heads="--context-parallel 2" ring="--context-parallel 2 --context-method ring"
both="--context-parallel 4 --context-method ulysses=2,ring"
grid 1 4 gpt-tiny 2 $four --stages 1
grid 1 4 llama-tiny 4 $two --stages 2 --schedule zb2p --recompute no-attention --post-validation
grid 1 4 gpt-tiny 4 $two --stages 2 --schedule zb1p --recompute full
grid 1 2 gpt-tiny 4 $two --stages 1 --recompute every=2
grid 2 8 llama-tiny 4 $two --stages 2 --schedule 1f1b --zero 1
grid 1 4 gpt-tiny 4 $two --stages 2 --schedule zb1p --vocabulary-parallel
grid 1 4 llama-tiny 4 $two $whole --stages 2 --schedule 1f1b --vocabulary-parallel --post-validation
grid 1 4 llama-tiny 4 $two --stages 2 --schedule helix:qkv=weights --vocabulary-parallel
one=sppo slices=4 grid 1 4 llama-tiny 2 $two --stages 2 --schedule sppo
one=sppo slices=6 grid 1 6 llama-tiny 2 $two --stages 3 --schedule slimpipe
one=sppo slices=4 grid 1 4 gpt-tiny 2 $two $whole --stages 2 --schedule slimpipe --recompute no-attention
one=sppo slices=6 grid 1 6 llama-tiny 2 $two $whole --stages 3 --schedule sppo:multiplex --recompute full
one=sppo slices=4 grid 1 4 gpt-tiny 2 $two $whole --stages 2 --schedule sppo:multiplex
grid 1 4 gpt-tiny 4 $two --stages 2 --schedule dualpipev # two ops take turns
grid 1 4 gpt-tiny 4 $two --stages 2 --schedule fsdp --recompute full
grid 1 4 gpt-tiny 4 $two --stages 2 --schedule tawpipe --chunks 2 --recompute no-attention
grid 1 4 llama-tiny 4 $two --stages 2 --schedule helix:qkv=weights --recompute no-attention
grid 1 4 gpt-tiny 4 $two --stages 2 --schedule helix:qkv=activations --recompute selective --slices 2
grid 1 4 gpt-tiny 2 $four $whole --stages 1
grid 1 4 llama-tiny 4 $two $whole --stages 2 --schedule zb2p --recompute no-attention --post-validation
grid 2 4 llama-tiny 4 $two $whole --stages 1 --recompute full --zero 1
grid 1 4 gpt-tiny 2 $two $heads --stages 1 --recompute full
grid 1 4 llama-tiny 2 $two $heads $whole --stages 1 # a key and value head on two processes
one=sppo slices=4 grid 1 4 llama-tiny 2 $two $ring --stages 1 --schedule sppo
grid 1 8 llama-tiny 2 $two $both --stages 1 --recompute full # a key and value head on two processes
one=sppo slices=2 grid 1 8 gpt-tiny 2 $two $both $whole --stages 1 --schedule sppo
exact=no
one=sppo slices=4 grid 1 4 llama-tiny 2 $two --stages 2 --schedule sppo --recompute selective \
    --offload full --offload-dir "$work"
grid 1 4 llama-tiny 4 $two --stages 2 --schedule helix:qkv=weights --recompute full --offload full --offload-dir "$work"
every="--document-separator 32" # words
grid 1 4 gpt-tiny 2 $four --stages 1
every=
grid 1 4 gpt-tiny 4 $two --stages 2 --schedule dualpipev # an upper bound is planned where ops overlap
grid 2 4 llama-tiny 2 $two --stages 4 --schedule 1f1b --partition 0,5,0,3 --zero 1 # stages share processes
[ -z "${SP_LONG:-}" ] || for name in $(starpipe list | cut -d ' ' -f 1); do
    case $name in seq1f1b | slimpipe | terapipe | sppo) slices=2 one=sppo ;; *) slices=1 one=1f1b ;; esac
    grid 1 8 gpt-tiny 4 $four --stages 2 --schedule "$name"
    grid 2 8 llama-tiny 4 $two --stages 2 --schedule "$name" --zero 1
    grid 1 8 gpt-tiny 4 $four $whole --stages 2 --schedule "$name"
    [ "$name" = slimpipe ] && continue # not with shared tokens
    grid 1 8 llama-tiny 4 $two $heads --stages 2 --schedule "$name"
    grid 1 8 gpt-tiny 4 $two $ring --stages 2 --schedule "$name"
    case $name in 1f1b | gpipe | zbv | seq1f1b) ;; *) continue ;; esac
    grid 1 8 gpt-tiny 4 $four --stages 2 --schedule "$name" --vocabulary-parallel
    grid 2 8 llama-tiny 4 $two --stages 2 --schedule "$name" --vocabulary-parallel --zero 1
    grid 1 8 llama-tiny 4 $two $heads --stages 2 --schedule "$name" --vocabulary-parallel
done
one= slices=

# ---- heads that have norms, biases, a tied table whose rows the processes cannot divide evenly

mkdir "$work/qwen"
echo '{"model_type": "qwen3", "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 4, "head_dim": 16,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 257, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": true}' > "$work/qwen/config.json"
grid 1 4 "$work/qwen" 4 $two --stages 2 --schedule tawpipe --recompute no-attention
grid 1 2 "$work/qwen" 4 $two $whole --stages 1 --recompute selective
grid 1 4 "$work/qwen" 4 $two --stages 2 --schedule zbv --vocabulary-parallel

# ---- a position table all of whose parts are used, of rows that the processes cannot divide evenly

mkdir "$work/gpt"
echo '{"model_type": "gpt2", "n_embd": 48, "n_layer": 4, "n_head": 4, "n_positions": 35, "vocab_size": 257}' \
    > "$work/gpt/config.json"
exact=yes
grid 1 4 "$work/gpt" 2 $four --stages 1
grid 1 4 "$work/gpt" 2 $four $whole --stages 1
grid 2 4 "$work/gpt" 2 $two --stages 1 --recompute full --zero 1
grid 1 4 "$work/gpt" 2 $two $heads --stages 1
one=seq1f1b slices=2 grid 1 4 "$work/gpt" 2 $two $ring --stages 1 --schedule seq1f1b
[ -z "${SP_LONG:-}" ] || grid 1 4 "$work/gpt" 4 $two --stages 2 --schedule fsdp --recompute full
grid 1 4 "$work/gpt" 4 $two --stages 2 --schedule helix --vocabulary-parallel
exact=no
every="--document-separator 32"
grid 1 4 "$work/gpt" 2 $two $ring --stages 1
every=

# ---- fewer heads of keys and values than processes: each is on several

exact=yes
grid 1 4 llama-tiny 2 $four --stages 1
grid 1 4 llama-tiny 2 $four $whole --stages 1 --recompute selective
grid 1 8 llama-tiny 4 $four --stages 2 --schedule helix:qkv=weights --recompute no-attention
grid 1 8 llama-tiny 4 $four --stages 2 --schedule helix:qkv=activations --recompute full --slices 2
grid 2 8 llama-tiny 2 $four --stages 1 --schedule 1f1b --zero 1
config='"model_type": "qwen3", "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 4, "head_dim": 16,
    "vocab_size": 257, "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 10000, "attention_bias": true'
mkdir "$work/one" "$work/three"
echo "{$config, \"num_attention_heads\": 4, \"num_key_value_heads\": 1}" > "$work/one/config.json"
echo "{$config, \"num_attention_heads\": 6, \"num_key_value_heads\": 3}" > "$work/three/config.json"
grid 1 4 "$work/one" 2 $four --stages 1 # one head for all, with norms and biases
grid 1 6 "$work/three" 2 --tensor-parallel 6 $whole --stages 1 --recompute full
one=seq1f1b slices=2 grid 1 4 "$work/one" 2 $two $ring --stages 1 --schedule seq1f1b
if [ -n "${SP_LONG:-}" ]; then
    grid 1 4 "$work/one" 4 $two --stages 2 --schedule tawpipe --recompute no-attention
    one=sppo slices=2 grid 1 4 "$work/one" 2 $two --stages 2 --schedule slimpipe
    grid 1 4 "$work/one" 2 $two $heads --stages 1 --recompute full
fi
exact=no

# ---- chunks of the MLP, gathered, computed and summed one after the other

exact=yes
chunks="--recompute no-attention --mlp-chunk"
grid 1 2 gpt-tiny 2 $two --stages 1 $chunks 10
grid 1 2 gpt-tiny 2 $two $whole --stages 1 --recompute full --mlp-chunk 7
grid 1 4 llama-tiny 2 $four --stages 1 --recompute every=2 --mlp-chunk 8
grid 1 4 gpt-tiny 4 $two --stages 2 --schedule zb1p $chunks 16 # forward alone: weight gradients wait
grid 1 4 llama-tiny 4 $two --stages 2 --schedule helix:qkv=weights $chunks 12
grid 1 4 gpt-tiny 4 $two --stages 2 --schedule helix:qkv=activations --recompute full --slices 2 --mlp-chunk 6
grid 1 4 llama-tiny 2 $two $heads --stages 1 --recompute full --mlp-chunk 6
one=seq1f1b slices=2 grid 1 4 gpt-tiny 2 $two $ring --stages 1 --schedule seq1f1b $chunks 4
grid 1 4 gpt-tiny 4 $two --stages 2 --schedule tawpipe $chunks 8
if [ -n "${SP_LONG:-}" ]; then
    grid 1 4 llama-tiny 4 $two --stages 2 --schedule helix:qkv=weights --vocabulary-parallel $chunks 8
    one=sppo slices=4 grid 1 4 llama-tiny 2 $two --stages 2 --schedule sppo --recompute full --mlp-chunk 5
    grid 1 4 gpt-tiny 2 $two $heads $whole --stages 1 $chunks 3
    grid 1 4 gpt-tiny 4 $two --stages 2 --schedule fsdp --recompute full --mlp-chunk 8
    grid 2 4 "$work/gpt" 2 $two --stages 1 --recompute every=2 --mlp-chunk 12 --zero 1
fi
exact=no
grid 1 4 llama-tiny 4 $two --stages 2 --schedule helix:qkv=weights --recompute full --mlp-chunk 8 --offload full \
    --offload-dir "$work"
make_grids

# workspace OPTION...: bytes of it in a dry run of long sequences.
workspace()
{
    starpipe train --model llama-tiny --seq 2048 --stages 1 --micro-batches 1 $four --dry-run --json "$@" |
        sed -n 's/.*"workspace_bytes": \([0-9]*\).*/\1/p'
}
for recompute in no-attention full; do
    all=$(workspace --recompute $recompute) || fail "workspace: no dry run"
    chunk=$(workspace --recompute $recompute --mlp-chunk 256)
    echo "$recompute: workspace of $all bytes, with chunks of an eighth of the tokens $chunk"
    awk "BEGIN { exit !($chunk > 0 && 3 * $chunk < 2 * $all) }" || fail "$recompute: chunks take $chunk bytes, all rows $all"
done

# ---- types, several sequences in a micro-batch, and the same at another place

train="train --data $work/text --seq 32 --micro-batches 2 --micro-batch-size 3 --eval $work/text --eval-tokens 500"
quiet "alone" starpipe $train --model gpt-tiny --stages 1 --steps 4 --log "$work/one.jsonl"
quiet "saved" mpi 4 $train --model gpt-tiny --stages 2 $two --steps 2 --save "$work/saved" --sample 3 --trace "$work/trace"
said "report" 'measured in 4 processes' report "$work/trace/trace.json"
grep -q '<rect class="exchange"' "$work/trace/measured.svg" || fail "picture: no exchanges between members"
quiet "resumed by one" starpipe $train --stages 1 --steps 4 --resume "$work/saved" --log "$work/more.jsonl"
agree "resumed by one: losses" near --part "$work/more.jsonl" "$work/one.jsonl" 1e-5
quiet "resumed by four" mpi 4 $train --stages 1 --steps 4 $four --resume "$work/saved" --log "$work/more.jsonl"
agree "resumed by four: losses" near --part "$work/more.jsonl" "$work/one.jsonl" 1e-5
quiet "alone" starpipe $train --model llama-tiny --stages 1 --steps 4 --log "$work/one.jsonl"
quiet "saved with copies of heads" mpi 4 $train --model llama-tiny --stages 1 $four --steps 2 --save "$work/copies"
quiet "resumed by two" mpi 2 $train --stages 1 --steps 4 $two --resume "$work/copies" --log "$work/more.jsonl"
agree "resumed by two: losses" near --part "$work/more.jsonl" "$work/one.jsonl" 1e-5
quiet "resumed by four" mpi 4 $train --stages 1 --steps 4 $four --resume "$work/copies" --log "$work/more.jsonl"
agree "resumed by four with copies: losses" near --part "$work/more.jsonl" "$work/one.jsonl" 1e-5

# ---- bytes of a layer and micro-batch: 10 (t-1)/t T h e, or 4 log2 t T h e where all have all tokens; of embedding and
# head four and two such; 8 (t-1) T for the statistics of logits; 4 log2 t for each parameter that all have, 4 for each
# of keys and values that two have

# MODEL SAME KEYS T OPTION...: what each of T processes sends; SAME, KEYS: parameters whose gradients all sum, or two.
shares=()
for t in 2 4; do
    shares+=("gpt-tiny $((8 * 4 * 64 + 2 * 64)) 0 $t" "gpt-tiny 0 0 $t $whole")
done
shares+=("llama-tiny $((8 * 2 * 64 + 64)) 0 2" "llama-tiny $((8 * 2 * 64 + 64)) $((8 * 2 * 16 * 64)) 4"
    "llama-tiny 0 $((8 * 2 * 16 * 64)) 4 $whole")
layers=8 h=64 tokens=32 m=2
for i in "${!shares[@]}"; do
    read -r model _ _ t options <<< "${shares[i]}"
    note "shares-$i" "$t" --model "$model" --data "$work/text" --seq $tokens --steps 1 --stages 1 --micro-batches $m \
        --tensor-parallel "$t" $options
done
train="--data $work/text --seq 64 --stages 1 --micro-batches 2 --steps 2 --model llama-tiny --dtype bf16"
note bf16 1 $train
note bf16-sequences 2 $train $two
note bf16-whole 2 $train $two $whole
make_runs
for i in "${!shares[@]}"; do
    read -r model same keys t options <<< "${shares[i]}"
    rounds=$((t / 2)) # log2 of 2 and 4
    rows=$((tokens * h * 4))
    sent=$(tail -n 1 "$work/shares-$i.jsonl" | sed 's/.*"bytes_sent":\([0-9]*\).*/\1/')
    formula=$((m * (10 * layers + 4) * (t - 1) * rows / t + 4 * same * rounds))
    [ -z "$options" ] || formula=$((m * (4 * layers + 2) * rounds * rows))
    formula=$((formula + 4 * keys + m * 8 * (t - 1) * tokens))
    echo "$model, $t members $options: $sent bytes sent by each, $formula by the formula"
    [ "$sent" -eq "$formula" ] || fail "$model, $t members: $sent bytes, not $formula"
done
for run in sequences whole; do
    agree "bf16, $run: gradients" near "$work/bf16-$run.safetensors" "$work/bf16.safetensors" 2e-2
done

# ---- refusals, and a process that stops

few="--model llama-tiny --data $work/text --seq 32 --stages 2 --micro-batches 4"
refused "context-parallel 2 --tensor-parallel 2 wants 4 processes.*there is 1: mpirun -np 4" train $few $two $heads
refused "tensor-parallel 2: .*three has 6 heads and 3 of keys and values" train $few --model "$work/three" $two --dry-run
refused "tensor-parallel 3: gpt-tiny has 4 heads" train $few --model gpt-tiny --tensor-parallel 3 --dry-run
refused "tensor-parallel 2: sequences of 31 tokens are no multiple of 2" train $few --seq 31 $two --dry-run
refused "context-parallel 4: llama-tiny has 2 heads and 1 of keys and values in each part" train $few $two \
    --context-parallel 4 --dry-run
refused "stages of sppo:multiplex share tokens already; add --sequence-parallel off" train $few $two \
    --schedule sppo:multiplex --slices 2 --dry-run

# ---- SPPO's table 4: model, SP, PP, thousands of tokens and N

layouts=0
for row in "gpt3-7b 8 4 512:32 640:64 768:80 896:128 1024:160" "gpt-13b 8 8 512:32 640:48 768:64 1024:80 1280:160" \
    "gpt-65b 16 8 512:32 600:64 640:80 768:96 1024:128"; do
    read -r model sp pp cells <<< "$row"
    for cell in $cells; do
        for schedule in "sppo --tensor-parallel $sp" "sppo:multiplex --tensor-parallel $sp $whole" \
            "sppo:multiplex --context-parallel $sp"; do
            quiet "$model, ${cell%:*}K tokens, N ${cell#*:}, $schedule" starpipe train --dry-run --model "$model" \
                --stages "$pp" --micro-batches 1 --dtype bf16 --hardware a800-ib \
                --seq $((${cell%:*} * 1024)) --slices "${cell#*:}" --schedule $schedule && layouts=$((layouts + 1))
        done
    done
done
echo "table 4: $layouts of 45 layouts"
refused "sequence-parallel without --tensor-parallel T has no effect" train $few $whole --dry-run
refused "context-method without --context-parallel C has no effect" train $few --context-method ring --dry-run
refused "tensor-parallel: an order does not depend on it" show --schedule 1f1b --stages 2 --micro-batches 4 $two
timeout 60 $MPIRUN -np 1 "$STARPIPE" train $few $two : -np 1 "$STARPIPE" train $few $two $whole > "$work/output" 2>&1
grep -Eq "^starpipe: rank 1: --sequence-parallel is off here and on on rank 0" "$work/output" ||
    fail "different grids: $(head -n 2 "$work/output")"

killed "a member killed" 4 $few --model gpt-tiny --stages 1 $four
finish
