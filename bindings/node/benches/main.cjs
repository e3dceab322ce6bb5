// Measures decisions and requests of polylimit and of other rate limiters in one run: main.cjs PACKAGE [--quick]
"use strict";

const { once } = require("node:events");
const http = require("node:http");
const { join, resolve } = require("node:path");

const [folder, mode] = process.argv.slice(2);
const entry = (name) => require(join(resolve(folder), "dist", `${name}.js`));
const { Limiter } = entry("index");

const express = require("express");
const { rateLimit: expressRateLimit } = require("express-rate-limit");
const fastify = require("fastify");
const fastifyRateLimit = require("@fastify/rate-limit");
const { Redis: Ioredis } = require("ioredis");
const { RateLimiterMemory, RateLimiterRedis } = require("rate-limiter-flexible");
const { RedisStore } = require("rate-limit-redis");

const { withRedis } = require("../tests/support/redis.cjs");
const { medians, table } = require("./rounds.cjs");

const quick = mode === "--quick";
const LARGE = 1_000_000_000;
const policies = { large: `${LARGE}/hour token_bucket`, one: "1/day token_bucket" };

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

function get(port, agent) {
  return new Promise((done, failed) => {
    http.get({ host: "127.0.0.1", port, agent }, (response) => response.resume().on("end", done)).on("error", failed);
  });
}

async function expressWith(middleware) {
  const app = express();
  if (middleware !== undefined) app.use(middleware);
  app.get("/", (_, response) => response.send("hello"));
  const server = http.createServer(app).listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
}

async function fastifyWith(plugin, options) {
  const app = fastify();
  if (plugin !== undefined) await app.register(plugin, options);
  app.get("/", async () => "hello");
  await app.listen({ port: 0, host: "127.0.0.1" });
  return app.server;
}

async function requests(where, limiter, client) {
  const ours = { limiter, policy: "large" };
  const store = client && new RedisStore({ sendCommand: (...command) => client.call(...command) });
  const frameworks = {
    Express: [
      ["bare", await expressWith()],
      ["polylimit", await expressWith(entry("express").rateLimit(ours))],
      ["express-rate-limit", await expressWith(expressRateLimit({ windowMs: 3_600_000, limit: LARGE, store }))],
    ],
    Fastify: [
      ["bare", await fastifyWith()],
      ["polylimit", await fastifyWith(entry("fastify").rateLimit, ours)],
      [
        "@fastify/rate-limit",
        await fastifyWith(fastifyRateLimit, { max: LARGE, timeWindow: 3_600_000, redis: client }),
      ],
    ],
  };
  const agent = new http.Agent({ keepAlive: true, maxSockets: 64 });
  for (const [framework, servers] of Object.entries(frameworks)) {
    const contenders = servers.map(([name, server]) => ({
      name,
      run: concurrently(64, 1, () => get(server.address().port, agent)),
    }));
    await measure(`${framework}, ${where}: a request and its client, 64 at once`, contenders, 2_000);
  }
  agent.destroy();
  for (const [, server] of Object.values(frameworks).flat()) server.close();
}

async function main() {
  console.log("medians of interleaved rounds; to the right, how many times as fast as the last of each table");
  const memory = new Limiter("memory:", { policies });
  const peers = [LARGE, 1].map((points) => new RateLimiterMemory({ points, duration: 86_400 }));
  await decisions("memory", memory, peers, [1], 200_000);
  await requests("memory", memory, undefined);
  await withRedis(async ({ url }) => {
    const redis = new Limiter(url, { policies, deadline: "10s" });
    const client = new Ioredis(url);
    const settings = { storeClient: client, duration: 86_400 };
    const far = [LARGE, 1].map((points) => new RateLimiterRedis({ ...settings, points, keyPrefix: String(points) }));
    await decisions("Redis", redis, far, [1, 64], 6_000);
    await requests("Redis", redis, client);
    redis.close();
    client.disconnect();
  });
  console.log("\nagain: bindings/node/bench");
}

main();
