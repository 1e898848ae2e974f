#!/usr/bin/python3
"""The page of the playground in headless Chromium, beside the command: check_page.py PAGE STARPIPE.

Every schedule must be computed and drawn as `starpipe show` prints it, and every plan as `starpipe plan` does; the editor
and all refusals must say what the command says, a link must bring the same page back, and nothing may leave the page.
With --times, it says too how long plans for 64 devices take.
"""
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

PATIENCE_S = 300
checks = []


def check(what, ok, told=""):
    checks.append(bool(ok))
    if not ok:
        print(f"FAIL: {what}: {str(told)[:600]}")


class Command:
    """starpipe in a directory of its own, where it finds the file "order"."""

    def __init__(self, program):
        self.program = str(Path(program).resolve())
        self.directory = tempfile.TemporaryDirectory()

    def run(self, words, order=None):
        if order is not None:
            (Path(self.directory.name) / "order").write_text(order)
        done = subprocess.run([self.program, *words], cwd=self.directory.name, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr.strip()


class Page:
    def __init__(self, path):
        self.address = Path(path).resolve().as_uri()
        options = webdriver.ChromeOptions()
        for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000",
                     "--force-device-scale-factor=1", "--host-resolver-rules=MAP * ~NOTFOUND"):
            options.add_argument(word)
        options.binary_location = "/usr/bin/chromium"
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
        self.driver.set_script_timeout(PATIENCE_S)

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def changes(self):
        return int(self.js("return document.documentElement.dataset.change || 0"))

    def wait(self, before):
        """Until all is shown of what changed after `before`."""
        end = time.monotonic() + PATIENCE_S
        while self.changes() <= before or self.js("return document.querySelector('.busy') !== null"):
            if time.monotonic() > end:
                raise TimeoutError("the page does not finish")
            time.sleep(0.02)
        # the drawing waits for a frame
        self.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")

    def open(self, fragment):
        """A new page: not one that only hears that the fragment changed."""
        self.driver.get("about:blank")
        self.driver.get(self.address + fragment)
        self.wait(0)

    def wait_for(self, what, script, *arguments):
        end = time.monotonic() + PATIENCE_S
        while not self.js(script, *arguments):
            if time.monotonic() > end:
                raise TimeoutError("the page does not show " + what)
            time.sleep(0.02)

    def plan(self, fragment):
        """Opens the planner and waits for its answer and for the picture of the chosen layout."""
        self.driver.get("about:blank")
        self.driver.get(self.address + fragment)
        self.planned()

    def planned(self):
        self.wait_for("a plan", "return document.documentElement.dataset.plan == search.number && !search.running")
        self.wait_for("its picture", "return byId('answer').hidden || document.querySelector('#timeline.busy') === null")
        self.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")

    def ask(self, words, order=None):
        return self.driver.execute_async_script(
            "ask(arguments[0], arguments[1] ?? undefined).then(arguments[2])", words, order)

    def refusals(self):
        return self.js("return [...document.querySelectorAll('#cards p.refusal')].map(p => p.textContent)")


# What is drawn: the bars of every picture, and whether the middle of each wide enough has a colour of its own, which
# that of an idle stage is not.
DRAWN = """
return views.map(v => {
  const canvas = v.gantt.canvas, pixels = canvas.getContext("2d"), idle = hexOf(theme.idle), blank = [];
  v.picture.rows.forEach((row, s) => row.forEach(bar => {
    const x = v.x((bar[0] + bar[1]) / 2), wide = v.x(bar[1]) - v.x(bar[0]);
    const half = bar[8] === 2 ? .75 : bar[8] === 1 ? .25 : .5;
    const at = pixels.getImageData(Math.floor(x), Math.floor(s * v.row + v.row * half), 1, 1).data;
    if (wide > 2 && [0, 1, 2].every(i => Math.abs(at[i] - idle[i]) < 3)) blank.push(bar[2]);
  }));
  return { rows: v.picture.rows.map(row => row.map(b => [b[2], b[0], b[1]])), blank };
});
function hexOf(text) {
  const d = text.length === 4 ? text.slice(1).replace(/./g, "$&$&") : text.slice(1);
  return [0, 2, 4].map(i => parseInt(d.slice(i, i + 2), 16));
}
"""

def share_out(stages, layers, f, b, w):
    """Costs of a stage as the page gives them to a schedule whose ops are parts of layers."""
    unit = f * stages / layers
    return f"pre={unit / 6:.9g},attn={unit / 2:.9g},post={unit / 3:.9g},backward={(b + w) / f:.9g}"


