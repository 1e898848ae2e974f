#!/bin/bash
# Plugins: the example, built against an installed tree, is listed, shown and trained with, and gives
# the gradients of one stage; of examples/gpt, programs built against that tree, one has the losses of the
# command, and loads plugins too, one runs tasks of a layer under several schedulers; every way in which a plugin can
# be wrong is refused with its line, exit status 2, in seconds.
. "$(dirname "$0")/../common.sh" || exit 1

CC=${CC:-cc}
sources=$here/../plugins
printf 'int main(void) { return 0; }\n' > "$work/empty.c"
if ! $CC -o "$work/empty" "$work/empty.c" 2> /dev/null; then
    echo "skipped: $CC does not compile"
    exit 77
fi
unset STARPIPE_PLUGIN_PATH STARPIPE_PLUGIN_SECONDS

# ---- the example, outside the tree, with what `make install` installs

root=$work/root
cp -R "$here/../../examples/plugin" "$work/example"
cp -R "$here/../../examples/gpt" "$work/gpt"
if env -u MAKEFLAGS -u MAKELEVEL make -C "$builddir" install DESTDIR="$root" \
    > "$work/output" 2>&1; then
    pc=$(find "$root" -name starpipe.pc)
    installed=$(find "$root" -path '*/bin/starpipe')
    [ -n "$pc" ] && [ -x "$installed" ] || fail "install leaves no starpipe.pc or no program"
    # The program goes where it was configured to; here it is under DESTDIR.
    include=$(dirname "$(find "$root" -path '*/include/starpipe')")
    quiet "make of the example" make -C "$work/example" PKG_CONFIG_PATH="$(dirname "$pc")" \
        PKG_CONFIG="pkg-config --define-variable=includedir=$include"
    lib=$(dirname "$(find "$root" -name libstarpipe.so)")
    sched=$(PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --define-variable=libdir="$lib" --variable=scheduler starpipe)
    quiet "make of the program" make -C "$work/gpt" gpt PKG_CONFIG_PATH="$(dirname "$pc")" \
        PKG_CONFIG="pkg-config --define-variable=includedir=$include --define-variable=libdir=$lib"
    # The line of the guide as it stands there, and what it makes runs.
    line=$(sed -n 's/^cc \$(pkg-config --cflags starpipe)/$CC $(pkg-config --cflags starpipe)/p' "$here/../../docs/embedding.md")
    [ -n "$line" ] || fail "docs/embedding.md has no compiler line"
    make_text 3000 > "$work/mine.txt"
    (
        pkg-config()
        {
            PKG_CONFIG_PATH=$(dirname "$pc") command pkg-config --define-variable=includedir="$include" \
                --define-variable=libdir="$lib" "$@"
        }
        cd "$work" && cp gpt/gpt.c mine.c && eval "$line" &&
            env -u LD_LIBRARY_PATH timeout -k 2 60 ./mine mine.txt saved 2
    ) > "$work/output" 2>&1 || fail "the compiler line of docs/embedding.md: $(tail -n 2 "$work/output")"
    # A program with libstarpipe.a, which a script of the linker stands for, links with what starpipe.pc says besides.
    mkdir -p "$work/static"
    echo "GROUP($(find "$builddir" -maxdepth 2 -name 'libsp_*.a' | xargs))" > "$work/static/libstarpipe.a"
    quiet "a static program" $CC -I"$include" -o "$work/static/gpt" "$work/gpt/gpt.c" \
        $(pkg-config --define-variable=libdir="$work/static" --static --libs "$pc")
    # Debugging information stays in the build tree.
    if command -v readelf > /dev/null; then
        for file in "$installed" "$lib"/libstarpipe.so "$sched"; do
            readelf -S --wide "$file" | grep -q '\.debug_info' && fail "$file has debugging information"
        done
    fi
    # The headers that it took are the installed ones.
    $CC -M -I"$include" "$work/example/eager_1f1b.c" | grep -q "$root.*/starpipe/schedule.h" ||
        fail "no installed schedule.h"
    $CC -shared -fPIC $(pkg-config --define-variable=includedir="$include" --cflags "$pc") \
        -o "$work/one-line.so" "$work/example/eager_1f1b.c" || fail "the compiler line of the guide"
    pages=$(find "$root" -path '*/man1/starpipe*.1' | wc -l)
    [ "$pages" -ge 19 ] || fail "install leaves $pages pages of the manual"
    completion=$(find "$root" -path '*/bash-completion/completions/starpipe')
    bash -n "$completion" && [ -s "$completion" ] || fail "the completion: '$completion'"
    [ "$(find "$root" -path '*/machines/*.json' | wc -l)" -ge 8 ] || fail "install leaves no machines"
    STARPIPE=$installed
