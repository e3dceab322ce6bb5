// Creates, uses and closes many limiters, and prints the resources of the process afterwards: closes.cjs URL COUNT
// The garbage collector is not run, and every limiter stays referenced when KEEP is "keep".
"use strict";

const { readdirSync, readFileSync } = require("node:fs");

const { Limiter } = require("polylimit");

const [url, count, keep] = process.argv.slice(2);
const options = url.startsWith("redis") ? { deadline: "30s" } : {};
const kept = [];

const held = () => {
  const status = readFileSync("/proc/self/status", "utf8");
  const resident = Number(/^VmRSS:\s+(\d+) kB/m.exec(status)[1]);
  return { threads: readdirSync("/proc/self/task").length, files: readdirSync("/proc/self/fd").length, resident };
};

async function rounds(count) {
  for (let number = 0; number < count; number++) {
    const limiter = new Limiter(url, { policies: { api: "5/minute" }, ...options });
    const { source } = await limiter.check(`user:${number}`);
    if (source !== "store") throw new Error(`decided by ${source}`);
    limiter.close();
    if (keep === "keep") kept.push(limiter);
  }
}

async function main() {
  await rounds(Number(count) / 10);
  const before = held();
  await rounds(Number(count));
  const end = Date.now() + 30_000;
  let after = held();
  // Threads end a moment after they are asked to.
  while ((after.threads > before.threads || after.files > before.files) && Date.now() < end) {
    await new Promise((resolve) => setTimeout(resolve, 5));
    after = held();
  }
  console.log(JSON.stringify({ before, after }));
}

main();
