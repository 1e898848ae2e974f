#!/bin/bash
# --device cuda on a machine without a GPU: the fake CUDA runtime's own tests; then the program on it,
# with StarPU's real CUDA driver. The kernels are the CPU's, so whatever the schedule, the devices, the
# delays, losses and gradients must have the bits of --device cpu. FAKE_CUDA: where the fake libraries
# and the programs linked with them are.
. "$(dirname "$0")/../common.sh" || exit 1

FAKE_CUDA=${FAKE_CUDA:-$builddir/tests/fake_cuda}
[ -x "$FAKE_CUDA/starpipe" ] || { echo "skipped: no $FAKE_CUDA/starpipe: make check-cuda builds it"; exit 77; }
export LD_LIBRARY_PATH=$FAKE_CUDA/lib STARPU_HOSTNAME=fake OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1
unset STARPU_NCUDA SP_DEVICE

# Its own tests, on another core than the runs below.
units()
{
    local program

    for program in "$FAKE_CUDA"/test_*; do
        [ -x "$program" ] && [ ! -d "$program" ] || continue
        # What stands behind the fake libraries is the toolkit: cuDNN, which plans without a GPU.
        LD_LIBRARY_PATH=$FAKE_CUDA/lib:${CUDA_LIBDIR:-} "$program" > "$work/unit" 2>&1
        case $? in
        0) echo "$(basename "$program"): $(grep -c '\[       OK \]' "$work/unit") tests" ;;
        77) echo "$(basename "$program"): $(cat "$work/unit")" ;;
        *) fail "$(basename "$program")"; tail -n 20 "$work/unit" ;;
        esac
    done
    return $failures
}
units > "$work/units" 2>&1 &
units=$!

STARPIPE=$FAKE_CUDA/starpipe
make_text 9973 > "$work/text"

seq=24

# run DEVICE COMMAND...: two steps
run()
{
    local device=$1

    shift
    rm -f "$work/$device.jsonl" "$work/$device.safetensors"
    quiet "$device: $*" "$@" --device "$device" --data "$work/text" --seq $seq --steps 2 \
        --log "$work/$device.jsonl" --dump-grads "$work/$device.safetensors"
}

losses()
{
    grep -o '"loss": *[0-9.e+-]*' "$work/$1.jsonl"
}

# same COMMAND...: on either device, bit by bit
same()
{
    run cpu "$@"
    run cuda "$@"
    grep -q '"device": *"cuda"' "$work/cuda.jsonl" || fail "$*: no GPU was used"
    if ! cmp -s "$work/cpu.safetensors" "$work/cuda.safetensors"; then
        fail "$*: the GPU has other gradients"
    elif [ "$(losses cpu)" != "$(losses cuda)" ]; then
        fail "$*: the GPU has other losses"
    fi
}

# One schedule of each kind of graph; with SP_LONG all.
names="1f1b zbv chimera seq1f1b slimpipe helix weipipe wzb2 fsdp"
[ -z "${SP_LONG:-}" ] || names=$(starpipe list | cut -d' ' -f1)
models=(gpt-tiny llama-tiny)
i=0
for name in $names sppo:multiplex; do
    case $name in seq1f1b | terapipe | sppo*) slices=3 ;; slimpipe) slices=8 ;; *) slices=1 ;; esac
    same starpipe train --model "${models[i % 2]}" --schedule "$name" \
        --stages $((i++ % 3 ? 4 : 2)) --slices $slices --micro-batches 8
done
echo "$i runs have the bits of the CPU"

# nothing is read before it is written, or written before it was read, however late things come
export SP_FAKE_GPU_CHECK=1 SP_FAKE_GPU_JITTER_US=200
for name in zbv dualpipev helix weipipe fsdp; do
    same starpipe train --model llama-tiny --schedule $name --stages 2 --micro-batches 4 \
        --dtype bf16
done
for name in zbv weipipe; do
    same starpipe train --model gpt-tiny --schedule $name --stages 2 --micro-batches 4 --dtype fp8
