#!/bin/bash
# The forms of `reproduce`: one object with what scripts rely on, a document, a page that needs nothing from
# elsewhere; and two runs that print the same. What the numbers are is tested in test_reproduce.c.
. "$(dirname "$0")/../common.sh" || exit 1

for paper in weipipe sppo; do # seconds each
    starpipe reproduce $paper --format json > "$work/$paper.json" || fail "reproduce $paper"
done
for paper in helixpipe survey; do
    for format in text json markdown html; do
        starpipe reproduce $paper --format $format > "$work/$paper.$format" 2> "$work/stderr" ||
            fail "reproduce $paper --format $format: $(head -n 2 "$work/stderr")"
        [ ! -s "$work/stderr" ] || fail "reproduce $paper --format $format: $(head -n 2 "$work/stderr")"
    done
    grep -Eq '(src|href|url)[=(]' "$work/$paper.html" && fail "the page of $paper wants something from elsewhere"
    grep -q '<rect class="s"' "$work/$paper.html" || fail "the page of $paper has no bars"
    grep -q '^| --- | --- | ---: | ---: | ---: | --- | --- |$' "$work/$paper.markdown" ||
        fail "the document of $paper has no table"
    grep -Eq '^  ".*" \(.*\): (holds|does not hold|not simulated: .)' "$work/$paper.text" || fail "no claim of $paper"
    grep -q ' simulated' "$work/$paper.text" || fail "nothing simulated of $paper"
done
starpipe reproduce survey --format json | cmp -s - "$work/survey.json" || fail "two runs of survey differ"

# ---- other assumptions: of those papers that have any

[ "$(starpipe reproduce helixpipe --assumptions | grep -c '^  attention at 0\.[0-9]* of the peak, .*B  *[0-9]')" -eq 6 ] ||
    fail "no speedups at other rates of attention"
[ "$(grep -c 'attention at' "$work/helixpipe.text")" -eq 0 ] || fail "other assumptions, not asked for"
starpipe reproduce survey --assumptions > "$work/stdout" 2> "$work/stderr"
[ $? -eq 2 ] && [ "$(wc -l < "$work/stderr")" -eq 1 ] || fail "survey has no other assumptions"

command -v python3 > /dev/null || finish
python3 - "$work" << 'END' || fail "the objects are not what they should be"
import html.parser, json, sys

class Page(html.parser.HTMLParser):
    """Counts bars."""
    bars = 0
    def handle_starttag(self, tag, attributes):
        self.bars += tag == "rect"

for paper in "helixpipe", "weipipe", "sppo", "survey":
    with open(f"{sys.argv[1]}/{paper}.json", encoding="utf-8") as file:
        data = json.load(file)
    assert data["paper"] == paper
    summary, cells = data["summary"], data["cells"]
    assert summary["cells"] == len(cells) > 90
    claims = [c["simulated"] for c in cells if c.get("claim")]
    assert summary["claims"] == len(claims) - claims.count(None) and summary["claims_right"] == claims.count(1)
    assert 0 <= summary["winners_right"] <= summary["winners"]
    assert 0 <= summary["mean_error"] <= summary["worst_error"]
    for cell in cells:
        assert {"experiment", "row", "column", "published", "simulated", "unit", "note"} <= set(cell), cell
        for value in cell["published"], cell["simulated"]:
            assert value is None or value == "OOM" or isinstance(value, (int, float)), cell
        assert cell["published"] is not None
        assert cell["simulated"] is not None or cell["note"], cell
    if paper in ("weipipe", "sppo"):
        continue
    page = Page()
    with open(f"{sys.argv[1]}/{paper}.html", encoding="utf-8") as file:
        page.feed(file.read())
    numbers = sum(isinstance(c[k], (int, float)) for c in cells if not c.get("claim") for k in ("published", "simulated"))
    assert page.bars == numbers + 2, (paper, page.bars, numbers)
    print(f"{paper}: {len(cells)} cells, {numbers} bars")
END
finish