else
    tail -n 3 "$work/output"
    fail "make install"
fi
eager=$work/example/eager_1f1b.so

show="show --stages 4 --micro-batches 8 --width 60"
said "list" "^eager-1f1b +1F1B.* \(plugin $eager\)" list --plugin "$eager"
said "list --json" "\"plugin\": *\"$eager\"" list --plugin "$eager" --json
grep -q '"plugin": *null' "$work/stdout" || fail "list --json: built-in schedules have a plugin"
starpipe list | grep -q eager && fail "list knows the example by itself"
said "show" '^makespan +33,' $show --plugin "$eager" --schedule eager-1f1b
said "show" '^published +33 ' $show --plugin "$eager" --schedule eager-1f1b
said "show with communication" '^makespan +39,' $show --plugin "$eager" --schedule eager-1f1b \
    --cost comm=1
said "1f1b with communication" '^makespan +49,' $show --schedule 1f1b --cost comm=1
starpipe $show --plugin "$eager" --schedule eager-1f1b:ahead=1 | grep '^stage' > "$work/a"
starpipe $show --schedule 1f1b | grep '^stage' > "$work/b"
cmp -s "$work/a" "$work/b" || fail "ahead=1 is not 1f1b"
echo "example: listed, shown: makespan 33; with communication 39 where 1f1b takes 49"

# In a source tree nothing has to be installed.
mkdir -p "$work/tree/examples"
cp -R "$here/../../examples/plugin" "$work/tree/examples"
rm -f "$work"/tree/examples/plugin/*.so
ln -s "$(cd "$here/../../include" && pwd)" "$work/tree/include"
ln -s "$builddir" "$work/tree/build"
quiet "make in a source tree" make -C "$work/tree/examples/plugin" PKG_CONFIG=false CC="$CC" try
grep -q '^makespan  *25.5,' "$work/output" && grep -q "^$work/tree/build/starpipe\|^\.\./\.\./build/starpipe" "$work/output" ||
    fail "make try: $(tail -n 3 "$work/output")"

# The V by list scheduling takes no longer than orders made by hand, within their memory.
list_v=$work/example/list_v.so
# makespan ARGUMENTS: at unit costs.
makespan()
{
    starpipe show --plugin "$list_v" "$@" | sed -n 's/^makespan *\([0-9.]*\),.*/\1/p'
}
for p in 4 8; do
    for m in $((2 * p)) $((3 * p)); do
        for pair in "$((2 * p)) zbv" "$((p + 2)) v-half"; do
            size="--stages $p --micro-batches $m"
            found=$(makespan $size --schedule "list-v:held=${pair% *}")
            made=$(makespan $size --schedule "${pair#* }")
            echo "list-v:held=${pair% *} $size: $found, ${pair#* }: $made"
            awk -v a="$found" -v b="$made" 'BEGIN { exit !(a > 0 && a <= 1.03 * b) }' || fail "list-v is longer"
        done
    done
done

make_text 20011 > "$work/text"
train="train --data $work/text --model gpt-tiny --seq 24 --micro-batches 8 --steps 2"
eager_train="$train --stages 4 --plugin $eager --schedule eager-1f1b"
quiet "one stage" starpipe $train --stages 1 --dump-grads "$work/one.safetensors"
quiet "the example trains" starpipe $eager_train --dump-grads "$work/four.safetensors"
agree "eager-1f1b, 4 stages, gradients" near "$work/four.safetensors" \
    "$work/one.safetensors" 1e-5
