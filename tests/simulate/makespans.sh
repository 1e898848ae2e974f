#!/bin/bash
# Every schedule, its real graph in virtual time: the makespan that show predicts. Where messages take
# no time and an op computes when its inputs are there, nothing else may hold a task up.
. "$(dirname "$0")/sim.sh" || exit 1
need_sim

sizes="--stages 4 --micro-batches 8 --layers 16"
sliced="seq1f1b slimpipe terapipe sppo"
# Rings of weights: a backward waits for the gradient that comes around in its weight gradients only, and
# for buffers; between workers in the same turn, for that of the one before when it ends. Where stages share attention
# a task of an op waits for tasks of others, wherever in their op these are.
rings="weipipe-naive wzb1 tawpipe slimpipe"

options_of()
{
    case " $sliced " in *" $1 "*) echo --slices 4 ;; esac
}

n=0
for name in $(sim list | sed 's/ .*//'); do
    case " $rings " in *" $name "*) continue ;; esac
    options="--schedule $name $sizes $(options_of "$name")"
    same "$name" "$(simulated $options)" "$(listed $options)"
    n=$((n + 1))
done
[ $n -eq 25 ] || fail "$n schedules, not 25"

for name in $rings; do
    run=$(simulated --schedule "$name" $sizes $(options_of "$name"))
    list=$(listed --schedule "$name" $sizes $(options_of "$name"))
    echo "$name: $run, $list predicted"
    holds "$run > 0.8 * $list && $run < 1.05 * $list" || fail "$name: $run, $list predicted"
done

# ---- other costs, other sizes, orders from elsewhere

for name in zb1p zbv dualpipe hanayo fsdp; do
    options="--schedule $name --stages 6 --micro-batches 12 --layers 24 --cost f=1,b=1.3,w=0.7"
    same "$name, other costs" "$(simulated $options)" "$(listed $options)"
done
options="--schedule helix $sizes --cost pre=1,attn=5,post=3,backward=2.5"
same "helix, other costs" "$(simulated $options)" "$(listed $options)"
for name in 1f1b zb1p zbv; do
    options="--schedule $name $sizes --recompute full"
    same "$name, computed again" "$(simulated $options)" "$(listed $options)"
done
for schedule in zb1p:auto gpipe:backward=fifo helix:fold=1; do
    options="--schedule $schedule $sizes --cost comm=0"
    same "$schedule" "$(simulated $options)" "$(listed $options)"
done
for name in 1f1b zbv gpipe; do
    options="--schedule $name $sizes --vocabulary-parallel --cost head=0.8"
    same "$name, the vocabulary cut" "$(simulated $options)" "$(listed $options)"
done
options="--schedule slimpipe:exchange=off --slices 4 $sizes"
same "slimpipe:exchange=off" "$(simulated $options)" "$(listed $options)"
options="--schedule csv:$SP_TESTDATA/schedules/torch_zbv_p4_m8_v2.csv"
same "an order from a file" "$(simulated $options)" "$(listed $options)"
same "one stage" "$(simulated --schedule 1f1b --stages 1)" 24

# ---- the time of an op is shared out whole

for share in whole flops; do
    sim simulate --json --schedule zb1p $sizes --share $share > "$work/json"
    busy=$(tr -d ' \n' < "$work/json" | sed 's/.*"busy":\[\([^]]*\)\].*/\1/')
    echo "busy, $share: $busy"
    for stage in ${busy//,/ }; do
        holds "($stage - 24) ^ 2 < 1e-6" || fail "--share $share: busy $stage, not 24"
    done
done
# Two ops that overlap send as soon as their own last task is done, not at the end of both.
whole=$(simulated --schedule dualpipev $sizes)
flops=$(simulated --schedule dualpipev $sizes --share flops)
holds "$flops < $whole" || fail "dualpipev: --share flops gives $flops, whole $whole"
# In a group the two are expanded in turns.
turns=$(simulated --schedule dualpipev $sizes --tensor-parallel 2)
holds "${turns:-0} > 0 && ${turns:-0} < 1.5 * $whole" || fail "dualpipev --tensor-parallel 2: ${turns:-nothing}, alone $whole"

[ -s "$work/errors" ] && fail "on stderr: $(head -n 3 "$work/errors")"
finish
