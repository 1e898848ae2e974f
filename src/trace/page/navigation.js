/*
 * The pictures of a page, drawn and moved together:
 *   setKinds(kinds)                 the names and colours of bars, before that
 *   showPictures(pictures, boxes)   draws each in its box; the axis is that of the longest
 *   zoom(factor, at), fit()         move the axis
 *   colours()                       takes the colours of the page (drawing.css) again
 * The page has elements "tip" and "legend".
 */
let views = [], pending = false;
const tip = document.getElementById("tip");

function draw() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    for (const v of views) { v.drawGantt(); v.drawMemory(); }
  });
}

function show(a, b) {
  const least = whole * 1e-6, length = Math.min(Math.max(b - a, least), whole);
  from = Math.min(Math.max(a, 0), whole - length);
  to = from + length;
  draw();
}
const zoom = (factor, at) => show(at - (at - from) * factor, at + (to - at) * factor);
const fit = () => { only = -1; show(0, whole); };

function hideTip() {
  tip.style.visibility = "hidden";
  for (const v of views) for (const p of [v.gantt, v.memory]) p.cursor.style.visibility = "hidden";
}

function showTip(view, plot, e) {
  const box = plot.canvas.getBoundingClientRect();
  const at = view.hit(plot, e.clientX - box.left, e.clientY - box.top);
  if (!at) return hideTip();
  const unit = view.picture.unit ? " " + view.picture.unit : "", bar = at.bar;
  const held = x => `${number(x)} micro-batch${x === 1 ? "" : "es"} alive`;
  tip.textContent = bar
    ? `${bar[NAME]}  ${kinds[bar[KIND]][0]}, stage ${at.s}\n` +
      `${number(bar[START])} to ${number(bar[END])}${unit}, ` +
      `${number(bar[END] - bar[START])}${unit} long\n` +
      (bar[EXCHANGE] ? `${number(bar[EXCHANGE])}${unit} of it for exchanges in the stage\n` : "") + held(bar[LIVE] * view.picture.share)
    : `stage ${at.s} at ${number(at.t)}${unit}\n` + held(liveAt(view.picture, at.s, at.t));
  const away = awayAt(view.picture, at.s, at.t);
  if (away) tip.textContent += `\n${bytes(away)} of the stage away`;
  tip.style.visibility = "visible";
  tip.style.left = Math.max(4, Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 6)) + "px";
  tip.style.top = Math.max(4, Math.min(e.clientY + 16, innerHeight - tip.offsetHeight - 6)) + "px";
  for (const v of views) for (const p of [v.gantt, v.memory]) {
    p.cursor.style.left = v.x(at.t) + "px";
    p.cursor.style.visibility = "visible";
  }
}

