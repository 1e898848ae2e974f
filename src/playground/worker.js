/* The worker: runs one command at a time, see playground.h. Errors of the command are answers; an exception
 * leaves the module as it may be, so that the page starts another worker. */
/* The module is in this text; it would still ask for itself by its data: address first. */
self.fetch = undefined;
const loading = Engine();

onmessage = async ({ data: { words, order } }) => {
  const module = await loading;
  const text = path => module.FS.readFile(path, { encoding: "utf8" });
  try {
    if (order !== undefined) module.FS.writeFile("order", order);
    const status = module.ccall("sp_playground", "number", ["string"], [words.join("\n")]);
    postMessage({ status, output: text("output"), errors: text("errors").trim() });
  } catch (e) {
    postMessage({ status: 1, output: "", errors: "starpipe: the page's engine stopped: " + e, broken: true });
  }
};
