#!/bin/bash
# watch: a log while a run writes it and after, whatever ended the run; the page; train --log -.
. "$(dirname "$0")/../common.sh" || exit 1

make_text 5003 > "$work/text"
train="train --model gpt-tiny --data $work/text --stages 2 --micro-batches 4 --seq 16 --threads 1"

# ---- a run that goes on

"$STARPIPE" $train --steps 20000 --log "$work/live.jsonl" > "$work/train" 2>&1 &
runs=$!
children=$runs
wait_for 20 has_lines "$work/live.jsonl" 3 || fail "the run writes no log"
"$STARPIPE" watch "$work/live.jsonl" > "$work/watched" 2>&1 &
watches=$!
children="$children $watches"
wait_for 20 has_lines "$work/watched" 3 || fail "watch prints no steps: $(head -n 2 "$work/watched")"
before=$(wc -l < "$work/watched")
wait_for 20 has_lines "$work/watched" $((before + 5)) || fail "watch does not go on with the run"
kill -9 "$runs"
wait "$runs" 2> /dev/null
wait_for 10 gone "$watches" || fail "watch goes on after the run was killed"
wait "$watches" || fail "watch ends with status $?"
[ "$(wc -l < "$work/watched")" -eq "$(grep -c '^{"step".*}$' "$work/live.jsonl")" ] ||
    fail "watch printed $(wc -l < "$work/watched") steps of $(grep -c '^{"step"' "$work/live.jsonl")"
echo "$(wc -l < "$work/watched") steps followed until the run was killed"

# ---- a log of somebody else

printf '{"plan":"1f1b\\u001b]0;title\\u0007","model":"m\\u001b[2J\\nx\\u009b","stages":1}\n{"step":0,"loss":1.0,"stages":[]}\n' \
    > "$work/names.jsonl"
"$STARPIPE" watch --once "$work/names.jsonl" > "$work/watched" || fail "watch of names with control characters"
LC_ALL=C grep -q "[$(printf '\001-\011\013-\037\177\233')]" "$work/watched" && fail "names reach the terminal as they are"
grep -qF '1f1b\x1b]0;title\x07 of m\x1b[2J\x0ax\xc2\x9b, 1 stage, 0 micro-batches' "$work/watched" || fail "names: $(cat -v "$work/watched")"

# Numbers that no run has are not shown as such; the steps of this log count from 0, as in older versions.
cat > "$work/numbers.jsonl" << 'EOF'
{"plan":"1f1b","model":"m","stages":1}
{"step":0,"loss":1.5,"tokens_per_s":10,"stages":[{"bubble_ratio":0.25}]}
{"step":1,"loss":"low","tokens_per_s":10,"stages":[]}
{"step":2,"loss":1.0,"tokens_per_s":-7,"stages":[]}
{"step":3,"loss":1.0,"stages":[{"bubble_ratio":9}]}
{"step":4,"tokens_per_s":10,"stages":[]}
{"step":2147483647,"loss":1.0,"tokens_per_s":10,"stages":[]}
{"plan":"1f1b","model":"m","stages":-4}
EOF
"$STARPIPE" watch --once "$work/numbers.jsonl" > "$work/watched" || fail "watch of numbers that no run has"
grep -q '^step 1  loss 1.5000  10 tokens/s  bubble 25.0 %' "$work/watched" && grep -q ' 1 stage, ' "$work/watched" ||
    fail "numbers that no run has: $(head -n 3 "$work/watched")"
starpipe watch "$work/numbers.jsonl" --html "$work/numbers.html" || fail "a page of numbers that no run has"
grep -q '"bubble_ratio":0.25' "$work/numbers.html" && ! grep -q '"stages":-4' "$work/numbers.html" ||
    fail "the page has numbers that no run has"

# ---- train --log -

quiet "train --log FILE" starpipe $train --steps 5 --log "$work/file.jsonl"
starpipe $train --steps 5 --log - > "$work/pipe.jsonl" 2> "$work/other" || fail "train --log -"
[ "$(wc -l < "$work/pipe.jsonl")" -eq 6 ] && grep -q '^step 5/5' "$work/other" ||
    fail "train --log -: $(head -n 3 "$work/pipe.jsonl" | cut -c 1-100)"
