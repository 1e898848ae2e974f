#!/bin/bash
# Text drawn at the end of a run: the same for any stages, processes and schedules; a long prompt
# counts by its end, and costs no more than that.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 20011 > "$work/text"
common="--data $work/text --seq 64 --micro-batches 4"

# drawn FILE COMMAND...: what follows "sample:" goes to FILE.
drawn()
{
    local file=$work/$1

    shift
    quiet "${file##*/}" "$@" || return
    awk 'found; /^sample:$/ { found = 1 }' "$work/output" > "$file"
    [ -s "$file" ] || fail "${file##*/}: nothing was drawn"
}

same()
{
    cmp -s "$work/$1" "$work/$2" ||
        fail "$2 differs from $1: $(head -c 60 "$work/$2"), not $(head -c 60 "$work/$1")"
}

for model in gpt-tiny llama-tiny; do
    quiet "training $model" starpipe train --model $model $common --steps 40 --lr 5e-3 \
        --save "$work/$model"
    again="train --model $work/$model/step-000040 $common --steps 0 --sample 150"

    # Three windows of text.
    drawn $model.1 starpipe $again --prompt "the water runs "
    # A token is a byte; one that begins no character is printed as U+FFFD, of three bytes.
    { [ "$(wc -c < "$work/$model.1")" -ge $((15 + 150 + 1)) ] &&
        [ "$(LC_ALL=C.UTF-8 wc -m < "$work/$model.1")" -le $((15 + 150 + 1)) ]; } ||
        fail "$model: $(wc -c < "$work/$model.1") bytes were printed"
    echo "$model: $(head -c 70 "$work/$model.1" | tr '\n' ' ')"
    drawn $model.3 starpipe $again --prompt "the water runs " --stages 3
    same $model.1 $model.3
    if have_mpi; then
        drawn $model.mpi mpi 2 $again --prompt "the water runs " --stages 4 --schedule gpipe
        same $model.1 $model.mpi
    fi
done
# `sample`: the same text from stages and slices of the prompt, greedy and drawn, when the positions
# end (512 of them) too; in other processes than the first as well.
prompt=$(head -c 500 "$work/text" | tr '\n' ' ')
sampled()
{
    local file=$work/$1

    shift
    "$@" > "$file" 2> "$work/stderr" || fail "$*: $(tail -n 3 "$work/stderr")"
    grep -Eq '^prompt: [0-9]+ tokens in .* a second; text: [0-9]+ in .* a second$' "$work/stderr" ||
        fail "$*: $(tail -n 3 "$work/stderr")"
}
for model in gpt-tiny llama-tiny; do
    for how in "--temperature 0" "--temperature 1 --seed 3"; do
        from="sample $work/$model --tokens 40 $how"
        sampled one starpipe $from --prompt "$prompt" --stages 1 --slices 1
        for cut in "--stages 1 --slices 7" "--stages 2 --slices 3" "--stages 3"; do
            sampled cut starpipe $from --prompt "$prompt" $cut
            same one cut
        done
        if have_mpi; then
            sampled cut mpi 2 $from --prompt "$prompt" --stages 3 --slices 5
            same one cut
        fi
    done
done
have_mpi && refused_in 2 'text is drawn by a process for each stage.*--stages 2' sample "$work/gpt-tiny"
refused "9 stages .* at most 8" sample "$work/gpt-tiny" --stages 9
drawn sharded starpipe $again --prompt "the water runs " --stages 2 --schedule fsdp
same llama-tiny.1 sharded
drawn offloaded starpipe $again --prompt "the water runs " --stages 2 --offload full
same llama-tiny.1 offloaded
drawn rounded starpipe $again --prompt "the water runs " --dtype bf16
echo "bf16: $(head -c 70 "$work/rounded" | tr '\n' ' ')"

# The last 64 of 16384 bytes are what counts.
prompt=$(head -c 16384 "$work/text" | tr '\n' ' ')
begin=$(date +%s%N)
drawn long starpipe $again --prompt "$prompt"
took=$((($(date +%s%N) - begin) / 1000000))
drawn short starpipe $again --prompt "${prompt: -64}"
tail -c 151 "$work/long" > "$work/long.end"
tail -c 151 "$work/short" > "$work/short.end"
same short.end long.end
echo "a prompt of ${#prompt} bytes: the whole run took $took ms"
[ $took -lt 6000 ] || fail "a long prompt takes long: $took ms"
drawn unprompted starpipe $again
finish