done
mkdir "$work/qwen"
cat > "$work/qwen/config.json" << 'END'
{"model_type": "qwen3", "num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 4,
 "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 48, "vocab_size": 256,
 "max_position_embeddings": 128, "tie_word_embeddings": false, "attention_bias": true,
 "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
END
for options in "--schedule 1f1b --recompute selective" "--schedule wzb2" \
    "--schedule zbv --vocabulary-parallel" "--schedule 1f1b --vocabulary-parallel --logit-rows 5" \
    "--schedule helix:qkv=weights --dtype bf16"; do
    same starpipe train --model "$work/qwen" --stages 2 --micro-batches 4 $options
done
for name in zbv weipipe fsdp; do
    SP_FAKE_GPUS=2 STARPU_HOSTNAME=fake2 same starpipe train --model gpt-tiny --schedule $name \
        --stages 4 --micro-batches 8
done
for mode in selective full; do
    same starpipe train --model gpt-tiny --stages 2 --micro-batches 2 --recompute $mode
done
same starpipe train --model llama-tiny --schedule wzb2 --stages 2 --micro-batches 4 --clip 0.5 \
    --post-validation
for offload in full "adaptive --memory-limit 6MiB"; do
    # shellcheck disable=SC2086 # the options are words
    same starpipe train --model gpt-tiny --schedule sppo --slices 4 --stages 2 --micro-batches 2 \
        --offload $offload
done
unset SP_FAKE_GPU_CHECK SP_FAKE_GPU_JITTER_US

# on to disk, where main memory has no room for what leaves the GPU
seq=512
same starpipe train --model gpt-tiny --schedule sppo --slices 8 --stages 2 --micro-batches 2 \
    --micro-batch-size 4 --offload full --offload-dir "$work"
STARPU_LIMIT_CPU_MEM=16 starpipe train --report --model gpt-tiny --data "$work/text" --schedule sppo --slices 8 \
    --stages 2 --micro-batches 2 --seq 512 --micro-batch-size 4 --steps 2 --offload full \
    --offload-dir "$work" --device cuda --dump-grads "$work/disk.safetensors" > "$work/output" ||
    fail "on to disk: $(tail -n 1 "$work/output")"
grep -q '^disk: [1-9]' "$work/output" || fail "nothing went on to disk"
cmp "$work/disk.safetensors" "$work/cpu.safetensors" || fail "on to disk: other gradients"

# The optimizer's state in main memory, updated by the GPU, to which it comes, or by cores, where it is: with the weights,
# moments and losses of a run that keeps it, however late things come.
# updated WAY STEPS OPTIONS...: writes $work/WAY.jsonl and $work/WAY
seq=24
updated()
{
    local option=

    case $1 in gpu | cpu) option="--offload-optimizer --optimizer-device $1" ;; esac
    rm -rf "${work:?}/$1" "$work/$1.jsonl"
    # shellcheck disable=SC2086 # the options are words
    quiet "state on $1: ${*:3}" starpipe train --device cuda --model llama-tiny --data "$work/text" --seq $seq \
        --micro-batches 4 --steps "$2" $option --save "$work/$1" --log "$work/$1.jsonl" "${@:3}"
}
export SP_FAKE_GPU_CHECK=1 SP_FAKE_GPU_JITTER_US=200
for options in "--stages 2 --schedule zbv --dtype bf16" "--stages 2 --schedule 1f1b --scheduler ready" \
    "--stages 2 --schedule fsdp --dtype bf16" \
    "--stages 1 --schedule sppo --slices 4 --offload full --offload-dir $work --dtype bf16"; do
    for way in kept gpu cpu; do
        [ $way != gpu ] || [ "${options#*zbv}" != "$options" ] || continue # one schedule is enough
        # shellcheck disable=SC2086 # the options are words
        updated $way 3 $options
        [ "$(losses $way)" = "$(losses kept)" ] || fail "state on $way: other losses: $options"
        for file in model optimizer-m optimizer-v; do
            cmp "$work/$way/step-000003/$file.safetensors" "$work/kept/step-000003/$file.safetensors" ||
                fail "state on $way: other weights or moments: $options"
        done
    done
done
quiet "resumed, updated by the GPU" starpipe train --resume "$work/cpu" --optimizer-device gpu --steps 4 --save "$work/cpu"
unset SP_FAKE_GPU_CHECK SP_FAKE_GPU_JITTER_US

