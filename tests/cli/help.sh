#!/bin/bash
# Manual pages and completion: every option that --help lists is in the page of its command and is offered;
# the pages are well formed and their examples run; the completion knows schedules, presets, choices and files.
. "$(dirname "$0")/../common.sh" || exit 1

# ---- manual pages

# page COMMAND...: $work/page, without warnings.
page()
{
    starpipe "$@" --help=man > "$work/page" 2> "$work/stderr" || fail "$* --help=man: $(cat "$work/stderr")"
    command -v groff > /dev/null || return
    groff -man -ww -Tascii "$work/page" 2>&1 > /dev/null | grep . && fail "the page of '$*' has warnings"
}

# The options of a command, without their dashes.
options_of()
{
    starpipe "$@" --help | sed -n 's/^  --\([a-z0-9-]*\).*/\1/p'
}

commands=$(starpipe --help | sed -n 's/^  \([a-z]*\) .*/\1/p')
page
for command in $commands; do
    grep -q "^\.TP\$" "$work/page" && grep -q "starpipe\\\\-$command" "$work/page" ||
        fail "starpipe(1) does not name $command"
done
pages=1 options=0
for command in $commands "reproduce helixpipe" "reproduce weipipe" "reproduce sppo" "reproduce survey" \
    "trace fxt"; do
    page $command
    pages=$((pages + 1))
    [ -e "$builddir/man/starpipe-${command/ /-}.1" ] || fail "make makes no page of '$command'"
    for option in $(options_of $command); do
        grep -q -- "^\\\\fB\\\\-\\\\-${option//-/\\\\-}\\\\fR" "$work/page" ||
            fail "the page of '$command' lacks --$option"
        options=$((options + 1))
    done
done
[ "$options" -gt 100 ] || fail "only $options options were found"
page train
grep -q 'default 0.001' "$work/page" || fail "the page of train lacks the default of --lr"
echo "$pages pages with $options options"

# ---- a default is said once, and stays on its line

for command in train plan show simulate; do
    starpipe $command --help | awk '/^  --/ { option = $1; n = 0 } { n += gsub(/default[: ]/, "") }
        n > 1 { print "two defaults of " option }' > "$work/wrong"
    [ ! -s "$work/wrong" ] || fail "$command --help: $(head -n 1 "$work/wrong")"
done
starpipe train --help > "$work/listed"
grep -A 1 -- '--document-separator' "$work/listed" | grep -q 'default' && fail "--document-separator has a default"
grep -A 1 -- '--prompt' "$work/listed" | tr -s ' \n' ' ' | grep -q '(default: a line break)' ||
    fail "the default of --prompt breaks its line"

# ---- groups: each heading has options, each option of a command with many stands under one, once

for command in train show plan; do
    starpipe $command --help > "$work/listed"
    awk '/^[A-Z][a-z ]*: / { heading = $0; next }
         heading && /^  --/ { n[heading]++; if (++seen[$1] > 1) print $1 " is there twice" }
         !heading && /^  --/ { print $1 " stands under no heading" }
         length($0) > 100 && !/^ *[^ ]*$/ { print "a long line: " $0 }
         END { for (h in n) k++; if (k < 6) print k + 0 " headings"; print n["Everyday: what most command lines have"] > "/dev/stderr" }' \
        "$work/listed" > "$work/wrong" 2> "$work/everyday"
    [ ! -s "$work/wrong" ] || fail "$command --help: $(head -n 2 "$work/wrong")"
    starpipe $command --help=man | grep -c '^\.SS ' > "$work/n"
    [ "$(cat "$work/n")" -eq "$(grep -c '^[A-Z][a-z ]*: ' "$work/listed")" ] ||
        fail "the page of $command has other headings than its help"
done
starpipe train --help | sed -n '/^Everyday/,/^$/s/^  --\([a-z]*\) .*/\1/p' | tr '\n' ' ' > "$work/everyday"
[ "$(cat "$work/everyday")" = "model schedule stages data steps lr save log resume threads " ] ||
    fail "other everyday options of train: $(cat "$work/everyday")"
[ "$(starpipe train --help | grep -c '1024^2')" -eq 1 ] || fail "train --help does not say once how sizes are written"
grep -q 'Sizes are in bytes' <(starpipe list --help) && fail "list takes no sizes"
grep -q -- '--json: --format json' <(starpipe train --help) || fail "train --help does not name --json"
[ "$(starpipe train -h)" = "$(starpipe train --help)" ] || fail "train -h is not train --help"
[ "$(starpipe help train)" = "$(starpipe train --help)" ] || fail "help train is not train --help"
[ "$(starpipe help reproduce sppo)" = "$(starpipe reproduce sppo --help)" ] || fail "help reproduce sppo"
[ "$(starpipe -V)" = "$(starpipe --version)" ] || fail "-V is not --version"
[ "$(starpipe -h)" = "$(starpipe help)" ] || fail "-h is not help"

