#!/bin/bash
# The interface of libstarpipe is what is recorded (abi.txt): the library and the program export what src/libstarpipe.map
# lists, the headers declare that and nothing else, and its structures, constants and functions are as they were.
# RECORD=FILE writes what they are now to such a file.
. "$(dirname "$0")/../common.sh" || exit 1

top=$(cd "$here/../.." && pwd)
map=$top/src/libstarpipe.map
library=$builddir/.libs/libstarpipe.so
CC=${CC:-cc}
for tool in nm readelf; do
    command -v $tool > /dev/null || { echo "skipped: no $tool"; exit 77; }
done
[ -e "$library" ] || { echo "skipped: no shared library was built"; exit 77; }
changed="if that is meant, RELEASING.md says what to do (the interface of libstarpipe)"

sed -n 's/^ *\(s[a-z0-9_]*\);$/\1/p' "$map" | sort > "$work/listed"
node=$(sed -n 's/^\(STARPIPE_[0-9.]*\) {$/\1/p' "$map" | tail -n 1)
[ -s "$work/listed" ] && [ -n "$node" ] || fail "$map: no names or no version"

flags="-I$top/include $(sed -n 's/^STARPU_CFLAGS = //p' "$builddir/Makefile")"
# declared FILE HEADER...: what they declare, a name a line.
declared()
{
    { echo '#include <starpu.h>' && printf '#include "starpipe/%s"\n' "${@:2}"; } > "$work/headers.c"
    quiet "the headers" $CC $flags -E -P -o "$work/headers.i" "$work/headers.c" || finish
    tr '\n' ' ' < "$work/headers.i" |
        grep -oE '\b(sp_|starpu_get_sched_lib_)[a-z0-9_]+ ?\(|extern struct [a-z_]+ sp_[a-z0-9_]+;' |
        sed 's/.* \(sp_[a-z0-9_]*\);/\1/; s/ *($//' | sort -u > "$1"
}
declared "$work/for_plugins" op.h schedule.h
declared "$work/declared" $(cd "$top/include/starpipe" && echo *.h)

# within A WHAT B MESSAGE...: no name of file A is missing in file B.
within()
{
    comm -23 "$1" "$3" > "$work/more"
    [ ! -s "$work/more" ] || fail "$2 $(xargs < "$work/more"), which ${*:4}: $changed"
}

within "$work/declared" "the headers declare" "$work/listed" "src/libstarpipe.map does not list"
within "$work/listed" "src/libstarpipe.map lists" "$work/declared" "no header declares"

# Names with the version of another library are its objects, which the program has copies of.
if grep -q '^exported_ldflags = ' "$builddir/Makefile"; then
    for file in "$library" "$STARPIPE"; do
        nm -D --defined-only "$file" | awk '$2 != "A" && $3 !~ /@GLIBC/ { print $3 }' > "$work/exported"
        grep -v "@@STARPIPE_" "$work/exported" && fail "$(basename "$file") exports names without a version"
        sed 's/@.*//' "$work/exported" | sort > "$work/names"
        within "$work/names" "$(basename "$file") exports" "$work/listed" "src/libstarpipe.map does not list"
        wanted=$work/listed
        [ "$file" = "$library" ] || wanted=$work/for_plugins
        within "$wanted" "there is" "$work/names" "$(basename "$file") does not export"
        echo "$(basename "$file"): $(wc -l < "$work/names") names, of $(wc -l < "$wanted") at least"
    done
else
    echo "skipped: this linker takes no version scripts, more may be exported than is listed"
fi

# How it is laid out, as the compiler tells debuggers of a program that has all of it.
{
    cat "$work/headers.c"
    echo 'enum {'
    sed -n 's/^#define \(SP_[A-Z0-9_]*\) [0-9][0-9]*$/abi_\1 = \1,/p' "$top"/include/starpipe/*.h
    echo '};'
    sed 's/.*/__typeof__(&) *abi_&;/' "$work/listed"
} > "$work/all.c"
quiet "a program with all of the interface" \
    $CC $flags -gdwarf-4 -O0 -fno-eliminate-unused-debug-types -c -o "$work/all.o" "$work/all.c" || finish
{
    readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/library \1/p'
    echo "version $node"
    readelf --debug-dump=info "$work/all.o" | awk -f "$here/abi.awk" | sort
} > "$work/abi.txt"
echo "$(wc -l < "$work/abi.txt") lines of interface"
if [ -n "${RECORD:-}" ]; then
    cp "$work/abi.txt" "$RECORD"
elif $CC -E -dM -x c /dev/null | grep -c '__LP64__ 1' > /dev/null; then
    if ! diff "$here/abi.txt" "$work/abi.txt" > "$work/said"; then
        fail "the interface is not the one recorded (<): $changed"
        grep '^[<>]' "$work/said" | head -n 20
    fi
else
    echo "skipped: sizes are recorded for machines with 64-bit pointers and longs"
fi
finish