# What StarPU copied each way, in bytes, and the tasks of the worker of cores, as $work/output tells.
copied()
{
    awk '/NUMA 0 -> CUDA 0/ { up += $6 } /CUDA 0 -> NUMA 0/ { down += $6 } /^CPU 0/ { cores = 1 }
        cores && /task\(s\)/ { tasks += $1; cores = 0 }
        END { printf "%d %d %d\n", down * 2 ^ 30, up * 2 ^ 30, tasks }' "$work/output"
}
parameters=$(grep -o '"parameters": *[0-9]*' "$work/cpu.jsonl" | head -n 1 | grep -o '[0-9]*$')
for way in gpu cpu; do
    for steps in 2 6; do
        STARPU_PROFILING=1 STARPU_BUS_STATS=1 STARPU_WORKER_STATS=1 starpipe train --device cuda --model llama-tiny \
            --data "$work/text" --seq $seq --micro-batches 4 --stages 2 --dtype bf16 --steps $steps --offload-optimizer \
            --optimizer-device $way --log "$work/$way.jsonl" > "$work/output" 2>&1 || fail "$way: $(tail -n 1 "$work/output")"
        read -r down[steps] up[steps] tasks[steps] <<< "$(copied)"
    done
    # bytes of a parameter in a step: three f32 each way, or a gradient down and a rounded weight up
    awk -v way=$way -v n=$((4 * parameters)) -v down=$((down[6] - down[2])) -v up=$((up[6] - up[2])) \
        -v tasks=$((tasks[6] - tasks[2])) 'BEGIN {
            printf "updated on %s: %.2f bytes of a parameter go down in a step, %.2f come up, %d tasks on cores\n", way,
                down / n, up / n, tasks / 4
            if (way == "gpu") exit !(down / n > 11.5 && up / n > 11.5 && !tasks)
            exit !(down / n > 3.8 && down / n < 4.3 && up / n > 1.9 && up / n < 2.3 && tasks >= 4 * 16)
        }' || fail "$way: other bytes"
done
grep -Eq '"bytes_offloaded": *[1-9]' "$work/cpu.jsonl" || fail "no gradients were counted"
# and the memory of a dry run is the run's: no state is on the GPU
for way in gpu cpu; do
    starpipe train --report --device cuda --model llama-tiny --data "$work/text" --seq 24 --micro-batches 4 --stages 2 \
        --dtype bf16 --steps 3 --offload-optimizer --optimizer-device $way > "$work/output" || fail "$way with --report"
    starpipe train --dry-run --json --hardware h100-ib --model llama-tiny --seq 24 --micro-batches 4 --stages 2 \
        --dtype bf16 --steps 3 --offload-optimizer --optimizer-device $way > "$work/dry" || fail "$way: a dry run"
    grep -q "\"device\": \"$way\"" "$work/dry" || fail "a dry run: $(cat "$work/dry")"
    planned=0
    for bytes in $(grep -o '"\(parameters\|optimizer\|activations\|workspace\)_bytes": [0-9]*' "$work/dry" | cut -d ' ' -f 2); do
        planned=$((planned + bytes))
    done
    sed -n 's/^process of stage 0: \([0-9.]*\) MiB .* highest, \([0-9.]*\) planned.*/\1 \2/p' "$work/output" |
        awk -v way=$way -v dry=$((planned >> 10)) '{ n++; printf "updated on %s: %s MiB taken, %s planned, %.1f in a dry run\n",
                way, $1, $2, dry / 1024; ok = $1 <= $2 && $1 > 0.8 * $2 && $2 < dry / 1024 + 0.06 && $2 > dry / 1024 - 0.06 }
            END { exit !(n == 1 && ok) }' || fail "updated on $way: memory is not what was planned"
done

# What the process took of its GPU, and what was planned, in MiB, as $work/output tells.
taken()
{
    sed -n 's/^process of stage 0: \([0-9.]*\) MiB .* highest, \([0-9.]*\) planned.*/\1 \2/p' "$work/output"
}

# offloads WHAT STEPS OPTIONS...: --offload with these
offloads()
{
    SP_FAKE_GPU_COUNTS=1 starpipe train --report --model gpt-tiny --data "$work/text" --schedule sppo --slices 8 --stages 2 \
        --micro-batches 2 --seq 512 --micro-batch-size 4 --steps "$2" --offload "${@:3}" --device cuda \
        > "$work/output" 2> "$work/counts" || fail "$1: $(tail -n 1 "$work/counts")"
}

