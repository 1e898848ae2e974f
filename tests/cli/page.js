/* Runs the script of a page of `show --format html` in a document that only counts what is drawn:
 * node page.js FILE. Hovers over every op, zooms, drags, and says what it found. */
"use strict";
const fs = require("fs"), vm = require("vm"), assert = require("assert");
const html = fs.readFileSync(process.argv[2], "utf8");
const json = html.match(/<script type="application\/json" id="data">([^<]*)<\/script>/)[1];
const script = html.match(/<script>\n([^]*?)<\/script>/)[1];
const drawn = { fillRect: 0, fillText: 0, strokeRect: 0, lineTo: 0, drawImage: 0 };

const context = new Proxy({}, {
  get: (o, name) => name in o ? o[name] : name === "measureText" ? t => ({ width: 6 * t.length })
    : name === "createImageData" ? (w, h) => ({ data: new Uint8ClampedArray(4 * w * h) })
    : (...args) => {
      for (const a of args) if (typeof a === "number") assert(Number.isFinite(a), name + " " + args);
      if (name in drawn) drawn[name]++;
    },
  set: (o, name, value) => { o[name] = value; return true; }
});
const byId = {};
class Element {
  constructor() {
    this.style = {};
    this.handlers = {};
    this.classList = { add() {}, remove() {}, toggle() {} };
    this.clientWidth = 1200;
    this.offsetWidth = this.offsetHeight = 100;
  }
  append(child) { if (child instanceof Element) child.parentNode = this; }
  addEventListener(name, f) { this.handlers[name] = f; }
  replaceChildren() {}
  getContext() { return context; }
  getBoundingClientRect() { return { left: 0, top: 0 }; }
  setAttribute() {}
  setPointerCapture() {}
}
let frames = [];
const flush = () => { const now = frames; frames = []; for (const f of now) f(); };
const document = {
  documentElement: new Element(),
  createElement: () => new Element(),
  getElementById: id => byId[id] ||= Object.assign(new Element(), id === "data" ? { textContent: json } : {})
};
const sandbox = vm.createContext({
  document, window: { devicePixelRatio: 2 }, innerWidth: 1200, innerHeight: 800, console,
  requestAnimationFrame: f => frames.push(f), addEventListener() {},
  matchMedia: () => ({ addEventListener() {} }),
  getComputedStyle: () => ({ getPropertyValue: () => "#123456" }),
  ResizeObserver: class { observe() {} }
});
vm.runInContext(script, sandbox);
flush();
const run = code => vm.runInContext(code, sandbox);
const data = JSON.parse(json);
assert(drawn.fillRect + drawn.drawImage > 0 && drawn.lineTo > 0);
const whole = drawn.fillRect;

let hovered = 0;
const tip = byId.tip;
run("views").forEach((view, v) => {
  const picture = data.pictures[v], canvas = view.gantt.canvas;
  picture.rows.forEach((row, s) => row.forEach((bar, k) => {
    if (!(bar[1] > bar[0])) return;
    if (k % Math.ceil(row.length / 50)) return;
    /* close enough that the bar is wider than a pixel */
    const width = bar[1] - bar[0], middle = (bar[0] + bar[1]) / 2;
    run(`show(${middle - 20 * width}, ${middle + 20 * width})`);
    const y = s * view.row + view.row * (bar[8] === 2 ? .75 : .25);
    canvas.handlers.pointermove({ clientX: view.x(middle), clientY: y, pointerId: 1 });
    assert(tip.textContent.startsWith(bar[2] + "  "), `${bar[2]}: ${tip.textContent}`);
    assert(tip.textContent.includes(`stage ${s}\n`), tip.textContent);
    const alive = +tip.textContent.match(/([0-9.]+) micro-batch/)[1];
    assert(Math.abs(alive - bar[6] * picture.share) < 1e-4 * alive + 1e-9, tip.textContent);
    hovered++;
  }));
  flush();

  /* a wheel zooms about the pointer, and only over the plot */
  run("fit()");
  let prevented = 0;
  const wheel = (x, dy) => canvas.handlers.wheel({ clientX: x, deltaX: 0, deltaY: dy, deltaMode: 0,
    preventDefault: () => prevented++ });
  wheel(10, -100);
  assert.strictEqual(prevented, 0);
  const at = view.time(500);
  wheel(500, -100);
  assert.strictEqual(prevented, 1);
  assert(run("to - from") < run("whole") && Math.abs(view.time(500) - at) < 1e-9 * run("whole"));
  /* a drag moves, and stops at the ends */
  const before = run("from");
  canvas.handlers.pointerdown({ clientX: 500, pointerId: 1 });
  canvas.handlers.pointermove({ clientX: 490, clientY: 5, pointerId: 1 });
  assert(run("from") > before);
  canvas.handlers.pointermove({ clientX: 9e5, clientY: 5, pointerId: 1 });
  assert.strictEqual(run("from"), 0);
  canvas.handlers.pointerup({ clientX: 9e5, clientY: 5, pointerId: 1 });
  /* two fingers pinch */
  const length = run("to - from");
  canvas.handlers.pointerdown({ clientX: 400, pointerId: 1 });
  canvas.handlers.pointerdown({ clientX: 500, pointerId: 2 });
  canvas.handlers.pointermove({ clientX: 600, clientY: 5, pointerId: 2 });
  assert(Math.abs(run("to - from") - length / 2) < 1e-6 * length);
  canvas.handlers.pointerup({ clientX: 600, clientY: 5, pointerId: 2 });
  canvas.handlers.pointerup({ clientX: 400, clientY: 5, pointerId: 1 });
  /* a click picks a micro-batch, a double click shows all again */
  run(`show(${picture.rows[0][0][0]}, ${picture.rows[0][0][1]})`);
  canvas.handlers.pointerdown({ clientX: 500, pointerId: 1 });
  canvas.handlers.pointerup({ clientX: 500, clientY: 5, pointerId: 1 });
  assert.strictEqual(run("only"), picture.rows[0][0][4]);
  canvas.handlers.dblclick();
  assert.strictEqual(run("only"), -1);
  assert.strictEqual(run("to - from"), run("whole"));
  for (const key of ["+", "-", "ArrowLeft", "ArrowRight", "0"])
    canvas.handlers.keydown({ key, preventDefault() {} });
  for (let i = 0; i < 400; i++) wheel(600, -500);
  assert(run("to - from") > 0);
  flush();
});
console.log(`${hovered} ops hovered over, ${whole} rectangles and ${drawn.drawImage} strips drawn`);