quiet "the V trains" starpipe $train --stages 4 --plugin "$list_v" --schedule list-v \
    --dump-grads "$work/four.safetensors"
agree "list-v, 4 stages, gradients" near "$work/four.safetensors" "$work/one.safetensors" 1e-5
if have_mpi; then
    quiet "the example trains in 2 processes" mpi 2 $eager_train \
        --dump-grads "$work/two.safetensors"
    agree "eager-1f1b, 2 processes, gradients" near "$work/two.safetensors" \
        "$work/one.safetensors" 1e-5
fi

# ---- a program on the installed library, which plugins take their functions from

gpt=$work/gpt/gpt
# The settings of gpt.c, with an order that is built in.
settings="--model gpt-tiny --schedule 1f1b --stages 2 --micro-batches 8 --micro-batch-size 1 --seq 64
    --steps 20 --warmup 2 --lr 3e-3 --lr-schedule cosine --lr-min 3e-4"

# as_command WHAT LOG: the losses of 20 steps, those of the command.
as_command()
{
    agree "$1, losses of 20 steps" near "$2" "$work/command.jsonl" 1e-5
    [ "$(steps_of "$2" loss | wc -l)" -eq 20 ] || fail "$1: the log has not 20 steps"
    sed -n 's/.*"eval_loss":\([^,}]*\).*/\1/p' "$2" > "$work/eval"
    [ "$(wc -l < "$work/eval")" -eq 3 ] && sort -rgu "$work/eval" | cmp -s - "$work/eval" ||
        fail "$1: the loss of evaluations does not fall: $(tr '\n' ' ' < "$work/eval")"
}

quiet "the command" starpipe train --data "$work/text" $settings --log "$work/command.jsonl"
export STARPIPE_PLUGIN_PATH=$eager
GPT_LOG=$work/gpt1.jsonl quiet "the program" timeout -k 2 60 "$gpt" "$work/text" "$work/gpt1" 20
grep -Eq '^step +20  loss [2-5]\..*bubble +[0-9]+ % +[0-9]+ %$' "$work/output" &&
    grep -q '^eval .* at step 20, which is in .*; after the last step it writes:$' "$work/output" &&
    [ "$(grep -c '^The .' "$work/output")" -eq 1 ] || fail "the program says $(cat "$work/output")"
unset STARPIPE_PLUGIN_PATH
grep '^step *20' "$work/output"
as_command "the program" "$work/gpt1.jsonl"
said "what it saved" 'nothing was submitted' train --model "$work/gpt1" --data "$work/text" --dry-run
quiet "its run goes on" starpipe $train --steps 21 --resume "$work/gpt1" --schedule zb1p --stages 3
if have_mpi; then
    GPT_LOG=$work/gpt2.jsonl quiet "the program in 2 processes" timeout -k 5 120 $MPIRUN -np 2 "$gpt" \
        "$work/text" "$work/gpt2" 20
    [ "$(grep -c '^step' "$work/output")" -eq 2 ] || fail "two processes print: $(cat "$work/output")"
    as_command "the program in 2 processes" "$work/gpt2.jsonl"
    cmp "$work/gpt1/model.safetensors" "$work/gpt2/model.safetensors" ||
        fail "the program has other weights in 2 processes"
fi
# It stops early on a text that it gets worse on, and keeps the best model: that of step 10.
tr a-z A-Z < "$work/text" > "$work/capitals"
GPT_EVAL=$work/capitals quiet "the program on capitals" timeout -k 2 60 "$gpt" "$work/text" "$work/gpt3" 200
grep '^eval' "$work/output"
[ "$(grep -c '^step' "$work/output")" -eq 4 ] && [ -d "$work/gpt3/step-000010" ] ||
    fail "the program does not stop early: $(cat "$work/output")"
timeout -k 2 10 "$gpt" "$work/none" "$work/gpt4" > "$work/stdout" 2> "$work/stderr"
[ $? -eq 2 ] && [ "$(wc -l < "$work/stderr")" -eq 1 ] && [ ! -e "$work/gpt4" ] ||
    fail "the program without a text: $(cat "$work/stderr")"
