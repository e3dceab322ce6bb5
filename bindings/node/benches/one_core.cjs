// Latency where the process has one core, as in a container with one CPU: one_core.cjs PACKAGE [--quick]
// The bench command pins this process to one core; this script pins the server to another one.
"use strict";

const { execFileSync } = require("node:child_process");
const { join, resolve } = require("node:path");

const [folder, mode] = process.argv.slice(2);
const { Limiter } = require(join(resolve(folder), "dist", "index.js"));

const { Redis: Ioredis } = require("ioredis");
const { RateLimiterRedis } = require("rate-limiter-flexible");

const { withRedis } = require("../tests/support/redis.cjs");

const WIDTH = 64;
const KEYS = 100_000;
const SERVER_CORE = "0";
const { rounds, count } = mode === "--quick" ? { rounds: 1, count: 200 } : { rounds: 9, count: 20_000 };

/** Makes `count` decisions, 64 at a time, and returns the duration of each in microseconds. */
async function latencies(decide) {
  const us = new Float64Array(count);
  let next = 0;
  const lane = async () => {
    for (let at = next++; at < count; at = next++) {
      const begin = performance.now();
      await decide(`user:${(at * 7919) % KEYS}`);
      us[at] = (performance.now() - begin) * 1000;
    }
  };
  await Promise.all(Array.from({ length: WIDTH }, lane));
  return us.sort();
}

const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];

async function main() {
  await withRedis(async ({ url, process: server }) => {
    execFileSync("taskset", ["-a", "-p", "-c", SERVER_CORE, String(server.pid)], { stdio: "ignore" });
    const limiter = new Limiter(url, { policies: { large: "1000000000/hour token_bucket" }, deadline: "10s" });
    const client = new Ioredis(url);
    const peer = new RateLimiterRedis({ storeClient: client, points: 1_000_000_000, duration: 3600 });
    const contenders = [
      { name: "polylimit", decide: (key) => limiter.check(key) },
      { name: "rate-limiter-flexible", decide: (key) => peer.consume(key) },
    ].map((contender) => ({ ...contender, p50: [], p99: [] }));
    for (let round = 0; round <= rounds; round++) {
      for (const { decide, p50, p99 } of contenders) {
        const us = await latencies(decide);
        // The first round warms up.
        if (round === 0) continue;
        p50.push(us[Math.floor(count * 0.5)]);
        p99.push(us[Math.floor(count * 0.99)]);
      }
    }
    console.log(`\nRedis, ${WIDTH} at once on one core, the server on another, ${KEYS.toLocaleString("en")} keys`);
    const last = contenders.at(-1);
    for (const { name, p50, p99 } of contenders) {
      const shown = [
        ["p50", p50, last.p50],
        ["p99", p99, last.p99],
      ].map(([what, own, others]) => {
        const [us, other] = [median(own), median(others)];
        return `${what} ${us.toFixed(0).padStart(6)} us ${(other / us).toFixed(2).padStart(6)} x`;
      });
      console.log(`  ${name.padEnd(24)} ${shown.join("   ")}`);
    }
    limiter.close();
    client.disconnect();
  });
}

main();
