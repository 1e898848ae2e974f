# Where the program is, and a text to learn from that needs no download.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
starpipe=${STARPIPE:-$here/../../build/starpipe}
work=${STARPIPE_EXAMPLES:-$(mktemp -d)}
text=$work/text.txt
log=$work/log.jsonl
[ -n "${STARPIPE_EXAMPLES:-}" ] || trap 'rm -rf "$work"' EXIT
mkdir -p "$work"
awk 'BEGIN { split("one stage sends what the next one needs and waits for what comes back", w)
             x = 7; for (i = 0; i < 4000; i++) { x = (x * 1103515245 + 12345) % 2147483648
             printf "%s%s", w[1 + int(x / 65536) % 14], i % 12 == 11 ? ".\n" : " " } }' >"$text"

# What all steps have in common: a tiny GPT-2 style model, 8 micro-batches of 2 x 64 tokens.
common="--model gpt-tiny --data $text --micro-batches 8 --micro-batch-size 2 --seq 64 --steps 6
    --lr 2e-3 --log $log"

# The losses of the log, one a line.
losses() {
    sed -n 's/.*"loss":\([0-9.]*\).*/\1/p' "$log"
}

# Equal to five digits: other layouts add up in another order.
same_losses() {
    paste "$1" "$2" | awk '{ d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > 1e-5) bad = 1 }
                           END { exit bad || NR == 0 }' || { echo "the losses differ" >&2; exit 1; }
    echo "same losses"
}