# What is the same in all rows: the fragment of the page's address, and the command's words for a schedule of a family.
LAYOUTS = [
    ("p=4&m=8",
     lambda parts: ["--stages", "4", "--micro-batches", "8"] + (
         ["--layers", "4", "--cost", share_out(4, 4, 1, 1, 1)] if parts else [])),
    ("p=2&m=12&f=1.5&b=2&w=0.7&comm=0.25&wire=0.125&layers=8",
     lambda parts: ["--stages", "2", "--micro-batches", "12", "--layers", "8", "--cost",
                    share_out(2, 8, 1.5, 2, 0.7) + ",comm=0.25,wire=0.125" if parts else "f=1.5,b=2,w=0.7,comm=0.25,wire=0.125"]),
    ("p=4&m=16&times=parts&attn=5",
     lambda parts: ["--stages", "4", "--micro-batches", "16", "--layers", "16", "--cost", "pre=1,attn=5"]),
    ("p=4&m=8&times=machine&seq=8192&hardware=a800-ib",
     lambda parts: ["--stages", "4", "--micro-batches", "8", "--model", "gpt3-7b", "--hardware", "a800-ib",
                    "--dtype", "bf16", "--seq", "8192", "--micro-batch-size", "1"]),
    ("p=3&m=5&layers=12",
     lambda parts: ["--stages", "3", "--micro-batches", "5", "--layers", "12"] + (
         ["--cost", share_out(3, 12, 1, 1, 1)] if parts else [])),
    # sizes beyond 32 bits
    ("p=8&m=16&times=machine&model=llama3-405b&seq=131072&size=4&hardware=h200&dtype=f32&recompute=full",
     lambda parts: ["--stages", "8", "--micro-batches", "16", "--model", "llama3-405b", "--hardware", "h200",
                    "--dtype", "f32", "--seq", "131072", "--micro-batch-size", "4", "--recompute", "full"]),
]