# An order that is wrong is refused before the first step.
sed '/if (f < m)/,+1d' "$work/gpt/gpt.c" > "$work/gpt/wrong.c"
quiet "make of a wrong order" make -C "$work/gpt" wrong CC="$CC" PKG_CONFIG=false \
    CPPFLAGS="-I$include" LDLIBS="-L$lib -lstarpipe -Wl,-rpath,$lib"
timeout -k 2 10 "$work/gpt/wrong" "$work/text" "$work/gpt4" > "$work/stdout" 2> "$work/stderr"
[ $? -eq 2 ] && [ "$(cat "$work/stderr")" = \
    "starpipe: schedule late-weights: order: stage 1: F0.0 is missing" ] && [ ! -e "$work/gpt4" ] ||
    fail "the program with a wrong order: $(cat "$work/stderr")"

# ---- a StarPU program with the tasks of a layer, built by its Makefile and by the line in it

layers=$work/layers
cp -R "$here/../../examples/gpt" "$layers"
sed "s|^includedir=.*|includedir=$include|; s|^libdir=.*|libdir=$lib|" "$pc" > "$layers/starpipe.pc"
starpu=$(sed -n 's/^PKG_CONFIG_PATH = //p' "$builddir/Makefile")
quiet "make of the layer" make -C "$layers" layer PKG_CONFIG_PATH="$layers:$starpu"
line=$(sed -n 's/^ \*   cc /$CC /p' "$layers/layer.c")
(
    export PKG_CONFIG_PATH=$layers:$starpu
    cd "$layers" && eval "$line -Wall -Wextra -Werror"
) > "$work/output" 2>&1 || fail "the compiler line of layer.c: '$line': $(tail -n 2 "$work/output")"
# layer SCHEDULER ARGUMENTS: it ends with 0, under that scheduler, and says that all is right.
layer()
{
    local scheduler=$1

    shift
    timeout -k 2 60 "$layers/layer" "$@" > "$work/output" 2>&1
    [ $? -eq 0 ] && grep -qx "scheduler $scheduler" "$work/output" && [ "$(grep -c ': right$' "$work/output")" -eq 5 ] ||
        fail "layer $* under $scheduler: $(cat "$work/output")"
}
quiet "make of the layer" make -C "$layers" -B layer PKG_CONFIG_PATH="$layers:$starpu"
layer starpipe
layer starpipe llama
STARPU_SCHED=lws layer lws
STARPU_SCHED=starpipe STARPU_SCHED_LIB=$sched layer starpipe
echo "layer: right under starpipe, linked and loaded, and lws"
STARPU_NCPU=0 timeout -k 2 60 "$layers/layer" > "$work/output" 2>&1
[ $? -eq 77 ] || fail "layer without a CPU worker: $(cat "$work/output")"

# ---- several, lists, directories, every public function

# build NAME SOURCE FLAGS...: $work/NAME.so
build()
{
    local name=$1 source=$2

    shift 2
    # -O0, so that what is wrong stays wrong
    $CC -O0 -w -shared -fPIC -I"$here/../../include" "$@" -o "$work/$name.so" \
        "$sources/$source.c" || fail "cannot build $name"
}

build wide wide
build odd bad
mkdir "$work/dir"
cp "$work/wide.so" "$work/dir/b.so"
cp "$work/odd.so" "$work/dir/a.so"
echo "no plugin" > "$work/dir/README"
said "two files" '^odd ' list --plugin "$eager,$work/odd.so"
said "two files" '^odd ' list --plugin="$eager:$work/odd.so:$eager"
export STARPIPE_PLUGIN_PATH=":$work/dir:$eager:"
said "STARPIPE_PLUGIN_PATH" '^wide-both ' list
[ "$(tail -n 5 "$work/stdout" | cut -d ' ' -f 1 | tr '\n' ' ')" = \
    "odd wide-v wide-both wide-scattered eager-1f1b " ] || fail "plugins of a directory are not sorted by name"
