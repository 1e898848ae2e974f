#!/bin/bash
# The prose of the documentation and of comments in C: no sentence begins with a word that puts the object first, no
# private words (words); in the documentation no link to a file or heading that is not there, no more words than a
# reader has patience for (check_prose.py).
. "$(dirname "$0")/../common.sh" || exit 1

command -v python3 > /dev/null || { echo "skipped: no python3"; exit 77; }
top=$(cd "$here/../.." && pwd)
checked()
{
    python3 "$here/check_prose.py" "$1" "$here/words" > "$work/said"
}

checked "$top" || fail "the documentation, or comments"
cat "$work/said"

# What it must see: a page with each fault once.
mkdir -p "$work/top/docs" "$work/top/src"
cat > "$work/top/src/code.c" <<'END'
/* It runs. Where it does, it
 * says so.
 *
 * Of a paragraph. */
int of; // the twin of it
const char *text = "/* What is no comment */";
END
echo "# starpipe" > "$work/top/README.md"
cat > "$work/top/docs/page.md" <<'END'
# A `page` of faults

It runs. What it does is **bold**.

| a cell | Those of a stage |
|---|---|

- Beside
  this, (where no sentence begins)
- A keeper, and a `keeper` in code. See [this](page.md#a-page-of-faults), [that](page.md#no-heading), [those](none.md).

```sh
# What is code is no prose: keeper, [a](b.md).
```
END
cat > "$work/wanted" <<'END'
docs/page.md:3: a sentence begins with 'What'
docs/page.md:5: a sentence begins with 'Those'
docs/page.md:8: a sentence begins with 'Beside'
docs/page.md:10: 'keeper': say owner
docs/page.md:10: no such file: none.md
docs/page.md:10: no such heading: page.md#no-heading
src/code.c:1: a sentence begins with 'Of'
src/code.c:1: a sentence begins with 'Where'
src/code.c:5: 'twin': say replica
END
checked "$work/top" && fail "a page of faults passes"
sed '$d; s/\(begins with .[A-Za-z]*.\):.*/\1/' "$work/said" | diff - "$work/wanted" ||
    fail "other faults than these in a page of faults"

rm -r "$work/top/src"

# The borders of tables count too, as for wc. README.md has two words.
cells()
{
    yes "| word" | head -n "$1" > "$work/top/docs/page.md"
}
cells 14999
checked "$work/top" || fail "30000 words are too many"
cells 15000
checked "$work/top" && fail "30002 words are not too many"
finish
