#!/bin/bash
# What cannot be done is refused: exit status 2, one line on stderr that says why, nothing on
# stdout, within five seconds, and in several processes by one of them only.
. "$(dirname "$0")/../common.sh" || exit 1

golden=$SP_TESTDATA/golden
refusals=0

# refused PATTERN ARGUMENTS
refused()
{
    local pattern=$1 status lines

    shift
    timeout -k 1 5 "$STARPIPE" "$@" > "$work/stdout" 2> "$work/stderr" < /dev/null
    status=$?
    lines=$(wc -l < "$work/stderr")
    refusals=$((refusals + 1))
    if [ $status -ne 2 ] || [ "$lines" -ne 1 ] || [ -s "$work/stdout" ] ||
        ! grep -Eq "^starpipe: .*$pattern" "$work/stderr"; then
        fail "starpipe $*"
        echo "  exit status $status, $lines lines on stderr, wanted: $pattern"
        head -n 3 "$work/stderr" "$work/stdout" | cut -c 1-300
    fi
}

make_text 5003 > "$work/text"
tiny="train --model gpt-tiny --data $work/text"

# ---- launchers of which MPI knows nothing

PMI_SIZE=2 refused "started as one of 2 tasks \(PMI_SIZE\)" $tiny
SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 refused "started as one of 2 tasks \(SLURM_STEP_NUM_TASKS\)" $tiny

# ---- commands and options

refused "no command"
refused "unknown command 'trian', did you mean train\?$" trian
refused "unknown command 'frobnicate'; 'starpipe --help' lists them" frobnicate
refused "unknown command 'trian', did you mean train" help trian
refused "help: 'sppo' is one word too many" help reproduce sppo sppo
refused "--schedule stands after a command: 'starpipe train --schedule" --schedule 1f1b
refused "no paper 'sppx', did you mean sppo" reproduce sppx
refused "did you mean gpt-tiny\?" train --model gpt-tny --data "$work/text"
refused "no schedule '1f1bb', did you mean 1f1b\?" $tiny --schedule 1f1bb
refused "no machine 'h100-bi', did you mean h100-ib\?" plan --model gpt-tiny --seq 64 --hardware h100-bi
refused "offload ful: want none, full or adaptive, did you mean full\?" $tiny --offload ful
refused "recompute selectiv: .*, did you mean selective\?" $tiny --recompute selectiv
refused "dtype: 'bf15' is none of f32\|bf16\|fp8, did you mean bf16\?" $tiny --dtype bf15
refused "did you mean --stages" $tiny --stage 2
refused "no option --frobnicate" $tiny --frobnicate
refused "'stages' is not an option" $tiny stages
refused "needs a value" $tiny --stages
refused "needs a value" $tiny --stages --steps 3
refused "value is empty" $tiny --log=
refused "takes no value" $tiny --dry-run=yes
refused "which model" train --data "$work/text"
refused "what to train on" train --model gpt-tiny
refused "not both" $tiny --tokens "$golden/tokens.bin"
refused "not both" $tiny --tokens "$golden/tokens.bin" --dry-run
refused "save-every without --save" $tiny --save-every 3
refused "neither a preset nor a directory" train --model gpt-tinny --data "$work/text"
refused "no-such-schedule|unknown schedule" $tiny --schedule no-such-schedule
refused "schedule" $tiny --schedule 1f1b:nonsense=1
refused "schedule|backward" $tiny --schedule gpipe:backward=sideways
refused "recompute" $tiny --recompute some
refused "recompute norms,: want" $tiny --recompute norms,
refused "recompute mlp: .*nearest is no-attention, that is norms,activation,qkv,mlp" $tiny --recompute mlp
refused "recompute" $tiny --recompute every=0
refused "recompute" $tiny --recompute every=-1
refused "recompute" $tiny --recompute every=2x
refused "recompute" $tiny --recompute every=99999999999999999999
refused "clip 0" $tiny --schedule pipedream --stages 2
refused "dump-grads is not available" $tiny --schedule pipedream --stages 2 --clip 0 --dump-grads "$work/grads"
refused "embedding and head on two stages" $tiny --schedule pipedream --stages 2 --clip 0
refused "post-validation is not" $tiny --schedule pipedream --stages 2 --clip 0 --post-validation
refused "tensor, context or data" $tiny --schedule pipedream --stages 2 --clip 0 --data-parallel 2 --dry-run
refused "has batches of as many micro-batches" $tiny --schedule pipedream-2bw:batch=3 --stages 2 --clip 0
refused "after every 2 micro-batches; give --clip 0" $tiny --schedule pipedream-2bw:batch=2 --stages 2
refused "scheduler strict" $tiny --offload full --scheduler ready
refused "post-validation" $tiny --offload full --post-validation
refused "searched" $tiny --schedule zb1p:auto --stages 2 --offload full
refused "list" $tiny --partition balanced --stages 2 --offload adaptive
refused "no-such-directory.*No such file" $tiny --offload full --offload-dir no-such-directory
refused "needs .* MiB with all activations away" $tiny --offload adaptive --memory-limit 64KiB
refused "offload" $tiny --offload sideways
refused "dtype" $tiny --dtype f16
if starpipe info | grep -q '^CUDA: *no'; then
    refused "cuda: this build has no CUDA kernels" $tiny --device cuda
