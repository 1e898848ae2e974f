/*
 * The editor of an order: a line a stage, a cell an op, as `show --format csv` writes it. What the verifier refuses
 * is marked in the text.
 */

/* The cells of a line: [first character, one past the last, ops in it]. */
function cellsOf(line) {
  const cells = [];
  let at = 0;
  for (const cell of line.split(",")) {
    const text = cell.trim();
    cells.push([at, at + cell.length, !text ? 0 : text.startsWith("(") ? 2 : 1]);
    at += cell.length + 1;
  }
  return cells;
}

/* Where a refusal points to, as first character and one past the last; null: nowhere. */
function placeOf(refusal, text) {
  const of = pattern => { const found = refusal.match(pattern); return found ? +found[1] : null; };
  const lines = text.split("\n"), stage = of(/\bstage (\d+)/), position = of(/\bposition (\d+)/);
  const line = of(/\bline (\d+)/) ?? (stage === null ? null : stage + 1);
  if (line === null || line > lines.length) return null;
  const start = lines.slice(0, line - 1).reduce((n, l) => n + l.length + 1, 0), cells = cellsOf(lines[line - 1]);
  let cell = cells[(of(/\bcell (\d+)/) ?? 0) - 1];
  if (position !== null) {
    let before = 0;
    cell = cells.find(c => (before += c[2]) > position);
  }
  return { line, from: start + (cell ? cell[0] : 0), to: start + (cell ? cell[1] : lines[line - 1].length) };
}

class Editor {
  constructor(row, parent) {
    this.row = row;
    this.box = element("div", parent);
    this.box.className = "editor";
    this.lines = element("pre", this.box);
    this.lines.className = "lines";
    const paper = element("div", this.box);
    paper.className = "paper";
    this.marks = element("pre", paper);
    this.text = element("textarea", paper);
    this.text.spellcheck = false;
    this.text.wrap = "off";
    this.text.setAttribute("aria-label", "order: a line a stage, ops between commas");
    this.text.value = row.order;
    this.text.oninput = () => {
      row.order = this.text.value;
      this.mark("");
      changed();
    };
    this.text.onscroll = () => {
      this.marks.scrollLeft = this.text.scrollLeft;
      this.lines.scrollTop = this.marks.scrollTop = this.text.scrollTop;
    };
    this.mark("");
  }
  /* Shows the text with what a refusal means; "": nothing. */
  mark(refusal) {
    const text = this.row.order, place = refusal ? placeOf(refusal, text) : null;
    const count = Math.max(text.replace(/\n$/, "").split("\n").length, 2);
    this.text.rows = Math.min(count + 1, 24);
    this.lines.replaceChildren();
    for (let i = 1; i <= count; i++) {
      const number = element("span", this.lines, String(i) + "\n");
      if (place && place.line === i) number.className = "bad";
    }
    this.marks.replaceChildren();
    this.marks.append(text.slice(0, place ? place.from : undefined));
    if (place) {
      element("mark", this.marks, text.slice(place.from, place.to));
      this.marks.append(text.slice(place.to));
    }
    this.marks.append("\n");
  }
}
