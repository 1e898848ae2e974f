#!/bin/bash
# show: the page, the formula beside the simulated makespan, --model, overlapped pairs, and orders
# that come from a CSV file, here and in train.
. "$(dirname "$0")/../common.sh" || exit 1

torch=$SP_TESTDATA/schedules
four="--stages 4 --micro-batches 8"

# shown WHAT PATTERN ARGUMENTS...: said, of show.
shown()
{
    local what=$1 pattern=$2

    shift 2
    said "$what" "$pattern" show "$@"
}

# one_line FILE: JSON without blanks.
one_line()
{
    tr -d ' \n' < "$1"
}

# ---- the formula

shown "formula" '^published +33 = .*\(exact; simulated the same\)' $four
shown "formula, communication" '^published +33 = .*\(exact; without communication\)' $four \
    --cost comm=1
shown "formula in JSON" '"formula"' $four --format json
one_line "$work/stdout" | grep -q '"formula":{"makespan":33.0,"source":"(m+p-1)(f+b+w)[^"]*","claim":"exact"}' ||
    fail "formula in JSON: another one"
grep -q '"overlap"' "$work/stdout" && fail "1f1b has overlapped pairs"
starpipe show --schedule "csv:$torch/torch_zbv_p4_m8_v2.csv" --format json | grep -q '"formula"' &&
    fail "an order from a file has a formula"

# ---- --model

shown "peaks in JSON" '"peak_micro_batches"' --schedule zbv $four --format json
one_line "$work/stdout" | grep -q '"peak_live":\[8,8,8,8\],"peak_micro_batches":\[4.0,4.0,4.0,4.0\]' ||
    fail "peaks in JSON: not 8 chunks, 4 micro-batches"
shown "peaks in text" '^ +0 +24 +24 +1.5 +5.88 % +4$' --schedule zbv $four
shown "caption" 'gpt3-1.3b, bf16, seq 2048, micro-batches of 1, on h200, in milliseconds' --model gpt3-1.3b --seq 2048 \
    --dtype bf16 --hardware h200 $four --format svg
shown "caption, costs" 'makespan 33, bubble 27.3 %; costs: f=1 b=1 w=1 ' $four --format svg
shown "--model" '"layers": 24' --model gpt3-1.3b --format json $four
shown "--model and --layers" '"layers": 24' --model gpt3-1.3b --layers 24 --format json $four
refused "layers 12, but .* has 24" show --model gpt3-1.3b --layers 12
refused "neither a preset nor a directory" show --model gpt3-13b
refused "layers" show --model gpt3-1.3b --stages 25
refused "show: --context-parallel: an order does not depend on it.*give --model" show --context-parallel 2
refused "partition 3,2,2,1: an order does not depend on it" show --stages 4 --layers 8 --partition 3,2,2,1
refused "partition oddly: want even, balanced or" show --stages 4 --model gpt-tiny --partition oddly
refused "deals out 9 layers, the model has 8" show --stages 4 --model gpt-tiny --partition 3,2,2,2
refused "adapipe deals the layers out by itself" show --schedule adapipe --stages 4 --model gpt-tiny --partition 2,2,2,2
refused "partition 5,3: --schedule auto chooses among even" show --schedule auto --model gpt-tiny --partition 5,3
refused "show: --data-parallel: an order does not depend on it" show --zero 1 --data-parallel 2
refused "show: --context-parallel 5: .* 16 heads" show --model gpt3-1.3b --seq 4100 --context-parallel 5
refused "stage 0 needs" show --model gpt3-1.3b --memory-limit 1GiB
refused "give --model" show --offload full

# ---- stages that overtake, times that vary

varied="$four --schedule zb1p --layers 16 --vary uniform=0.5,seed=3"
shown "--scheduler ready" '^scheduler +ready; strict takes [0-9.]+, 1\.[0-9]+ times as long' $varied --scheduler ready
shown "--window 1 is strict" '^scheduler +ready; strict takes [0-9.]+, 1\.000 times as long' $varied --scheduler ready \
    --window 1
