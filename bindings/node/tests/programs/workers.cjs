// Starts workers that make decisions, and terminates them while operations are pending: workers.cjs URL ROUNDS [held]
// With "held" it prints the resources of the process before and after.
"use strict";

const { once } = require("node:events");
const { readdirSync } = require("node:fs");
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
  limiter.ready(60_000);
  parentPort.postMessage(pending.length);
}

function held() {
  return { threads: readdirSync("/proc/self/task").length, files: readdirSync("/proc/self/fd").length };
}

async function main(url, rounds) {
  // Node opens resources with the first worker, and keeps them.
  await once(new Worker("", { eval: true }), "exit");
  const before = held();
  for (let count = 0; count < rounds; count++) {
    await round(url);
  }
  const end = Date.now() + 20_000;
  let after = held();
  while ((after.threads > before.threads || after.files > before.files) && Date.now() < end) {
    await new Promise((resolve) => setTimeout(resolve, 5));
    after = held();
  }
  // The addon still works on the main thread.
  const { allowed } = new Limiter("memory:", { policies: { api: "1/s" } }).checkSync("k");
  console.log(`allowed ${allowed}`);
  if (process.argv[4] === "held") console.log(JSON.stringify({ before, after }));
}

async function round(url) {
  const workers = Array.from({ length: 4 }, () => new Worker(__filename, { workerData: url }));
  await Promise.all(workers.map((worker) => once(worker, "message")));
  await Promise.all(workers.map((worker) => worker.terminate()));
}