def near(a, b):
    """The same JSON, numbers to the last digits: mathematics of another library."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(near(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(near, a, b))
    if isinstance(a, float) and isinstance(b, (int, float)):
        return abs(a - b) <= 1e-12 * max(abs(a), abs(b))
    return a == b


def drawn_is_right(drawn, shown):
    """Nine digits are in the data of a picture; bars are in order of start, ops in that of the program."""
    for bars, ops, times in zip(drawn["rows"], shown["ranks"], shown["times"]):
        wanted = sorted((a, b, op) for op, (a, b) in zip(ops, times))
        got = sorted((a, b, op) for op, a, b in bars)
        if [w[2] for w in sorted(wanted, key=lambda w: w[2])] != [g[2] for g in sorted(got, key=lambda g: g[2])]:
            return False
        starts = {op: (a, b) for a, b, op in got}
        if any(abs(x - y) > 1e-8 * max(1, abs(x)) for a, b, op in wanted for x, y in zip((a, b), starts[op])):
            return False
    return len(drawn["rows"]) == len(shown["ranks"])


def check_schedules(page, command):
    schedules = json.loads(command.run(["list", "--json"])[1])
    rows = [(s["name"], s["family"]) for s in schedules] + [("zb1p:auto", "layerwise"), ("seq1f1b|0|4", "subsequence")]
    pictures = bars = refused = 0
    for fragment, words_of in LAYOUTS:
        page.open("#" + fragment + "&memory=1" + "".join("&s=" + name for name, _ in rows))
        drawn, lines = iter(page.js(DRAWN)), iter(page.refusals())
        for row, family in rows:
            name, _, sliced = row.partition("|")
            words = ["show", "--schedule", name] + words_of(family == "attention-parallel") + ["--format", "json"]
            words[3:3] = ["--chunks", "0", "--slices", "4"] if sliced else []
            status, output, errors = command.run(words)
            what = " ".join(words)
            if status:
                refused += 1
                check(what + ": refused alike", next(lines, None) == errors, errors)
                continue
            shown, picture = json.loads(output), next(drawn, None)
            answer = page.ask(words)
            check(what + ": computed alike", near(shown, json.loads(answer["output"] or "null")), answer["errors"])
            check(what + ": drawn", picture and drawn_is_right(picture, shown))
            check(what + ": in colour", picture and not picture["blank"], picture and picture["blank"])
            pictures += 1
            bars += sum(map(len, shown["ranks"]))
        check(fragment + ": nothing else is drawn", next(drawn, None) is None)
        check(fragment + ": nothing else is refused", next(lines, None) is None)
    print(f"{pictures} pictures of {len(schedules)} schedules, {bars} ops, as the command has them; "
          f"{refused} layouts refused alike")


def check_refusals(page, command):
    for fragment, words in [
            ("p=0", ["--stages", "0", "--micro-batches", "8"]),
            ("p=x", ["--stages", "x", "--micro-batches", "8"]),
            ("m=70000", ["--stages", "4", "--micro-batches", "70000"]),
            ("f=-1", ["--stages", "4", "--micro-batches", "8", "--cost", "f=-1"]),
            ("times=machine&seq=200000", ["--stages", "4", "--micro-batches", "8", "--model", "gpt3-1.3b", "--hardware",
                                          "h100-ib", "--dtype", "bf16", "--seq", "200000", "--micro-batch-size", "1"]),
    ]:
        page.open("#" + fragment + "&model=gpt3-1.3b&s=1f1b")
        line = command.run(["show", "--schedule", "1f1b", *words])[2]
        check(fragment, line and page.refusals() == [line], (page.refusals(), line))
    for schedule in ("1f1", "zb1p:automatic", "helix:fold=0"):
        page.open("#s=" + schedule)
        words = ["--layers", "4", "--cost", share_out(4, 4, 1, 1, 1)] if schedule.startswith("helix") else []
        line = command.run(["show", "--schedule", schedule, *words])[2]
        check(schedule, line and page.refusals() == [line], (page.refusals(), line))


def check_editor(page, command):
    """The order of a schedule is made a text, typed in, broken and mended."""
    page.open("#p=2&m=4&s=zb1p")
    order = command.run(["show", "--schedule", "zb1p", "--stages", "2", "--micro-batches", "4", "--format", "csv"])[1]
    before = page.changes()
    page.driver.find_element(By.CSS_SELECTOR, ".edit").click()
    page.wait(before)
    text = page.driver.find_element(By.TAG_NAME, "textarea")
    check("edit", text.get_attribute("value") == order, text.get_attribute("value"))
    both = page.js(DRAWN)
    check("edit: the same picture", len(both) == 2 and both[0] == both[1])

    def typed(what, order, marked):
        before = page.changes()
        page.js("arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", text, order)
        page.wait(before)
        status, _, errors = command.run(["show", "--schedule", "csv:order"], order)
        check(what + ": refused alike", status == 2 and page.refusals() == [errors], (page.refusals(), errors))
        mark = page.js("return [...document.querySelectorAll('mark')].map(m => m.textContent)")
        line = page.js("return [...document.querySelectorAll('.lines .bad')].map(m => m.textContent.trim())")
        check(what + ": marked", (mark, line) == ([marked[1]], [marked[0]]), (mark, line))

    typed("an unknown op", "0F0,0B0\n1F0,1X0\n", ("2", "1X0"))
    typed("backward before forward", "0F0,0F1,0B0,0B1\n1F0,1B1,1F1,1B0\n", ("2", "1B1"))
    typed("an op twice", "0F0,0F0,0B0\n1F0,1B0\n", ("1", "0F0"))
    typed("an op missing", "0F0,0B0\n1F0\n", ("2", "1F0"))

    before = page.changes()
    text.send_keys(Keys.CONTROL, Keys.END)
    text.send_keys(Keys.BACKSPACE + ",1B0")
    page.wait(before)
    notes = page.js("return [...document.querySelectorAll('#cards p.note')].map(p => p.textContent)")
    check("typed to its end: accepted", notes == ["", "The verifier accepts this order."], (notes, page.refusals()))
    shown = json.loads(command.run(["show", "--schedule", "csv:order", "--format", "json"], "0F0,0B0\n1F0,1B0")[1])
    pictures = page.js(DRAWN)
    check("typed to its end: drawn", len(pictures) == 2 and drawn_is_right(pictures[1], shown), pictures)


def check_details(page, command):
    """Under a picture: the command that prints it, and the actions of each stage."""
    page.open("#p=3&m=5&comm=0.5&s=gpipe:backward=fifo")
    page.js("document.querySelector('#cards details').open = true")
    words = ["show", "--schedule", "gpipe:backward=fifo", "--stages", "3", "--micro-batches", "5", "--cost", "comm=0.5"]
    end = time.monotonic() + PATIENCE_S
    while not page.js("return document.querySelector('.actions')?.textContent") and time.monotonic() < end:
        time.sleep(0.02)
    shown = json.loads(command.run([*words, "--actions", "--format", "json"])[1])
    check("command", page.js("return document.querySelector('#cards .command').textContent") == "starpipe " + " ".join(words))
    for stage, actions in enumerate(shown["actions"]):
        page.js("const pick = document.querySelector('#cards details select');"
                "pick.value = arguments[0]; pick.dispatchEvent(new Event('change'));", str(stage))
        lines = page.js("return document.querySelector('.actions').textContent").split("\n")
        check(f"actions of stage {stage}",
              [line.split()[:2] for line in lines] == [[str(word) for word in a[:2]] for a in actions], lines)


def check_link(page):
    """What is chosen by hand comes back with the address."""
    page.open("#view=schedules")
    before = page.changes()
    page.js("""
        const slider = document.querySelector("input[type=range][data-key=p]");
        slider.value = 6;
        slider.dispatchEvent(new Event("input"));""")
    page.driver.find_element(By.CSS_SELECTOR, "input.small[data-key=comm]").send_keys(Keys.END, ".5")
    page.js("document.getElementById('own').click(); document.querySelectorAll('.remove')[1].click()")
    page.wait(before)
    time.sleep(0.3)
    page.wait(0)
    state = "return [JSON.stringify(state), document.getElementById('results').innerText, location.href]"
    chosen, drawn = page.js(state), page.js(DRAWN)
    page.driver.get("about:blank")
    page.driver.get(chosen[2])
    page.wait(0)
    again = page.js(state)
    check("link: state", again == chosen, (chosen, again))
    check("link: pictures", page.js(DRAWN) == drawn and len(drawn) == 3)
    check("link: what was chosen", '"p":"6"' in chosen[0] and '"comm":"0.5"' in chosen[0] and "0F0" in chosen[0],
          chosen)
    check("link: form", page.js("return document.querySelector('input.small[data-key=p]').value") == "6")


QUESTIONS = (Path(__file__).parent / "questions").read_text().splitlines()


def check_plans(page, command):
    """The questions of the test that runs without a browser, as JSON."""
    page.open("#s=1f1b")
    layouts = fit = 0
    for question in QUESTIONS:
        words = ["plan", *question.split(), "--format", "json"]
        status, output, errors = command.run(words)
        answer = page.ask(words)
        check(question + ": planned alike", status == answer["status"] == 0 and answer["output"] and
              near(json.loads(output), json.loads(answer["output"])), errors + answer["errors"])
        if not status:
            rows = json.loads(output)["layouts"]
            layouts += len(rows)
            fit += sum(row["fits"] for row in rows)
    print(f"{len(QUESTIONS)} plans of {layouts} layouts, {fit} of which fit, as the command has them")


def check_planner(page, command):
    """What the planner shows of one plan: the table, the chart, and the chosen layout's picture and command."""
    page.plan("#view=plan&model=gpt3-1.3b&stages=4&batch=16&hardware=a800-ib")
    words = ["plan", "--model", "gpt3-1.3b", "--seq", "4096", "--stages", "4", "--micro-batches", "16", "--hardware",
             "a800-ib", "--format", "json"]
    wanted = json.loads(command.run(words)[1])["layouts"]
    rows = page.js("return [...document.querySelectorAll('#layouts tr')].slice(1).map(tr => tr.innerText.split('\\t'))")
    names = [row[0].split(". ")[1].strip() for row in rows]
    check("planner: rows", names[:len(wanted)] == [w["schedule"] for w in wanted] or
          set(w["schedule"] for w in wanted) <= set(names), (names, [w["schedule"] for w in wanted]))
    check("planner: frontier, chart", page.js("return document.querySelectorAll('#chart a.told').length") == len(rows) and
          page.js("return document.querySelectorAll('#chart a.best').length") > 0 and
          page.js("return document.querySelectorAll('#chart .frontier').length") == 1)

    def shown(row, what):
        command_line = page.js("return byId('command').textContent").replace("\\\n", " ").split()
        check(what + ": command", command_line == [*row["command"].split(), "--tokens", "FILE.bin"], command_line)
        train = row["command"].split()
        show = json.loads(command.run(["show", *train[train.index("train") + 1:], "--format", "json"])[1])
        drawn = page.js(DRAWN)
        check(what + ": picture", len(drawn) == 1 and drawn_is_right(drawn[0], show))
        check(what + ": step", near(show["step_ms"], row["step_ms"]), (show["step_ms"], row["step_ms"]))
        cells = page.js("return [...document.querySelectorAll('#stages tr')].length")
        check(what + ": a row a stage", cells == row["stages"] + 1, cells)

    all_rows = page.js("return search.answer.shown.rows.map(r => r.layout)")
    check("planner: layouts", all(any(near(w, r) for r in all_rows) for w in wanted), all_rows)
    shown(all_rows[page.js("return search.answer.recommended") - 1], "recommended")

    # keyboard: from the first row down, and a point of the chart
    page.driver.find_element(By.CSS_SELECTOR, "#layouts button").send_keys(Keys.ENTER)
    page.driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    page.planned()
    check("keys: second row", page.js("return [chosenRow(), document.activeElement.dataset.row]") == [2, "2"])
    shown(all_rows[1], "second row")
    point = page.driver.find_element(By.CSS_SELECTOR, "#chart a[data-row='3']")
    page.js("arguments[0].focus()", point)
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    page.planned()
    check("keys: third point", page.js("return chosenRow()") == 3)

    # the link brings it back; the view of schedules and back keeps it
    link, title = page.js("return [location.href, byId('chosen-name').textContent]")
    page.plan(link[link.index("#"):])
    check("planner: link", page.js("return [location.href, byId('chosen-name').textContent]") == [link, title], link)
    before = page.changes()
    page.driver.find_element(By.CSS_SELECTOR, "nav a[data-view=schedules]").click()
    page.wait(before)
    check("views: schedules", len(page.js(DRAWN)) >= 1 and page.js("return byId('planner').hidden"))
    page.driver.find_element(By.CSS_SELECTOR, "nav a[data-view=plan]").click()
    page.planned()
    check("views: back", page.js("return location.href") == link)


