#!/bin/bash
# Records of steps that ran: their form, their sums beside the log's, what report names first of causes that are
# planted in real runs, what compare says, and what both refuse.
. "$(dirname "$0")/../common.sh" || exit 1

CC=${CC:-cc}
make_text 20011 > "$work/text"
cd "$work" || exit 1
train="train --model gpt-tiny --data text --stages 2 --micro-batches 4 --steps 4"

# first CAUSE PATTERN NAME COMMAND...: what report says first of the record NAME, which the command writes. Where others
# use this machine, waiting for its cores and its slower runtime may be worse than what was planted: they are left out
# unless they are it. Others may make one run uneven too, but not three.
first()
{
    local cause=$1 pattern=$2 name=$3 line others='core|engine'

    shift 3
    [ "$cause" = core ] && others=engine
    for _ in 1 2 3; do
        rm -rf "$name"
        quiet "$name" "$@" --trace "$name"
        starpipe report "$name" > report.txt || fail "report $name"
        sums "$name"
        line=$(grep -E '^ *[0-9]+\. .* without ' report.txt | grep -Ev "without ($others): " | head -n 1)
        echo "$name: $line"
        [[ $line == *"without $cause: "* && $line =~ $pattern ]] && return
    done
    fail "$name: not $cause, '$pattern' first"
}

# The parts of each stage add up to the step.
sums()
{
    awk '/^stage / && /step ms/ { on = 1; next } on && NF < 3 { on = 0 }
        on { sum = 0; for (i = 3; i <= NF; i++) sum += $i
             if (sum < 0.99 * $2 || sum > 1.01 * $2) { print "stage " $1 ": " sum " of " $2; bad = 1 } n++ }
        END { exit bad || n < 2 }' report.txt || fail "$1: its parts do not add up"
}

# ---- causes in real runs

first stages 'uneven: stage 0 has 7 of 8 layers' uneven starpipe $train --micro-batch-size 4 --partition 7,1
if command -v taskset > /dev/null; then
    first core 'stages 0 and 1' core taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')" "$STARPIPE" $train \
        --micro-batch-size 4
fi
if $CC -shared -fPIC -o slow.so "$here/slow_calls.c" -ldl 2> /dev/null; then
    first offload 'stage 0 waits' disk env SLOW_WRITE_US=3000 LD_PRELOAD=$PWD/slow.so "$STARPIPE" $train \
        --micro-batch-size 4 --offload full --offload-dir .
    first submission 'submitted late' submission env SLOW_SUBMIT_US=400 LD_PRELOAD=$PWD/slow.so "$STARPIPE" $train \
        --micro-batches 2
else
    echo "no shared library could be made: no slow disk, no slow submission"
fi

# ---- form and sums

# checked NAME ARGUMENTS...: a run whose record is one, with the sums of the log.
checked()
{
    local name=$1

    shift
    quiet "$name" "$@" --trace "$name" --log "$name.jsonl" || return
    command -v python3 > /dev/null || return
    python3 "$here/check_record.py" "$name/trace.json" "$name.jsonl" > checked || fail "$name: $(cat checked)"
    echo "$name: $(cat checked)"
    python3 "$here/check_record.py" "$name/predicted.json" > checked || fail "$name predicted: $(cat checked)"
}

checked alone starpipe $train
checked offload starpipe $train --offload full --offload-dir .
checked overlap starpipe $train --schedule dualpipev
if have_mpi; then
    checked ranks mpi 2 $train
    checked zbv mpi 2 $train --schedule zbv
    checked fsdp mpi 2 $train --schedule fsdp
    checked ring mpi 2 $train --schedule weipipe
    checked ahead mpi 2 $train --schedule zb1p --post-validation
fi
starpipe show --schedule zbv --format perfetto --output show.json || fail "show --format perfetto"
python3 "$here/check_record.py" show.json || fail "show --format perfetto"

# ---- forms of report and compare

starpipe report alone --format json > report.json && python3 - report.json << 'END' || fail "report --format json"
import json, sys
r = json.load(open(sys.argv[1]))
for parts in r["parts"]:
    assert abs(sum(parts.values()) - r["step_ms"]) < 1e-6 * r["step_ms"], parts
