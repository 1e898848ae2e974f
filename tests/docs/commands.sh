#!/bin/bash
# The commands of the documentation run as they are printed. Blocks whose info string is `sh run` are run in order, each
# page in an empty directory of its own with the program in PATH; `sh run mpi` are those with mpirun. What a page needs
# before them is in an HTML comment, <!-- run: COMMANDS -->, which readers do not see.
. "$(dirname "$0")/../common.sh" || exit 1

export top=$(cd "$here/../.." && pwd)
export HOME=$work/home
export MPIRUN
mpirun()
{
    command $MPIRUN "$@"
}
export -f make_text mpirun
mkdir "$work/bin" "$HOME" || exit 1
have_mpi > "$work/no_mpi" && rm "$work/no_mpi"
printf '#!/bin/sh\nexec "%s" "$@"\n' "$STARPIPE" > "$work/bin/starpipe"
chmod +x "$work/bin/starpipe"
PATH=$work/bin:$PATH

# blocks PAGE: each block to a file of $work/blocks, named by its line, with what it is: setup, run or mpi.
blocks()
{
    rm -rf "$work/blocks"
    mkdir "$work/blocks"
    awk -v dir="$work/blocks" '
        function begin(kind) { out = sprintf("%s/%05d.%s", dir, NR, kind); printf "" > out }
        function end() { close(out); out = "" }
        out == "" && /^<!-- run:/ { begin("setup"); sub(/^<!-- run:/, "") }
        out ~ /setup$/ { last = sub(/-->.*/, ""); print > out; if (last) end(); next }
        /^ *```/ {
            if (out != "") end()
            else if (fenced) ;
            else if ($0 ~ /^ *``` *sh run *$/) begin("run")
            else if ($0 ~ /^ *``` *sh run mpi *$/) begin("mpi")
            else if ($0 ~ /^ *``` *sh run/) begin("unknown")
            fenced = !fenced
            next
        }
        out != "" { print > out }
    ' "$1"
}

run=0 skipped=0
for page in README.md $(cd "$top" && find docs examples bench -name '*.md' | sort); do
    blocks "$top/$page"
    mkdir -p "$work/pages/$page"
    for block in $(cd "$work/blocks" && ls); do
        line=$((10#${block%.*}))
        case $block in
        *.mpi) [ ! -e "$work/no_mpi" ] || { skipped=$((skipped + 1)); continue; } ;;
        *.unknown) fail "$page:$line: an info string that is neither 'sh run' nor 'sh run mpi'" ;;
        esac
        start=$SECONDS
        (cd "$work/pages/$page" && timeout -k 5 120 bash -eu "$work/blocks/$block") > "$work/output" 2>&1 < /dev/null
        status=$?
        if [ $status -ne 0 ]; then
            fail "$page:$line: exit status $status"
            tail -n 5 "$work/output" | cut -c 1-300
            break
        fi
        [[ $block == *.setup ]] && continue
        run=$((run + 1))
        echo "$page:$line: $((SECONDS - start)) s"
    done
    rm -rf "$work/pages"
done
echo "$run blocks run, $skipped left out, which want MPI"
[ $run -gt 0 ] || fail "no block is marked 'sh run'"
finish
