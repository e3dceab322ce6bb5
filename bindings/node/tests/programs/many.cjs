// Creates, uses and closes many limiters, and prints the resources of the process afterwards: many.cjs URL COUNT
"use strict";

const { readdirSync, readFileSync } = require("node:fs");

const { Limiter } = require("polylimit");

const held = () => {
  global.gc();
  const status = readFileSync("/proc/self/status", "utf8");
  const resident = Number(/^VmRSS:\s+(\d+) kB/m.exec(status)[1]);
  return { threads: readdirSync("/proc/self/task").length, files: readdirSync("/proc/self/fd").length, resident };
};

const turn = () => new Promise((resolve) => setTimeout(resolve, 1));

/** Half of the limiters are closed, and half are left to the garbage collector. */
async function rounds(url, count) {
  for (let number = 0; number < count; number++) {
    const limiter = new Limiter(url, {
      policies: { api: "5/minute" },
      ...(url === "memory:" ? {} : { deadline: "30s" }),
    });
    const { source } = await limiter.check(`user:${number}`);
    if (source !== "store") throw new Error(`decided by ${source}`);
    if (number % 2 === 0) limiter.close();
    if (number % 100 === 99) {
      global.gc();
      await turn();
    }
  }
  global.gc();
  await turn();
}

async function main(url, count) {
  await rounds(url, count / 10);
  const before = held();
  await rounds(url, count);
  // Connections are closed by another thread, a moment later.
  const end = Date.now() + 30_000;
  let after = held();
  while ((after.threads > before.threads || after.files > before.files) && Date.now() < end) {
    await turn();
    after = held();
  }
  console.log(JSON.stringify({ before, after }));
}

main(process.argv[2], Number(process.argv[3]));
