#!/bin/bash
# tokenize: the tokens of lines as the `tokenizers` package has them, documents and what is behind them, forms of the
# file, threads; what train makes of it; refusals.
. "$(dirname "$0")/../common.sh" || exit 1

forms=$SP_TESTDATA/tokenizers
cp -r "$forms/gpt2" "$work/gpt2"
cd "$work" || exit 1
printf 'x' > x
if ! starpipe tokenize x --model gpt2 --output x.bin > /dev/null 2> stderr; then
    grep -q 'this build reads no tokenizers' stderr || fail "tokenize: $(cat stderr)"
    [ $failures -eq 0 ] && { cat stderr; exit 77; }
fi

# tokens FILE...: tokenizes with the options in $options, and leaves the numbers in $tokens, and their width in $width.
tokens()
{
    rm -f t.bin
    starpipe tokenize "$@" $options --output t.bin > stdout 2> stderr || fail "tokenize $* $options: $(cat stderr)"
    width=$(sed -n 's/^[0-9]* tokens of \([24]\) bytes.*/\1/p' stdout)
    tokens=$(od -An -v -tu"$width" t.bin | xargs)
}

# is WANTED WHAT
is()
{
    [ "$tokens" = "$1" ] || fail "$2: tokens $tokens, wanted $1: $(cat stdout)"
}

# ids_of FORM JSON: of a line of the cases, which has no quotes.
ids_of()
{
    sed -n "s/^\(\"plain\": \[\)*\[\"$2\",\[\([0-9,]*\)\].*/\2/p" "$forms/$1/cases.json" | head -n 1 | tr , ' '
}

# ---- lines

for form in gpt2 llama3 llama2 mistral unigram; do
    for line in ' ' 'a' ' a' 'a ' 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'; do
        printf '%s' "$line" > line
        options="--model $forms/$form --document-separator none"
        tokens line
        want=$(ids_of $form "$line")
        [ -n "$want" ] || fail "cases.json of $form has no '$line'"
        is "$want" "'$line' of $form"
    done
done

# ---- documents

a=$(ids_of gpt2 a)
eos=$(grep -o '"id":[0-9]*,"content":"<|endoftext|>"' gpt2/tokenizer.json | grep -o '[0-9]*' | head -n 1)
printf 'a' > one
printf 'a' > two
: > none
options="--model gpt2"
tokens one none two
is "$a $eos $a $eos" "files with eos behind them"
grep -q '^4 tokens of 2 bytes, 0.50 bytes of text each; 2 documents; ' stdout || fail "the summary: $(cat stdout)"
grep -q "^starpipe train --model gpt2 --tokens t.bin --document-separator $eos\$" stdout || fail "the line: $(cat stdout)"
options="--model gpt2 --document-separator none"
tokens one two
is "$a $a" "files with nothing behind them"
options="--model gpt2 --document-separator 7"
tokens one two
is "$a 7 $a 7" "files with token 7 behind them"
printf 'a\n\n \na\n' > blank
newline=$(ids_of gpt2 '\\n')
options="--model gpt2 --documents blank-line"
tokens blank
is "$a $newline $eos $a $newline $eos" "documents between blank lines"
printf 'a<|endoftext|>a<|endoftext|>' > marked
options="--model gpt2 --documents eos"
tokens marked
is "$a $eos $a $eos" "documents between texts of eos"
options="--model gpt2 --document-separator eos"
tokens marked two
is "$a $eos $a $eos $a $eos" "documents that are found by the eos asked for"
options="--model gpt2 --document-separator none --special-tokens"
tokens marked
is "$a $eos $a $eos" "special tokens"
options="--model gpt2 --document-separator none"
tokens marked
[ "$(wc -w <<< "$tokens")" -gt 8 ] || fail "special tokens are text: $tokens"
options="--model $forms/llama3 --document-separator none --around"
tokens one two
bos=$(grep -o '"ids":\[[0-9]*\]' "$forms/llama3/tokenizer.json" | grep -o '[0-9]*')
is "$bos $(ids_of llama3 a) $bos $(ids_of llama3 a)" "bos before every document"

# ---- forms of the file

options="--model gpt2"
cat > wide.json <<< '{"vocab_size": 70000}'
cp -r gpt2 wide
mv wide.json wide/config.json
tokens blank
narrow=$tokens
options="--model wide"
tokens blank
[ "$width" = 4 ] || fail "70000 tokens have $width bytes"
is "$narrow" "four bytes a token"
grep -q -- '--tokens t.bin --token-bytes 4 ' stdout || fail "the line: $(cat stdout)"
quiet "a file of NumPy" starpipe tokenize blank --model gpt2 --output t.npy
[ "$(tail -c +129 t.npy | od -An -v -tu2 | xargs)" = "$narrow" ] || fail "t.npy has other tokens"
head -c 10 t.npy | od -An -c | grep -q '223 *N *U *M *P *Y *001 *\\0 *v *\\0' || fail "t.npy: $(head -c 10 t.npy | od -An -c)"
head -c 128 t.npy | grep -aq "{'descr': '<u2', 'fortran_order': False, 'shape': ($(wc -w <<< "$narrow"),), } *\$" ||
    fail "the header of t.npy: $(head -c 128 t.npy)"