fi
SP_DEVICE=gpu refused "SP_DEVICE=gpu.*say auto, cpu or cuda" $tiny
refused "plugin" $tiny --plugin /none.so
refused "no such policy, .*; there are strict, ready, .*lws" $tiny --scheduler sometimes
refused "no such policy" $tiny --scheduler modular-heft
refused "which --scheduler prio does not enforce" $tiny --offload-optimizer --scheduler prio
refused "optimizer-device without --offload-optimizer has no effect" $tiny --optimizer-device cpu
refused "optimizer-device gpu: this run has no GPU" $tiny --offload-optimizer --optimizer-device gpu
refused "is none of" $tiny --order backwards

# ---- what would have no effect, as something else is not given

# The option, and what it wants; nothing is begun.
while read -r wants option; do
    refused "train: --${option%% *} without --$wants.* has no effect$" $tiny --$option
done << 'END'
save keep 3
save keep 0
save save-every 5
save save-async
save shard-size 1GB
save overwrite
eval eval-every 5
eval eval-tokens 100
sample prompt x
tokens token-bytes 4
offload offload-keys leave
offload offload-dir .
lr-schedule lr-min 1e-5
lr-schedule decay 5
data-parallel zero 1
context-parallel context-method ring
tensor-parallel sequence-parallel off
dry-run format json
dry-run json
dry-run output x
END
refused "offload-dir without --offload" $tiny --offload none --offload-dir .
refused "zero without --data-parallel D or --context-parallel C has no effect" $tiny --zero 1 --tensor-parallel 2
refused "context-method without --context-parallel" show --context-method ring
refused "zero without --data-parallel D or --context-parallel C or --devices T" plan --model gpt-tiny --seq 64 --zero 1
quiet "what says no" starpipe $tiny --steps 0 --seq 16 --zero 0 --context-method ulysses --save-async=off
refused "offload-keys without --offload" show --model gpt-tiny --offload-keys leave
[ ! -e x ] || fail "a refused --output made a file"

# ---- sizes

for size in 0 -1 99999999999999999999 4294967297 1.5 x 0x10 "" " " 2147483648; do
    for name in stages micro-batches micro-batch-size seq slices; do
        refused "--$name" $tiny "--$name=$size"
    done
done
for name in steps chunks threads window mlp-chunk logit-rows save-every warmup seed sample; do
    refused "--$name" $tiny "--$name=-1"
    refused "--$name" $tiny "--$name=99999999999999999999"
done
for value in -1 nan inf 1e400 x ""; do
    for name in lr weight-decay beta1 beta2 eps clip stall-timeout; do
        refused "--$name" $tiny "--$name=$value"
    done
