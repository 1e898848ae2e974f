/*
 * Asks the worker. Questions go one after the other; an answer is {status, output, errors}, as a terminal would
 * show it. The worker's text is in the page, element "worker".
 */
const engine = { worker: null, waiting: [], answers: new Map() };
const KEPT_ANSWERS = 200;

function startWorker() {
  const code = document.getElementById("worker").textContent;
  const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  engine.worker = new Worker(url);
  URL.revokeObjectURL(url);
  engine.worker.onmessage = ({ data }) => {
    const { key, done } = engine.waiting.shift();
    if (data.broken) stopWorker();
    else engine.answers.set(key, data);
    if (engine.answers.size > KEPT_ANSWERS) engine.answers.delete(engine.answers.keys().next().value);
    done(data);
    if (engine.waiting.length) send();
  };
}

function send() {
  if (!engine.worker) startWorker();
  engine.worker.postMessage(engine.waiting[0].question);
}

function stopWorker() {
  if (engine.worker) engine.worker.terminate();
  engine.worker = null;
}

/* Gives up what is asked: a search of the question before the last may take long. Nobody waits for its answer. */
function giveUp() {
  stopWorker();
  engine.waiting = [];
}

/* `order`: text of the file "order" that the command reads. */
function ask(words, order) {
  const key = JSON.stringify([words, order]);
  if (engine.answers.has(key)) return Promise.resolve(engine.answers.get(key));
  return new Promise(done => {
    engine.waiting.push({ key, done, question: { words, order } });
    if (engine.waiting.length === 1) send();
  });
}