shown "--vary" '^varied +uniform=0.5,seed=3' $varied
strict=$(starpipe show $varied --format json | grep '"makespan"')
starpipe show $varied --format json --scheduler ready > "$work/ready.json"
grep -qF "\"strict_${strict#*\"}" "$work/ready.json" || fail "ready: the strict makespan is another than without it"
[ "$strict" != "$(starpipe show ${varied%3}4 --format json | grep '"makespan"')" ] || fail "--vary: seeds change nothing"
shown "a slow stage" '^ +2 +48 ' $four --vary stage=2x2
for format in text csv svg html picture perfetto; do
    starpipe show $varied --scheduler ready --format $format > /dev/null || fail "ready: $format"
done
quiet "ready, --actions" starpipe show $varied --scheduler ready --actions
shown "ready, --model" '^scheduler +ready' $four --model gpt3-1.3b --scheduler ready --vary lognormal=0.3,link=0x5

# ---- stages of several devices: what of an op goes to exchanges

shared="--model gpt2-124m --seq 1024 $four --hardware a800-nvlink-eth --tensor-parallel 2"
shown "exchanges" '^exchanges +[0-9.]+ % of what ops take' $shared
starpipe show ${shared% --tensor-parallel 2} | grep -q '^exchanges' && fail "exchanges of one device"
shown "exchanges in a picture" 'of it, for exchanges' $shared --format svg
[ "$(grep -c '<rect class="exchange"' "$work/stdout")" -eq 65 ] || fail "exchanges: not one in each of 64 ops"
grep -q 'time (ms)' "$work/stdout" || fail "svg: times of a machine are in no ms"
starpipe show $shared --format picture | tr -d '\n' | grep -q '"F0.0",0,0,0,1,1,0,0,[0-9.]*]' ||
    fail "exchanges: none in a picture"

# ---- figures: what is rounding is 0, without a minus

# clean NAME: what was printed to stdout
clean()
{
    ! sed 's/wire=[^ ,:]*//' "$work/stdout" | grep -v '^stage [0-9]  ' | grep -E '[ [:]-0(\.0*)?([^0-9.]|$)|[0-9]e-1[0-9]' ||
        fail "$1: figures that are rounding"
}

uneven="$four --cost f=1.1,b=1.3,w=0.9,comm=0.37"
for schedule in 1f1b zbv fsdp; do
    starpipe show --schedule $schedule $uneven --format perfetto > "$work/$schedule.record" || fail "$schedule: no record"
    starpipe show --schedule $schedule $uneven,wire=0.00000000000001 --format perfetto > "$work/$schedule.beside" ||
        fail "$schedule: no second record"
    for command in "show --schedule $schedule $uneven" "report $work/$schedule.record" \
        "compare $work/$schedule.record $work/$schedule.beside"; do
        for format in text json; do
            starpipe $command --format $format > "$work/stdout" || fail "$command"
            clean "$command --format $format"
        done
    done
done

# ---- orders from a file

for name in torch_1f1b_p4_m8 torch_interleavedzb_p4_m8_v2 torch_zbv_p4_m8_v2 \
    torch_dualpipev_p4_m8_v2; do
    shown "$name" '^0F0,' --schedule "csv:$torch/$name.csv" --format csv
    cp "$work/stdout" "$work/$name.csv"
    shown "$name again" '^0F0,' --schedule "csv:$work/$name.csv" --format csv
    cmp -s "$work/stdout" "$work/$name.csv" || fail "$name: another order after a round trip"
    tr -d '\r' < "$torch/$name.csv" | sed 's/,,*/,/g; s/,$//; s/^,//' > "$work/$name.torch"
    cmp -s "$work/$name.csv" "$work/$name.torch" || fail "$name: not what torch wrote"
done
shown "pairs" '"overlap"' --schedule "csv:$torch/torch_dualpipev_p4_m8_v2.csv" --format json
one_line "$work/stdout" | grep -q '"overlap":\[\[\[17,18\],\[19,20\],' ||
    fail "pairs: the first ones of stage 0 are not at 17 and 19"
one_line "$work/stdout" | grep -q '"stage_map":\[\[0,7\],\[1,6\],\[2,5\],\[3,4\]\]' ||
    fail "pairs: no V placement"