agree "losses in a file and on standard output" near "$work/file.jsonl" "$work/pipe.jsonl" 0
[ ! -e - ] || fail "train --log - makes a file of that name"
"$STARPIPE" watch - < "$work/pipe.jsonl" > "$work/watched"
"$STARPIPE" watch "$work/pipe.jsonl" | cmp -s - "$work/watched" || fail "a pipe and a file are shown differently"
grep -q "^step 5  loss $(printf %.4f "$(steps_of "$work/pipe.jsonl" loss | tail -n 1)")  " "$work/watched" ||
    fail "another loss of the last step: $(tail -n 1 "$work/watched")"

# ---- what there is, once; a page

said "--once" '^stage 1 +bubble +[0-9.]+ % [#.]+ +[0-9.]+ MiB stashed' watch --once "$work/pipe.jsonl"
[ "$(grep -c '\*' "$work/stdout")" -gt 2 ] || fail "--once: no curve"
sed 's/"model":"gpt-tiny"/"model":"<\/script>"/' "$work/pipe.jsonl" > "$work/odd.jsonl"
printf '{"step":5,"lo' >> "$work/odd.jsonl" # a run that goes on is about to write the rest
starpipe watch "$work/odd.jsonl" --html "$work/run.html" || fail "watch --html"
starpipe watch "$work/odd.jsonl" --format html > "$work/printed.html" && cmp "$work/printed.html" "$work/run.html" &&
    starpipe watch "$work/odd.jsonl" --format html --output "$work/named.html" &&
    cmp "$work/named.html" "$work/run.html" || fail "--format html is not --html"
starpipe watch "$work/odd.jsonl" --once > "$work/once" && starpipe watch "$work/odd.jsonl" --once \
    --output "$work/once.file" && cmp "$work/once" "$work/once.file" || fail "watch --once --output"
refused "give one" watch "$work/odd.jsonl" --html "$work/x" --output "$work/y"
refused "once has no effect" watch "$work/odd.jsonl" --once --format html
sed -n '/id="log">/,/<\/script>/p' "$work/run.html" | tr -d '\n' |
    sed 's/^.*id="log">//; s/<\/script>.*$//' > "$work/list"
if command -v node > /dev/null; then
    node -e 'const l = JSON.parse(require("fs").readFileSync(process.argv[1]));
        if (l.length !== 6 || l[0].model !== "</script>" || l[5].step !== 5) throw l.length' "$work/list" ||
        fail "page: not the six lines of the log"
    sed -n '/^"use strict";$/,/^<\/script>$/p' "$work/run.html" | sed '$d' > "$work/page.js"
    node --check "$work/page.js" || fail "page: its script"
    { sed -n '/^function fromOne/,/^}/p' "$work/page.js" && cat << 'EOF'; } > "$work/from_one.js"
const is = fromOne([{ plan: "1f1b" }, { step: 0 }, { eval_step: 0 }, { plan: "1f1b", first_step: 1 }, { step: 2 }]);
if (JSON.stringify(is.map(l => l.step ?? l.eval_step)) !== "[null,1,1,null,2]") throw JSON.stringify(is);
EOF
    node "$work/from_one.js" || fail "page: the steps of an older log do not count from 1"
fi

# ---- what is refused

refused "No such file" watch "$work/none.jsonl"
refused "LOG is missing" watch
refused "is empty" watch /dev/null
refused "line 1: this is no log" watch "$work/text"
{ head -n 1 "$work/pipe.jsonl" && echo '{"step":' && tail -n 1 "$work/pipe.jsonl"; } > "$work/torn.jsonl"
printf '{"plan":"1f1b","stages":-4}\n' > "$work/negative.jsonl"
refused "line 1: numbers that no run has" watch "$work/negative.jsonl"
refused "line 2: not a JSON object" watch "$work/torn.jsonl"
refused "write to what is read|--html|read" watch "$work/pipe.jsonl" --html "$work/pipe.jsonl"
finish
