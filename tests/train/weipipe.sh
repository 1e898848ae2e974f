#!/bin/bash
# WeiPipe on two, three and four workers, both model styles: losses of several steps and gradients of
# one stage within 1e-5; in one process and over MPI the same bits; the bytes that every worker sends
# are those of the rings, whatever the length of sequences; all workers keep the same activations.
. "$(dirname "$0")/travel.sh" || exit 1

# Numbers of a layer, and of embedding, positions, final norm and head (src/model/presets.c).
h=64
gpt_tiny="$((12 * h * h + 13 * h)) $((256 * h + 512 * h + 2 * h)) 8"
llama_tiny="$((3 * h * h + 3 * h * 172 + 2 * h)) $((2 * 256 * h + h)) 8"

# formula P M SCHEDULE LAYER ENDS LAYERS: bytes that each worker sends in a step. The exchange before
# turn 0, forward weights after every turn until the last forward can go on, what backwards need from
# turn P until it is home; and the summed gradients of embedding and head. With wzb1 weights come from
# their owners first, and gradients go to them last. With wzb2 a worker sends on one chunk for every op,
# and owners send to worker 0, the last worker to owners.
formula()
{
    awk -v P="$1" -v m="$2" -v schedule="$3" -v layer="$4" -v ends="$5" -v L="$6" '
    # what a worker has for backwards at a position of the ring: chunk, and whether it is a gradient
    function chunk(at, i) {
        if (schedule == "wzb1") return (i ? P / 2 : P) - 1 - int(at / 2)
        return P - 1 - at
    }
    function gradient(at, i) { return schedule == "wzb1" ? at % 2 : i }
    BEGIN {
        G = m / P
        home = schedule ~ /^weipipe/ # gradients come home by themselves
        if (schedule == "weipipe") { forward = G * P; turns = (G + 1) * P }
        if (schedule == "weipipe-naive") { forward = 2 * G * P - P; turns = 2 * G * P }
        if (schedule == "wzb1") { forward = (3 * G / 2 - 1) * P; turns = (3 * G / 2 + 1) * P }
        last = home ? turns + P - 1 : turns + P - 3
        for (c = 0; c < P; c++)
            size[c] = layer * (int(L / P) + (c < L % P))
        for (c = 0; c < P && schedule ~ /^wzb2/; c++) {
            owner = schedule ~ /each/ ? (c + 1) % P : P - 1
            for (r = 0; r < P - 1; r++) sent[r] += 3 * G * size[c]
            if (owner > 0) sent[owner] += 2 * G * size[c]
            if (owner < P - 1) sent[P - 1] += G * size[c]
        }
        for (r = 0; r < P; r++) {
            sent[r] += ends * ((r < P - 1) + (r == P - 1 || r < P - 2))
            if (schedule ~ /^wzb2/) continue
            if ((2 * P + 1 - r) % P != r) {
                sent[r] += size[(r + P - 1) % P]
                messages[r]++
            }
            for (t = 0; t <= forward + P - 2; t++) {
                sent[r] += size[(t - r + P * P) % P]
                messages[r]++
            }
            for (i = 0; i < 2; i++) {
                for (t = P; t <= last; t++) {
                    sent[r] += size[chunk((t - r + P * P) % P, i)]
                    messages[r]++
                }
                at = (P - r) % P
                owner = (chunk(at, i) + 1) % P
                if (!gradient(at, i) && owner != r) sent[owner] += size[chunk(at, i)]
                at = (last + 1 - r + P * P) % P
                owner = (chunk(at, i) + 1) % P
                if (!home && gradient(at, i) && owner != r) sent[r] += size[chunk(at, i)]
            }
        }
        for (r = 0; r < P; r++) {
            if (schedule == "weipipe" && P % 2 == 0 && messages[r] != 3 * (G + 1) * P)
                exit 1
            printf "%s%.0f", r ? " " : "", 4 * sent[r]
        }
    }'
}

# check MODEL SCHEDULE WORKERS MICRO-BATCHES [OPTIONS]
check()
{
    local model=$1 schedule=$2 P=$3 m=$4 what sizes want got longer

    shift 4
    what="$schedule, $model, $P workers, $m micro-batches${*:+, $*}"
    set -- train --model "$model" --stages "$P" --schedule "$schedule" "$@"
    train run "$m" 20 starpipe "$@" --seq 24
    agree "$what" near "$work/run.jsonl" "$work/$model.$m.jsonl" 1e-5
    agree "$what, gradients" near "$work/run.safetensors" \
        "$work/$model.$m.safetensors" 1e-5
    have_mpi || return
    train apart "$m" 3 mpi "$P" "$@" --seq 24
    cmp -s "$work/run.safetensors" "$work/apart.safetensors" ||
        fail "$what: $P processes have other gradients than one"
    [ "$(steps_of "$work/run.jsonl" loss | head -n 3)" = "$(steps_of "$work/apart.jsonl" loss)" ] ||
        fail "$what: $P processes have other losses than one"
    case $model in gpt-tiny) sizes=$gpt_tiny ;; *) sizes=$llama_tiny ;; esac
    want=$(formula "$P" "$m" "$schedule" $sizes) || fail "$what: not 3(G+1)P messages"
    got=$(stages_of "$work/apart.jsonl" bytes_sent | sort -u)
    echo "$what: bytes sent $got"
    [ "$got" = "$want" ] || fail "$what: bytes sent $got, the formula says $want"
    train longer "$m" 1 mpi "$P" "$@" --seq 96
    longer=$(stages_of "$work/longer.jsonl" bytes_sent)
    [ "$longer" = "$want" ] || fail "$what: with longer sequences bytes sent are $longer"
}