def check_planner_refusals(page, command):
    for fragment, field, words in [
            ("seq=0", "seq", ["--seq", "0"]),
            ("nodes=x", "nodes", ["--nodes", "x"]),
            ("stages=5", "stages", ["--stages", "5"]),
            ("limit=much", "limit", ["--memory-limit", "much"]),
            ("data=3", "data", ["--data-parallel", "3"]),
    ]:
        page.plan("#view=plan&model=gpt-tiny&batch=8&" + ("" if field == "seq" else "seq=64&") + fragment)
        given = ["--model", "gpt-tiny", "--micro-batches", "8"] + ([] if field == "seq" else ["--seq", "64"]) + words
        status, _, errors = command.run(["plan", *given])
        beside = page.js("return document.querySelector('.field-refusal')?.parentNode.querySelector('[data-plan]')"
                         ".dataset.plan")
        check(fragment + ": refused", status == 2 and page.js("return byId('plan-refusal').textContent") == errors,
              (errors, page.js("return byId('plan-refusal').textContent")))
        check(fragment + ": beside its field", beside == field, beside)
    page.plan("#view=plan&model=my-model&style=llama&layers=8&hidden=64&heads=4&kv_heads=3&mlp=172&vocabulary=256&seq=64&batch=8")
    line = page.js("return byId('plan-refusal').textContent")
    check("a model of one's own: refused", "4 heads are not a multiple of 3 kv heads" in line, line)
    check("a model of one's own: beside its field", page.js("return document.querySelector('#kv-heads .field-refusal')"))
    page.plan("#view=plan&model=my-model&style=llama&layers=8&hidden=64&heads=4&kv_heads=2&mlp=172&vocabulary=256&seq=64&batch=8")
    config = page.js("return byId('config').textContent")
    (Path(command.directory.name) / "my-model").mkdir()
    (Path(command.directory.name) / "my-model/config.json").write_text(config)
    wanted = json.loads(command.run(["plan", "--model", "my-model", "--seq", "64", "--micro-batches", "8", "--json"])[1])
    rows = page.js("return search.answer.shown.rows.map(r => r.layout)")
    check("a model of one's own: planned", all(any(near(w, r) for r in rows) for w in wanted["layouts"]))


