# What the scripts of this folder share: the program, the texts, one run of training. From the environment:
#   STARPIPE            the program (build/starpipe)
#   OUT                 where models and logs go (a directory in this one, named after the script)
#   STEPS, TUNE_STEPS   of the two runs;  EVAL_TOKENS of each evaluation
#   PRETRAIN            files to pretrain on (the C of this repository)
#   LR                  learning rate of the fine-tuning of a model that is given
#   LAUNCH              what starts the processes: "mpirun -np 2"
#   OPTIONS             more for both runs: "--device cuda --dtype bf16"
set -eu
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
name=$(basename "$0" .sh)
starpipe=${STARPIPE:-$top/build/starpipe}
mkdir -p "${OUT:=$name-run}"
out=$(cd "$OUT" && pwd)
began=$(date +%s)
# The losses to expect are those of a script that was told nothing.
defaults=yes
[ $# -eq 0 ] && [ -z "${PRETRAIN:-}${STEPS:-}${TUNE_STEPS:-}${EVAL_TOKENS:-}${OPTIONS:-}" ] || defaults=

# split NAME FILE...: links in $out/NAME/train and $out/NAME/held-out. Every tenth file is held out, whole;
# of fewer than ten, the end of each. The names mix the files, so that the first ones are from everywhere.
split() {
    to=$out/$1
    shift
    rm -rf "$to"
    mkdir -p "$to/train" "$to/held-out"
    n=0
    for file; do
        n=$((n + 1))
        link=$((100000 + n * 61803 % 99991)).txt
        case $file in /*) ;; *) file=$PWD/$file ;; esac
        if [ $# -lt 10 ]; then
            cut=$(($(wc -c <"$file") * 9 / 10))
            head -c "$cut" "$file" >"$to/train/$link"
            tail -c +$((cut + 1)) "$file" >"$to/held-out/$link"
        elif [ $((n % 10)) -eq 5 ]; then
            ln -s "$file" "$to/held-out/$link"
        else
            ln -s "$file" "$to/train/$link"
        fi
    done
}

# What every clone has: C to pretrain on, and prose.
split_code() {
    if [ -n "${PRETRAIN:-}" ]; then
        split code $PRETRAIN
    else
        cd "$top" && split code $(find src -name '*.[ch]' | LC_ALL=C sort) && cd - >/dev/null
    fi
}
split_prose() {
    cd "$top" && split prose $(find README.md docs bench examples -name '*.md' | LC_ALL=C sort) && cd - >/dev/null
}

has_weights() {
    ls "$1"/*.safetensors >/dev/null 2>&1
}

# train NAME TEXT OPTIONS...: a run on a text that was split, with $size, $seq and the held-out loss at its end. What it
# learned is saved in $out/NAME.
train() {
    run=$1 text=$2
    shift 2
    ${LAUNCH:-} "$starpipe" train $size --seq $seq --data "$out/$text/train/*" --order shuffled --document-separator eos \
        --eval "$out/$text/held-out/*" --eval-tokens "${EVAL_TOKENS:-$eval_tokens}" \
        --log "$out/$run.jsonl" "$@" ${OPTIONS:-}
}

# Its held-out loss.
held_out() {
    sed -n 's/.*"eval_loss": *\([0-9.]*\).*/\1/p' "$out/$1.jsonl" | tail -n 1
}

# expect WHAT LOSS WANTED TOLERANCE: says it, and fails if it is another one and nothing but the defaults was asked for.
expect() {
    echo "held-out loss $1: $2${defaults:+, $3 +- $4 expected}"
    [ -z "$defaults" ] || awk "BEGIN { d = $2 - $3; exit d < -$4 || d > $4 }" ||
        { echo "$name: a held-out loss of $2, not $3 +- $4" >&2; exit 1; }
}

# write_text DIR PROMPT: some text of a model.
write_text() {
    echo "a sample:"
    "$starpipe" sample "$1" --prompt "$2" --tokens 60 --temperature 0.7 --top-k 40 --seed 1
    echo "$name: $((($(date +%s) - began + 30) / 60)) min; the models are in $out"
}
