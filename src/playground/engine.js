/*
 * Asks a worker. Questions go one after the other; an answer is {status, output, errors}, as a terminal would
 * show it. The worker's text is in the page, element "worker".
 */
const KEPT_ANSWERS = 200;

class Runner {
  worker = null;
  waiting = [];
  answers = new Map();

  start() {
    const code = document.getElementById("worker").textContent;
    const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
    this.worker = new Worker(url);
    URL.revokeObjectURL(url);
    this.worker.onmessage = ({ data }) => {
      if (data.progress !== undefined) return this.waiting[0].progress(data.progress);
      const { key, done } = this.waiting.shift();
      if (data.broken) this.stop();
      else this.answers.set(key, data);
      if (this.answers.size > KEPT_ANSWERS) this.answers.delete(this.answers.keys().next().value);
      done(data);
      if (this.waiting.length) this.send();
    };
  }
  send() {
    if (!this.worker) this.start();
    this.worker.postMessage(this.waiting[0].question);
  }
  stop() {
    if (this.worker) this.worker.terminate();
    this.worker = null;
  }
  /* Gives up what is asked: a search of the question before the last may take long. Nobody waits for its answer. */
  giveUp() {
    this.stop();
    this.waiting = [];
  }
  /* The same if a question is being answered. */
  giveUpBusy() { if (this.waiting.length) this.giveUp(); }
  /* `files`: the text of each that the command reads, by its path. `progress` gets lines of the file "progress". */
  ask(words, files = {}, progress = () => {}) {
    const key = JSON.stringify([words, files]);
    if (this.answers.has(key)) return Promise.resolve(this.answers.get(key));
    return new Promise(done => {
      this.waiting.push({ key, done, progress, question: { words, files } });
      if (this.waiting.length === 1) this.send();
    });
  }
}

/* A search does not hold up what draws. */
const planning = new Runner(), drawing = new Runner();

/* `order`: text of the file "order". */
const ask = (words, order) => drawing.ask(words, order ? { order } : {});
