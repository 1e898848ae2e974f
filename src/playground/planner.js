/*
 * The planner: `starpipe plan` of a model on a machine. Its fields are options of the command; the answer is its form
 * picture, which also comes while the search goes on; the chosen layout is drawn by `starpipe show`, which takes the
 * words of the layout's own command.
 */
const PLAN_PAUSE_MS = 350, OWN = "my-model", OWN_CONFIG = OWN + "/config.json";

/* [key, option]: the fields that are options as they stand. */
const PLAN_OPTIONS = [
  ["hardware", "hardware"], ["nodes", "nodes"], ["seq", "seq"], ["batch", "micro-batches"], ["dtype", "dtype"],
  ["limit", "memory-limit"], ["schedule", "schedule"], ["stages", "stages"], ["tensor", "tensor-parallel"],
  ["context", "context-parallel"], ["data", "data-parallel"], ["recompute", "recompute"], ["offload", "offload"]
];
/* The keys of a config.json by the fields that they come from. */
const CONFIG_KEYS = {
  llama: { layers: "num_hidden_layers", hidden: "hidden_size", heads: "num_attention_heads",
    kv_heads: "num_key_value_heads", mlp: "intermediate_size", vocabulary: "vocab_size", seq: "max_position_embeddings" },
  gpt2: { layers: "n_layer", hidden: "n_embd", heads: "n_head", mlp: "n_inner", vocabulary: "vocab_size",
    seq: "n_positions" }
};

/* ---- what is asked */

const isOwn = () => plan.model === OWN;

function ownConfig() {
  const config = { model_type: plan.style };
  for (const [key, name] of Object.entries(CONFIG_KEYS[plan.style] ?? {}))
    if (plan[key]) config[name] = /^\d+$/.test(plan[key]) ? +plan[key] : plan[key];
  if (plan.style === "llama") Object.assign(config, { rms_norm_eps: 1e-5, tie_word_embeddings: false });
  return JSON.stringify(config, null, 1) + "\n";
}

const planFiles = () => isOwn() ? { [OWN_CONFIG]: ownConfig() } : {};

function planWords() {
  const words = ["plan", "--model", plan.model];
  for (const [key, option] of PLAN_OPTIONS) if (plan[key]) words.push("--" + option, plan[key]);
  return words;
}

/* The words of `show` for a layout: those of its command after "train". Names of the page need no quotes. */
const showWords = layout => ["show", ...layout.command.split(" starpipe train ").pop().replace(/^starpipe train /, "").split(" ")];

/* ---- the search */

const search = { number: 0, running: false, stopped: false, began: 0, timer: 0, answer: null, drawn: 0 };

const seconds = () => ((performance.now() - search.began) / 1e3).toFixed(1) + " s";
const count = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;

function planChanged() {
  clearTimeout(search.timer);
  stopSearch();
  search.timer = setTimeout(startSearch, PLAN_PAUSE_MS);
}

function stopSearch() {
  search.number++;
  planning.giveUpBusy();
  search.running = false;
}

function say(text) {
  byId("plan-status").textContent = text;
  byId("stop").hidden = !search.running;
  byId("working").hidden = !search.running;
  byId("again").hidden = !search.stopped;
}

async function startSearch() {
  const mine = ++search.number;
  let tried = 0;
  history.replaceState(null, "", address());
  Object.assign(search, { running: true, stopped: false, answer: null, began: performance.now() });
  refuseField(null);
  byId("answer").classList.add("stale");
  say("starting");
  const tell = () => mine === search.number && search.running &&
    (say(`${count(tried, "layout")} tried, ${seconds()}`), setTimeout(tell, 250));
  tell();
  const result = await planning.ask([...planWords(), "--format", "picture"], planFiles(), line => {
    if (mine !== search.number) return;
    const blank = line.indexOf(" ");
    tried = +line.slice(0, blank);
    if (line.length > blank + 1) showAnswer(JSON.parse(line.slice(blank + 1)));
  });
  if (mine !== search.number) return;
  search.running = false;
  if (result.status) {
    byId("answer").hidden = true;
    refuseField(result.errors);
    say("");
  } else {
    showAnswer(JSON.parse(result.output));
    say(`done in ${seconds()}`);
    drawChosen();
  }
  document.documentElement.dataset.plan = String(mine);
}

/* What has been found stays, as after Ctrl-C in a terminal. */
function endSearch() {
  if (!search.running) return;
  stopSearch();
  search.stopped = true;
  byId("answer").hidden = !search.answer;
  say(search.answer ? "stopped; this is the best so far" : "stopped; there is no layout yet");
  if (search.answer) drawChosen();
}

