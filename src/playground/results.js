/* Figures: the table that compares the rows, and that of the stages of one. */

function inBytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i + 1 < units.length; i++) n /= 1024;
  return `${+n.toPrecision(4)} ${units[i]}`;
}

const sum = list => list.reduce((a, b) => a + b, 0);
const largest = list => list.reduce((a, b) => Math.max(a, b), -Infinity);

/* Of an answer of `show --format json`. */
const COLUMNS = [
  ["makespan", r => number(r.json.step_ms ?? r.json.makespan) + (r.json.step_ms === undefined ? "" : " ms"),
    "from the first op to the last; of a model the whole step, with what comes after the last op"],
  ["bubble", r => (100 * r.json.bubble_ratio).toFixed(2) + " %", "idle time of all stages, of all their time"],
  ["peak, micro-batches", r => number(largest(r.json.peak_live) * r.picture.share),
    "most activations that a stage holds, in micro-batches on a whole stage"],
  ["memory", r => r.json.memory_bytes && inBytes(largest(r.json.memory_bytes.map(m => m.total))),
    "of the fullest stage: parameters, optimizer, activations, workspace"],
  ["sent", r => r.json.bytes_sent && inBytes(sum(r.json.bytes_sent)), "by all stages, of a step"],
  ["formula", r => r.json.formula && `${number(r.json.formula.makespan)}, ${r.json.formula.claim}`,
    "the published makespan, without communication"]
];

const time = result => result.json.step_ms ?? result.json.makespan;

function longer(result, first) {
  const part = 100 * (time(result) / time(first) - 1);
  return (part >= 0 ? "+" : "−") + Math.abs(part).toFixed(1) + " %";
}

function compare(results) {
  const table = document.getElementById("results"), head = element("tr", table);
  const used = COLUMNS.filter(([, value]) => results.some(r => !r.status && value(r)));
  table.replaceChildren(head);
  element("th", head, "schedule");
  for (const [name, , title] of used) element("th", head, name).title = title;
  element("th", head, "against the first").title = "how much longer a step takes";
  const first = results.find(r => !r.status);
  results.forEach(r => {
    const line = element("tr", table);
    element("th", line, r.name);
    if (r.status) {
      const cell = element("td", line, r.errors);
      cell.colSpan = used.length + 1;
      cell.className = "refusal";
      cell.title = r.errors;
      return;
    }
    for (const [, value] of used) element("td", line, value(r) || "–");
    element("td", line, r === first ? "" : longer(r, first));
  });
}

function stageTable(result, parent) {
  const { json, picture } = result, table = element("table", parent), head = element("tr", table);
  const memory = json.memory_bytes ? Object.keys(json.memory_bytes[0]) : [];
  const unit = picture.unit ? ", " + picture.unit : "";
  for (const name of ["stage", "ops", "idle" + unit, "span" + unit, "peak, micro-batches", ...memory, ...(json.bytes_sent ? ["sent"] : [])])
    element("th", head, name);
  json.ranks.forEach((ops, s) => {
    const line = element("tr", table);
    element("th", line, String(s));
    for (const text of [ops.length, number(json.idle[s]), number(json.span[s]),
      number(json.peak_live[s] * picture.share), ...memory.map(key => inBytes(json.memory_bytes[s][key])),
      ...(json.bytes_sent ? [inBytes(json.bytes_sent[s])] : [])])
      element("td", line, String(text));
  });
}
