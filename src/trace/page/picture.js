/*
 * A picture of a pipeline as a Gantt chart and the memory of its stages. A picture is what sp_gantt_json writes
 * (gantt.h). All pictures of a page have one time axis, from `from` to `to` of 0 .. `whole`, and one scale of memory;
 * `only` is the micro-batch that stands out, -1: none. `memoryRow` is the height of a stage's memory with few stages.
 */
const START = 0, END = 1, NAME = 2, KIND = 3, MB = 4, CHUNK = 5, LIVE = 6, AFTER = 7, LANE = 8,
      JOINED = 9, EXCHANGE = 10;
const EXCHANGED = "#7c1d4f"; /* along the top of a bar: what of it goes to exchanges in the stage */
const LEFT = 74, RIGHT = 138, AXIS = 26;
/* [name, shades of micro-batches] by KIND, as the pictures' data have them (gantt.h) */
let kinds = [];
function setKinds(all) {
  kinds = all.map(([name, ...shades]) => [name,
    ...shades.map(([r, g, b, ink]) => ({ rgb: [r, g, b], fill: `rgb(${r} ${g} ${b})`, ink }))]);
}
let whole = 1, from = 0, to = 1, only = -1, most = 1, mostAway = 1, theme = {}, memoryRow = 54;

const number = x => String(+x.toPrecision(6));
const bytes = mib => mib < 9999 ? mib.toFixed(2) + " MiB" : (mib / 1024).toFixed(1) + " GiB";
const shadeOf = bar => {
  const [, ...shades] = kinds[bar[KIND]];
  return shades[bar[MB] < 0 ? 0 : bar[MB] % shades.length];
};

/* First bar of a row that ends after t. Bars of a stage end in the order of their starts. */
function firstAfter(row, t) {
  let lo = 0, hi = row.length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (row[mid][END] > t) hi = mid; else lo = mid + 1;
  }
  return lo > 0 && row[lo - 1][LANE] === 1 ? lo - 1 : lo;
}

/* Activations alive at t, in micro-batches on a whole stage. */
function liveAt(picture, stage, t) {
  const row = picture.rows[stage], k = firstAfter(row, t);
  if (k < row.length && row[k][START] <= t) return row[k][LIVE] * picture.share;
  return k > 0 ? row[k - 1][AFTER] * picture.share : 0;
}

/* MiB of a stage that are not in its memory at t. */
function awayAt(picture, stage, t) {
  let now = 0;
  for (const [at, mib] of picture.away ? picture.away[stage] : []) if (at <= t) now = mib;
  return now;
}

function peakOf(picture, stage) {
  let peak = 0;
  for (const bar of picture.rows[stage]) peak = Math.max(peak, bar[LIVE]);
  return peak * picture.share;
}

/* A step of 1, 2 or 5 times a power of ten that cuts `length` in at most `most` pieces. */
function tick(length, most) {
  const power = 10 ** Math.floor(Math.log10(length / most));
  for (const lead of [1, 2, 5]) if (length / (lead * power) <= most) return lead * power;
  return 10 * power;
}

const element = (tag, parent, text) => {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  parent.append(e);
  return e;
};

/* Sizes a canvas to its box and returns its context in CSS pixels, cleared. */
function surface(canvas, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 16000 / height);
  const width = canvas.parentNode.clientWidth;
  const w = Math.round(width * ratio), h = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.height = height + "px";
  }
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, width, height);
  c.font = "12px system-ui, Helvetica, Arial, sans-serif";
  return c;
}

function hatch(c) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const t = tile.getContext("2d");
  t.strokeStyle = "rgba(0,0,0,.38)";
  t.lineWidth = 1.3;
  t.beginPath();
  for (const x of [-6, 0, 6]) { t.moveTo(x - 1, -1); t.lineTo(x + 7, 7); }
  t.stroke();
  return c.createPattern(tile, "repeat");
}

