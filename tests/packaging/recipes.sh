#!/bin/bash
# The recipes of packages are of this version, and name all that configure asks for: each module of pkg-config and each
# other library, in each recipe. packaging/release writes a release into them.
. "$(dirname "$0")/../common.sh" || exit 1

top=$(cd "$here/../.." && pwd)
recipes="spack/package.py guix/starpipe.scm conda/starpipe/meta.yaml"

# ---- the version

version=$(sed -n 's/^AC_INIT(\[starpipe\], \[\(.*\)\])$/\1/p' "$top/configure.ac")
[ -n "$version" ] || fail "configure.ac has no version"
for file in $recipes; do
    said=$(sed -n -e 's/^ *version("\([0-9.]*\)".*/\1/p' -e 's/^ *(version "\(.*\)")$/\1/p' \
        -e 's/.*set version = "\(.*\)".*/\1/p' "$top/packaging/$file")
    [ "$said" = "$version" ] || fail "packaging/$file is of version $said, configure.ac of $version"
done

# ---- what configure asks for

# Modules by the names that Spack, Guix and conda have for them, - where a recipe does without. What is not a module but
# looked for by hand is below.
names="jansson jansson jansson jansson
libxxhash xxhash xxhash xxhash
hwloc hwloc hwloc libhwloc
starpu-1.4 starpu starpu starpu
starpumpi-1.4 starpu starpu starpu
simgrid simgrid - -
libpcre2-8 pcre2 pcre2 pcre2
libutf8proc utf8proc utf8proc libutf8proc
cmocka cmocka cmocka cmocka"
asked=$(cat "$top/configure.ac" "$top"/m4/sp_*.m4 | tr '\n' ' ' |
    grep -oE 'PKG_CHECK_(MODULES\(\[[A-Z0-9]+\], *|EXISTS\()\[[^]]*\]' | sed 's/.*\[\(.*\)\]$/\1/' |
    sed 's/ *>= *[0-9.]*//g' | tr ' ' '\n' | sort -u | grep .)
[ "$(echo "$asked" | wc -l)" -ge 9 ] || fail "configure asks for few modules: $asked"
for module in $asked; do
    grep -q "^$module " <<< "$names" || fail "no package is known for the module $module that configure asks for"
done
for module in $(cut -d ' ' -f 1 <<< "$names"); do
    grep -qx -e "$module" <<< "$asked" || fail "configure does not ask for $module, but this test does"
done

# named PACKAGE FILE: as a dependency, not in a comment.
named()
{
    case $2 in
    *.py) grep -qE "^ *depends_on\(\"$1[\" @+~]" "$top/packaging/$2" ;;
    *.scm) sed 's/;.*//' "$top/packaging/$2" | sed -n '/(native-inputs/,/(home-page/p' | grep -qE "(^|[( ,])$1([) ]|\$)" ;;
    *.yaml) sed -n '/^requirements:/,/^test:/p' "$top/packaging/$2" | grep -qE "^ *- $1( |\$)" ;;
    esac
}

# wanted NAME SPACK GUIX CONDA
wanted()
{
    local what=$1 file

    shift
    for file in $recipes; do
        [ "$1" = - ] || named "$1" "$file" || fail "packaging/$file does not name $1 ($what)"
        shift
    done
}

while read -r line; do
    wanted $line
done <<< "$names"
wanted pkg-config pkgconfig pkg-config pkg-config
wanted MPI mpi openmpi openmpi
wanted matrix-products openblas openblas onednn
wanted python-for-tests python python-minimal python
named no-such-package spack/package.py && fail "a package that no recipe names is named"
named no-such-package guix/starpipe.scm && fail "a package that no recipe names is named"
named no-such-package conda/starpipe/meta.yaml && fail "a package that no recipe names is named"

# The least versions are those of configure.
for module in starpu-1.4:starpu hwloc:hwloc jansson:jansson libpcre2-8:pcre2 libutf8proc:utf8proc libxxhash:xxhash \
    cmocka:cmocka simgrid:simgrid; do
    least=$(cat "$top/configure.ac" "$top"/m4/sp_*.m4 | grep -oE "[[ ]${module%:*} >= [0-9.]+" | sed 's/.*>= //' | sort -u)
    [ -n "$least" ] || fail "configure wants no version of ${module%:*}"
    grep -qE "\"${module#*:}@$(sed 's/\.0$//; s/\.0$//; s/\./\\./g' <<< "$least")(\.0)*:" "$top/packaging/spack/package.py" ||
        fail "packaging/spack/package.py does not want ${module#*:} $least"
    [ "${module#*:}" = simgrid ] ||
        grep -qE "^ *- (lib)?${module#*:} >=$(sed 's/\./\\./g' <<< "$least")(,|\$)" "$top/packaging/conda/starpipe/meta.yaml" ||
        fail "packaging/conda/starpipe/meta.yaml does not want ${module#*:} $least"
done

# Options that the recipes give to configure are options that it has.
"$top/configure" --help > "$work/options" || fail "configure has no help"
for file in $recipes Containerfile; do
    for option in $(sed 's/^;.*//' "$top/packaging/$file" | grep -oE '\-\-with-[a-z0-9-]+=' | sort -u); do
        grep -qE "^ +${option%=}[=[]" "$work/options" || fail "packaging/$file: configure has no ${option%=}"
    done
done

# ---- a release

cp -R "$top/packaging" "$work/packaging" && chmod -R u+w "$work/packaging" || exit 1
echo tarball > "$work/starpipe-12.34.5.tar.gz"
sha256=$(sha256sum < "$work/starpipe-12.34.5.tar.gz" | cut -d ' ' -f 1)
release()
{
    (cd "$work" && packaging/release "$@") > "$work/said" 2>&1
}
release starpipe-12.34.5.tar.gz https://there.example/pub || fail "a release: $(cat "$work/said")"
for file in $recipes; do
    grep -q "\"$sha256\"" "$work/packaging/$file" || fail "packaging/$file has no checksum of the release"
    grep -q '"12\.34\.5"' "$work/packaging/$file" || fail "packaging/$file has not the version of the release"
    grep -q "https://there.example/pub/starpipe-" "$work/packaging/$file" || fail "packaging/$file has no address of the release"
    [ "$(diff "$top/packaging/$file" "$work/packaging/$file" | grep -c '^>')" -le 4 ] ||
        fail "packaging/$file: more than the release has changed"
done
for refused in "" "none.tar.gz https://there.example" "starpipe-12.34.5.tar.gz" "starpipe-12.34.5.tar.gz there" \
    "starpipe-12.34.5.tar.gz https://" "packaging/README.md https://there.example"; do
    release $refused
    [ $? -eq 2 ] && [ "$(wc -l < "$work/said")" -eq 1 ] || fail "release $refused: $(cat "$work/said")"
done
finish
