#!/bin/bash
# Pages on a telephone, 375 pixels wide: what is wide scrolls in its box, the page itself does not.
. "$(dirname "$0")/../common.sh" || exit 1

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    { echo "skipped: no chromium"; exit 77; }
cd "$work" || exit 1

four="--stages 4 --micro-batches 8"
starpipe show --schedule dualpipe $four --format html > show.html || fail "show"
starpipe show --schedule sppo $four --slices 4 --model gpt3-1.3b --seq 16384 --offload full --format html > offload.html ||
    fail "show --offload"
starpipe show --schedule zbv $four --format perfetto > one.json || fail "a record"
starpipe show --schedule 1f1b $four --format perfetto > other.json || fail "another record"
starpipe report one.json --format html > report.html || fail "report"
starpipe compare one.json other.json --format html > compare.html || fail "compare"
starpipe train --model gpt-tiny --seq 32 --stages 2 --micro-batches 2 --steps 3 --data "$here/narrow.sh" --log log \
    > train 2>&1 || fail "train: $(cat train)"
starpipe watch log --html watch.html || fail "watch"
starpipe plan --model gpt-tiny --seq 64 $four --schedule 1f1b --format html > plan.html || fail "plan"
pages="show.html offload.html report.html compare.html watch.html plan.html"
# A frame for each page says how wide what is in it wants to be, and how wide its boxes that scroll are inside.
cat > frames.html << END
<html><body><script>
const said = [];
async function look(name) {
  const frame = document.createElement("iframe");
  frame.style = "width: 375px; height: 700px; border: 0";
  frame.src = name;
  document.body.append(frame);
  await new Promise(done => frame.onload = done);
  await new Promise(done => setTimeout(done, 300));
  const root = frame.contentDocument.documentElement;
  const boxes = [...frame.contentDocument.querySelectorAll(".scroll, section")];
  const most = Math.max(...boxes.map(b => b.scrollWidth));
  said.push(name + " wants " + (root.scrollWidth - root.clientWidth) + " more, boxes have " + most);
}
(async () => {
  for (const name of "$pages".split(" ")) await look(name);
  document.body.dataset.said = said.join(";");
})();
</script></body></html>
END
timeout 100 "$browser" --headless --no-sandbox --disable-gpu --allow-file-access-from-files --user-data-dir="$work/profile" \
    --virtual-time-budget=20000 --window-size=800,900 --dump-dom "file://$PWD/frames.html" > dom 2> browser ||
    { echo "skipped: the browser does not run: $(tail -n 1 browser)"; exit 77; }
grep -o 'data-said="[^"]*"' dom | tr ';"' '\n\n' | grep ' wants ' > said
cat said
for name in $pages; do
    grep -q "^$name wants 0 more, boxes have [568]..\$" said || fail "$name: $(grep "^$name" said)"
done
finish