def check_planner_search(page):
    """A long search tells what it has, is stopped by a key, and is given up for what is typed."""
    page.driver.get("about:blank")
    page.driver.get(page.address + "#view=plan&model=llama3-405b&nodes=128&batch=2048")
    page.wait_for("layouts so far", "return search.running && search.answer && !search.answer.complete")
    rows = page.js("return document.querySelectorAll('#layouts tr').length")
    check("a search tells what it has", rows > 1 and page.js("return /\\d+ layouts tried/.test(byId('state').innerText)"), rows)
    start = time.monotonic()
    page.driver.find_element(By.TAG_NAME, "body").send_keys(Keys.ESCAPE)
    page.wait_for("that it stopped", "return !search.running && /stopped/.test(byId('plan-status').textContent)")
    check("a search is stopped", time.monotonic() - start < 5 and
          page.js("return document.querySelectorAll('#layouts tr').length") == rows and
          page.js("return !byId('again').hidden && byId('stop').hidden"))
    page.js("byId('again').click()")
    page.js("plan.model = 'gpt-tiny'; plan.nodes = '1'; plan.batch = '8'; plan.seq = '64'; showPlanForm(); planChanged()")
    page.wait_for("another plan", "return search.answer?.complete && search.answer.title.startsWith('gpt-tiny on 1 node')")
    page.planned()