# ---- their examples: what shows and plans runs, plans with one schedule, what trains is planned

# The lines of the examples of a page, as one types them.
examples_of()
{
    starpipe "$@" --help=man | sed -n '/^\.RS$/ { n; s/\\-/-/g; p; }'
}

make_text 5000 > "$work/book.txt"
cd "$work" || exit 1
examples=0
for command in train show plan reproduce; do
    while read -r program line; do
        [ "$program" = starpipe ] || continue
        case $command in
        train) line="$line --dry-run" ;;
        plan) line="$line --schedule 1f1b" ;;
        esac
        starpipe $line > "$work/stdout" 2> "$work/stderr" ||
            fail "the example 'starpipe $line' of the page of $command: $(head -n 2 "$work/stderr")"
        examples=$((examples + 1))
    done < <(examples_of $command)
done
[ $examples -ge 6 ] || fail "only $examples examples were found"
echo "$examples examples"

# ---- completion

starpipe --help=bash > "$work/completion" || fail "--help=bash"
. "$work/completion" || fail "the completion cannot be sourced"

# offered WORD...: what stands for the last word, a line each.
offered()
{
    COMP_WORDS=("$STARPIPE" "$@")
    COMP_CWORD=$#
    _starpipe 2> "$work/stderr"
    [ ! -s "$work/stderr" ] || fail "completing '$*': $(head -n 2 "$work/stderr")"
    printf '%s\n' "${COMPREPLY[@]}"
}

# offers WANTED WORD...: WANTED, sorted, is exactly what is offered.
offers()
{
    local wanted=$1 is

    shift
    is=$(offered "$@" | sort -u | tr '\n' ' ')
    [ "${is% }" = "$wanted" ] || fail "completing '$*': '$is', not '$wanted'"
}

for command in $commands "reproduce helixpipe" "reproduce weipipe" "reproduce sppo" "reproduce survey" \
    "trace fxt"; do
    for option in $(options_of $command); do
        offered $command "--$option" | grep -qx -- "--$option" ||
            fail "the completion of '$command' does not offer --$option"
    done
done
offers "diff" d
offers "--schedule --scheduler" train --sche
offers "--micro-batch-size --micro-batches" train --seq 128 --micro
offers "llama-tiny" train --model llama-t
offers "v-half v-min" show --schedule v-
offers "v-half v-min" show --schedule = v-
[ "$(offered show --schedule '' | sort)" = "$({ echo csv:; starpipe list | sed 's/ .*//'; } | sort)" ] ||
    fail "not all schedules are offered"
offers "group=" show --schedule zb1p : g
offers "auto,limit=" show --schedule zb1p : auto,li
offers "bf16 f32 fp8" train --dtype ''
offers "adaptive full none" train --offload ''
offers "every=" train --recompute e
offers "" train --recompute every =
offers "" show --schedule zb1p : limit = 3
offers "csv html json perfetto picture svg text" show --format =
offers "" train --steps ''
offers "helixpipe" reproduce h
offers "sppo survey" reproduce s
offers "--format" reproduce helixpipe --f
offers "fxt" trace f
offers "html json markdown text" reproduce weipipe --format ''
offers "h100-ib h20-ib h200" plan --hardware h
offers "h200" info --hardware = h200
offers "trace train" help tr
offers "" help train ''
offers "help" he
mkdir -p "$work/here/dir" && : > "$work/here/file" && cd "$work/here" || exit 1
offers "dir file" diff ''
offers "dir" train --save ''
offers "" diff one --x
offers "dir file" watch ''
offers "dir file" info --hardware /dev/null --output ''
offers "dir file" show --schedule csv :
offers "file" train --data f
: > mine.so && mkdir -p "$work/plugins" && : > "$work/plugins/other.so"
offers "dir mine.so" train --plugin ''
STARPIPE_PLUGIN_PATH="$work/none:$work/plugins" offers "$work/plugins/other.so dir mine.so" train --plugin ''
STARPIPE_PLUGIN_PATH="$work/plugins" offers "$work/plugins $work/plugins/other.so" train --plugin "$work/pl"
finish
