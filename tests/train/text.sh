#!/bin/bash
# A text trained on by the tokens of the model directory: the losses and the bits of `tokenize` and --tokens; the run's
# directory has the tokenizer, and `sample` writes with it.
. "$(dirname "$0")/../common.sh" || exit 1

cd "$work" || exit 1
# An eos of each model soon.
make_text 307 > book.txt
printf 'Der Zug hält über Nacht in Köln; e\314\201toile\r\n\t你好 👍🏽 <|endoftext|></s><|im_end|>\n\n' >> book.txt
make_text 3001 >> book.txt

# model NAME: a copy without weights.
model()
{
    cp -r "$SP_TESTDATA/sample/$1" "$1"
    rm "$1/model.safetensors" "$1/expected.json"
}

# on_tokens NAME ENDS OPTIONS...: the same run with --data and with --tokens, eos ending the documents as ENDS says.
on_tokens()
{
    local name=$1 ends=$2 eos=

    shift 2
    if ! starpipe tokenize book.txt --model $name --output $name.bin $ends > said 2> stderr; then
        grep -q 'this build reads no tokenizers' stderr && { cat stderr; exit 77; }
        fail "tokenize $name: $(cat stderr)"
    fi
    [ -z "$ends" ] || eos=$(grep -o -- '--document-separator [0-9]*' said)
    rm -rf $name.tokens* $name.data*
    quiet "$name $ends, --tokens" starpipe train --tokens $name.bin --model $name $eos "$@" --log $name.tokens.jsonl \
        --save $name.tokens || return
    quiet "$name $ends, --data" starpipe train --data book.txt --model $name $ends "$@" --log $name.data.jsonl \
        --save $name.data || return
    agree "$name $ends, losses" near $name.tokens.jsonl $name.data.jsonl 0
    cmp $name.tokens/model.safetensors $name.data/model.safetensors || fail "$name: --data has other weights"
}

prompt_tokens()
{
    grep -o '"prompt_tokens":\[[0-9,]*\]' "$1"
}

for name in gpt2 llama2 llama3 qwen2; do
    model $name
    on="--seq 32 --micro-batches 4 --steps 5 --lr 5e-3 --stages 2"
    on_tokens $name "--document-separator eos" $on || continue
    mv $name.data.jsonl cut.jsonl
    on_tokens $name "" $on || continue
    ! near cut.jsonl $name.data.jsonl 0 > /dev/null || fail "$name: eos cuts no documents"
    [ "$(steps_of $name.data.jsonl loss | wc -l)" -eq 5 ] || fail "$name: no five steps"
    # Words learned: not the loss of bytes, nor of tokens at random.
    awk -v begin="$(steps_of $name.data.jsonl loss | head -n 1)" -v end="$(steps_of $name.data.jsonl loss | tail -n 1)" \
        'BEGIN { exit !(begin > 5.5 && begin < 7 && end < begin - 0.05) }' ||
        fail "$name: losses $(steps_of $name.data.jsonl loss | xargs)"

    # What `transformers` wants of a directory is there, and text comes out.
    for file in tokenizer.json tokenizer_config.json generation_config.json; do
        [ ! -e $name/$file ] || cmp $name/$file $name.data/$file || fail "$name: no $file was saved"
    done
    quiet "$name, sample" starpipe sample $name.data --prompt "the water" --tokens 12 --temperature 0 --format json ||
        continue
    mv output trained.json
    quiet "$name, sample" starpipe sample "$SP_TESTDATA/sample/$name" --prompt "the water" --tokens 1 --format json ||
        continue
    [ "$(prompt_tokens output)" = "$(prompt_tokens trained.json)" ] || fail "$name: the prompt has other tokens: $(cat trained.json)"
    quiet "$name, sample" starpipe sample $name.tokens --prompt "the water" --tokens 12 --temperature 0 --format json ||
        continue
    [ "$(sed 's/"model": *"[^"]*"//' output)" = "$(sed 's/"model": *"[^"]*"//' trained.json)" ] ||
        fail "$name: $(cat output trained.json)"
done
finish
