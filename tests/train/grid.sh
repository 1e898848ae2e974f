# Sourced by tests of grids of processes, after common.sh.

# Some letters are first or last tokens of a part of the vocabulary, of two parts or four.
make_text 20011 | LC_ALL=C tr 'eothsnir' '\377\200\177\100\300\201\277\077' > "$work/text"

# grid D RANKS MODEL MICRO-BATCHES OPTIONS...: D pipelines with samples of their own, against one stage with all
# samples. To 1e-5 for the rounding of sums in another order. With exact=yes, each stage is in processes of its own: what
# they send and keep is what was planned. `every`: options of both runs.
grid()
{
    local d=$1 ranks=$2 model=$3 m=$4 what="$1 pipelines, $2 processes, ${*:5}" dry
    local same="--model $model --data $work/text --seq 32 --steps 3 --eps 1e-3 --clip 0.5 --slices ${slices:-1} ${every:-}"

    shift 4
    alone "$same --stages 1 --schedule ${one:-1f1b} --micro-batches $((d * m))" || return
    same="$same --data-parallel $d --micro-batches $m"
    quiet "$what" mpi "$ranks" train $same "$@" --log "$work/grid.jsonl" --dump-grads "$work/grid.safetensors" || return
    agree "$what: gradients" near "$work/grid.safetensors" "$work/one.safetensors" 1e-5
    agree "$what: losses" near "$work/grid.jsonl" "$work/one.jsonl" 1e-5
    [ "$exact" = yes ] || return
    dry=$(starpipe train $same "$@" --dry-run --json)
    is_planned "$what" bytes_sent bytes_sent "$dry"
    [ "${context:-}" != yes ] || is_planned "$what" peak_activation_bytes activations_bytes "$dry"
    [ "${context:-}" != yes ] || is_planned "$what" buffer_bytes buffer_bytes "$dry"
}

# alone OPTIONS: $work/one.jsonl and one.safetensors of that run, which are kept for the next who asks for it.
alone()
{
    local kept

    kept="$work/alone-$(echo "$1" | cksum | cut -d ' ' -f 1)"
    [ -s "$kept.jsonl" ] || quiet "one process, $1" starpipe train $1 --log "$kept.jsonl" \
        --dump-grads "$kept.safetensors" || return
    ln -sf "$kept.jsonl" "$work/one.jsonl"
    ln -sf "$kept.safetensors" "$work/one.safetensors"
}

# is_planned WHAT MEASURED PLANNED DRY-RUN: the numbers of all stages in the last line of the log.
is_planned()
{
    local measured planned

    measured=$(tail -n 1 "$work/grid.jsonl" | grep -o "\"$2\":[0-9]*" | cut -d : -f 2 | tr '\n' ' ')
    planned=$(echo "$4" | grep -o "\"$3\": [0-9]*" | cut -d ' ' -f 2 | tr '\n' ' ')
    [ -n "$measured" ] && [ "$measured" = "$planned" ] || fail "$1: $2 $measured, planned $planned"
}

# killed WHAT RANKS OPTIONS...: of so many processes the last one is killed in the middle of a run; the others end too,
# within 10 s, and its rank is named.
killed()
{
    local what=$1 last=$(($2 - 1)) run status

    shift 2
    timeout 60 $MPIRUN -np "$last" "$STARPIPE" train "$@" --steps 100000 --stall-timeout 5 : \
        -np 1 sh -c "echo \$\$ > $work/pid; exec $STARPIPE train $* --steps 100000 --stall-timeout 5" \
        > "$work/killed" 2>&1 &
    run=$!
    children="$children $run"
    wait_for 30 grep -qs 'step [2-9]' "$work/killed" || fail "$what: no step: $(tail -n 3 "$work/killed")"
    SECONDS=0
    kill -9 "$(cat "$work/pid")"
    wait $run
    status=$?
    [ $status -ne 0 ] && [ $status -ne 124 ] && [ $SECONDS -le 10 ] || fail "$what: status $status after $SECONDS s"
    grep -Eq "rank $last|exited on signal 9" "$work/killed" || fail "$what: $(tail -n 3 "$work/killed")"
    echo "$what: over after $SECONDS s"
}