for schedule in wide-v wide-v:overlap wide-v:weight=W,overlap,least=0 wide-both \
    wide-scattered wide-scattered:split,held=3 wide-scattered:again=same; do
    said "$schedule" '^makespan ' $show --schedule $schedule
    said "$schedule" '^makespan ' show --stages 1 --micro-batches 3 --schedule $schedule
done
said "train with the path" 'nothing was submitted' ${train/train/train --dry-run} --stages 2 \
    --schedule odd

# ---- any placement, with an order by list scheduling

scattered="$train --stages 2"
for schedule in wide-scattered wide-scattered:split,held=4; do
    quiet "$schedule trains" starpipe $scattered --schedule $schedule --dump-grads "$work/scattered.safetensors"
    agree "$schedule, gradients" near "$work/scattered.safetensors" "$work/one.safetensors" 1e-5
    if have_mpi; then
        quiet "$schedule, 2 processes" mpi 2 $scattered --schedule $schedule --dump-grads "$work/two.safetensors"
        cmp -s "$work/scattered.safetensors" "$work/two.safetensors" ||
            fail "$schedule: 2 processes have other gradients than one"
    fi
done
# A stage never holds more, and the time is not longer than that of one micro-batch after another.
starpipe show --stages 2 --micro-batches 8 --schedule wide-scattered:split,held=4 --format json > "$work/stdout"
sed -n 's/.*"peak_live": *\[\([^]]*\)\].*/\1/p' "$work/stdout" | tr -d ' ' | grep -qx '[1-4],[1-4]' ||
    tr -d ' \n' < "$work/stdout" | grep -q '"peak_live":\[[1-4],[1-4]\]' || fail "held=4 holds more"
# refused_list HOW PATTERN: an order that is not legal given to the list scheduler.
refused_list()
{
    starpipe show --stages 4 --micro-batches 4 --schedule wide-scattered:split,again=$1 > "$work/stdout" 2> "$work/stderr"
    [ $? -eq 2 ] && grep -Eq "$2" "$work/stderr" && [ "$(wc -l < "$work/stderr")" -eq 1 ] ||
        fail "sp_list_order after $1: $(head -n 2 "$work/stderr")"
}
refused_list less "gives sp_list_order 35 ops on stage 3, not 24 or 36"
refused_list far "stage 3 has F[0-9]+.1073741824 at position 0"
refused_list late "not legal: stage 3 has W[0-9.]+ at position 0"
refused_list twice "not legal: stage 3 has F[0-9.]+ at position 1"
refused_list held "on stage 0 before sp_list_order, more than 1"
starpipe show --stages 4 --micro-batches 4 --schedule wide-scattered:held=2 > "$work/stdout" 2> "$work/stderr"
grep -q "holds 3 activations of a chunk on stage 0 before sp_list_order, more than 2" "$work/stderr" ||
    fail "too little memory: $(head -n 2 "$work/stderr")"
starpipe show --stages 7 --schedule wide-scattered > "$work/stdout" 2> "$work/stderr"
grep -q "wide-scattered places global stage [0-9]* twice" "$work/stderr" || fail "7 stages: $(head -n 2 "$work/stderr")"

# ---- half idle: the hint, not in JSON, not with other costs, not for what is built in

hint='hint +half idle or more: stage 0 waits longest, 3 before F0.1, for F0.1 of stage 1; list more between F0.0 and F0.1, or F0.1 earlier on stage 1$'
said "a hint" "^$hint" show --stages 4 --micro-batches 4 --schedule wide-v
# not_hinted ARGUMENTS
not_hinted()
{
    said "no hint" . show --stages 4 --micro-batches 4 "$@"
    grep -q hint "$work/stdout" && fail "a hint: show $*"
}
not_hinted --schedule wide-v --format json
not_hinted --schedule wide-v --cost comm=1
not_hinted --schedule eager-1f1b
not_hinted --schedule naive
starpipe show --schedule naive --stages 4 --micro-batches 4 --format csv > "$work/naive.csv"
said "a hint for a file" '^hint +half idle or more: stage 0 waits longest, 9 before B0.0, for B0.0 of stage 1' \
    show --schedule "csv:$work/naive.csv"
