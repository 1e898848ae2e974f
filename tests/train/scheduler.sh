#!/bin/bash
# --scheduler with policies of StarPU's and of a library of one's own, whose last-first runs ready tasks against
# the priorities, so that any order but that of the data shows: the losses, gradients and bytes of the strict
# order. One that runs nothing is ended by the watchdog, and what is wrong is refused.
. "$(dirname "$0")/../common.sh" || exit 1

CC=${CC:-cc}
make_text 20011 > "$work/text"
starpu=$(sed -n 's/^PKG_CONFIG_PATH = //p' "$builddir/Makefile")
flags=$(PKG_CONFIG_PATH=$starpu pkg-config --cflags starpu-1.4 | sed 's/-I/-isystem /g')
if ! $CC -shared -fPIC -Wall -Wextra -Werror $flags -o "$work/last_first.so" "$here/../plugins/last_first.c" \
    2> "$work/output"; then
    echo "skipped: $CC does not compile a policy: $(head -n 1 "$work/output")"
    exit 77
fi
tiny="train --data $work/text --model llama-tiny --seq 16 --steps 3"

# bytes LOG: of the buffers of each stage.
bytes()
{
    tail -n 1 "$1" | grep -o '"buffer_bytes":[0-9]*'
}

# same POLICY PROCESSES OPTIONS: the numbers of strict, and its buffers.
same()
{
    local policy=$1 n=$2 command=starpipe

    shift 2
    [ "$n" -eq 1 ] || command="mpi $n"
    quiet "$*" $command $tiny "$@" --log "$work/strict.jsonl" --dump-grads "$work/strict.safetensors"
    quiet "$policy, $*" $command $tiny "$@" --scheduler $policy --log "$work/log.jsonl" \
        --dump-grads "$work/grads.safetensors" || return
    grep -q "^starpipe: warning: --scheduler $policy: no order is enforced;" "$work/output" ||
        fail "$policy does not say that no order is enforced"
    agree "$policy, $n processes, $*, losses" near "$work/log.jsonl" "$work/strict.jsonl" 1e-5
    agree "$policy, gradients" near "$work/grads.safetensors" "$work/strict.safetensors" 1e-5
    [ "$(bytes "$work/log.jsonl")" = "$(bytes "$work/strict.jsonl")" ] || fail "$policy, $*: other buffers"
}

for policy in lws dmdas prio random; do
    same $policy 1 --stages 3 --schedule zb1p --micro-batches 6
done
export STARPU_SCHED_LIB=$work/last_first.so
same last-first 1 --stages 4 --schedule 1f1b --micro-batches 8
# The first op of the order of 64 has the highest priority.
grep -q '^last-first: priorities up to 64 of 64$' "$work/output" || fail "priorities: $(cat "$work/output")"
same last-first 1 --stages 2 --schedule zbv --micro-batches 6 --post-validation --clip 0.5
if have_mpi; then
    same last-first 2 --stages 2 --schedule helix --micro-batches 4
    same last-first 2 --tensor-parallel 2 --schedule 1f1b --micro-batches 4
    same last-first 2 --data-parallel 2 --zero 3 --schedule 1f1b --micro-batches 4
    same last-first 2 --stages 2 --schedule weipipe --micro-batches 4
fi

# ends COMMAND...: with a policy that runs nothing. A process tells others that it computes while a worker does.
ends()
{
    timeout -k 2 30 "$@" --scheduler never --stall-timeout 2 > "$work/stdout" 2> "$work/stderr"
    [ $? -eq 1 ] && grep -q '^starpipe: .*nothing moved for 2 s .*giving up$' "$work/stderr" &&
        grep -q 'stage 0 waits for F0.0' "$work/stderr" || fail "a policy that runs nothing: $(cat "$work/stderr")"
}
ends "$STARPIPE" $tiny
have_mpi && ends $MPIRUN -np 2 "$STARPIPE" $tiny --stages 2

refused "there are strict, ready, last-first, never, eager" $tiny --scheduler last
refused "want.* order.*strict" $tiny --scheduler last-first --offload full
STARPU_SCHED_LIB=$work/none.so refused "STARPU_SCHED_LIB .*none.so: cannot open" $tiny --scheduler lws
STARPU_SCHED_LIB=$work/none.so said "without a policy" 'nothing was submitted' $tiny --dry-run
finish
