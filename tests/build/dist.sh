#!/bin/bash
# The tarball of `make dist` has every file of the tree, and from it alone configure runs and make finds all that it is
# made from.
. "$(dirname "$0")/../common.sh" || exit 1

top=$(cd "$here/../.." && pwd)
# A make of its own, whatever the make is that runs this test.
alone()
{
    env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make "$@"
}

quiet "make distdir" alone -C "$builddir" distdir distdir="$work/tree" am__remove_distdir=: || finish
cd "$work/tree" || exit 1

(cd "$top" && find include src tests bench docs examples m4 -type f ! -name '*.pyc' ! -name '*.log' ! -name '*.so' \
    ! -name Makefile.in ! -name 'lt*.m4' ! -name libtool.m4 -print) | sort > "$work/wanted"
find . -type f | sed 's|^\./||' | sort > "$work/have"
comm -23 "$work/wanted" "$work/have" > "$work/missing"
echo "$(wc -l < "$work/have") files"
[ ! -s "$work/missing" ] || fail "not in the tarball: $(head -n 5 "$work/missing" | tr '\n' ' ')"
for file in configure Makefile.in quickstart .ci/run build-aux/gpu-bundle; do
    [ -e "$file" ] || fail "not in the tarball: $file"
done

# No file of the tree that it came from is wanted.
mkdir build && cd build || exit 1
eval "set -- $("$builddir/config.status" --config)"
if quiet "configure of the tarball" ../configure --silent "$@"; then
    quiet "make -n of the tarball" alone -n all check TESTS=
    quiet "make of the pure parts" alone src/policies/schedules.inc libsp_pure.la -n
fi
finish
