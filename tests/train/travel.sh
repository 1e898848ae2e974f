# What the tests of the families in which weights travel share; they begin by sourcing it.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 20011 > "$work/text"

# train OUT MICRO-BATCHES STEPS COMMAND... A learning rate at which no gradient explodes on the way: in
# such a step the least rounding shows.
train()
{
    local out=$work/$1 m=$2 steps=$3

    shift 3
    rm -f "$out.jsonl" "$out.safetensors"
    quiet "$*" "$@" --data "$work/text" --micro-batches "$m" --steps "$steps" --eps 1e-3 --lr 5e-4 \
        --log "$out.jsonl" --dump-grads "$out.safetensors"
}

# flat WHAT SCHEDULE LAUNCHER...: buffers are the same after every step, and no more than was planned.
flat()
{
    local what=$1 schedule=$2 sizes planned

    shift 2
    train flat 8 12 "$@" train --model gpt-tiny --stages 4 --schedule "$schedule" --seq 32
    sizes=$(stages_of "$work/flat.jsonl" buffer_bytes | tail -n +3 | sort -u)
    planned=$(starpipe train --dry-run --model gpt-tiny --stages 4 --schedule "$schedule" --seq 32 \
        --micro-batches 8 | awk 'NF == 6 && $1 ~ /^[0-9]+$/ { printf "%.0f ", ($5 + $6) * 1048576 }')
    echo "$what: buffers $sizes of $planned bytes planned"
    [ "$(stages_of "$work/flat.jsonl" buffer_bytes | tail -n 10 | uniq -c | awk '{ print $1 }')" = 10 ] ||
        fail "$what: the buffers grow: $sizes"
    echo "$sizes $planned" | awk '{ for (i = 1; i <= 4; i++) if ($i > $(i + 4)) exit 1 }' ||
        fail "$what: more buffers than planned"
}

# refuse PATTERN OPTIONS...: what does not go together is refused before work.
refuse()
{
    local want=$1 status

    shift
    starpipe train --dry-run --model gpt-tiny --stages 4 --seq 24 "$@" > "$work/output" 2>&1
    status=$?
    [ $status -eq 2 ] && [ "$(wc -l < "$work/output")" -eq 1 ] && grep -q -- "$want" "$work/output" ||
        fail "$*: exit status $status, $(head -n 2 "$work/output")"
}