# ---- threads: more text than is read at once

make_text 20011 > some
for ((i = 0; i < 900; i++)); do cat some blank; done > large
for threads in 1 3; do
    quiet "$threads threads" starpipe tokenize large --model gpt2 --threads $threads --output large$threads.bin
done
cmp large1.bin large3.bin || fail "the tokens depend on the threads"
mkfifo pipe
cat large > pipe &
quiet "a pipe" starpipe tokenize pipe --model gpt2 --output pipe.bin
cmp large1.bin pipe.bin || fail "the tokens of a pipe are others"

# ---- what train makes of it

cat > gpt2/config.json << 'END'
{"model_type": "gpt2", "n_layer": 2, "n_embd": 16, "n_head": 2, "n_positions": 64, "vocab_size": 800,
 "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
END
quiet "tokenize" starpipe tokenize some --model gpt2 --output some.bin
line=$(starpipe tokenize some --model gpt2 --output some.npy | sed -n 's/^starpipe //p')
quiet "train on .bin" starpipe train --model gpt2 --tokens some.bin --seq 16 --steps 2 --stages 1 --log bin.jsonl
quiet "$line" starpipe $line --seq 16 --steps 2 --stages 1 --log npy.jsonl
for log in bin npy; do
    [ "$(grep -c '"loss"' $log.jsonl)" -ge 2 ] || fail "train on some.$log: $(cat $log.jsonl)"
done

# ---- refusals

# refused STATUS PATTERN ARGUMENTS...: one line, and the file that is there stays.
refused()
{
    local want=$1 pattern=$2 status

    shift 2
    echo there > there
    starpipe tokenize "$@" --output there > stdout 2> stderr
    status=$?
    [ $status -eq "$want" ] && [ "$(wc -l < stderr)" -eq 1 ] && grep -Eq -- "$pattern" stderr ||
        fail "tokenize $*: status $status, wanted $want and '$pattern': $(cat stderr)"
    [ "$(cat there)" = there ] || fail "tokenize $* has written its file"
}

mkdir empty
cp -r gpt2 endless
rm endless/tokenizer_config.json endless/config.json
refused 2 'FILE... is missing' --model gpt2
refused 2 '--model DIR is missing' one
refused 2 'empty has no tokenizer.json' one --model empty
refused 2 'nowhere: No such file' one --model nowhere
refused 2 'nothing: No such file' one nothing --model gpt2
refused 2 'empty is a directory' one empty --model gpt2
refused 2 'there' there --model gpt2
refused 1 'no text' none --model gpt2
refused 1 '--document-separator eos: endless names no eos' one --model endless --document-separator eos
refused 1 'no eos' one --model endless --documents eos
refused 1 '--document-separator 100000: want' one --model gpt2 --document-separator 100000
refused 1 '--document-separator x: want' one --model gpt2 --document-separator x
[ "$(ls -A | grep -c 'there')" -eq 1 ] || fail "temporary files are left: $(ls -A)"
# refuses PATTERN COMMAND...: one line, exit status 2.
refuses()
{
    local pattern=$1

    "${@:2}" > stdout 2> stderr
    [ $? -eq 2 ] && [ "$(wc -l < stderr)" -eq 1 ] && grep -Eq -- "$pattern" stderr ||
        fail "${*:2}: wanted '$pattern': $(cat stderr)"
}
cp gpt2/tokenizer.json was
refuses 'tokenizer.json' starpipe tokenize one --model gpt2 --output gpt2/tokenizer.json
refuses 'not a regular file' starpipe tokenize one --model gpt2 --output /dev/full
refuses 'some' starpipe train --model gpt2 --data some --seq 16 --dry-run --json --output some
refuses 'tokenizer.json' starpipe train --model gpt2 --data some --seq 16 --dry-run --output gpt2/tokenizer.json
printf '<|endoftext|>' > nothing-but-eos
refuses 'there is no text in it' starpipe train --model gpt2 --data nothing-but-eos --seq 16 --document-separator eos
cmp was gpt2/tokenizer.json || fail "a refused command has written tokenizer.json"
ln -s target link
touch target
quiet "a link" starpipe tokenize one --model gpt2 --output link
[ -L link ] && [ -s target ] || fail "a link to the output is replaced: $(ls -l link target)"
cp -r gpt2 dangling
ln -sf nothing dangling/special_tokens_map.json
refuses 'special_tokens_map.json' starpipe train --model dangling --data some --seq 16 --dry-run
cp -r gpt2 growing
python3 - << 'END' || fail "a tokenizer that makes much of little"
import json
t = json.load(open("growing/tokenizer.json"))
t["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}] * 5}
json.dump(t, open("growing/tokenizer.json", "w"))
END
refused 1 'normalizer makes more than' one --model growing
if starpipe tokenize one --model gpt2 > stdout 2> stderr || ! grep -q -- '--output FILE is missing' stderr; then
    fail "no --output: $(cat stdout stderr)"
fi
finish