unset STARPIPE_PLUGIN_PATH STARPIPE_PLUGIN_SECONDS

# ---- orders that no built-in schedule of the families in which weights travel has

build travel travel
# travels SCHEDULE STAGES MICRO-BATCHES: gradients and losses of one stage, in one process and in two
travels()
{
    local schedule=$1 p=$2 m=$3 ahead=

    set -- train --data "$work/text" --model llama-tiny --seq 16 --micro-batches "$m" --steps 4 \
        --eps 1e-3
    case $schedule in uneven) ;; *) ahead=--post-validation ;; esac
    quiet "one stage" starpipe "$@" --stages 1 --log "$work/one.jsonl" \
        --dump-grads "$work/one.safetensors"
    set -- "$@" --stages "$p" --plugin "$work/travel.so" --schedule "$schedule" $ahead
    quiet "$schedule" starpipe "$@" --log "$work/alone.jsonl" --dump-grads "$work/alone.safetensors"
    agree "$schedule, losses" near "$work/alone.jsonl" "$work/one.jsonl" 1e-5
    agree "$schedule, gradients" near "$work/alone.safetensors" \
        "$work/one.safetensors" 1e-5
    have_mpi || return
    quiet "$schedule, 2 processes" mpi 2 "$@" --log "$work/two.jsonl" \
        --dump-grads "$work/two.safetensors"
    cmp -s "$work/alone.safetensors" "$work/two.safetensors" ||
        fail "$schedule: 2 processes have other gradients than one"
    [ "$(steps_of "$work/alone.jsonl" loss)" = "$(steps_of "$work/two.jsonl" loss)" ] ||
        fail "$schedule: 2 processes have other losses than one"
}
travels uneven 2 40
for schedule in reversed waiting whole; do
    travels $schedule 2 4
    travels $schedule 4 8
done

# ---- one that changes how numbers are rounded, as -ffast-math does, changes no loss

build rounds bad -include fenv.h -DCONSTRUCTOR='fesetround(FE_UPWARD)'
quiet "no plugin" starpipe $train --stages 2 --log "$work/plain.jsonl"
quiet "a plugin that rounds" starpipe $train --stages 2 --plugin "$work/rounds.so" --log "$work/rounds.jsonl"
[ "$(steps_of "$work/plain.jsonl" loss)" = "$(steps_of "$work/rounds.jsonl" loss)" ] ||
    fail "a plugin that sets the rounding changes the losses"

# ---- refusals

refusals=0
# refused PATTERN ARGUMENTS
refused()
{
    local pattern=$1 status

    shift
    timeout -k 1 10 "$STARPIPE" "$@" > "$work/stdout" 2> "$work/stderr" < /dev/null
    status=$?
    refusals=$((refusals + 1))
    if [ $status -ne 2 ] || [ "$(grep -c '^starpipe: ' "$work/stderr")" -ne 1 ] ||
        [ -s "$work/stdout" ] || ! grep -Eq "^starpipe: .*$pattern" "$work/stderr"; then
        fail "starpipe $*"
        echo "  exit status $status, wanted: $pattern"
        head -n 3 "$work/stderr" "$work/stdout" | cut -c 1-300
    fi
}

# bad PATTERN FLAGS...: the plugin built with these flags is refused by list, or else by show.
bad()
{
    local pattern=$1

    shift
    build bad bad "$@"
    refused "plugin $work/bad.so: $pattern" list --plugin "$work/bad.so"
}

bad_order()
{
    local pattern=$1

    shift
    build bad bad "$@"
    said "a plugin whose order is wrong" '^odd ' list --plugin "$work/bad.so"
    refused "$pattern" $show --plugin "$work/bad.so" --schedule odd
}

