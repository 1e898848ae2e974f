/* The page: its form, and what happens when something in it changes. */
const PAUSE_MS = 60, PATIENCE_MS = 400;
const choices = { schedules: [], models: [], machines: [], synchronous: [] };
let cards = [], change = 0, timer = 0;

const byId = id => document.getElementById(id);

/* One row's answers. */
async function compute(row) {
  const words = wordsOf(row), name = row.schedule + (row.options ? ":" + row.options : "");
  const json = await ask([...words, "--format", "json"], row.order);
  if (json.status) return { ...json, name };
  const drawn = await ask([...words, "--format", "picture"], row.order);
  if (drawn.status) return { ...drawn, name };
  const { facts, kinds, pictures } = JSON.parse(drawn.output);
  setKinds(kinds);
  return { ...json, name, json: JSON.parse(json.output), facts, picture: pictures[0] };
}

async function update() {
  const mine = ++change;
  history.replaceState(null, "", address());
  /* an answer that takes long keeps nobody waiting for it */
  const patience = setTimeout(() => {
    if (mine === change && drawing.waiting.length > 1) restart();
  }, PATIENCE_MS);
  const results = [];
  for (const [i, row] of state.rows.entries()) {
    cards[i].box.classList.add("busy");
    results.push(await compute(row));
    if (mine !== change) return clearTimeout(patience);
  }
  clearTimeout(patience);
  const pictures = [], boxes = [];
  cards.forEach((card, i) => {
    const picture = card.show(results[i]);
    if (!picture) return;
    pictures.push(picture);
    boxes.push(card.picture);
  });
  compare(results);
  byId("cards").before(byId("bar"));
  byId("bar").hidden = !pictures.length;
  if (pictures.length) showPictures(pictures, boxes);
  document.documentElement.dataset.change = String(mine); /* all that was asked is shown */
}

function restart() {
  drawing.giveUp();
  update();
}

function changed() {
  change++; /* nobody wants what is being computed */
  clearTimeout(timer);
  timer = setTimeout(update, PAUSE_MS);
}

/* Cards anew: rows came, went, or have another schedule. */
function rebuild() {
  byId("cards").replaceChildren();
  cards = state.rows.map(row => new Card(row, byId("cards")));
  changed();
}

/* Every input of the form is a value of the state with the same name; a slider beside it has the same value. */
function bind() {
  for (const input of document.querySelectorAll("[data-key]")) {
    const key = input.dataset.key, event = input.type === "radio" ? "change" : "input";
    input.addEventListener(event, () => {
      if (input.type === "checkbox") state[key] = input.checked ? "1" : "0";
      else if (input.type !== "radio" || input.checked) state[key] = word(input.value);
      showForm(input);
      changed();
    });
  }
}

/* The state in the form, but for the input that is being typed in. */
function showForm(typing) {
  for (const input of document.querySelectorAll("[data-key]")) {
    const value = state[input.dataset.key];
    if (input === typing) continue;
    if (input.type === "radio") input.checked = input.value === value;
    else if (input.type === "checkbox") input.checked = value === "1";
    else input.value = value;
  }
  document.body.dataset.times = state.times;
  document.body.dataset.memory = state.memory;
}

function fill(select, names) {
  for (const name of names) element("option", select, name);
}

async function copyText(text, told) {
  try {
    await navigator.clipboard.writeText(text);
    told.textContent = "copied";
  } catch {
    told.textContent = "not copied: the browser forbids it";
  }
  setTimeout(() => { told.textContent = ""; }, 3000);
}

function copyLink(event) {
  history.replaceState(null, "", address());
  copyText(location.href, event.target.nextElementSibling);
}

/* Shows one of the views, and starts what it shows. */
function showView() {
  const planner = state.view === "plan";
  byId("planner").hidden = !planner;
  byId("schedules").hidden = planner;
  for (const tab of document.querySelectorAll("nav a"))
    if (tab.dataset.view === state.view) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  showForm();
  if (planner) {
    change++;
    showPlanForm();
    startSearch();
  } else {
    stopSearch();
    if (!state.rows.length) state.rows = FIRST_ROWS.map(newRow);
    rebuild();
  }
}

function load() {
  readAddress();
  showView();
}

async function main() {
  choices.schedules = JSON.parse((await ask(["list", "--json"])).output);
  Object.assign(choices, JSON.parse((await ask(["choices"])).output));
  fill(byId("models"), choices.models.map(m => m.name));
  fill(byId("machines"), choices.machines.map(m => m.name));
  readAddress();
  bind();
  bindPlan();
  memoryRow = 26;
  byId("add").onclick = () => { state.rows.push(newRow("1f1b")); rebuild(); };
  byId("all").onclick = () => { state.rows = choices.schedules.map(s => newRow(s.name)); rebuild(); };
  byId("own").onclick = () => { state.rows.push({ ...newRow("csv"), order: FIRST_ORDER }); rebuild(); };
  for (const button of document.querySelectorAll(".link")) button.onclick = copyLink;
  for (const tab of document.querySelectorAll("nav a"))
    tab.onclick = e => {
      e.preventDefault();
      state.view = tab.dataset.view;
      showView();
    };
  byId("in").onclick = () => zoom(.6, (from + to) / 2);
  byId("out").onclick = () => zoom(1 / .6, (from + to) / 2);
  byId("fit").onclick = fit;
  addEventListener("hashchange", load);
  for (const box of ["cards", "timeline"]) new ResizeObserver(draw).observe(byId(box));
  showView();
}

main();
