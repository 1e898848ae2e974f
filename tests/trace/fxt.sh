#!/bin/bash
# A run of four processes under FxT, through `trace fxt`: other tools read what it writes, every message that was
# sent was received, none before it was sent, and tasks and messages are those of the log. Over StarPU-MPI, StarPU's
# own tool on the raw files shows the same messages.
. "$(dirname "$0")/../common.sh" || exit 1
have_mpi || exit 77

steps=3 stages=4 micro_batches=4 layers=8
fxt=$work/fxt
mkdir "$fxt"
make_text 20000 > "$work/text"
run=(train --model gpt-tiny --data "$work/text" --stages $stages --micro-batches $micro_batches
    --seq 64 --steps $steps)

# lines FILE CONDITION: how many lines of a table, its head left out, have it.
lines()
{
    awk -F, "NR > 1 && ($2)" "$1" | wc -l
}

# is WHAT GOT WANTED
is()
{
    echo "$1: $2"
    [ "$2" = "$3" ] || fail "$1: $2, not $3"
}

STARPU_FXT_TRACE=1 STARPU_FXT_PREFIX=$fxt/ mpi $stages "${run[@]}" --log "$work/log" > "$work/out" 2>&1 ||
    fail "the run: $(tail -n 2 "$work/out")"
if ! starpipe trace fxt "$fxt" > "$work/out" 2> "$work/stderr"; then
    if grep -q 'built without FxT' "$work/stderr"; then
        echo "skipped: $(cat "$work/stderr")"
        exit 77
    fi
    fail "trace fxt: $(cat "$work/stderr")"
    finish
fi
cat "$work/out"
grep -q 'came before they were sent' "$work/out" && fail "on one machine, which has one clock"

# ---- tasks: three of a layer forwards, five backwards (weight gradients are two of them), and the ends

each=$((steps * micro_batches))
is "forward tasks" "$(lines "$fxt/tasks.csv" '$6 == "F"')" $((each * (3 * layers + 1)))
is "backward tasks" "$(lines "$fxt/tasks.csv" '$6 == "B"')" $((each * (5 * layers + 2)))
is "task states" "$(grep -c '^20.*"[FB] ' "$fxt/paje.trace")" $((each * (8 * layers + 3)))
is "tasks without a step" "$(lines "$fxt/tasks.csv" '$5 == ""')" 0

# Their time, of each stage in each step, beside the log's: in tenths, more where it is little.
awk -F, 'FNR == NR { if (FNR > 1 && $6 ~ /[FBW]/) busy[$5, $4] += $12 - $11; next }
    /"step"/ {
        match($0, /"step":[0-9]+/)
        step = substr($0, RSTART + 7, RLENGTH - 7)
        for (stage = 0; match($0, /"busy_ms":[0-9.]+/); stage++) {
            logged = substr($0, RSTART + 10, RLENGTH - 10)
            $0 = substr($0, RSTART + RLENGTH)
            d = busy[step, stage] - logged
            n++
            if ((d < 0 ? -d : d) > 0.1 * logged + 2)
                print "step " step " stage " stage ": " busy[step, stage] " ms of tasks, " logged " logged"
        }
    }
    END { if (!n) print "no step in the log" }' "$fxt/tasks.csv" "$work/log" > "$work/busy"
[ -s "$work/busy" ] && fail "$(head -n 2 "$work/busy")"

# ---- messages

sides=$(cat "$fxt"/messages_*.jsonl | grep -c '"tag"')
is "messages" "$(lines "$fxt/messages.csv" 1)" $((sides / 2))
is "boundaries sent" "$(lines "$fxt/messages.csv" '$8 ~ /^d?x/')" $((each * 2 * (stages - 1)))
is "of them from one stage to a neighbour" "$(lines "$fxt/messages.csv" \
    '$8 ~ /^d?x/ && ($4 - $5 == 1 || $5 - $4 == 1)')" $((each * 2 * (stages - 1)))
is "messages that end before they start" "$(lines "$fxt/messages.csv" '$10 < $9')" 0
is "bytes" "$(awk -F, '$8 != "" && NR > 1 { n += $7 } END { print n }' "$fxt/messages.csv")" \
    "$(grep -o '"bytes_sent":[0-9]*' "$work/log" | awk -F: '{ n += $2 } END { print n }')"
# No task reads a message before it is there.
awk -F, 'FNR == 1 { file++; next }
    file == 1 { at[$1] = $11 } file == 2 { there[$1] = $10 }
    file == 3 && ($2 in there) && ($1 in at) { n++; if (at[$1] < there[$2]) print $1 " reads " $2 " too early" }
    END { if (!n) print "no task waits for a message" }' \
    "$fxt/tasks.csv" "$fxt/messages.csv" "$fxt/dependencies.csv" > "$work/early"
[ -s "$work/early" ] && fail "$(head -n 2 "$work/early")"
is "links of the graph" "$(grep -c -- '->"mpi_\|"mpi_.*->' "$fxt/dag.dot")" \
    "$(grep -c mpicom "$fxt/dependencies.csv")"
awk '$1 > 7 && /^[0-9]/ { if ($2 < last) n++; last = $2 } END { exit n > 0 }' "$fxt/paje.trace" ||
    fail "paje.trace is not in the order of time"

# ---- without a directory for it: one of its own, whose name the run says

mkdir "$work/tmp"
TMPDIR=$work/tmp STARPU_FXT_TRACE=1 mpi 2 train --model gpt-tiny --data "$work/text" --stages 2 --seq 64 --steps 1 \
    > "$work/out" 2>&1 || fail "without STARPU_FXT_PREFIX: $(tail -n 2 "$work/out")"
