/*
 * What the page shows, as objects and as the part of the address after '#'. Of the planner:
 *   view=plan&model=gpt3-7b&nodes=8&seq=4096
 * and of the schedules:
 *   p=4&m=8&times=stage&b=2&s=zb1p:auto|2||&s=csv|||0F0,...
 * A row is schedule[:options]|chunks|slices|order; values that are defaults are left out. A row's order is the text
 * of its file where the schedule is "csv".
 */
const DEFAULTS = {
  p: "4", m: "8", layers: "", recompute: "", times: "stage",
  f: "1", b: "1", w: "1", pre: "1", attn: "3", post: "2", backward: "2", comm: "0", wire: "0",
  model: "gpt3-7b", seq: "4096", size: "1", hardware: "h100-ib", dtype: "bf16", limit: "", memory: "1"
};
const PLAN_DEFAULTS = {
  model: "gpt3-7b", style: "gpt2", layers: "", hidden: "", heads: "", kv_heads: "", mlp: "", vocabulary: "",
  hardware: "h100-ib", nodes: "1", seq: "4096", batch: "64", dtype: "bf16", limit: "", schedule: "", stages: "",
  tensor: "", context: "", data: "", recompute: "", offload: "", row: ""
};
const FIRST_ROWS = ["1f1b", "zb1p", "zbv"];

const newRow = schedule => ({ schedule, options: "", chunks: "", slices: "", order: "" });
const state = { ...DEFAULTS, view: "plan", rows: [] }, plan = { ...PLAN_DEFAULTS };

/* A word of a command has one line. */
const word = text => String(text).replace(/[\r\n]/g, " ").trim();

/* Takes what the address has for one of the views; an address without a view is one of schedules. */
function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const take = (to, defaults) => {
    for (const key of Object.keys(defaults)) to[key] = word(given.get(key) ?? defaults[key]);
  };
  state.view = given.get("view") ?? (location.hash.length > 1 ? "schedules" : "plan");
  if (state.view === "plan") return take(plan, PLAN_DEFAULTS);
  state.view = "schedules";
  take(state, DEFAULTS);
  state.rows = given.getAll("s").map(text => {
    const [name, chunks = "", slices = "", ...order] = text.split("|");
    const [schedule, ...options] = name.split(":");
    return { schedule: word(schedule), options: word(options.join(":")), chunks: word(chunks),
      slices: word(slices), order: order.join("|") };
  });
}

function address() {
  const given = new URLSearchParams(), planner = state.view === "plan";
  given.set("view", state.view);
  const [from, defaults] = planner ? [plan, PLAN_DEFAULTS] : [state, DEFAULTS];
  for (const [key, value] of Object.entries(defaults))
    if (from[key] !== value) given.set(key, from[key]);
  for (const r of planner ? [] : state.rows) {
    const name = r.schedule + (r.options ? ":" + r.options : "");
    const parts = [name, r.chunks, r.slices, r.schedule === "csv" ? r.order : ""];
    while (parts.length > 1 && !parts[parts.length - 1]) parts.pop();
    given.append("s", parts.join("|"));
  }
  /* a reader of addresses likes ':' and ',' as they are */
  return "#" + given.toString().replace(/%3A/g, ":").replace(/%2C/g, ",").replace(/%7C/g, "|");
}

/* Layers of a row: what was typed; else as few as a schedule of parts of layers wants, and where costs are of
 * parts of layers as many for all rows as any chunks divide. */
function layersOf(row) {
  const stages = +state.p || 1;
  if (state.layers) return state.layers;
  if (state.times === "parts") return String(4 * stages);
  return isOfParts(row) ? String(stages) : "";
}

const isOfParts = row =>
  choices.schedules.some(s => s.name === row.schedule && s.family === "attention-parallel");

/* Costs of a stage as those of the parts of its layers: the same work, in the usual shares of a forward. */
function shareOut(row) {
  const forward = +state.f * +state.p / +layersOf(row), backward = (+state.b + +state.w) / +state.f;
  const parts = { pre: forward / 6, attn: forward / 2, post: forward / 3, backward };
  return Object.values(parts).every(x => x >= 0 && x < Infinity)
    ? Object.entries(parts).map(([key, x]) => `${key}=${+x.toPrecision(9)}`) : null;
}

function costWords(row) {
  const given = keys => keys.filter(key => state[key] !== DEFAULTS[key]).map(key => key + "=" + state[key]);
  const messages = given(["comm", "wire"]);
  let costs = given(["f", "b", "w"]);
  if (state.times === "parts") costs = ["pre=" + state.pre, ...given(["attn", "post", "backward"])];
  else if (isOfParts(row)) costs = shareOut(row) ?? costs;
  costs.push(...messages);
  return costs.length ? ["--cost", costs.join(",")] : [];
}

/* The words of `starpipe show` for a row. */
function wordsOf(row) {
  const words = ["show", "--schedule"], own = row.schedule === "csv";
  const add = (option, value) => { if (value) words.push(option, value); };
  words.push(own ? "csv:order" : row.schedule + (row.options ? ":" + row.options : ""));
  if (!own) {
    add("--stages", state.p);
    add("--micro-batches", state.m);
    add("--chunks", row.chunks);
    add("--slices", row.slices);
  }
  if (state.times === "machine") {
    words.push("--model", state.model, "--hardware", state.hardware, "--dtype", state.dtype);
    add("--seq", state.seq);
    add("--micro-batch-size", state.size);
    add("--memory-limit", state.limit);
  } else {
    add("--layers", layersOf(row));
    words.push(...costWords(row));
  }
  add("--recompute", state.recompute);
  return words;
}

/* As it would be typed. */
const typed = words => "starpipe " + words.map(w => /^[\w:=.,+/-]+$/.test(w) ? w : `'${w}'`).join(" ");
