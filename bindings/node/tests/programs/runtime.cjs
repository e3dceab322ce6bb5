// Uses the package as programs do, on any runtime, and prints what it has seen, which is the same on each: runtime.cjs REDIS_URL LOCAL_URL
"use strict";

const assert = require("node:assert/strict");
const http = require("node:http");
const { Worker } = require("node:worker_threads");

const { serve } = require("@hono/node-server");
const { Hono } = require("hono");
const { Limiter, PolylimitError, Quota } = require("polylimit");

const [redisUrl, localUrl] = process.argv.slice(2);
const seen = {};

/** Requests to a server on this port: their statuses. */
async function statusesOf(port, count, path = "/", method = "GET") {
  const statuses = [];
  for (let at = 0; at < count; at++) {
    statuses.push(
      await new Promise((resolve, reject) => {
        const sent = http.request({ host: "127.0.0.1", port, path, method, agent: false }, (response) => {
          response.resume().on("end", () => resolve(response.statusCode));
        });
        sent.on("error", reject).end();
      }),
    );
  }
  return statuses;
}

async function stores() {
  for (const [name, url] of Object.entries({ memory: "memory:", local: localUrl, redis: redisUrl })) {
    const limiter = new Limiter(url, { policies: { api: "3/hour sliding_log" } });
    await limiter.ready(10_000);
    const decisions = [];
    for (let at = 0; at < 5; at++) decisions.push((await limiter.check("k")).allowed);
    const { remaining, source } = await limiter.peek("k");
    seen[name] = { decisions, remaining, source };
    limiter.close();
    await assert.rejects(limiter.check("k"), (error) => error instanceof PolylimitError && error.code === "closed");
  }
}

async function operations() {
  const limiter = new Limiter("memory:", { policies: { api: [Quota.perHour(100)], slots: "1 concurrent" } });
  seen.checkSync = limiter.checkSync("k", "api").remaining;
  seen.cost = (await limiter.check("k", { policy: "api", cost: 9 })).remaining;
  const first = await limiter.reserve("k", { policy: "slots" });
  const second = limiter.reserve("k", { policy: "slots", timeoutMs: 20_000 });
  await first.commit();
  seen.reserved = (await second).allowed;
  const errors = [() => limiter.checkSync(undefined, "api"), () => new Limiter("nowhere:"), () => new Quota(0.5, 1)];
  seen.errors = errors.map((fails) => {
    try {
      fails();
      return undefined;
    } catch (error) {
      return error.code;
    }
  });
  limiter.close();
}

async function documents() {
  const document = `
    polylimit = 1
    [policies.user]
    quotas = "2/hour sliding_log"
    [[rules]]
    match = { method = "GET", path = "/users/{id}" }
    apply = [{ policy = "user", key = "{id}" }]
  `;
  const limiter = new Limiter("memory:", { document });
  const decisions = [];
  for (let at = 0; at < 3; at++) decisions.push((await limiter.decide({ method: "GET", path: "/users/5" })).allowed);
  seen.document = decisions;
  limiter.close();
}

/** A limit of two requests in each framework. */
async function frameworks() {
  const options = () => ({ limiter: new Limiter("memory:"), policy: "2/hour sliding_log" });
  const listening = (server) => new Promise((resolve) => server.on("listening", () => resolve(server.address().port)));
  const close = (server) => new Promise((resolve) => server.close(resolve));

  const express = require("express")();
  express.use(require("polylimit/express").rateLimit(options()));
  express.get("/", (_, response) => response.send("express"));
  const onExpress = http.createServer(express).listen(0, "127.0.0.1");
  seen.express = await statusesOf(await listening(onExpress), 3);
  await close(onExpress);

  // The newest one that all runtimes can load.
  const fastify = require("fastify4")();
  const { rateLimit } = require("polylimit/fastify");
  fastify.register(rateLimit, options());
  fastify.get("/own", { config: { rateLimit: { policy: "1/hour sliding_log" } } }, async () => "own");
  fastify.get("/", async () => "fastify");
  await fastify.listen({ port: 0, host: "127.0.0.1" });
  const { port } = fastify.server.address();
  seen.fastify = [
    await statusesOf(port, 3),
    await statusesOf(port, 2, "/own"),
    await statusesOf(port, 1, "/own", "HEAD"),
  ];
  await fastify.close();

  const hono = new Hono();
  hono.use(require("polylimit/hono").rateLimit(options()));
  hono.get("/", (context) => context.text("hono"));
  const onHono = serve({ fetch: hono.fetch, port: 0, hostname: "127.0.0.1" });
  seen.hono = await statusesOf(onHono.listening ? onHono.address().port : await listening(onHono), 3);
  await close(onHono);

  const { rateLimit: around } = require("polylimit/fetch");
  const limited = around(() => new Response("fetch"), { ...options(), key: () => "k" });
  seen.fetch = [];
  for (let at = 0; at < 3; at++) {
    const { status, headers } = await limited(new Request("http://localhost/"));
    seen.fetch.push([status, headers.get("ratelimit-policy")?.split(";")[1]]);
  }
}

/** Its thread ends while it waits for a slot. */
async function worker() {
  const code = `
    const { parentPort } = require("node:worker_threads");
    const { Limiter } = require(${JSON.stringify(require.resolve("polylimit"))});
    const limiter = new Limiter("memory:", { policies: { slots: "1 concurrent" } });
    limiter.reserve("k").then(({ allowed }) => {
      limiter.reserve("k", { timeoutMs: 60000 }).catch(() => {});
      parentPort.postMessage(allowed);
    });
  `;
  const thread = new Worker(code, { eval: true });
  seen.worker = await new Promise((resolve, reject) => thread.on("message", resolve).on("error", reject));
  await thread.terminate();
}

async function main() {
  await stores();
  await operations();
  await documents();
  await frameworks();
  await worker();
  // An open limiter, whose store keeps connections, does not keep the process.
  const open = new Limiter(redisUrl, { policies: { api: "3/hour" } });
  await open.check("open");
  console.log(JSON.stringify(seen));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