refused "plugin $work/none.so: No such file" list --plugin "$work/none.so"
refused "plugin /dev/null: not a regular file" list --plugin /dev/null
refused "plugin $work/text: cannot be loaded: .*ELF" list --plugin "$work/text"
head -c 100 "$work/odd.so" > "$work/cut.so"
refused "plugin $work/cut.so: cannot be loaded" list --plugin "$work/cut.so"
: > "$work/nothing.so"
refused "plugin $work/nothing.so: cannot be loaded: file too short" list --plugin "$work/nothing.so"
refused "value is empty" list --plugin=
STARPIPE_PLUGIN_PATH=$work/absent refused "plugin $work/absent: No such file" list
STARPIPE_PLUGIN_PATH=$work/none.so refused "No such file" show
STARPIPE_PLUGIN_PATH=$work/none.so refused "No such file" $train
STARPIPE_PLUGIN_SECONDS=soon refused "'soon' is not in 1" list --plugin "$work/odd.so"

bad "it has no sp_plugin_schedules: end the C file with SP_PLUGIN" -DNO_ENTRY
bad "cannot be loaded: undefined symbol: no_such_function" -DUNRESOLVED
bad "it has schedule ABI 7, this starpipe has [0-9]+: build it" -DABI=7
bad "it has schedule ABI 0, " -DABI=0
bad "it has no schedule\$" -DLIST=0
bad "its sp_plugin_schedules does not end in NULL within 64" -DLIST='[0 ... 70] = &odd'
bad "a schedule has no name" -DNAME=0
for name in "" Odd "odd one" odd:x odd,x -odd "$(printf 'x%.0s' $(seq 41))" odd/x; do
    bad "the name '$name' is not of 1 to 40 characters" -DNAME="\"$name\""
done
bad "schedule odd: its summary is missing" -DSUMMARY=0
bad "schedule odd: its summary is not one line" -DSUMMARY='""'
bad "schedule odd: its summary is not one line" -DSUMMARY='"two\nlines"'
bad "schedule odd: its summary is not one line" -DSUMMARY='"\377"'
bad "schedule odd: its source is missing" -DSOURCE=0
bad "schedule odd: no graph family ''; there are: layerwise" -DFAMILY=0
bad "schedule odd: no graph family 'layer-wise'; there are: layerwise" -DFAMILY='"layer-wise"'
bad "schedule odd: it has no emit" -DEMIT=0
bad "schedule odd: it has both emit and emit_all" -DEMIT_ALL=all_fail
bad "schedule odd: it has emit, but the family weight-ring makes the programs" -DFAMILY='"weight-ring"'
bad "schedule odd: default_chunks is 0" -DCHUNKS=0
bad "there is a schedule 1f1b already, built in; rename this one" -DNAME='"1f1b"'
bad "the name csv stands for files" -DNAME='"csv"'
bad "there is a schedule odd already, of plugin $work/bad.so" -DLIST='&odd, &odd'
refused "plugin $work/dir/b.so: there is a schedule wide-v already, of plugin $work/wide.so" \
    list --plugin "$work/wide.so,$work/dir/b.so"
bad "loading it crashed: Segmentation fault" -DNAME='(char *) 16'
bad "loading it crashed: Aborted" -DCONSTRUCTOR='abort()'
bad "loading it called exit" -DCONSTRUCTOR='exit(0)'

order="schedule odd: order: "
bad_order "${order}stage 0: F0.0 is missing" -DEMIT=nothing
bad_order "${order}stage 1: B7.0 is missing" -DEMIT=drops
bad_order "${order}stage 2: F3.0 appears twice" -DEMIT=twice
bad_order "${order}stage 0: B0.0 at position 0 comes before its F0.0" -DEMIT=backwards
bad_order "${order}stage 0: F0.2000000000 does not exist \(1 chunk\)" -DEMIT=far_chunk
bad_order "${order}stage 0: F-2147483648.-1 does not exist \(8 micro-batches\)" -DEMIT=negative
bad_order "${order}stage 0: .* does not exist" -DEMIT=odd_pass
bad_order "${order}deadlock" -DEMIT=deadlock
bad_order "${order}stage 0: B7.0 at position 15 overlaps" -DEMIT=lone_pair
bad_order "the program of stage 0 has 1073741824 ops in room for" -DEMIT=numbers
bad_order "schedule odd finds no order" -DEMIT=0 -DEMIT_ALL=all_fail
bad_order "schedule odd refuses this layout and does not say why" -DCHECK=check_is_silent
bad_order "schedule odd places chunk 0 of stage 0 at global stage 4" -DPLACE=far
bad_order "schedule odd places global stage 0 twice" -DPLACE=same
bad_order "schedule odd: its makespan for .* is -?nan" -DMAKESPAN=not_a_number

