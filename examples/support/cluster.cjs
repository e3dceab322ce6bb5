// Runs a program in WORKERS processes that share its port: cluster.cjs PROGRAM. SIGHUP replaces the workers by new ones, and an
// old one ends when its requests are answered.
const cluster = require("node:cluster");
const { pathToFileURL } = require("node:url");

if (cluster.isPrimary) {
  cluster.setupPrimary({ exec: __filename, args: process.argv.slice(2) });
  const workers = () => Object.values(cluster.workers);
  const start = () => {
    for (let number = 0; number < Number(process.env.WORKERS ?? 2); number++) cluster.fork();
  };
  start();
  process.on("SIGHUP", () => {
    const old = workers();
    const count = old.length;
    let listening = 0;
    const replace = () => {
      listening += 1;
      if (listening < count) return;
      cluster.off("listening", replace);
      for (const worker of old) worker.disconnect();
    };
    cluster.on("listening", replace);
    start();
  });
  process.on("SIGTERM", () => process.exit());
} else {
  import(pathToFileURL(process.argv[2]).href);
}
