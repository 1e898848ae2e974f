#!/bin/bash
# The scripts of examples/gpt, on models of their kinds that are small. SP_LONG=1: as people run them, in 15 minutes
# each on two cores, with the losses that they expect.
. "$(dirname "$0")/../common.sh" || exit 1

gpt=$here/../../examples/gpt
cd "$work" || exit 1
export STARPIPE MPIRUN
printf 'x' > x
if ! starpipe tokenize x --model "$gpt/gpt2" --output x.bin > /dev/null 2> stderr; then
    grep -q 'this build reads no tokenizers' stderr && { cat stderr; exit 77; }
fi

# ran NAME PATTERN COMMAND...: the last lines are about the losses, a sample and the time; one matches.
ran()
{
    local name=$1 pattern=$2

    shift 2
    timeout -k 5 1800 "$@" > "$name.out" 2>&1 || { fail "$name: $(tail -n 5 "$name.out")"; return; }
    grep -Eq -- "$pattern" "$name.out" || fail "$name: no line like '$pattern': $(tail -n 5 "$name.out")"
    grep -E '^(held-out loss|.*: [0-9]+ min)' "$name.out" | sed "s/^/$name: /"
}

# ---- in full

if [ -n "${SP_LONG:-}" ]; then
    for script in gpt2-124m llama; do
        OUT=full ran $script ' expected$' sh "$gpt/$script.sh"
        minutes=$(sed -n "s/^$script: \([0-9]*\) min.*/\1/p" $script.out)
        [ "${minutes:-99}" -le 15 ] || fail "$script took $minutes minutes, not 15"
        rm -rf full
    done
fi

# ---- small models of the same files

# small NAME KEY=VALUE...: a directory as examples/gpt/NAME is, with other sizes.
small()
{
    local name=$1 pair

    shift
    cp -r "$gpt/$name" "$name"
    for pair in "$@"; do
        grep -q "\"${pair%=*}\": " "$name/config.json" || fail "config.json of $name has no ${pair%=*}"
        sed -i "s/\"${pair%=*}\": [0-9]*/\"${pair%=*}\": ${pair#*=}/" "$name/config.json"
    done
}

small gpt2 n_layer=2 n_embd=32 n_head=2 vocab_size=2048
small llama num_hidden_layers=4 hidden_size=32 num_attention_heads=2 num_key_value_heads=1 head_dim=16 intermediate_size=64
for ((i = 0; i < 10; i++)); do make_text $((3000 + 100 * i)) > "text$i"; done
export STEPS=2 TUNE_STEPS=2 EVAL_TOKENS=200
export PRETRAIN="text0 text1 text2 text3 text4 text5 text6 text7 text8 text9"
told='^held-out loss after the fine-tuning: [0-9.]+$'
OUT=gpt2-run ran gpt2 "$told" sh "$gpt/gpt2-124m.sh" gpt2 text1 text2
for file in code/train:9 code/held-out:1 prose/train:2 prose/held-out:2; do
    [ "$(ls "gpt2-run/${file%:*}" | wc -l)" -eq "${file#*:}" ] || fail "files of ${file%:*}: $(ls "gpt2-run/${file%:*}")"
done
cat $(ls gpt2-run/prose/*/161803.txt | sort -r) | cmp - text1 || fail "a text and its held-out end are not the text"

cmp -s gpt2-run/tuned/tokenizer.json gpt2/tokenizer.json || fail "a saved model has not the tokenizer of the first"

# A model with weights is only tuned: the one that the first script has saved, with sequences as there.
OPTIONS="--seq 64" OUT=again-run ran again "$told" sh "$gpt/gpt2-124m.sh" gpt2-run/pretrained text1 text2
[ ! -e again-run/pretrained ] || fail "a model with weights was pretrained"
[ "$(sed -n 's/^held-out loss before.*: //p' again.out)" = "$(sed -n 's/^held-out loss before.*: //p' gpt2.out)" ] ||
    fail "the model that was saved has another held-out loss than when it was saved"

OUT=llama-run ran llama "$told" sh "$gpt/llama.sh" llama text1 text2
if have_mpi; then
    OUT=mpi-run ran mpirun '^plan: .* in each of 2 processes' sh "$gpt/mpirun.sh" llama.sh llama text1 text2
    agree "two processes" near llama-run/tuned.jsonl mpi-run/tuned.jsonl 1e-5
fi

# On a cluster: srun starts the processes.
mkdir bin
printf '#!/bin/sh\necho "srun $1" >&2\nshift\nexec "$@"\n' > bin/srun
chmod +x bin/srun
MODEL=gpt2-run/pretrained TEXT="text1 text2" SLURM_SUBMIT_DIR=$gpt PATH=$work/bin:$PATH OPTIONS="--seq 64" OUT=sbatch-run \
    ran sbatch '^srun --cpu-bind=none$' bash "$gpt/gpt2-124m.sbatch"
cmp -s <(steps_of again-run/tuned.jsonl loss) <(steps_of sbatch-run/tuned.jsonl loss) || fail "the batch has other losses"

# Another loss than the one to expect is an error, of a script that was told nothing.
cat > told << 'END'
name=told
for defaults in '' yes; do
    ( expect '' 3.1 3.0 0.2 && expect '' 2.9 3.0 0.2 && expect '' 3.3 3.0 0.2 ) >/dev/null 2>&1; echo $?
    ( expect '' 2.7 3.0 0.2 ) >/dev/null 2>&1; echo $?
    ( expect '' '' 3.0 0.2 ) >/dev/null 2>&1; echo $?
done
END
sed '/^expect()/,/^}/!d' "$gpt/common.sh" > expect
[ "$(sh -c '. ./expect; . ./told' | xargs)" = "0 0 0 1 1 1" ] || fail "expect: $(sh -c '. ./expect; . ./told' | xargs)"
finish