/* ---- refusals: beside the field whose option or key they name, and otherwise over the answer */

function fieldOf(line) {
  const named = [...line.matchAll(/--([a-z-]+)/g)].map(m => PLAN_OPTIONS.find(([, option]) => option === m[1])?.[0]);
  const keys = Object.entries(CONFIG_KEYS[plan.style] ?? {}).filter(([, name]) => isOwn() && line.includes(name));
  const words = [[/sequences? of \d+ tokens|positions/, "seq"], [/kv heads/, "kv_heads"], [/heads/, "heads"],
    [/\d+ stages/, "stages"], [/devices/, "nodes"]];
  return named.find(Boolean) ?? keys[0]?.[0] ?? (words.find(([pattern]) => pattern.test(line)) ?? [])[1];
}

function refuseField(line) {
  for (const old of document.querySelectorAll("#planner .field-refusal")) old.remove();
  for (const input of document.querySelectorAll("#planner [aria-invalid]")) input.removeAttribute("aria-invalid");
  byId("plan-refusal").textContent = line ?? "";
  const input = line && document.querySelector(`#planner [data-plan="${fieldOf(line)}"]`);
  if (!input) return;
  const place = input.closest("details");
  if (place) place.open = true;
  input.setAttribute("aria-invalid", "true");
  element("span", input.parentNode, line.replace(/^starpipe: (plan: )?/, "")).className = "field-refusal refusal";
}

/* ---- the answer */

const rowsOf = answer => [...answer.shown.rows, ...(answer.others?.rows ?? [])];

/* The row that is shown below: the one that was chosen; else the recommended one, or the first. */
function chosenRow() {
  const n = rowsOf(search.answer).length;
  return plan.row >= 1 && plan.row <= n ? +plan.row : search.answer.recommended ?? 1;
}

function choose(number, focus) {
  if (!search.answer) return; /* those of another question are still there */
  plan.row = String(number);
  history.replaceState(null, "", address());
  markChosen();
  if (focus) document.querySelector(`#answer button[data-row="${number}"]`)?.focus();
  drawChosen();
}

function markChosen() {
  const chosen = chosenRow();
  for (const button of document.querySelectorAll("#answer button[data-row]")) {
    const is = +button.dataset.row === chosen;
    button.setAttribute("aria-pressed", String(is));
    button.closest("tr").classList.toggle("chosen", is);
  }
  for (const link of document.querySelectorAll("#chart a"))
    link.classList.toggle("chosen", +link.dataset.row === chosen);
}

function layoutTable(part, first, parent) {
  element("p", parent, part.order + (part.common ? "; all with " + part.common : "") + ".");
  const scroll = element("div", parent), table = element("table", scroll), head = element("tr", table);
  scroll.className = "scroll";
  for (const column of part.columns) {
    const cell = element("th", head, column.name);
    if (column.legend) cell.title = column.legend;
    if (column.left) cell.className = "left";
  }
  part.rows.forEach((row, i) => {
    const line = element("tr", table), number = first + i;
    row.cells.forEach((text, k) => {
      const cell = element("td", line);
      if (part.columns[k].left) cell.className = "left";
      if (k) return cell.append(text);
      const button = element("button", cell, `${number}. ${text}`);
      button.dataset.row = number;
      button.onclick = () => choose(number);
    });
    if (!row.layout.fits) line.classList.add("full");
  });
  const legend = part.columns.map(column => column.legend).filter(Boolean).join("; ");
  if (legend) element("p", parent, legend + ".");
}