shown "pairs in text" 'overlap' --schedule "csv:$torch/torch_dualpipev_p4_m8_v2.csv" --width 200
grep -q '^odd chunk: _, %, ^; even: ' "$work/stdout" || fail "text: chunks are not explained"
shown "svg of chunks" 'odd chunk' --schedule "csv:$torch/torch_dualpipev_p4_m8_v2.csv" --format svg
[ "$(grep -c 'class="unit"' "$work/stdout")" -gt 20 ] || fail "svg: pairs are not framed"

csv=$torch/torch_zbv_p4_m8_v2.csv
shown "the sizes of the file" 'stages": 4' --schedule "csv:$csv" --stages 4 --micro-batches 8 \
    --chunks 2 --format json
refused "has 4 stages, not 3; leave --stages out" show --schedule "csv:$csv" --stages 3
refused "has 8 micro-batches, not 9" show --schedule "csv:$csv" --micro-batches 9
refused "has 2 chunks, not 1" show --schedule "csv:$csv" --chunks 1
refused "has 1 slices, not 2" show --schedule "csv:$csv" --slices 2
refused "No such file" show --schedule csv:/none.csv
refused "not a regular file" show --schedule csv:/dev/zero
refused "which file" show --schedule csv:
printf '0F0,0B0\n1F0,1X0\n' > "$work/bad.csv"
refused "bad.csv: line 2, cell 2: '1X0'" show --schedule "csv:$work/bad.csv"
printf '0F0,0B0\n1B0,1F0\n' > "$work/bad.csv"
refused "stage 1: B0.0 at position 0 comes before its F0.0" show --schedule "csv:$work/bad.csv"
head -c 100000 "$STARPIPE" > "$work/bad.csv"
refused "bad.csv: line 1, cell 1" show --schedule "csv:$work/bad.csv"
truncate -s 1G "$work/bad.csv" && refused "1073741824 bytes" show --schedule "csv:$work/bad.csv"
rm "$work/bad.csv"

# ---- every schedule at a size of a cluster; the searches stop by themselves

for name in $(starpipe list | cut -d ' ' -f 1) zb1p:auto zb2p:auto; do
    begin=$(date +%s%N)
    shown "$name, 32 stages" '"bubble_ratio"' --schedule "$name" --stages 32 --micro-batches 128 \
        --layers 64 --format json
    printf '%s: %d ms\n' "$name" $((($(date +%s%N) - begin) / 1000000))
done

# ---- the page

pages=0
# page FILE: its script runs, where there is node to run it.
page()
{
    pages=$((pages + 1))
    [ "$(tail -n 1 "$1")" = "</html>" ] || fail "$1 does not end"
    command -v node > /dev/null || return 0
    node "$here/page.js" "$1" > "$work/node" 2>&1 ||
        fail "the script of $(basename "$1"): $(grep -m 1 Error "$work/node")"
    echo "$(basename "$1"): $(tail -n 1 "$work/node" | cut -c 1-100)"
}

starpipe show $four --format html --output "$work/1f1b.html" || fail "show --format html"
grep -q '"published makespan","33 = ' "$work/1f1b.html" || fail "page: no published makespan"
grep -q '"makespan","33"' "$work/1f1b.html" || fail "page: no makespan"
page "$work/1f1b.html"
starpipe show $shared --format html --output "$work/shared.html" || fail "show --format html of exchanges"
page "$work/shared.html"
starpipe show $four --format picture > "$work/picture" || fail "show --format picture"
sed -n '/id="data">/,/<\/script>/p' "$work/1f1b.html" | sed 's/^.*id="data">//; s/<\/script>.*$//' |
    cmp -s - "$work/picture" || fail "picture: not the data of the page"
starpipe show --schedule "csv:$torch/torch_dualpipev_p4_m8_v2.csv" --format html \
    --output "$work/dualpipev.html" || fail "show --format html of pairs"
page "$work/dualpipev.html"
starpipe show --stages 64 --micro-batches 512 --format html --output "$work/large.html" ||
    fail "show --format html of 64 stages"
page "$work/large.html"

# ---- what leaves memory

offloaded="show --schedule sppo --slices 4 --stages 4 --micro-batches 2 --model gpt3-1.3b --seq 16384"
quiet "show --offload" starpipe $offloaded --offload full --actions --format json
grep -q '"EVICT"' "$work/output" && grep -q '"FETCH"' "$work/output" || fail "no EVICT or no FETCH"
[ "$(grep -c '"EVICT"' "$work/output")" -eq "$(grep -c '"FETCH"' "$work/output")" ] ||
    fail "not everything that is evicted is fetched"