file="plugin $work/bad.so: "
bad_order "${file}emit of odd appends more than [0-9]+ ops" -DEMIT=endless
bad_order "${file}emit of odd crashed: Segmentation fault" -DEMIT=segfault
bad_order "${file}emit of odd crashed: Segmentation fault" -DEMIT=recursion
bad_order "${file}emit of odd crashed: Floating point exception" -DEMIT=divides
bad_order "${file}emit of odd crashed: Aborted" -DEMIT=aborts
bad_order "${file}emit of odd crashed: Aborted" -DEMIT=frees_twice
bad_order "${file}emit of odd called exit" -DEMIT=exits
bad_order "${file}emit of odd called exit" -DEMIT=quits
bad_order "${file}emit of odd raised a signal: Terminated" -DEMIT=raises
bad_order "${file}emit of odd blocks signals" -DEMIT=blocks
bad_order "${file}emit of odd crashed: Segmentation fault" -DEMIT=blocks_and_crashes
bad_order "${file}emit of odd changes what signals do \(Interrupt" -DEMIT=ignores
bad_order "${file}emit of odd crashed: Segmentation fault" -DEMIT=floods
bad "loading it blocks signals" -DCONSTRUCTOR='block_all()'
bad "loading it raised a signal: Interrupt" -DCONSTRUCTOR='raise(SIGINT)'
bad_order "${file}check of odd crashed: Aborted" -DCHECK=check_crashes
bad_order "${file}global_stage of odd crashed: Aborted" -DPLACE=place_crashes
export STARPIPE_PLUGIN_SECONDS=1
bad_order "${file}emit of odd did not end within 1 s" -DEMIT=sleeps
bad "loading it did not end within 1 s" -DCONSTRUCTOR='for (;;) continue'

# It blocks the signal of the limit, too.
build bad bad -DEMIT=blocks_and_sleeps
refused "${file}emit of odd did not end within 1 s" $show --plugin "$work/bad.so" --schedule odd

# A thread that the plugin has started crashes, while the run goes on.
build bad bad -DEMIT=threads -DDELAY=2000000 -pthread
timeout -k 1 30 "$STARPIPE" ${train/--steps 2/--steps 1000000} --stages 2 --plugin "$work/bad.so" --schedule odd \
    > "$work/stdout" 2> "$work/stderr"
status=$?
[ $status -eq 1 ] && [ "$(cat "$work/stderr")" = \
    "starpipe: plugin $work/bad.so: a thread of its own crashed: Segmentation fault" ] ||
    fail "a thread of a plugin crashes: status $status, $(head -n 2 "$work/stderr")"

# A run is refused in the same way, by one of its processes.
build bad bad -DEMIT=sleeps
bad_train="$train --stages 2 --plugin $work/bad.so --schedule odd"
refused "${file}emit of odd did not end within 1 s" $bad_train
if have_mpi; then
    refused_in 2 "${file}emit of odd did not end within 1 s" $bad_train
    for emit in segfault endless drops frees_twice; do
        build bad bad -DEMIT=$emit
        refused_in 2 "(plugin $work/bad.so: emit of|schedule) odd" $bad_train
    done
    refused_in 2 "plugin $work/none.so: No such file" ${bad_train/bad.so/none.so}
    # Another file of the same name on another node.
    build bad bad -DEMIT=forwards_first
    refused_in 1 "the processes have different orders of schedule odd" $bad_train \
        : -np 1 "$STARPIPE" ${bad_train/bad.so/odd.so}
fi
echo "$refusals plugins refused"

quiet "make uninstall" env -u MAKEFLAGS -u MAKELEVEL make -C "$builddir" uninstall DESTDIR="$root"
left=$(find "$root" ! -type d)
[ -z "$left" ] || fail "uninstall leaves $left"
finish