# a limit on the GPU is kept
offloads "a limit" 3 adaptive --memory-limit 24MiB
taken | awk '{ n++; print $1 " MiB taken of 2 times 24" } END { exit !(n == 1 && $1 <= 48) }' ||
    fail "more than --memory-limit was taken"

# with offload no step after the first calls cudaMalloc, or cudaFree, which waits for all that computes, and the
# buffers in use are within what was planned, though slices of equal times have as many sizes as there are slices
for offload in full "adaptive --memory-limit 24MiB"; do
    for steps in 1 4; do
        offloads allocations $steps $offload
        taken | awk '{ n++; if ($1 > $2) exit 1 } END { exit n != 1 }' || fail "--offload $offload: more than was planned"
        counted[steps]=$(sed -n 's/^fake GPU 0: \([0-9]*\) allocations, \([0-9]*\) pooled.*/\1 \2/p' "$work/counts")
    done
    read -r one pooled <<< "${counted[1]}"
    read -r four _ <<< "${counted[4]}"
    echo "--offload $offload: $one allocations in one step, $four in four, $pooled of the pool"
    [ "${one:-0}" -gt 0 ] && [ "$one" = "$four" ] && [ "${pooled:-0}" -gt "$one" ] ||
        fail "--offload $offload: allocations in every step"
done
# Where kernels and copies take the time of their bytes, what leaves does so under what computes, and a step waits for
# copies as long as the simulation says. Where the CPU is slower than the rates, this is not to be had.
SP_FAKE_GPU_KERNELS=150 SP_FAKE_GPU_BUS=40 starpipe train --report --model gpt-tiny --data "$work/text" --schedule sppo \
    --slices 8 --stages 1 --micro-batches 1 --seq 512 --micro-batch-size 4 --steps 3 --offload full --device cuda \
    > "$work/output" || fail "rates: $(tail -n 1 "$work/output")"
grep -A 1 '^stage .*stalls ms (expected)' "$work/output" | tail -n 1 | tr -d '()' |
    awk '{ print $2 " MiB out, " $3 " back: stalls of " $4 " ms, " $5 " expected"
           exit !(NF == 5 && $3 > 140 && $4 < 1.2 * $5 + 300 && $4 > 0.8 * $5 - 300) }' ||
    fail "stalls: $(cat "$work/output")"
# a driver without memory pools, or an MPI that reads from GPUs, does as well, and StarPU keeps to the limit
for setting in SP_FAKE_GPU_POOLS=0 STARPU_MPI_GPUDIRECT=1; do
    export "${setting?}"
    offloads $setting 3 adaptive --memory-limit 24MiB
    unset "${setting%=*}"
    grep -q ' 0 pooled' "$work/counts" || fail "$setting: $(cat "$work/counts")"
    taken | awk '{ n++ } END { exit !(n == 1 && $1 <= 48) }' || fail "$setting: more than --memory-limit was taken"
done
SP_FAKE_GPU_POOLS=0 same starpipe train --model gpt-tiny --schedule sppo --slices 8 --stages 2 --micro-batches 2 \
    --micro-batch-size 4 --offload full

# a limit that the environment sets is StarPU's to keep: it moves what it likes, and nothing may end early
export SP_FAKE_GPU_JITTER_US=200
STARPU_LIMIT_CUDA_MEM=16 same starpipe train --model gpt-tiny --schedule gpipe --stages 2 --micro-batches 4
unset SP_FAKE_GPU_JITTER_US

if have_mpi; then
    for name in helix weipipe; do
        same mpi 2 train --model gpt-tiny --schedule $name --stages 4 --micro-batches 8
    done
fi

# planned and taken: within 10 %, and no more after three steps than after ten
starpipe train --report --device cuda --model gpt-tiny --data "$work/text" --stages 2 --seq 256 \
    --micro-batches 4 --steps 10 --log "$work/memory.jsonl" > "$work/output" ||
    fail "ten steps: $(tail -n 1 "$work/output")"
taken | awk '{ n++; print $1 " MiB taken, " $2 " planned"; r = $1 / $2 }
        END { exit !(n == 1 && r > 0.9 && r < 1.1) }' || fail "memory is not what was planned"
[ "$(sed -n 4p "$work/memory.jsonl" | grep -o '"peak_device_bytes": *[0-9]*')" = \
    "$(sed -n 11p "$work/memory.jsonl" | grep -o '"peak_device_bytes": *[0-9]*')" ] ||
    fail "memory grows from step to step"