class View {
  constructor(picture, parent) {
    this.picture = picture;
    /* what stands in bars: "3.1s2", of which a picture may lack parts */
    const [, , sample] = picture.legend.find(([mark]) => mark === "number");
    this.shown = { mb: /^\d/.test(sample), chunk: sample.includes("."), slice: sample.includes("s") };
    if (picture.subtitle) element("p", parent, picture.subtitle);
    this.gantt = this.plot(parent, "gantt");
    element("h3", parent, "Activations alive, in micro-batches on a whole stage");
    this.memory = this.plot(parent, "memory");
    const n = picture.stages;
    /* of a row: its bars, under them what is away, and from one row to the next */
    const bars = Math.min(30, Math.max(Math.min(15, 12000 / n), 900 / n));
    this.high = bars > 8 ? bars - 3 : bars * .85;
    this.below = picture.away ? Math.min(14, bars / 2) : 0;
    this.row = bars + (this.below && this.below + 3);
    this.line = Math.min(memoryRow, Math.max(Math.min(18, 12000 / n), 700 / n));
    this.peaks = picture.rows.map((_, s) => peakOf(picture, s));
    listen(this, this.gantt);
    listen(this, this.memory);
  }
  plot(parent, name) {
    const scroll = element("div", parent), box = element("div", scroll), canvas = element("canvas", box);
    scroll.className = "scroll";
    box.className = "plot";
    canvas.className = name;
    canvas.tabIndex = 0;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", name + " of " + this.picture.title);
    const cursor = element("div", box);
    cursor.className = "cursor";
    return { canvas, cursor, box };
  }
  width() { return Math.max(50, this.gantt.box.clientWidth - LEFT - RIGHT); }
  x(t) { return LEFT + (t - from) / (to - from) * this.width(); }
  time(x) { return from + (x - LEFT) / this.width() * (to - from); }

  axis(c, y) {
    const step = tick(to - from, Math.max(2, this.width() / 80));
    c.fillStyle = theme.soft;
    c.textAlign = "center";
    for (let i = Math.ceil(from / step); i * step <= to * (1 + 1e-9); i++) {
      c.fillRect(this.x(i * step), y, 1, 5);
      c.fillText(number(i * step), this.x(i * step), y + 18);
    }
    c.textAlign = "left";
    c.fillText(this.picture.unit, LEFT + this.width() + 14, y + 18);
  }

  /* Names at the left, as many as there is room for. */
  names(c, pitch, high) {
    const every = Math.ceil(13 / pitch);
    c.fillStyle = theme.ink;
    c.textAlign = "right";
    for (let s = 0; s < this.picture.stages; s += every)
      c.fillText("stage " + s, LEFT - 8, s * pitch + high / 2 + 4);
    return every;
  }