done
refused "beta1" $tiny --beta1 1
refused "eps" $tiny --eps 0
refused "513 tokens.* 512 positions" $tiny --seq 513
refused "layers" $tiny --stages 9
refused "ops" $tiny --stages 65536 --micro-batches 65536
refused "chunks" $tiny --chunks 2
refused "slices" $tiny --slices 2
refused "too large" train --model gpt-13b --data "$work/text" --seq 4194304 --micro-batch-size 65536
refused "need .* GiB" $tiny --seq 512 --micro-batch-size 65536
refused "need .* GiB" train --model llama3-405b --data "$work/text"
refused "longer ones can only be planned" train --model gpt-65b --data "$work/text" --seq 4194304 --stages 80

# ---- memory limits: what the message asks for is enough, a little less is not

for limit in -1 1.5 x 12Mb 1mb inf 1e99 MiB 1MiBs; do
    refused "memory-limit" $tiny --memory-limit=$limit
done
limited="$tiny --stages 3 --seq 64 --steps 1"
refused "stage 0 needs [0-9.]* MiB" $limited --memory-limit 1MiB
need=$(sed 's/.*needs \([0-9.]*\) MiB.*/\1/' "$work/stderr")
above=$(awk -v n="$need" 'BEGIN { printf "%.0f", (n + 0.01) * 1048576 }')
below=$(awk -v n="$need" 'BEGIN { printf "%.0f", (n - 0.01) * 1048576 }')
echo "3 stages need $need MiB: $below bytes are refused, $above do"
quiet "memory limit of $above bytes" starpipe $limited --memory-limit "$above"
refused "needs $need MiB" $limited --memory-limit "$below"

# ---- data

refused "No such file" train --model gpt-tiny --data "$work/none"
refused "not a regular file" train --model gpt-tiny --data "$work"
: > "$work/empty"
refused "is empty" train --model gpt-tiny --data "$work/empty"
refused "is empty" train --model gpt-tiny --tokens "$work/empty"
head -c 4001 "$golden/tokens.bin" | head -c 1001 > "$work/odd"
refused "1001 bytes: not a whole number" train --model "$golden/gpt2" --seq 16 --tokens "$work/odd"
cp "$golden/tokens.bin" "$work/large.bin"
printf '\075\000' >> "$work/large.bin" # token 61 of a vocabulary of 61
refused "token 1003 is 61.*vocabulary is 61" train --model "$golden/gpt2" --seq 16 \
    --tokens "$work/large.bin"
refused "token 0 is .*vocabulary is 61" train --model "$golden/gpt2" --seq 16 --data "$work/text"

refused "2006 bytes: not a whole number of 4-byte tokens" train --model "$golden/gpt2" --seq 16 \
    --tokens "$golden/tokens.bin" --token-bytes 4
refused "token-bytes: '3' is none of 2\|4" $tiny --token-bytes 3
refused "token-bytes without --tokens" $tiny --token-bytes 4
{ printf '\210\330\064\001\001\000\000\000\003\000\000\000'; head -c 1018 /dev/zero; } > "$work/headed.bin"
quiet "a header of llm.c" starpipe train --model "$golden/gpt2" --seq 16 --tokens "$work/headed.bin" --steps 0
refused "by its header .* a token has 2 bytes, not 4" train --model "$golden/gpt2" --seq 16 \
    --tokens "$work/headed.bin" --token-bytes 4
printf x >> "$work/headed.bin"
refused "has 3 tokens of 2 bytes, which makes 1030 bytes in all; it has 1031" train \
    --model "$golden/gpt2" --seq 16 --tokens "$work/headed.bin"

# ---- models

broken=$work/broken
# break_model: a whole copy of the golden model, to be damaged.
break_model()
{
    rm -rf "$broken"
    cp -R "$golden/llama" "$broken"
}
on_broken="train --model $broken --tokens $golden/tokens.bin --seq 16"

break_model
quiet "the copy, whole" starpipe $on_broken --steps 1
size=$(wc -c < "$golden/llama/model.safetensors")
for cut in 0 1 7 8 9 100 1000 $((size / 2)) $((size - 1)); do
    head -c "$cut" "$golden/llama/model.safetensors" > "$broken/model.safetensors"
    refused "model.safetensors" $on_broken