def check_narrow(page):
    """A telephone: the page is no wider than its window."""
    page.driver.set_window_size(500, 900)
    page.js("document.body.style.width = '360px'")
    for fragment in ("#view=plan&model=gpt-tiny&batch=8&seq=64", "#s=1f1b"):
        if "plan" in fragment:
            page.plan(fragment)
        else:
            page.open(fragment)
        wide = page.js("return [document.documentElement.scrollWidth, innerWidth]")
        check(fragment + ": narrow", wide[0] <= wide[1], wide)
    page.driver.set_window_size(1400, 1000)


# What people ask for 64 devices.
LONG = [
    ("GPT-2 124M, 1k", "--model gpt2-124m --seq 1024 --micro-batches 512 --nodes 8"),
    ("1.3B, 2k", "--model gpt3-1.3b --seq 2048 --micro-batches 512 --nodes 8"),
    ("7B, 4k", "--model gpt3-7b --seq 4096 --micro-batches 256 --nodes 8"),
    ("7B, 128k", "--model gpt3-7b --seq 131072 --micro-batches 64 --nodes 8"),
    ("65B, 8k", "--model gpt-65b --seq 8192 --micro-batches 256 --nodes 8"),
]


def print_times(page):
    page.open("#s=1f1b")
    print("| 64 H100 | seconds |\n|---|---|")
    for name, question in LONG:
        start = time.monotonic()
        answer = page.ask(["plan", *question.split(), "--hardware", "h100-ib", "--format", "json"])
        print(f"| {name} | {time.monotonic() - start:.1f} |" + answer["errors"], flush=True)


def check_search_given_up(page):
    """A search that takes long does not hold up what is typed after it."""
    page.open("#s=1f1b")
    before = page.changes()
    page.js("state.p = '48'; state.m = '192'; state.rows[0].schedule = 'zb2p'; state.rows[0].options = 'auto';"
            "rebuild()")
    time.sleep(0.3)
    start = time.monotonic()
    page.js("state.p = '4'; state.m = '8'; rebuild()")
    page.wait(before)
    took = time.monotonic() - start
    check("a search is given up", took < 5 and len(page.js(DRAWN)[0]["rows"]) == 4, took)


def check_alone(page):
    """No error on the console, no request; and the page may not make one."""
    errors = [e["message"] for e in page.driver.get_log("browser") if e["level"] == "SEVERE"]
    check("console", not errors, errors)
    asked = [json.loads(e["message"])["message"] for e in page.driver.get_log("performance")]
    urls = {m["params"]["request"]["url"].split("#")[0] for m in asked if m["method"] == "Network.requestWillBeSent"}
    others = [u for u in urls if u != page.address and not u.startswith(("blob:null/", "about:"))]
    check("requests", page.address in urls and not others, others)
    check("a request is refused", page.driver.execute_async_script("""
        addEventListener("securitypolicyviolation", e => arguments[0](e.violatedDirective));
        fetch("https://example.org/").catch(() => {});
        setTimeout(arguments[0], 3000, "nothing was refused");""") == "connect-src")


def main():
    page, command = Page(sys.argv[1]), Command(sys.argv[2])
    try:
        if "--times" in sys.argv:
            print_times(page)
        check_plans(page, command)
        check_planner(page, command)
        check_planner_refusals(page, command)
        check_planner_search(page)
        check_narrow(page)
        check_schedules(page, command)
        check_refusals(page, command)
        check_editor(page, command)
        check_details(page, command)
        check_link(page)
        check_search_given_up(page)
        check_alone(page)
    finally:
        page.driver.quit()
    failed = checks.count(False)
    print(f"{len(checks) - failed} checks of the page passed, {failed} failed")
    return failed > 0


sys.exit(main())