/* The links of the chart: "layout-3" is a number, "other-40" a rank among all rows. */
function listenToChart(answer) {
  const ranks = [];
  for (const link of document.querySelectorAll("#chart a")) {
    const [, kind, at] = link.getAttribute("href").match(/#(\w+)-(\d+)/);
    if (kind === "layout") link.dataset.row = at;
    else ranks.push([+at, link]);
    link.addEventListener("click", e => {
      e.preventDefault();
      choose(+link.dataset.row);
    });
  }
  ranks.sort((a, b) => a[0] - b[0]).forEach(([, link], i) => { link.dataset.row = answer.shown.rows.length + i + 1; });
}

function showAnswer(answer) {
  const focused = document.activeElement?.dataset?.row, open = document.querySelector("#others details")?.open;
  search.answer = answer;
  byId("answer").hidden = false;
  byId("answer").classList.remove("stale");
  byId("answer").classList.toggle("partial", !answer.complete);
  byId("title").textContent = answer.title;
  byId("advice").textContent = answer.advice ? answer.advice + "." : "";
  byId("chart").innerHTML = answer.chart;
  byId("layouts").replaceChildren();
  byId("others").replaceChildren();
  layoutTable(answer.shown, 1, byId("layouts"));
  if (answer.others) {
    const more = element("details", byId("others"));
    more.open = open;
    element("summary", more, count(answer.others.rows.length, "more layout"));
    layoutTable(answer.others, answer.shown.rows.length + 1, more);
  }
  listenToChart(answer);
  markChosen();
  if (focused) document.querySelector(`#answer button[data-row="${focused}"]`)?.focus();
}

/* ---- the chosen layout */

async function drawChosen() {
  const answer = search.answer, number = chosenRow(), row = rowsOf(answer)[number - 1], mine = ++search.drawn;
  const told = number === answer.recommended ? "recommended" : row.frontier ? "on the frontier" : "";
  const words = showWords(row.layout), box = byId("timeline");
  byId("chosen").hidden = false;
  byId("chosen-name").textContent =
    `${number}. ${row.layout.schedule} on ${count(row.layout.stages, "stage")}` + (told ? ": " + told : "");
  byId("command").textContent = row.lines.trimEnd();
  byId("config").textContent = isOwn() ? ownConfig() : "";
  byId("own-config").hidden = !isOwn();
  box.classList.add("busy");
  const files = planFiles();
  const [json, drawn] = [await drawing.ask([...words, "--format", "json"], files),
    await drawing.ask([...words, "--format", "picture"], files)];
  if (mine !== search.drawn) return;
  box.classList.remove("busy");
  if (state.view !== "plan") return;
  box.replaceChildren();
  byId("stages").replaceChildren();
  byId("picture-refusal").textContent = json.errors || drawn.errors;
  if (!json.status && !drawn.status) {
    const { kinds: all, pictures } = JSON.parse(drawn.output);
    setKinds(all);
    byId("picture-bar").append(byId("bar"));
    byId("bar").hidden = false;
    showPictures(pictures, [box]);
    stageTable({ json: JSON.parse(json.output), picture: pictures[0] }, byId("stages"));
  }
  document.documentElement.dataset.drawn = String(number);
}

/* ---- the form */

function fillOwnSizes(name) {
  const like = choices.models.find(m => m.name === name);
  for (const key of ["layers", "hidden", "heads", "kv_heads", "mlp", "vocabulary"]) plan[key] = String(like[key]);
  plan.style = like.style;
}

function showPlanForm(typing) {
  const machine = choices.machines.find(m => m.name === plan.hardware), model = choices.models.find(m => m.name === plan.model);
  for (const input of document.querySelectorAll("[data-plan]"))
    if (input !== typing) input.value = plan[input.dataset.plan];
  byId("own-sizes").hidden = !isOwn();
  byId("sizes-of").textContent = !model ? "" : `${model.layers} layers of width ${model.hidden}, ${model.heads} heads` +
    (model.kv_heads === model.heads ? "" : `, ${model.kv_heads} of keys`) + `, MLP ${model.mlp}, vocabulary ${model.vocabulary}`;
  byId("devices-of").textContent = machine ? `${machine.devices * (+plan.nodes || 0)} devices: ${machine.device}, ` +
    `${inBytes(machine.memory_bytes)} each` : "";
  byId("kv-heads").hidden = plan.style !== "llama";
  const limit = document.querySelector("[data-plan=limit]");
  limit.placeholder = machine ? inBytes(.92 * machine.memory_bytes).replace(" ", "") : "";
}

function bindPlan() {
  fill(byId("plan-models"), choices.models.map(m => m.name));
  const own = element("option", byId("plan-models"), "sizes of your own");
  own.value = OWN;
  fill(byId("plan-machines"), choices.machines.map(m => m.name));
  fill(byId("plan-schedules"), choices.synchronous);
  let last = plan.model === OWN ? PLAN_DEFAULTS.model : plan.model;
  for (const input of document.querySelectorAll("[data-plan]")) {
    input.addEventListener("input", () => {
      plan[input.dataset.plan] = word(input.value);
      plan.row = "";
      if (input.dataset.plan === "model" && isOwn()) fillOwnSizes(last);
      if (input.dataset.plan === "model" && !isOwn()) last = plan.model;
      showPlanForm(input);
      planChanged();
    });
  }
  byId("stop").onclick = endSearch;
  byId("again").onclick = startSearch;
  byId("copy").onclick = () => copyText(byId("command").textContent, byId("command-copied"));
  addEventListener("keydown", e => {
    if (state.view !== "plan") return;
    if (e.key === "Escape") endSearch();
    const row = +e.target.dataset?.row, step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (!row || !step || !search.answer) return;
    e.preventDefault();
    choose(Math.min(Math.max(row + step, 1), search.answer.shown.rows.length), true);
  });
}
