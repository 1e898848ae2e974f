# Sourced by tests of grids of processes, after common.sh.

# Some letters are first or last tokens of a part of the vocabulary, of two parts or four.
make_text 20011 | LC_ALL=C tr 'eothsnir' '\377\200\177\100\300\201\277\077' > "$work/text"

# grid D RANKS MODEL MICRO-BATCHES OPTIONS...: D pipelines with samples of their own, against one stage with all
# samples. To 1e-5 for the rounding of sums in another order. With exact=yes, each stage is in processes of its own: what
# they send and keep is what was planned. `every`: options of both runs. Noted, for make_grids.
grid()
{
    local d=$1 ranks=$2 model=$3 m=$4 alone one_run
    local same="--model $model --data $work/text --seq 32 --steps 3 --eps 1e-3 --clip 0.5 --slices ${slices:-1} ${every:-}"

    alone="$same --stages 1 --schedule ${one:-1f1b} --micro-batches $((d * m))"
    same="$same --data-parallel $d --micro-batches $m ${*:5}"
    one_run=alone-$(echo "$alone" | cksum | cut -d ' ' -f 1)
    note "$one_run" 1 $alone
    note "grid-${#grids[@]}" "$ranks" $same
    echo "$same" > "$work/grid-${#grids[@]}.options"
    grids+=("$one_run $exact ${context:-no} $d pipelines, $ranks processes, $model ${*:5}")
}
grids=()

# make_grids: the runs of all grids, and what else is noted; and looks at the grids.
make_grids()
{
    local i run one_run exact context what

    make_runs
    for i in "${!grids[@]}"; do
        run=grid-$i
        read -r one_run exact context what <<< "${grids[i]}"
        agree "$what: gradients" near "$work/$run.safetensors" "$work/$one_run.safetensors" 1e-5
        agree "$what: losses" near "$work/$run.jsonl" "$work/$one_run.jsonl" 1e-5
        [ "$exact" = yes ] || continue
        starpipe train $(< "$work/$run.options") --dry-run --json > "$work/planned"
        is_planned "$what" $run bytes_sent bytes_sent
        [ "$context" != yes ] || is_planned "$what" $run peak_activation_bytes activations_bytes
        [ "$context" != yes ] || is_planned "$what" $run buffer_bytes buffer_bytes
    done
}

# is_planned WHAT RUN MEASURED PLANNED: the numbers of all stages in the last line of its log, and in $work/planned.
is_planned()
{
    local measured planned

    measured=$(tail -n 1 "$work/$2.jsonl" | grep -o "\"$3\":[0-9]*" | cut -d : -f 2 | tr '\n' ' ')
    planned=$(grep -o "\"$4\": [0-9]*" "$work/planned" | cut -d ' ' -f 2 | tr '\n' ' ')
    [ -n "$measured" ] && [ "$measured" = "$planned" ] || fail "$1: $3 $measured, planned $planned"
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