quiet "show --offload text" starpipe $offloaded --offload adaptive --memory-limit 20GiB
grep -q "^evicted, MiB a stage" "$work/output" || fail "text: nothing about what leaves"
# what is away is the same in a picture of a list simulation and in one of its record
starpipe $offloaded --offload full --format svg > "$work/away.svg" || fail "offload: no picture"
grep -q '<rect class="away" .*<title>[0-9.]* [MG]iB away: ' "$work/away.svg" || fail "offload: nothing is away in a picture"
starpipe $offloaded --format svg | grep -q 'class="away"' && fail "something is away without --offload"
starpipe $offloaded --offload full --format html > "$work/away.html" || fail "offload: no page"
page "$work/away.html"
starpipe $offloaded --offload full --format perfetto > "$work/away.record" || fail "offload: no record"
starpipe report "$work/away.record" --format html > "$work/reported.html" || fail "offload: no report"
for name in away reported; do
    sed -n '/^"away":/,/<\/script>/p' "$work/$name.html" | grep -o '\[[0-9.]*,[0-9.]*\]' > "$work/$name.steps"
done
[ "$(wc -l < "$work/away.steps")" -gt 100 ] || fail "offload: $(wc -l < "$work/away.steps") steps of what is away"
cmp -s "$work/away.steps" "$work/reported.steps" || fail "offload: other tensors are away in the record's picture"
refused "stage [0-9] needs .* with all activations away" $offloaded --offload full --memory-limit 1GiB
refused "leave out --cost" $offloaded --offload full --cost f=1
quiet "show --offload of parts of layers" starpipe show --schedule helix --stages 4 --micro-batches 8 --model gpt3-1.3b \
    --seq 16384 --offload full --actions
grep -q 'EVICT *stash0.1.attention' "$work/output" && grep -q 'FETCH *stash0.1.block' "$work/output" ||
    fail "attention and blocks do not leave apart"

# ---- bytes: of links they are those of their stages; between two nodes of two workers as TawPipe says

for schedule in 1f1b chimera fsdp helix weipipe tawpipe "sppo:multiplex --slices 4" "1f1b --tensor-parallel 2"; do
    # shellcheck disable=SC2086 # options
    quiet "show by link: $schedule" starpipe show --schedule $schedule --stages 4 --micro-batches 8 --model gpt-tiny \
        --seq 128 --format json
    python3 - "$work/output" << 'END' || fail "$schedule: bytes of links are not those of stages"
import json, sys
shown = json.load(open(sys.argv[1]))
sums = [0] * 4
for sender, receiver, sent in shown["bytes_by_link"]:
    sums[sender] += sent
sys.exit(sums != shown["bytes_sent"] or not any(sums))
END
done
said "show, bytes by link" "^    1 +[0-9.]+ +2: [0-9.]+ +0: [0-9.]+" show --schedule tawpipe:node=2 --stages 4 \
    --micro-batches 8 --model gpt-tiny --seq 128

# ---- train

make_text 9001 > "$work/text"
train="train --model gpt-tiny --data $work/text --seq 16 --steps 2 --threads 1"
printf '0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n' > "$work/order.csv"
quiet "train --trace" starpipe $train --schedule "csv:$work/order.csv" --trace "$work/trace"
for file in measured.svg expected.svg trace.html; do
    [ -s "$work/trace/$file" ] || fail "train --trace: no $file"
done
[ "$(grep -o '"title":' "$work/trace/trace.html" | wc -l)" -eq 2 ] ||
    fail "trace.html: not two pictures"
page "$work/trace/trace.html"
quiet "train, plain order" starpipe $train --stages 2 --micro-batches 2 --log "$work/a.jsonl"
quiet "train, order from a file" starpipe $train --schedule "csv:$work/order.csv" \
    --log "$work/b.jsonl"
agree "losses of 1f1b and of its order in a file" near "$work/a.jsonl" "$work/b.jsonl" 0
refused "has 2 stages, not 3" $train --schedule "csv:$work/order.csv" --stages 3
refused "has 2 micro-batches, not 8" $train --schedule "csv:$work/order.csv" --micro-batches 8
echo "$pages pages"
finish
