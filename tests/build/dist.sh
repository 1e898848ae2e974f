#!/bin/bash
# The tarball of `make dist` has the files of the tree and nothing else that lies there, and the same bytes whoever
# makes it. `make distcheck` tells whether it builds.
. "$(dirname "$0")/../common.sh" || exit 1

top=$(cd "$here/../.." && pwd)
name=starpipe-$(sed -n 's/^PACKAGE_VERSION = //p' "$builddir/Makefile")
# dist FOLDER: makes it there. A make of its own, whatever the make is that runs this test.
dist()
{
    mkdir -p "$1"
    quiet "make dist" env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -C "$builddir" dist distdir="$1/$name" || finish
}

dist "$work/one"
(umask 077 && TZ=Asia/Tokyo LC_ALL=C.UTF-8 GZIP=-1 dist "$work/two")
cmp "$work/one/$name.tar.gz" "$work/two/$name.tar.gz" || fail "two tarballs of one tree differ"
(cd "$work/two" && sha256sum --quiet -c "$name.tar.gz.sha256") || fail "the sum beside it is not its own"
tar -tvzf "$work/one/$name.tar.gz" > "$work/listing"
awk '$1 !~ /^(-rw-r--r--|-rwxr-xr-x|drwxr-xr-x)$/ || $2 != "0/0"' "$work/listing" > "$work/odd"
[ ! -s "$work/odd" ] || fail "odd owners or modes: $(head -n 3 "$work/odd")"
[ "$(awk '{ print $4, $5 }' "$work/listing" | sort -u | wc -l)" -eq 1 ] || fail "its files have several dates"

# The autotools add to these.
made='^(configure|aclocal\.m4|config\.h\.in|Makefile\.in|build-aux/.*|m4/(lt.*|libtool)\.m4)$'
if [ "$builddir" = "$top" ]; then
    echo "skipped: what lies in a tree in which it was built"
    finish
elif [ -e "$top/.git" ]; then
    (cd "$top" && git ls-files --cached --others --exclude-standard)
else
    (cd "$top" && find . -path "./${builddir#"$top"/}" -prune -o -type f -print | sed 's|^\./||')
fi | grep -vE "$made|^\.gitignore$" | sort > "$work/wanted"
tar -tzf "$work/one/$name.tar.gz" | sed -n "s|^$name/\(.*[^/]\)$|\1|p" | sort > "$work/have"
grep -vE "$made" "$work/have" | comm -23 "$work/wanted" - > "$work/missing"
grep -vE "$made" "$work/have" | comm -13 "$work/wanted" - > "$work/surplus"
echo "$(wc -l < "$work/have") files, $(stat -c %s "$work/one/$name.tar.gz") bytes"
[ ! -s "$work/missing" ] || fail "not in the tarball: $(head -n 5 "$work/missing" | xargs)"
[ ! -s "$work/surplus" ] || fail "in the tarball, and not of the tree: $(head -n 5 "$work/surplus" | xargs)"
for file in configure Makefile.in build-aux/ltmain.sh build-aux/gpu-bundle; do
    grep -qx "$file" "$work/have" || fail "not in the tarball: $file"
done
finish
