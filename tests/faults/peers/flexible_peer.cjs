// Callers of rate-limiter-flexible with ioredis, set up as its documentation says: see drive.py.
"use strict";

const { createRequire } = require("node:module");
const { join } = require("node:path");

const packages = createRequire(join(__dirname, "../../../bindings/node/package.json"));
const { Redis } = packages("ioredis");
const { RateLimiterRedis } = packages("rate-limiter-flexible");

const KEYS = ["k0", "k1", "k2", "k3"];
const client = new Redis({ port: Number(process.argv[2]), enableOfflineQueue: false });
client.on("error", () => {});
const limiter = new RateLimiterRedis({ storeClient: client, points: 1_000_000_000, duration: 86_400 });
let stopped = false;

const now = () => Math.round((performance.timeOrigin + performance.now()) * 1000);

async function call(key) {
  while (!stopped) {
    const at = now();
    let outcome = "A";
    try {
      await limiter.consume(key);
    } catch (error) {
      outcome = error instanceof Error ? "E" : "D";
    }
    console.log(`${at} ${now() - at} ${outcome}`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

async function main() {
  await new Promise((resolve) => client.once("ready", resolve));
  const callers = KEYS.map(call);
  console.log("ready");
  for await (const _ of process.stdin);
  stopped = true;
  await Promise.all(callers);
  let used = 0;
  for (const key of KEYS) used += (await limiter.get(key))?.consumedPoints ?? 0;
  console.log(`used ${used}`);
  client.disconnect();
}

main();
