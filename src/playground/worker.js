/* The worker: runs one command at a time, see playground.h. Errors of the command are answers; an exception
 * leaves the module as it may be, so that the page starts another worker. */
/* The module is in this text; it would still ask for itself by its data: address first. */
self.fetch = undefined;

/* What a command writes to the file "progress" goes to the page line by line. */
const loading = Engine().then(module => {
  let line = [];
  module.FS.createDevice("/", "progress", undefined, byte => {
    if (byte !== 10) return line.push(byte);
    postMessage({ progress: new TextDecoder().decode(new Uint8Array(line)) });
    line = [];
  });
  return module;
});

onmessage = async ({ data: { words, files } }) => {
  const module = await loading;
  const text = path => module.FS.readFile(path, { encoding: "utf8" });
  try {
    for (const [path, content] of Object.entries(files)) {
      if (path.includes("/")) module.FS.mkdirTree(path.slice(0, path.lastIndexOf("/")));
      module.FS.writeFile(path, content);
    }
    module.ccall("sp_playground", null, ["string"], [words.join("\n")]);
    postMessage({ status: module._sp_playground_status(), output: text("output"), errors: text("errors").trim() });
  } catch (e) {
    postMessage({ status: 1, output: "", errors: "starpipe: the page's engine stopped: " + e, broken: true });
  }
};
