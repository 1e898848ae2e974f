/* The cards of the page, one a row of the state: which schedule, its picture, or why there is none. */
const ROW_FIELDS = [
  ["options", "options", "key=value, ... as `starpipe list` names them"],
  ["chunks", "v", "chunks of layers a stage"],
  ["slices", "n", "slices of a sequence"]
];

class Card {
  constructor(row, parent) {
    this.row = row;
    this.box = element("section", parent);
    this.box.className = "card";
    const head = element("div", this.box);
    head.className = "head";
    this.schedule(head);
    this.fields = ROW_FIELDS.map(field => this.field(head, ...field));
    if (row.schedule !== "csv") this.button(head, "edit", "this order as a text to change", () => this.edit());
    this.button(head, "remove", "take this row away", () => {
      state.rows = state.rows.filter(r => r !== row);
      rebuild();
    });
    if (row.schedule === "csv") this.editor = new Editor(row, this.box);
    this.verdict = element("p", this.box);
    this.facts = element("p", this.box);
    this.facts.className = "facts";
    this.picture = element("div", this.box);
    this.details = new Details(row, this.box);
    this.name();
  }
  schedule(parent) {
    const select = element("select", parent);
    select.setAttribute("aria-label", "schedule");
    for (const family of new Set(choices.schedules.map(s => s.family))) {
      const group = element("optgroup", select);
      group.label = family;
      for (const s of choices.schedules.filter(s => s.family === family)) {
        const option = element("option", group, s.name);
        option.title = s.summary;
      }
    }
    const own = element("option", element("optgroup", select), "an order of your own");
    own.parentNode.label = "typed";
    own.value = "csv";
    if (this.row.schedule !== "csv" && !this.definition()) element("option", select, this.row.schedule);
    select.value = this.row.schedule;
    select.onchange = () => {
      Object.assign(this.row, newRow(select.value), { order: this.row.order || FIRST_ORDER });
      rebuild();
    };
  }
  field(parent, key, name, title) {
    const label = element("label", parent, name + " "), input = element("input", label);
    input.className = key;
    input.title = title;
    input.value = this.row[key];
    input.oninput = () => {
      this.row[key] = word(input.value);
      this.name();
      changed();
    };
    return { key, label, input };
  }
  button(parent, text, title, act) {
    const button = element("button", parent, text);
    button.title = title;
    button.className = text;
    button.onclick = act;
  }
  definition() { return choices.schedules.find(s => s.name === this.row.schedule); }
  /* What the fields of this schedule may hold. */
  name() {
    const def = this.definition();
    const options = def ? [def.options && def.options.replace(/(,|$)/g, "=..$1"), def.flags] : [];
    const known = options.filter(Boolean).join(",");
    for (const { key, label, input } of this.fields) {
      label.hidden = !def || (key === "options" && !known && !this.row.options);
      input.placeholder = key === "options" ? known : key === "chunks" ? def?.default_chunks || "" : "1";
    }
  }
  /* The order becomes the text of a new row below, if it can be written. */
  async edit() {
    const { status, output, errors } = await ask([...wordsOf(this.row), "--format", "csv"], this.row.order);
    if (status) return this.refuse(errors);
    const copy = { ...newRow("csv"), order: output };
    state.rows.splice(state.rows.indexOf(this.row) + 1, 0, copy);
    rebuild();
  }
  refuse(line) {
    this.verdict.textContent = line;
    this.verdict.className = "refusal";
    if (this.editor) this.editor.mark(line);
  }
  /* Shows an answer of the engine; returns the picture, null where it refused. */
  show(result) {
    this.box.classList.remove("busy");
    this.picture.replaceChildren();
    this.facts.textContent = this.verdict.textContent = "";
    this.details.show(result);
    if (result.status) {
      this.refuse(result.errors);
      return null;
    }
    this.verdict.className = "note";
    this.verdict.textContent = result.errors || (this.editor ? "The verifier accepts this order." : "");
    if (this.editor) this.editor.mark("");
    const fact = name => result.facts.find(f => f[0] === name)[1];
    const formula = result.json.formula ? "published makespan: " + fact("published makespan") : "";
    this.facts.textContent = [fact("schedule").replace(/^[^:]*: /, ""), fact("source"), fact("costs"), formula]
      .filter(Boolean).join(" · ");
    return result.picture;
  }
}

/* Under a picture: the command, figures of the stages, and what the order is lowered to. */
class Details {
  constructor(row, parent) {
    this.row = row;
    this.box = element("details", parent);
    element("summary", this.box, "command, stages, actions");
    this.body = element("div", this.box);
    this.box.ontoggle = () => this.fill();
  }
  show(result) {
    this.result = result;
    this.fill();
  }
  async fill() {
    const result = this.result;
    if (!this.box.open || !result) return;
    this.body.replaceChildren();
    element("pre", this.body, typed(wordsOf(this.row))).className = "command";
    if (result.status) return;
    stageTable(result, this.body);
    const answer = await ask([...wordsOf(this.row), "--actions", "--format", "json"], this.row.order);
    if (this.result === result && !answer.status) this.actions(JSON.parse(answer.output).actions);
  }
  actions(stages) {
    const label = element("label", this.body, "actions of stage "), pick = element("select", label);
    const list = element("pre", this.body);
    list.className = "actions";
    stages.forEach((_, s) => element("option", pick, String(s)));
    pick.onchange = () => {
      list.textContent = stages[pick.value].map(([kind, what, whom, bytes]) =>
        `${kind} ${what}` + (whom === null ? "" : ` ${PREPOSITIONS[kind] ?? "with"} ${whom}`) +
        (bytes === null ? "" : `, ${inBytes(bytes)}`)).join("\n");
    };
    pick.onchange();
  }
}
const PREPOSITIONS = { SEND: "to", RECV: "from" };
const FIRST_ORDER = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
