#!/bin/bash
# Pictures and tables of the documentation are what their commands print, and one that is not is named.
. "$(dirname "$0")/../common.sh" || exit 1

command -v python3 > /dev/null || { echo "skipped: no python3"; exit 77; }
root=$(cd "$here/../.." && pwd)
timeout 300 "$root/docs/figures/make" --check --starpipe "$STARPIPE" || fail "the documentation is stale"

# ---- in a copy: a figure, a picture, a table by hand, a picture of no command

mkdir -p "$work/copy/docs" || exit 1
cp -R "$root/README.md" "$work/copy/" && cp -R "$root/docs/figures" "$root"/docs/*.md "$root"/docs/*.svg "$work/copy/docs/" || exit 1
copy()
{
    timeout 120 "$work/copy/docs/figures/make" --starpipe "$STARPIPE" "$@" > "$work/said" 2>&1
}
only=("tables.py chunks" "show --schedule weipipe")
copy --check "${only[@]}" || fail "a copy is stale: $(cat "$work/said")"
cp "$work/copy/docs/weipipe.svg" "$work/weipipe.svg"
sed -i 's/^| `wzb2` | 26 | 7.7 % |/| `wzb2` | 26 | 7.8 % |/' "$work/copy/docs/schedules.md"
sed -i 's/makespan 30/makespan 33/' "$work/copy/docs/weipipe.svg"
cmp -s "$work/copy/docs/weipipe.svg" "$work/weipipe.svg" && fail "the picture has no makespan of 30"
copy --check "${only[@]}" && fail "a stale table and a stale picture pass"
grep -q '^docs/weipipe.svg: not what this prints now: starpipe show --schedule weipipe ' "$work/said" &&
    grep -q '^docs/schedules.md: not what this prints now: docs/figures/tables.py chunks$' "$work/said" &&
    [ "$(grep -c 'not what this prints' "$work/said")" -eq 2 ] || fail "what is stale: $(cat "$work/said")"
copy "${only[@]}" || fail "they are not made anew: $(cat "$work/said")"
copy --check "${only[@]}" || fail "they are stale again: $(cat "$work/said")"
cmp -s "$work/copy/docs/schedules.md" "$root/docs/schedules.md" || fail "the table is another one"
cp "$work/weipipe.svg" "$work/copy/docs/another.svg"
copy --check "${only[@]}" && fail "a picture that no command makes passes"
grep -q '^docs/another.svg: no command ' "$work/said" || fail "a picture of no command: $(cat "$work/said")"
finish