done
cp "$golden/llama/model.safetensors" "$broken"
printf x >> "$broken/model.safetensors"
refused "model.safetensors" $on_broken
# Bytes of the header's length, its braces, a name, a type, a shape.
for at in 0 3 7 8 10 15 40 60 90; do
    cp "$golden/llama/model.safetensors" "$broken"
    printf '\377' | dd of="$broken/model.safetensors" bs=1 seek=$at conv=notrunc 2> /dev/null
    refused "model.safetensors" $on_broken
done
cp "$golden/llama-tied/model.safetensors" "$broken"
refused "model.safetensors" $on_broken # of another model
cp "$golden/llama/model.safetensors" "$broken"
printf '\000\000\300\177' | dd of="$broken/model.safetensors" bs=1 seek=$((size - 4)) conv=notrunc 2> /dev/null
refused "model.safetensors: tensor .* holds NaN at element" $on_broken
cp "$golden/llama/model.safetensors" "$broken"

size=$(wc -c < "$golden/llama/config.json")
for cut in 0 1 20 $((size / 2)) $((size - 3)); do
    head -c "$cut" "$golden/llama/config.json" > "$broken/config.json"
    refused "config.json" $on_broken
done
# edit SED: one wrong value.
edit()
{
    sed "$1" "$golden/llama/config.json" > "$broken/config.json"
    cmp -s "$golden/llama/config.json" "$broken/config.json" && fail "no change by $1"
    refused "$2" $on_broken
}
edit 's/"hidden_size": *[0-9]*/"hidden_size": -16/' "hidden_size"
edit 's/"hidden_size": *[0-9]*/"hidden_size": 0/' "hidden_size"
edit 's/"hidden_size": *[0-9]*/"hidden_size": 1e99/' "hidden_size"
edit 's/"hidden_size": *[0-9]*/"hidden_size": 99999999999999999999999/' "config.json"
edit 's/"hidden_size": *[0-9]*/"hidden_size": "16"/' "hidden_size"
edit 's/"num_hidden_layers": *[0-9]*/"num_hidden_layers": 2147483647/' "layers|model.safetensors"
edit 's/"num_attention_heads": *[0-9]*/"num_attention_heads": 3/' "heads"
edit 's/"vocab_size": *[0-9]*/"vocab_size": 62/' "model.safetensors"
edit 's/"model_type": *"[a-z0-9]*"/"model_type": "bert"/' "bert"
rm "$broken/config.json"
refused "config.json" $on_broken
mkdir "$broken/config.json"
refused "config.json" $on_broken

# ---- outputs and checkpoints

for option in log save dump-grads trace; do
    refused "cannot .*$work/text/deep/name: Not a directory" $tiny --$option "$work/text/deep/name"
done
refused "Is a directory" $tiny --log "$work"
refused "Not a directory|not a directory" $tiny --save "$work/text"
[ "$(cat "$work/text")" = "$(make_text 5003)" ] || fail "a refused --save touched a file"
mkdir "$work/nothing"
refused "no step-N directory" train --resume "$work/nothing" --data "$work/text"
refused "No such file" train --resume "$work/none" --data "$work/text"
quiet "a checkpoint" starpipe $tiny --steps 1 --seq 16 --save "$work/ck"
for file in state.json config.json model.safetensors optimizer-m.safetensors \
    optimizer-v.safetensors; do
    cp -R "$work/ck" "$work/cut"
    truncate -s 100 "$work/cut/step-000001/$file" 2> /dev/null ||
        dd if=/dev/null of="$work/cut/step-000001/$file" bs=1 seek=100 2> /dev/null
    refused "${file%.*}" train --resume "$work/cut" --data "$work/text" --steps 2 --save "$work/new"
    rm "$work/cut/step-000001/$file"
    refused "${file%.*}" train --resume "$work/cut" --data "$work/text" --steps 2 --save "$work/new"
    rm -r "$work/cut"
done
[ ! -e "$work/new" ] || fail "a refused run made its output directory"

# ---- show and list