assert abs(sum(c["ms"] for c in r["causes"].values()) - r["span_ms"]) < 1e-3 * r["span_ms"]
assert abs(sum(r["path"]["parts"].values()) - r["span_ms"]) < 0.01 * r["span_ms"]
gains = [w["gain_ms"] for w in r["without"]]
assert gains == sorted(gains, reverse=True) and len(r["waits"]) == 3
END
said "step 1" ' in [0-9]* process.*, step [1-9][0-9]*: ' report alone
step=$(sed -n 's/.*, step \([0-9]*\): .*/\1/p' "$work/stdout")
# a version that counted steps from 0 did not say from where
sed "s/\"step\":$step,\"first_step\":1,/\"step\":$((step - 1)),/" alone/trace.json > older.json
grep -q first_step older.json && fail "the record does not say from where steps count"
said "an older record" ", step $step: " report older.json
starpipe report alone --format html > report.html && grep -q 'critical path' report.html || fail "report --format html"
said "compare with itself" 'B takes \+0 ms' compare alone alone/trace.json
said "compare with the prediction" '^  all  compute' compare alone alone/predicted.json
said "compare schedules" 'ops of A are not in B' compare overlap alone
starpipe compare uneven alone --format json > compare.json && python3 - compare.json << 'END' ||
import json, sys
c = json.load(open(sys.argv[1]))
compute = {s["stage"]: s["ms"] for s in c["stages"] if s["part"] == "compute"}
assert compute[0][0] > 3 * compute[1][0] and compute[0][1] < 3 * compute[1][1], compute
d = [abs(s["ms"][1] - s["ms"][0]) for s in c["stages"]]
assert d == sorted(d, reverse=True) and len(c["ops"]) == 16 and c["alone"] == [0, 0]
END
    fail "compare --format json"
starpipe compare uneven alone --format svg > compare.svg && grep -q 'B stage 1' compare.svg &&
    grep -q '>A: [0-9.]* ms, gpt-tiny; B: [0-9.]* ms, gpt-tiny<' compare.svg || fail "compare --format svg"
starpipe compare uneven alone --format html > compare.html || fail "compare --format html"
[ "$(grep -o '"title":' compare.html | wc -l)" -eq 2 ] || fail "compare --format html: not two pictures"

# ---- refusals

starpipe show --schedule 1f1b --stages 3 --micro-batches 4 --model gpt-tiny --hardware laptop --format perfetto \
    --output three.json
python3 - alone/trace.json > names.json << 'END' || fail "a record with other names"
import json, sys
t = json.load(open(sys.argv[1]))
t["otherData"]["model"] = "m\x1b[2J\nx"
json.dump(t, sys.stdout)
END
starpipe report names.json > report.txt && starpipe compare names.json names.json > compare.txt ||
    fail "report of a model with control characters"
LC_ALL=C grep -q "$(printf '\033')" report.txt compare.txt && fail "a model's name reaches the terminal as it is"
grep -qF 'm\x1b[2J\x0ax, ' report.txt && grep -qF 'm\x1b[2J\x0ax, ' compare.txt || fail "names: $(head -n 1 report.txt)"
refused "no record of a step in nothing" report "$(mkdir -p nothing && echo nothing)"
refused "is no record of a step" report report.json
head -n 1 alone.jsonl > short.jsonl
for log in alone.jsonl short.jsonl; do
    refused "report: $log is a log of train: try 'starpipe watch $log'$" report $log
    refused "compare: $log is a log of train: try 'starpipe watch $log'$" compare alone $log
done
for record in alone/trace.json alone/predicted.json show.json; do
    refused "watch: $record is the record of a step: try 'starpipe report $record'$" watch $record
done
refused "RECORD is missing" report
refused "times of .* are in ms, of show.json in units of costs" compare alone show.json
refused "has 2 stages and three.json 3" compare alone three.json
refused "rows is for --format text" compare alone alone --rows 3 --format json
finish