  bars(c, s) {
    const row = this.picture.rows[s], high = this.high;
    const scale = this.width() / (to - from);
    const first = firstAfter(row, from), last = firstAfter(row, to);
    if (last - first > this.width() / 3) return this.dense(c, s, row, first, last, high);
    for (let k = first; k < row.length && row[k][START] < to; k++) {
      const bar = row[k], w = (bar[END] - bar[START]) * scale;
      const x0 = Math.max(this.x(bar[START]), LEFT), x1 = Math.min(this.x(bar[END]), LEFT + this.width());
      const shade = shadeOf(bar), gap = w > 5 ? .7 : 0;
      const h = bar[LANE] ? high / 2 : high, y = s * this.row + 1 + (bar[LANE] === 2 ? h : 0);
      c.globalAlpha = only < 0 || bar[MB] === only ? 1 : .16;
      c.fillStyle = shade.fill;
      c.fillRect(x0, y, Math.max(x1 - x0 - gap, .6), h);
      if (bar[CHUNK] % 2 && w >= 3) {
        c.fillStyle = this.hatch;
        c.fillRect(x0, y, Math.max(x1 - x0 - gap, .6), h);
      }
      if (bar[EXCHANGE] * scale >= .4) {
        c.fillStyle = EXCHANGED;
        c.fillRect(x0, y, Math.max(Math.min(this.x(bar[START] + bar[EXCHANGE]), x1 - gap) - x0, 0), h > 12 ? 3 : h / 4);
      }
      if (w >= 9 && h >= 9) this.label(c, bar, shade, (x0 + x1) / 2, y + h / 2 + 4, x1 - x0 - 3);
    }
    c.globalAlpha = 1;
    this.frames(c, s, row, high, scale);
    this.messages(c, s, high);
  }
  /* What is on its way to a stage, as lines under its bars. */
  messages(c, s, high) {
    const all = this.picture.messages ? this.picture.messages[s] : [];
    c.fillStyle = theme.way;
    for (const [sent, arrived] of all) {
      if (arrived < from || sent > to) continue;
      const x0 = Math.max(this.x(sent), LEFT), x1 = Math.min(this.x(arrived), LEFT + this.width());
      c.fillRect(x0, s * this.row + 1 + high, Math.max(x1 - x0, .6), 2);
    }
  }
  /* What has left the memory of a stage and is not back, as a curve under its bars. */
  away(c, s) {
    const steps = this.picture.away[s], base = (s + 1) * this.row - 3;
    c.fillStyle = theme.away;
    for (let k = 0; k + 1 < steps.length; k++) {
      const x0 = Math.max(this.x(steps[k][0]), LEFT), x1 = Math.min(this.x(steps[k + 1][0]), LEFT + this.width());
      if (x1 <= LEFT || x0 >= LEFT + this.width() || !steps[k][1]) continue;
      const h = this.below * steps[k][1] / mostAway;
      c.fillRect(Math.floor(x0), base - h, Math.ceil(x1) - Math.floor(x0), h);
    }
    c.fillStyle = theme.line;
    c.fillRect(LEFT, base, this.width(), .7);
  }
  /* Bars of a pixel or so: every pixel is the mean of the colours in it. */
  dense(c, s, row, first, last, high) {
    const n = Math.floor(this.width()), scale = n / (to - from), sum = new Float32Array(4 * n);
    for (let k = first; k < row.length && k <= last; k++) {
      const bar = row[k], [r, g, b] = shadeOf(bar).rgb;
      const a = Math.max(0, (bar[START] - from) * scale), z = Math.min(n, (bar[END] - from) * scale);
      const weight = only < 0 || bar[MB] === only ? 1 : .16;
      for (let x = Math.floor(a); x < z; x++) {
        const part = (Math.min(z, x + 1) - Math.max(a, x)) * weight;
        sum[4 * x] += r * part;
        sum[4 * x + 1] += g * part;
        sum[4 * x + 2] += b * part;
        sum[4 * x + 3] += part;
      }
    }
    this.strip = this.strip || document.createElement("canvas");
    this.strip.width = n;
    this.strip.height = 1;
    const t = this.strip.getContext("2d"), image = t.createImageData(n, 1);
    for (let x = 0; x < n; x++) {
      for (let i = 0; i < 3; i++) image.data[4 * x + i] = sum[4 * x + i] / (sum[4 * x + 3] || 1);
      image.data[4 * x + 3] = 255 * Math.min(1, sum[4 * x + 3]);
    }
    t.putImageData(image, 0, 0);
    c.imageSmoothingEnabled = false;
    c.drawImage(this.strip, 0, 0, n, 1, LEFT, s * this.row + 1, this.width(), high);
  }
  /* As much of the label as fits (sp_gantt_label). */
  label(c, bar, shade, x, y, room) {
    const [, letters, mb, chunk = "0", slice] = bar[NAME].match(/^([A-Z]*)(\d+)(?:\.(\d+))?(?:s(\d+))?/) || [];
    if (mb === undefined || letters.includes("U")) return;
    const parts = [this.shown.mb ? mb : "", this.shown.chunk && !letters.includes("L") ? "." + chunk : "",
      this.shown.slice && slice !== undefined ? "s" + slice : ""].filter(Boolean);
    while (parts.length && c.measureText(parts.join("")).width > room) {
      const last = parts.pop();
      if (!parts.length && last[0] === "s") parts.push(last.slice(1)); /* of "s10" the 10 says as much */
    }
    if (!parts.length) return;
    c.fillStyle = shade.ink;
    c.textAlign = "center";
    c.fillText(parts.join(""), x, y);
  }
  /* Around two bars that are one unit. */
  frames(c, s, row, high, scale) {
    c.strokeStyle = theme.ink;
    c.lineWidth = 1.3;
    for (let k = firstAfter(row, from); k + 1 < row.length && row[k][START] < to; k++) {
      const width = (row[k + 1][END] - row[k][START]) * scale;
      if (!row[k][JOINED] || width < 8) continue;
      const x0 = Math.max(this.x(row[k][START]), LEFT);
      c.strokeRect(x0 + .6, s * this.row + 1.6,
        Math.min(this.x(row[k + 1][END]), LEFT + this.width()) - x0 - 1.6, high - 1.2);
    }
  }