refused "schedule" show --schedule nonsense
refused "is none of" show --format png
refused "cost" show --cost f=-1
refused "cost" show --cost f=1,nonsense=2
refused "cannot write" show --output "$work/none/deep"
refused "recompute" show --recompute some
refused "is for train and show" plan --model gpt-tiny --seq 64 --recompute auto
refused "chooses for a limit of memory" show --recompute auto
refused "chooses for a limit of memory" show --model gpt-tiny --recompute auto
refused "leave out --offload" show --model gpt-tiny --recompute auto --memory-limit 1GiB --offload adaptive
refused "has no layers that choose one by one" show --model gpt-tiny --schedule helix --recompute auto --memory-limit 1GiB
refused "needs [0-9.]+ MiB" show --model gpt-tiny --recompute auto --memory-limit 1MiB
refused "8 layers on 4 stages need" show --model gpt-tiny --schedule adapipe --memory-limit 1MiB
refused "costs of the parts" show --recompute no-attention
refused "costs given by hand" show --schedule helix --layers 8 --recompute full
refused "parts of layers, and the layers are unknown" show --schedule helix
refused "parts of layers; use pre=" show --schedule helix --layers 8 --cost f=1
refused "no word for" show --schedule helix --layers 8 --format csv
refused "which kind" trace
refused "no kind 'pft'" trace pft
refused "DIR" trace fxt
refused "no prof_file_" trace fxt "$work"
refused "cannot read .*: No such file" trace fxt "$work/none"
refused "starpipe trace fxt --help" trace fxt --bogus
refused "which paper" reproduce
refused "no paper" reproduce megatron
refused "format" reproduce helixpipe --format pdf
refused "no paper" reproduce HelixPipe
refused "starpipe reproduce helixpipe --help" reproduce helixpipe --bogus
refused "give --model" show --memory-limit 1GiB
refused "'jitter=0.1' is not one of" show --vary jitter=0.1
refused "stage=4x2 is not a stage" show --stages 4 --vary stage=4x2
refused "varies nothing" show --vary uniform=0
refused "messages take no time on any link" show --stages 4 --vary link=0x2
refused "seed= draws nothing" show --vary seed=3
refused "give --scheduler ready too" show --window 3
refused "stages of weipipe keep in step" show --schedule weipipe --scheduler ready
refused "planned for the strict order" show --model gpt-tiny --offload full --scheduler ready
refused "csv:FILE" show --schedule csv
refused "'starpipe show --help'" show 4
refused "at most budget=" show --schedule zb1p:auto,budget=2147483647
# stages that must be even, and twice as many micro-batches: what the line says does
refused "use --stages 2 --micro-batches 4" show --schedule dualpipe --stages 3 --micro-batches 2
quiet "dualpipe as advised" starpipe show --schedule dualpipe --stages 2 --micro-batches 4
refused "use --stages 4" show --schedule chimera --stages 5
refused "use group=4" show --schedule interleaved:group=3
refused "no option" list --jsn
refused "no option" info --jsn

# ---- several processes: one line of ours among those of the launcher

if have_mpi; then
    refused_in 2 "no option --frobnicate" $tiny --frobnicate
    refused_in 2 "2 processes for 1 stages" $tiny
    refused_in 3 "3 processes for 2 stages" $tiny --stages 2
    refused_in 2 "No such file" train --model gpt-tiny --data "$work/none" --stages 2
    refused_in 2 "layers" $tiny --stages 9
    refused_in 2 "cannot write" $tiny --stages 2 --log "$work/text/deep/name"
    refused_in 2 "needs [0-9.]* MiB" $tiny --stages 2 --memory-limit 1MiB
    refused_in 2 "no step-N directory" train --resume "$work/nothing" --data "$work/text" --stages 2
    head -c 1000 "$golden/llama/model.safetensors" > "$broken/model.safetensors"
    rmdir "$broken/config.json"
    cp "$golden/llama/config.json" "$broken"
    refused_in 2 "model.safetensors" $on_broken --stages 2
fi
echo "$refusals command lines"
finish
