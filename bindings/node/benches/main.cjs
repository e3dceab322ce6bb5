// Measures decisions of polylimit and of rate-limiter-flexible in one run: main.cjs PACKAGE [--quick]
"use strict";

const { join, resolve } = require("node:path");

const [folder, mode] = process.argv.slice(2);
const entry = (name) => require(join(resolve(folder), "dist", `${name}.js`));
const { Limiter } = entry("index");

const Bottleneck = require("bottleneck");
const { Redis: Ioredis } = require("ioredis");
const { RateLimiterMemory, RateLimiterRedis } = require("rate-limiter-flexible");

const { withRedis } = require("../tests/support/redis.cjs");
const { medians, table } = require("./rounds.cjs");

const quick = mode === "--quick";
const LARGE = 1_000_000_000;
const policies = { large: `${LARGE}/hour token_bucket`, one: "1/day token_bucket", slots: "20 concurrent" };

async function measure(title, contenders, count) {
  const size = quick ? { rounds: 1, count: Math.min(count, 200) } : { rounds: 9, count };
  table(title, contenders, await medians(contenders, size));
}

/** Makes that many decisions at a time, each on the next key. Some peers throw a denial, so that errors are caught. */
function concurrently(width, keys, decide) {
  return async (count) => {
    let next = 0;
    const lane = async () => {
      for (let at = next++; at < count; at = next++) {
        try {
          await decide(keys === 1 ? "user:42" : `user:${(at * 7919) % keys}`);
        } catch (thrown) {
          if (thrown instanceof Error) throw thrown;
        }
      }
    };
    await Promise.all(Array.from({ length: width }, lane));
  };
}

/** The scenarios: the number of keys, and whether requests are admitted. */
const workloads = (large, one) => [
  ["allowed, one key", "large", large, 1],
  ["allowed, 100,000 keys", "large", large, 100_000],
  ["denied hot key", "one", one, 1],
];

async function decisions(where, limiter, peers, widths, count) {
  for (const width of widths) {
    for (const [what, policy, peer, keys] of workloads(...peers)) {
      const options = { policy };
      const sync = (count) => {
        for (let at = 0; at < count; at++) limiter.checkSync("user:42", options);
      };
      const contenders = [
        { name: "polylimit", run: concurrently(width, keys, (key) => limiter.check(key, options)) },
        { name: "rate-limiter-flexible", run: concurrently(width, keys, (key) => peer.consume(key)) },
      ];
      if (where === "memory" && keys === 1) contenders.unshift({ name: "polylimit, checkSync", run: sync });
      await measure(`${where}, ${width} at once, ${what}`, contenders, count);
    }
  }
}

/** Jobs of which 20 may run at a time: a reservation for each, compared with bottleneck's queue. */
async function slots(where, limiter, peer, count) {
  for (const width of [1, 16]) {
    const job = async () => {};
    const contenders = [
      {
        name: "polylimit, reserve",
        run: concurrently(width, 1, (key) => limiter.reserve(key, { policy: "slots" }, job)),
      },
      { name: "bottleneck", run: concurrently(width, 1, () => peer.schedule(job)) },
    ];
    await measure(`${where}, jobs in 20 slots, ${width} at once`, contenders, count);
  }
}

async function main() {
  console.log("medians of interleaved rounds; to the right, how many times as fast as the last of each table");
  const memory = new Limiter("memory:", { policies });
  const peers = [LARGE, 1].map((points) => new RateLimiterMemory({ points, duration: 86_400 }));
  await decisions("memory", memory, peers, [1], 200_000);
  await slots("memory", memory, new Bottleneck({ maxConcurrent: 20 }), 20_000);
  await withRedis(async ({ url }) => {
    const redis = new Limiter(url, { policies, deadline: "10s" });
    const client = new Ioredis(url);
    const settings = { storeClient: client, duration: 86_400 };
    const far = [LARGE, 1].map((points) => new RateLimiterRedis({ ...settings, points, keyPrefix: String(points) }));
    await decisions("Redis", redis, far, [1, 64], 6_000);
    const shared = { id: "slots", datastore: "ioredis", Redis: Ioredis, clientOptions: url, maxConcurrent: 20 };
    const bottleneck = new Bottleneck(shared);
    await bottleneck.ready();
    await slots("Redis", redis, bottleneck, 3_000);
    await bottleneck.disconnect();
    redis.close();
    client.disconnect();
  });
  console.log("\nagain: bindings/node/bench");
}

main();