# refused REGEX COMMAND...: one line, exit status 2
refused()
{
    local why=$1 status

    shift
    "$@" > "$work/output" 2>&1
    status=$?
    [ $status -eq 2 ] && [ "$(wc -l < "$work/output")" -eq 1 ] && grep -Eq "$why" "$work/output" ||
        fail "$*: exit status $status: $(cat "$work/output")"
}

tiny="train --device cuda --model gpt-tiny --data $work/text"
SP_FAKE_GPUS=0 refused "no device" starpipe $tiny
# a build for newer GPUs alone refuses this one before
SP_FAKE_GPU_CAPABILITY=80 refused "takes compute capability 8.9|starpipe needs (8.9|[1-9]?[0-9].[0-9]) or newer" starpipe $tiny --dtype fp8
SP_FAKE_GPU_MEM=16M refused "need .* GiB of GPU 0" starpipe $tiny --stages 2 --seq 256 \
    --micro-batch-size 8
# What the kernels take counts: in refusals, in what is printed, in what offload plans with.
SP_FAKE_GPU_MEM=256M quiet "in 256 MiB" starpipe $tiny --stages 2 --seq 256 --steps 1
SP_FAKE_GPU_MEM=256M SP_FAKE_KERNELS_MIB=250 refused "need .* GiB of GPU 0 .*workspace 0\.[23]" \
    starpipe $tiny --stages 2 --seq 256 --steps 1
SP_FAKE_KERNELS_MIB=100 starpipe $tiny --report --stages 2 --seq 256 --steps 1 > "$work/output"
grep -q 'planned, of which 100.0 for the kernels' "$work/output" || fail "planned: $(cat "$work/output")"
# 180 MiB, of which a tenth is left to libraries: the tensors of either stage have 16 MiB, then 11.
sliced="$tiny --schedule sppo --slices 8 --stages 2 --micro-batches 2 --seq 512 --micro-batch-size 4
    --steps 2 --offload-dir $work --offload"
adaptive="$sliced adaptive"
SP_FAKE_GPU_MEM=180M SP_FAKE_KERNELS_MIB=130 starpipe $adaptive --report > "$work/output" ||
    fail "adaptive beside the kernels: $(tail -n 1 "$work/output")"
taken | awk '{ n++; print $1 " MiB taken of 32, " $2 " planned of 162" }
        END { exit !(n == 1 && $1 <= 32 && $2 <= 162) }' || fail "adaptive took what the kernels need"
SP_FAKE_GPU_MEM=180M SP_FAKE_KERNELS_MIB=140 refused "has for a stage 11.00 MiB" starpipe $adaptive
STARPU_LIMIT_CPU_MEM=1 refused "room for 1.0 MiB .* four tensors of [0-9.]+ MiB" starpipe $sliced full
# --slices auto takes as many as that wants: 52 MiB
long="$tiny --schedule sppo --stages 1 --micro-batches 1 --seq 512 --micro-batch-size 8 --steps 1
    --offload adaptive --offload-dir $work"
SP_FAKE_GPU_MEM=180M SP_FAKE_KERNELS_MIB=110 refused "needs 111.77 MiB" starpipe $long --slices 2
SP_FAKE_GPU_MEM=180M SP_FAKE_KERNELS_MIB=110 quiet "--slices auto in 52 MiB" starpipe $long --slices auto
SP_FAKE_GPUS=0 quiet "auto without a GPU" starpipe train --model gpt-tiny --data "$work/text" \
    --seq 24 --steps 1
# this machine described: its GPUs, their memory, copies to the host
for gpus in 1 2; do
    SP_FAKE_GPUS=$gpus quiet "calibrate, $gpus" starpipe calibrate --quick --device cuda --offload-dir "$work" \
        --output "$work/machine.json"
    starpipe info --hardware "$work/machine.json" > "$work/output" || fail "calibrate, $gpus: $(cat "$work/machine.json")"
    grep -q ": nodes of $gpus x " "$work/output" || fail "calibrate, $gpus: $(head -n 1 "$work/output")"
    grep -Eq '^copies +[0-9.e+]+ GB/s to the host' "$work/output" || fail "calibrate, $gpus: no copies"
done
wait $units || fail "the fake runtime's own tests"
cat "$work/units"
finish
