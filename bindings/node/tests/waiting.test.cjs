// Requests that a limit holds in place of a denial. The rules that all frameworks share are in guard.test.cjs.
"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const { getRequestListener } = require("@hono/node-server");
const express = require("express");
const fastify = require("fastify");
const { Hono } = require("hono");
const Koa = require("koa");
const { Limiter, ManualClock } = require("polylimit");
const { rateLimit: expressRateLimit } = require("polylimit/express");
const { rateLimit: fastifyRateLimit } = require("polylimit/fastify");
const { rateLimit: honoRateLimit } = require("polylimit/hono");
const { rateLimit: koaRateLimit } = require("polylimit/koa");

const { request } = require("./support/request.cjs");
const { serving } = require("./support/serving.cjs");

/** For each framework a listener with a limit. */
const SERVERS = {
  express: (options) =>
    express()
      .use(expressRateLimit(options))
      .use((_, res) => res.end()),
  fastify: async (options) => {
    const app = fastify();
    app.register(fastifyRateLimit, options);
    app.get("/", async () => "");
    await app.ready();
    return (req, res) => app.routing(req, res);
  },
  koa: (options) => {
    const app = new Koa();
    app.use(koaRateLimit(options));
    app.use((context) => {
      context.body = "";
    });
    return app.callback();
  },
  hono: (options) => {
    const app = new Hono();
    app.use(honoRateLimit(options));
    app.get("/", (context) => context.text(""));
    return getRequestListener(app.fetch);
  },
};

for (const [framework, build] of Object.entries(SERVERS)) {
  for (const quotas of ["1/minute token_bucket", "1/minute leaky_bucket burst=10"]) {
    test(`${framework}, ${quotas}: a held request proceeds, and a further one is denied`, async () => {
      const clock = new ManualClock(1_789_948_800_000_000);
      const limiter = new Limiter("memory:", { policies: { api: quotas }, clock });
      const app = await build({ limiter, key: () => "k", waitMs: 60_000, maxWaiting: 1 });
      await serving(app, async (port) => {
        assert.equal((await request(port)).status, 200);
        const both = [request(port), request(port)];
        const first = await Promise.race(both.map((one, at) => one.then(({ status }) => ({ status, at }))));
        assert.equal(first.status, 429);
        // The other one may begin to wait only now.
        const timer = setInterval(() => clock.advanceMs(60_000), 20);
        const held = await both[1 - first.at].finally(() => clearInterval(timer));
        assert.equal(held.status, 200);
      });
      limiter.close();
    });
  }
}

test("a limiter that is closed ends the wait", async () => {
  const clock = new ManualClock(1_789_948_800_000_000);
  const limiter = new Limiter("memory:", { policies: { api: "1/minute token_bucket" }, clock });
  const app = SERVERS.express({ limiter, key: () => "k", waitMs: 60_000, maxWaiting: 1 });
  app.use((_error, _req, res, _next) => res.status(500).end());
  await serving(app, async (port) => {
    assert.equal((await request(port)).status, 200);
    const both = [request(port), request(port)];
    assert.equal((await Promise.race(both)).status, 429);
    limiter.close();
    const statuses = (await Promise.all(both)).map(({ status }) => status);
    assert.deepEqual(statuses.sort(), [429, 500]);
  });
});

test("an option out of range is refused", () => {
  const limiter = new Limiter("memory:", { policies: { api: "1/minute" } });
  for (const [options, message] of [
    [{ waitMs: 60_001 }, "waitMs is 60001 ms: allowed is 0 ms to 60000 ms"],
    [{ waitMs: "200ms" }, "waitMs is a string: allowed is a number of milliseconds"],
    [{ maxWaiting: 0 }, "max_waiting is 0: allowed is 1 to 1000000"],
    [{ maxWaiting: 1.5 }, "maxWaiting is 1.5: allowed is 1 to 1000000"],
    [{ headers: "jitter=20" }, /^jitter "20" of retry-after: allowed are 1s to 3600s, and 1% to 100% of the wait$/],
  ]) {
    assert.throws(() => expressRateLimit({ limiter, ...options }), { code: "invalid_argument", message });
  }
  limiter.close();
});
