// Makes workers, has each ask, and terminates them while their work is pending: workers.cjs URL ROUNDS
"use strict";

const { once } = require("node:events");
const { isMainThread, parentPort, Worker, workerData } = require("node:worker_threads");

const { Limiter } = require("polylimit");

if (isMainThread) {
  main(process.argv[2], Number(process.argv[3]));
} else {
  const limiter = new Limiter(workerData, { policies: { api: "100/minute" }, deadline: "60s" });
  const memory = new Limiter("memory:", { policies: { api: "1/hour" } });
  memory.checkSync("k");
  memory.acquire("k", { timeoutMs: 86_400_000 });
  const pending = Array.from({ length: 50 }, (_, user) => limiter.check(`user:${user}`));
  parentPort.postMessage(pending.length);
}

async function main(url, rounds) {
  for (let round = 0; round < rounds; round++) {
    const workers = Array.from({ length: 4 }, () => new Worker(__filename, { workerData: url }));
    await Promise.all(workers.map((worker) => once(worker, "message")));
    await Promise.all(workers.map((worker) => worker.terminate()));
  }
  // This thread's own addon still works.
  const { allowed } = new Limiter("memory:", { policies: { api: "1/s" } }).checkSync("k");
  console.log(`allowed ${allowed}`);
}
