// Several limits on the way of one request, while other requests are decided in between.
"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const http = require("node:http");
const { test } = require("node:test");

const express = require("express");
const { Limiter, ManualClock } = require("polylimit");
const { rateLimit } = require("polylimit/express");

const { withRedis } = require("./support/redis.cjs");
const { request, requests, statuses } = require("./support/request.cjs");

const POLICIES = { web: "40/hour fixed_window", api: "40/hour fixed_window", none: "0/hour" };

/** Lets other requests be decided. */
const pause = (_req, _res, next) => setImmediate(next);

/** Serves requests through these middlewares. */
async function serving(t, middlewares) {
  const app = express();
  app.use(...middlewares);
  app.get("/", (_, res) => res.end("hello"));
  const server = http.createServer(app).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return server.address().port;
}

for (const [name, between] of Object.entries({ "at once": [], "with other requests in between": [pause] })) {
  const memory = (t, options) => {
    const limiter = new Limiter("memory:", { policies: POLICIES, clock: new ManualClock(0), ...options });
    t.after(() => limiter.close());
    return limiter;
  };
  const limitsOf = (limiter, ...guards) =>
    guards.flatMap((options) => [...between, rateLimit({ limiter, key: () => "k", ...options })]);
  const left = async (limiter) => [
    (await limiter.peek("k", "web")).remaining,
    (await limiter.peek("k", "api")).remaining,
  ];

  test(`three limits charge each policy once, ${name}`, async (t) => {
    const limiter = memory(t);
    const limits = limitsOf(limiter, { policy: "web" }, { policy: "api" }, { policy: "web" });
    const port = await serving(t, limits);
    assert.deepEqual(statuses(await requests(port, 20)), { 200: 20 });
    assert.deepEqual(await left(limiter), [20, 20]);
    const { headers } = await request(port, "/");
    assert.equal(headers.ratelimit, '"web";r=19;t=3600, "api";r=19;t=3600');
  });

  test(`three limits charge the highest of their costs, ${name}`, async (t) => {
    const limiter = memory(t);
    const port = await serving(
      t,
      limitsOf(limiter, { policy: "web" }, { policy: "web", cost: 3 }, { policy: "web", cost: 2 }),
    );
    assert.deepEqual(statuses(await requests(port, 10)), { 200: 10 });
    assert.deepEqual(await left(limiter), [10, 40]);
  });

  test(`a denial by the last of three limits refunds the others, ${name}`, async (t) => {
    const limiter = memory(t);
    const port = await serving(t, limitsOf(limiter, { policy: "web" }, { policy: "api", cost: 2 }, { policy: "none" }));
    assert.deepEqual(statuses(await requests(port, 10)), { 429: 10 });
    assert.deepEqual(await left(limiter), [40, 40]);
  });

  test(`the middle one of three limits does not count, ${name}`, async (t) => {
    const limiter = memory(t);
    const guards = [{ policy: "web" }, { policy: "api", count: () => false }, { policy: "web", cost: 2 }];
    const port = await serving(t, limitsOf(limiter, ...guards));
    assert.deepEqual(statuses(await requests(port, 10)), { 200: 10 });
    assert.deepEqual(await left(limiter), [20, 40]);
  });

  test(`three limits on Redis charge each policy once, ${name}`, async (t) => {
    await withRedis(async ({ url }) => {
      const limiter = new Limiter(url, { policies: POLICIES, deadline: "10s" });
      const port = await serving(
        t,
        limitsOf(limiter, { policy: "web" }, { policy: "api" }, { policy: "web", cost: 2 }),
      );
      assert.deepEqual(statuses(await requests(port, 20)), { 200: 20 });
      assert.deepEqual(await left(limiter), [0, 20]);
      assert.equal((await request(port, "/")).status, 429);
      assert.deepEqual(await left(limiter), [0, 20]);
      limiter.close();
    });
  });
}