function listen(view, plot) {
  const canvas = plot.canvas, held = new Map();
  let moved = 0, pair = 0;
  const place = e => e.clientX - canvas.getBoundingClientRect().left;
  const spread = () => { const [a, b] = [...held.values()]; return Math.abs(a - b) || 1; };
  canvas.addEventListener("wheel", e => {
    /* over the names and figures the page scrolls */
    if (place(e) < LEFT || place(e) > LEFT + view.width()) return;
    e.preventDefault();
    const lines = e.deltaMode === 1 ? 16 : 1, dx = e.shiftKey ? e.deltaY : e.deltaX;
    if (Math.abs(dx) > Math.abs(e.deltaY) || e.shiftKey) {
      const by = dx * lines / view.width() * (to - from);
      show(from + by, to + by);
    } else {
      zoom(Math.exp(Math.max(-120, Math.min(120, e.deltaY * lines)) * (e.ctrlKey ? .01 : .0022)),
        view.time(place(e)));
    }
  }, { passive: false });
  canvas.addEventListener("pointerdown", e => {
    held.set(e.pointerId, place(e));
    canvas.setPointerCapture(e.pointerId);
    moved = 0;
    if (held.size === 2) pair = spread();
  });
  canvas.addEventListener("pointermove", e => {
    if (held.has(e.pointerId)) {
      const dx = place(e) - held.get(e.pointerId);
      held.set(e.pointerId, place(e));
      moved += Math.abs(dx);
      if (held.size === 1 && moved > 3) {
        const by = -dx / view.width() * (to - from);
        canvas.classList.add("drag");
        hideTip();
        return show(from + by, to + by);
      } else if (held.size === 2) {
        const now = spread(), [a, b] = [...held.values()];
        zoom(pair / now, view.time((a + b) / 2));
        pair = now;
        return;
      }
    }
    showTip(view, plot, e);
  });
  const release = e => { held.delete(e.pointerId); canvas.classList.remove("drag"); };
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerup", e => {
    release(e);
    if (moved > 3 || plot !== view.gantt) return;
    const at = view.hit(plot, place(e), e.clientY - canvas.getBoundingClientRect().top);
    only = at && at.bar && at.bar[MB] !== only ? at.bar[MB] : -1;
    draw();
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("dblclick", fit);
  canvas.addEventListener("keydown", e => {
    const by = (to - from) / 8, middle = (from + to) / 2;
    if (e.key === "+" || e.key === "=") zoom(.7, middle);
    else if (e.key === "-") zoom(1 / .7, middle);
    else if (e.key === "0") fit();
    else if (e.key === "ArrowLeft") show(from - by, to - by);
    else if (e.key === "ArrowRight") show(from + by, to + by);
    else return;
    e.preventDefault();
  });
}

/* How the signs of a legend are painted, by their mark; [mark, kind, sample, text] is a key. */
const ground = c => { c.fillStyle = "#b9c2cd"; c.fillRect(0, 0, 32, 13); };
const SIGNS = {
  bar: (c, kind) => kinds[kind].slice(1, 5).forEach((shade, i) => { c.fillStyle = shade.fill; c.fillRect(8 * i, 0, 8, 13); }),
  idle: c => { c.fillStyle = theme.idle; c.fillRect(0, 0, 32, 13); },
  hatched: c => { ground(c); c.fillStyle = hatch(c); c.fillRect(0, 0, 32, 13); },
  frame: c => { c.strokeStyle = theme.ink; c.lineWidth = 2; c.strokeRect(1, 1, 30, 11); },
  exchange: c => { ground(c); c.fillStyle = EXCHANGED; c.fillRect(0, 0, 32, 3); },
  away: c => { c.fillStyle = theme.away; c.fillRect(0, 3, 32, 8); },
  message: c => { c.fillStyle = theme.way; c.fillRect(0, 5, 32, 2); }
};

/* Every key of the pictures once, signs before what stands in bars. */
function legend(pictures) {
  const box = document.getElementById("legend"), said = new Set(), marks = [...Object.keys(SIGNS), "number"];
  const keys = pictures.flatMap(p => p.legend).sort((a, b) => marks.indexOf(a[0]) - marks.indexOf(b[0]) || a[1] - b[1]);
  box.replaceChildren();
  for (const [mark, kind, sample, text] of keys) {
    if (said.has(mark + sample + text)) continue;
    said.add(mark + sample + text);
    const item = element("span", box);
    if (SIGNS[mark]) {
      const canvas = element("canvas", item);
      canvas.width = 32;
      canvas.height = 13;
      SIGNS[mark](canvas.getContext("2d"), kind);
    } else {
      element("b", item, sample + " ");
    }
    item.append(text);
  }
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ink", "soft", "line", "idle", "memory", "way", "away"])
    theme[name] = style.getPropertyValue("--" + name).trim();
  legend(views.map(v => v.picture));
  draw();
}

function showPictures(pictures, boxes) {
  whole = Math.max(...pictures.map(p => p.end)) || 1;
  [from, to, only] = [0, whole, -1];
  views = pictures.map((picture, i) => new View(picture, boxes[i]));
  mostAway = Math.max(1e-9, ...pictures.flatMap(p => (p.away || []).flat().map(step => step[1])));
  most = Math.max(...views.flatMap(v => v.peaks)) || 1;
  colours();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", colours);