  drawGantt() {
    /* the whole step on the screen cannot be dragged: a finger scrolls the box, or the page */
    for (const { box } of [this.gantt, this.memory]) box.classList.toggle("fits", to - from >= whole);
    const p = this.picture, c = surface(this.gantt.canvas, p.stages * this.row + AXIS);
    this.hatch = hatch(c);
    const every = this.names(c, this.row, this.high);
    c.textAlign = "left";
    for (let s = 0; s < p.stages; s += every) {
      const idle = p.idle[s] >= 0 ? p.idle[s].toFixed(1) + " % idle  " : "";
      c.fillText(idle + p.note[s], LEFT + this.width() + 10, s * this.row + this.high / 2 + 4, RIGHT - 12);
      if (this.below)
        c.fillText(bytes(Math.max(0, ...p.away[s].map(step => step[1]))) + " away", LEFT + this.width() + 10,
          (s + 1) * this.row - 4, RIGHT - 12);
    }
    c.fillStyle = theme.idle;
    for (let s = 0; s < p.stages; s++) {
      c.fillStyle = theme.idle;
      c.fillRect(LEFT, s * this.row + 1, this.width(), this.high);
      this.bars(c, s);
      if (this.below) this.away(c, s);
    }
    this.axis(c, p.stages * this.row);
  }

  /* The curve of one stage: it rises when a forward starts and falls when its memory is released. */
  curve(c, s) {
    const row = this.picture.rows[s], base = (s + 1) * this.line - 2;
    const unit = (this.line - 5) / most * this.picture.share, right = LEFT + this.width();
    let k = firstAfter(row, from), level = k > 0 ? row[k - 1][AFTER] : 0, x = LEFT, high = level;
    c.beginPath();
    c.moveTo(LEFT, base);
    c.lineTo(LEFT, base - level * unit);
    /* within a pixel the highest counts */
    const step = (t, next) => {
      const at = Math.min(Math.max(this.x(t), LEFT), right);
      if (at - x < .5) {
        high = Math.max(high, next);
      } else {
        c.lineTo(x, base - high * unit);
        c.lineTo(x, base - level * unit);
        c.lineTo(at, base - level * unit);
        c.lineTo(at, base - next * unit);
        x = at;
        high = next;
      }
      level = next;
    };
    for (; k < row.length && row[k][START] < to; k++) {
      if (row[k][LIVE] !== level) step(row[k][START], row[k][LIVE]);
      /* what is released just when more is taken makes no dip */
      const next = row[k + 1], after = next && next[START] <= row[k][END] ? next[LIVE] : row[k][AFTER];
      if (after !== level && row[k][END] < to) step(row[k][END], after);
    }
    c.lineTo(right, base - level * unit);
    c.lineTo(right, base);
    c.closePath();
    c.globalAlpha = .3;
    c.fillStyle = theme.memory;
    c.fill();
    c.globalAlpha = 1;
    c.strokeStyle = theme.memory;
    c.lineWidth = 1;
    c.stroke();
  }
  drawMemory() {
    const p = this.picture, c = surface(this.memory.canvas, p.stages * this.line + AXIS);
    const every = this.names(c, this.line, this.line);
    c.textAlign = "left";
    for (let s = 0; s < p.stages; s += every)
      c.fillText("peak " + Number(this.peaks[s].toPrecision(4)), LEFT + this.width() + 10,
        s * this.line + this.line / 2 + 4);
    for (let s = 0; s < p.stages; s++) {
      c.fillStyle = theme.line;
      c.fillRect(LEFT, (s + 1) * this.line - 2, this.width(), .7);
      this.curve(c, s);
    }
    this.axis(c, p.stages * this.line);
  }

  /* Stage and bar under a point of one of the canvases. */
  hit(plot, x, y) {
    const pitch = plot === this.gantt ? this.row : this.line, s = Math.floor(y / pitch);
    if (x < LEFT || x > LEFT + this.width() || s < 0 || s >= this.picture.stages) return null;
    const t = this.time(x), row = this.picture.rows[s];
    let k = firstAfter(row, t), bar = k < row.length && row[k][START] <= t ? row[k] : null;
    if (bar && bar[LANE] === 1 && (y - s * pitch > this.high / 2 || bar[END] <= t) && row[k + 1][START] <= t)
      bar = row[k + 1];
    return { s, t, bar: plot === this.gantt ? bar : null };
  }
}
