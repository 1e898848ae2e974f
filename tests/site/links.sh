#!/bin/bash
# The check of a site's links sees each fault, once.
. "$(dirname "$0")/../common.sh" || exit 1

command -v python3 > /dev/null || { echo "skipped: no python3"; exit 77; }
checked()
{
    python3 "$here/check_links.py" "$1" > "$work/said" 2>&1
}

mkdir -p "$work/site/below"
cat > "$work/site/index.html" <<'END'
<!doctype html><link rel="stylesheet" href="a.css"><script src="a.js"></script><style>p { color: red }</style>
<h1 id="top">One</h1><a href="below/page.html#two">1</a> <a href="#top">2</a> <a href="https://example.org/none">3</a>
<a href="below/page.html#view=one">4</a>
<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw="><form action="below/page.html"></form>
END
echo '<h1 id="two">Two</h1><a href="../index.html#top">back</a>' > "$work/site/below/page.html"
echo 'body { background: url("data:image/gif;base64,R0lGODlhAQABAAAAACw=") }' > "$work/site/a.css"
echo > "$work/site/a.js"
checked "$work/site" || fail "a site without faults: $(cat "$work/said")"
[ "$(cat "$work/said")" = "2 pages, 0 faults" ] || fail "a site without faults: $(cat "$work/said")"

cat >> "$work/site/index.html" <<'END'
<a href="none.html">1</a> <a href="below/page.html#none">2</a> <a href="#none">3</a> <a href="../out.html">4</a>
<a href="/below/page.html">5</a> <a href="below">6</a>
<img src="none.png"> <img srcset="a.js 1x, none2.png 2x"> <script src="https://example.org/a.js"></script>
<style>p { background: url(//example.org/a.png) }</style> <link rel="preconnect" href="https://example.org">
END
echo '@import "https://example.org/font.css"; p { background: url(none3.png) }' >> "$work/site/a.css"
cat > "$work/wanted" <<'END'
a.css: fetches what is elsewhere: https://example.org/font.css
a.css: no such file: none3.png
index.html: a link from the root of the server: /below/page.html
index.html: fetches what is elsewhere: //example.org/a.png
index.html: fetches what is elsewhere: https://example.org
index.html: fetches what is elsewhere: https://example.org/a.js
index.html: leaves the site: ../out.html
index.html: no such anchor: #none
index.html: no such anchor: below/page.html#none
index.html: no such file: below
index.html: no such file: none.html
index.html: no such file: none.png
index.html: no such file: none2.png
2 pages, 13 faults
END
touch "$work/out.html"
checked "$work/site" && fail "a site of faults passes"
diff "$work/said" "$work/wanted" || fail "other faults than these in a site of faults"
mkdir "$work/empty"
checked "$work/empty" && fail "a site without pages passes"
finish