own=$(sed -n "s/^starpipe: warning: StarPU's trace goes to \([^ ,]*\), .*/\1/p" "$work/out")
[ "$own" ] && [ "$(stat -c %a "$own")" = 700 ] && [ "$(dirname "$own")" = "$work/tmp" ] ||
    fail "without STARPU_FXT_PREFIX: $(grep starpipe: "$work/out")"
said "a directory of its own" ' of 2 processes, [0-9]* messages' trace fxt "$own"

# ---- what is not a trace

rm "$fxt/messages_2.jsonl"
starpipe trace fxt "$fxt" > /dev/null 2> "$work/stderr"
[ $? -eq 1 ] && grep -q 'cannot read .*messages_2.jsonl' "$work/stderr" ||
    fail "without the messages of a rank: $(cat "$work/stderr")"
cp "$fxt/prof_file__0" "$fxt/prof_file_again_0" 2> /dev/null ||
    cp "$fxt"/prof_file_*_0 "$fxt/prof_file_again_0"
refused 'both of rank 0' trace fxt "$fxt"
[ -z "$(find "$fxt" -name '.fxt-*')" ] || fail "a directory of its own is left behind"

# ---- messages through StarPU-MPI, of which StarPU has traces of its own

mkdir "$work/own"
STARPU_FXT_TRACE=1 STARPU_FXT_PREFIX=$work/own/ mpi 4 train --model llama-tiny --data "$work/text" --stages 2 \
    --tensor-parallel 2 --seq 64 --steps 2 --transport starpu > "$work/out" 2>&1 || fail "StarPU-MPI: $(tail -n 2 "$work/out")"
cp -r "$work/own" "$work/raw"
said "StarPU-MPI" ' of 4 processes, [0-9]* messages' trace fxt "$work/own"
is "links" "$(grep -c '^23.*MPIL' "$work/own/paje.trace")" "$(lines "$work/own/messages.csv" 1)"
is "links of the graph" "$(grep -c -- '->"mpi_\|"mpi_.*->' "$work/own/dag.dot")" \
    "$(grep -c mpicom "$work/own/dependencies.csv")"

# ---- other tools

if ! command -v pj_dump > /dev/null || ! command -v rec2csv > /dev/null; then
    [ "$failures" -eq 0 ] || finish
    echo "skipped: what pj_dump and rec2csv read (Debian: pajeng, recutils)"
    exit 77
fi
pj_dump -n --user-defined --entity-hierarchy="$work/entities" "$fxt/paje.trace" > "$work/pj" 2> "$work/stderr" ||
    fail "pj_dump: $(tail -n 2 "$work/stderr")"
is "links of pj_dump" "$(grep -c '^Link, root, MPI' "$work/pj")" $((sides / 2))
is "of them backwards in time" "$(awk -F', ' '/^Link/ && $5 < $4' "$work/pj" | wc -l)" 0
is "task states of pj_dump" "$(grep -c '^State.*Worker State.*, [FB] ' "$work/pj")" $((each * (8 * layers + 3)))
is "stages of pj_dump" "$(grep -c ', [0-9]_stage[0-9], Stage' "$work/entities")" $stages
is "containers beside pj_dump's" \
    "$(grep 'Container$' "$fxt/entities.csv" | sort | cksum)" \
    "$(sed 's/, /,/g' "$work/entities" | grep 'Container$' | grep -v '^0,0,' | sort | cksum)"

# StarPU's tool writes links after all else; its manual has them sorted by time (starpu_paje_sort).
tool=$(command -v starpu_fxt_tool || ldd "$STARPIPE" | sed -n 's|.* => \(/.*\)/lib/libstarpu-1.*|\1/bin/starpu_fxt_tool|p')
if [ -x "$tool" ]; then
    (cd "$work/raw" && timeout 60 "$tool" $(printf -- '-i %s ' prof_file_*) > tool 2>&1) || fail "$(tail -n 2 "$work/raw/tool")"
    grep -E '^(%|[1-7][[:blank:]])' "$work/raw/paje.trace" > "$work/sorted"
    grep -Ev '^(%|[1-7][[:blank:]])' "$work/raw/paje.trace" | sort -s -V -k 2,2 >> "$work/sorted"
    pj_dump "$work/sorted" > "$work/pj" 2> "$work/stderr" || fail "pj_dump of StarPU's file: $(tail -n 1 "$work/pj")"
    awk -F'[, ]+' '/^Link, root, MPI/ { print int($9), int($10), $8 }' "$work/pj" | sort > "$work/links"
    awk -F, 'NR > 1 && $8 != "" { print $2, $3, $7 }' "$work/own/messages.csv" | sort > "$work/sent"
    echo "StarPU's own links: $(wc -l < "$work/links")"
    [ -s "$work/links" ] && cmp -s "$work/links" "$work/sent" ||
        fail "StarPU's links are others: $(diff "$work/links" "$work/sent" | head -n 3 | tr '\n' ' ')"
    is "StarPU's task states, two of each task" "$(grep -c '^State.*Worker State.*, [FB]_s' "$work/pj")" \
        $((2 * $(lines "$work/own/tasks.csv" '$6 == "F" || $6 == "B"')))
else
    echo "not seen: what starpu_fxt_tool says of the raw files; it is not installed"
fi
rec2csv "$fxt/tasks.rec" > "$work/rec" 2> "$work/stderr" || fail "rec2csv: $(tail -n 2 "$work/stderr")"
is "tasks of rec2csv" "$(grep -c '^"\{0,1\}[FB]_s' "$work/rec")" $((each * (8 * layers + 3)))
finish