for model in gpt-tiny llama-tiny; do
    for m in 4 8 9; do
        train $model.$m $m 20 starpipe train --model $model --stages 1 --seq 24
    done
    check $model weipipe 2 4
    check $model weipipe 4 8 --recompute no-attention
    check $model weipipe 3 9 --recompute full
    check $model weipipe-naive 2 4 --recompute selective
    check $model weipipe-naive 4 8
    check $model wzb1 2 4
    check $model wzb1 4 8 --recompute no-attention
    check $model wzb2 4 8
    check $model wzb2 3 9 --recompute full
    check $model wzb2:owner=each 4 8
done

# two workers a process, and a process of two beside one
if have_mpi; then
    for np in 2 3; do
        train run 8 1 mpi $np train --model gpt-tiny --stages 4 --schedule weipipe --seq 24
        agree "weipipe, 4 workers in $np processes" near "$work/run.safetensors" \
            "$work/gpt-tiny.8.safetensors" 1e-5
        for schedule in wzb1 wzb2 wzb2:owner=each; do
            train run 8 1 mpi $np train --model llama-tiny --stages 4 --schedule $schedule --seq 24
            agree "$schedule, 4 workers in $np processes" near \
                "$work/run.safetensors" "$work/llama-tiny.8.safetensors" 1e-5
        done
    done
fi

# steady SCHEDULE TURNS CHUNKS: what one more round costs on the wire. In each of its turns (TURNS times P)
# so many chunks of 12h^2 + 13h numbers a layer, at any length of sequences: the paper's 36h^2, with
# biases and norms, for two chunks of weights and one of gradients.
steady()
{
    local schedule=$1 turns=$2 chunks=$3 s m sent=

    for s in 128 1024; do
        for m in 4 6; do
            train wire $m 1 mpi 2 train --model "$work/model" --stages 2 --schedule $schedule --seq $s
            sent="$sent $(stages_of "$work/wire.jsonl" bytes_sent | awk '{ print $1 }')"
        done
    done
    echo "$sent" | awk -v schedule=$schedule -v turns=$turns -v chunks=$chunks -v h=$h -v L=4 -v P=2 '{
        each = 4 * turns * P * L / P # bytes of a number, turns of a round, layers of a chunk
        short = ($2 - $1) / each
        long = ($4 - $3) / each
        printf "%s: in a turn %.0f numbers a layer with s = 128, %.0f with s = 1024: %d h^2 + %d h\n", \
            schedule, short, long, 12 * chunks, (short - 12 * chunks * h * h) / h
        exit short != chunks * (12 * h * h + 13 * h) || long != short || $1 != $3
    }' || fail "$schedule: not $chunks chunks in a turn"
}

if have_mpi; then
    mkdir "$work/model"
    cat > "$work/model/config.json" << EOF
{"model_type": "gpt2", "n_layer": 4, "n_embd": $h, "n_head": 4, "vocab_size": 256,
 "n_positions": 1024, "n_inner": $((4 * h)), "layer_norm_epsilon": 1e-5,
 "activation_function": "gelu_new", "tie_word_embeddings": true}
EOF
    steady weipipe 1 3
    steady wzb2 3 1
fi

# keeps SCHEDULE MICRO-BATCHES: all workers the same activations, in those of a micro-batch (16bshL)
keeps()
{
    train peaks 8 3 starpipe train --model gpt-tiny --stages 4 --schedule $1 --seq 128
    stages_of "$work/peaks.jsonl" peak_activation_bytes | tail -n 1 |
        awk -v schedule=$1 -v want=$2 -v one=$((4 * 16 * 128 * h * 8)) '{
            most = least = $1
            for (i = 2; i <= NF; i++) {
                most = $i > most ? $i : most
                least = $i < least ? $i : least
            }
            printf "%s: %.3f to %.3f micro-batches\n", schedule, least / one, most / one
            exit !(most <= 1.05 * least && most / one > want - 0.1 && most / one < want + 0.1)
        }' || fail "$1: the workers do not keep $2 micro-batches"
    [ "$(stages_of "$work/peaks.jsonl" live_activation_bytes | sort -u)" = "0 0 0 0" ] ||
        fail "$1: activations alive after a step"
}

keeps weipipe 1
keeps weipipe-naive 1
keeps wzb1 1.5
keeps wzb2 1

for schedule in weipipe wzb1 wzb2 wzb2:owner=each; do
    have_mpi || break
    flat $schedule $schedule mpi 4
done

refuse "use --micro-batches 8" --schedule weipipe --micro-batches 10
refuse "use --micro-batches 4" --schedule weipipe-naive --micro-batches 3
refuse "use --slices 1" --schedule weipipe --slices 2
refuse "use --chunks 1" --schedule weipipe --chunks 2
refuse "use even" --schedule weipipe --partition balanced
refuse "not available for weipipe" --schedule weipipe --post-validation
refuse "use owner=last or owner=each" --schedule wzb2:owner=first
refuse "use --stages 4" --schedule wzb1 --stages 3 --micro-batches 9
refuse "weights have gone on" --schedule wzb1 --recompute selective
refuse "use at most 8 stages" --schedule weipipe --stages 9 --micro-batches 18
finish
