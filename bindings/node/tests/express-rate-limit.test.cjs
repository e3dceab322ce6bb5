"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const http = require("node:http");
const { test } = require("node:test");

const express = require("express");
const { MemoryStore, rateLimit } = require("express-rate-limit");
const { Limiter, ManualClock } = require("polylimit");
const { PolylimitStore } = require("polylimit/express-rate-limit");

const { localStore } = require("./support/local.cjs");
const { withRedis } = require("./support/redis.cjs");
const { request, requests, statuses } = require("./support/request.cjs");
const { until } = require("./support/until.cjs");

async function serving(options, body) {
  const app = express();
  const limit = rateLimit({ windowMs: 60_000, limit: 3, standardHeaders: "draft-6", legacyHeaders: false, ...options });
  app.use(limit);
  app.get("/", (req, response) => response.json(req.rateLimit));
  app.get("/failed", (_, response) => response.status(500).end());
  app.use((error, _req, response, _next) => response.status(500).send(error.code));
  const server = http.createServer(app).listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    return await body(server.address().port, limit);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

/** The responses that a client of express-rate-limit receives with a store, step by step. */
async function story(store) {
  return serving({ store, keyGenerator: (req) => req.headers.user ?? "ann" }, async (port, limit) => {
    const seen = [];
    const note = ({ status, headers, text }) => {
      const { limit: most, used, remaining } = status === 200 ? JSON.parse(text) : {};
      seen.push([
        status,
        headers["ratelimit-limit"],
        headers["ratelimit-remaining"],
        headers["ratelimit-reset"],
        most,
        used,
        remaining,
      ]);
    };
    for (let count = 0; count < 5; count++) note(await request(port));
    note(await request(port, "/", { headers: { user: "bob" } }));
    seen.push((await limit.getKey("ann")).totalHits, await limit.getKey("nobody"));
    await limit.resetKey("ann");
    seen.push(await limit.getKey("ann"));
    note(await request(port));
    return seen;
  });
}

test("express-rate-limit gives the same responses as with its own memory store", async () => {
  const ours = await story(new PolylimitStore({ limiter: "memory:" }));
  assert.deepEqual(ours, await story(new MemoryStore()));
  assert.deepEqual(ours[2].slice(0, 3), [200, "3", "0"]);
  assert.equal(ours[3][0], 429);
});

test("express-rate-limit: a window starts with the first request and ends after windowMs", async () => {
  const clock = new ManualClock(Date.now() * 1000);
  const store = new PolylimitStore({ limiter: new Limiter("memory:", { clock }) });
  await serving({ store }, async (port) => {
    assert.deepEqual(statuses(await requests(port, 5)), { 200: 3, 429: 2 });
    clock.advanceMs(59_999.999);
    assert.equal((await request(port)).status, 429);
    clock.advanceMs(0.001);
    assert.equal((await request(port)).status, 200);
  });
});

test("express-rate-limit: several servers share one limit on Redis, by prefix", async () => {
  await withRedis(async ({ url }) => {
    const store = (prefix) => new PolylimitStore({ limiter: new Limiter(url, { deadline: "10s" }), prefix });
    await serving({ store: store("a:"), limit: 50 }, (one) =>
      serving({ store: store("a:"), limit: 50 }, (two) =>
        serving({ store: store("b:"), limit: 50 }, async (other) => {
          const answers = (await Promise.all([requests(one, 60), requests(two, 60)])).flat();
          assert.deepEqual(statuses(answers), { 200: 50, 429: 70 });
          assert.equal(JSON.parse((await request(other)).text).used, 1);
        }),
      ),
    );
  });
});

test("express-rate-limit: skipped requests are given back", async () => {
  const store = new PolylimitStore({ limiter: "memory:" });
  await serving({ store, skipFailedRequests: true, keyGenerator: () => "k" }, async (port, limit) => {
    for (let count = 0; count < 5; count++) {
      assert.equal((await request(port, "/failed")).status, 500);
      await until(async () => (await limit.getKey("k")).totalHits === 0, "it is given back");
    }
    assert.deepEqual(statuses(await requests(port, 4)), { 200: 3, 429: 1 });
  });
});

test("express-rate-limit: the outage policy decides while the store is unavailable", async () => {
  const at = (outage) => new PolylimitStore({ limiter: new Limiter("redis://127.0.0.1:1", { outage }) });
  await serving({ store: at("fallback") }, async (port) => {
    assert.deepEqual(statuses(await requests(port, 5)), { 200: 3, 429: 2 });
  });
  await serving({ store: at("allow") }, async (port) => {
    assert.deepEqual(statuses(await requests(port, 5)), { 200: 5 });
  });
  const allowing = at("allow");
  allowing.init({ windowMs: 60_000 });
  assert.equal((await allowing.increment("k")).totalHits, 1);
  await serving({ store: at("deny") }, async (port) => {
    assert.equal((await request(port)).text, "store_unavailable");
  });
  await serving({ store: at("deny"), passOnStoreError: true }, async (port) => {
    assert.equal((await request(port)).status, 200);
  });
});

test("express-rate-limit: hits are counted from one during an outage, with any fallbackShare", async () => {
  const store = new PolylimitStore({ limiter: "redis://127.0.0.1:1?fallback_share=0.25" });
  await serving({ store, keyGenerator: () => "k" }, async (port, limit) => {
    assert.equal(JSON.parse((await request(port)).text).used, 1);
    assert.deepEqual(statuses(await requests(port, 4)), { 200: 2, 429: 2 });
    assert.equal((await limit.getKey("k")).totalHits, 5);
    await limit.resetKey("k");
    assert.equal(await limit.getKey("k"), undefined);
    assert.equal(JSON.parse((await request(port)).text).used, 1);
  });
});

test("express-rate-limit: counting goes on when the store becomes unavailable", async () => {
  await withRedis(async (redis) => {
    const limiter = new Limiter(redis.url, { deadline: "5s", fallbackShare: 0.25 });
    await serving({ store: new PolylimitStore({ limiter }), limit: 5 }, async (port) => {
      assert.equal(JSON.parse((await request(port)).text).used, 1);
      await redis.kill();
      assert.equal(JSON.parse((await request(port)).text).used, 2);
      assert.deepEqual(statuses(await requests(port, 5)), { 200: 3, 429: 2 });
    });
  });
});

test("express-rate-limit: get fails during an outage with the outage policy deny", async () => {
  const store = new PolylimitStore({ limiter: "redis://127.0.0.1:1?outage=deny" });
  store.init({ windowMs: 60_000 });
  for (const ask of ["get", "increment", "decrement", "resetKey"]) {
    await assert.rejects(store[ask]("k"), {
      code: "store_unavailable",
      message: "the store is unavailable: unreachable",
    });
  }
});

/** The results of a store's methods, step by step. */
async function byHand(store, init = true) {
  if (init) store.init({ windowMs: 60_000 });
  const hits = async (key) => (await store.get(key))?.totalHits;
  const seen = [await hits("k"), (await store.increment("k")).totalHits, (await store.increment("k")).totalHits];
  await store.decrement("k");
  seen.push(await hits("k"));
  await store.decrement("k");
  const { totalHits, resetTime } = await store.get("k");
  seen.push(totalHits, resetTime instanceof Date, await hits("other"));
  seen.push((await store.increment("k")).totalHits);
  await store.resetKey("k");
  seen.push(await hits("k"));
  await store.increment("k");
  await store.increment("other");
  await store.decrement("other");
  await store.resetAll();
  seen.push(await hits("k"), await hits("other"), (await store.increment("k")).totalHits, await hits("k"));
  return seen;
}

test("express-rate-limit: a store's methods return the same as those of its own memory store", async () => {
  const theirs = new MemoryStore();
  const expected = await byHand(theirs);
  theirs.shutdown();
  assert.deepEqual(await byHand(new PolylimitStore({ limiter: "memory:" })), expected);
  // Without init it has the default window.
  const early = new PolylimitStore({ limiter: new Limiter("memory:") });
  assert.deepEqual(await byHand(early, false), expected);
  const { resetTime } = await early.increment("new");
  assert.ok(resetTime > Date.now() + 30_000 && resetTime <= Date.now() + 60_000);
});

test("express-rate-limit: resetAll deletes all keys in memory, and is refused elsewhere", async () => {
  const { url, remove } = localStore();
  try {
    const limiter = new Limiter(url);
    const store = new PolylimitStore({ limiter });
    await store.increment("k");
    await assert.rejects(store.resetAll(), {
      code: "invalid_argument",
      message: /^resetAll needs a store in this process/,
    });
    assert.equal((await store.get("k")).totalHits, 1);
    limiter.close();
  } finally {
    remove();
  }
});

test("express-rate-limit: localKeys lets express-rate-limit detect double counting", async () => {
  const complaints = async (one, other) => {
    const told = [];
    const logger = { error: (error) => told.push(error.code), warn: (error) => told.push(error.code) };
    const app = express();
    for (const store of [one, other]) {
      app.use(rateLimit({ windowMs: 60_000, limit: 9, store, logger, keyGenerator: () => "k" }));
    }
    app.get("/", (_, response) => response.end());
    const server = http.createServer(app).listen(0, "127.0.0.1");
    await once(server, "listening");
    await request(server.address().port);
    server.closeAllConnections();
    server.close();
    return told;
  };
  const own = () => new PolylimitStore({ limiter: "memory:" });
  assert.deepEqual(await complaints(own(), own()), []);
  assert.deepEqual(await complaints(new MemoryStore(), new MemoryStore()), []);
  const given = () => new PolylimitStore({ limiter: new Limiter("memory:") });
  assert.deepEqual(await complaints(given(), given()), []);
  const limiter = new Limiter("memory:");
  const shared = (prefix) => new PolylimitStore({ limiter, prefix });
  assert.deepEqual(await complaints(shared("a"), shared("b")), []);
  assert.deepEqual(await complaints(shared("c"), shared("c")), ["ERR_ERL_DOUBLE_COUNT"]);
  const { url, remove } = localStore();
  try {
    const onHost = [0, 1].map(() => new PolylimitStore({ limiter: url }));
    assert.deepEqual(await complaints(...onHost), ["ERR_ERL_DOUBLE_COUNT"]);
    for (const store of onHost) store.shutdown();
  } finally {
    remove();
  }
});

test("express-rate-limit: shutdown closes only a limiter that the store made", async () => {
  const limiter = new Limiter("memory:", { policies: { api: "2/minute" } });
  const shared = new PolylimitStore({ limiter });
  shared.shutdown();
  assert.equal((await limiter.check("k", "api")).remaining, 1);
  const own = new PolylimitStore({ limiter: "memory:" });
  own.init({ windowMs: 60_000 });
  assert.equal((await own.increment("k")).totalHits, 1);
  own.shutdown();
  await assert.rejects(own.increment("k"), { name: "PolylimitError", code: "closed" });
});

test("express-rate-limit: an unknown option is refused by name", () => {
  assert.throws(() => new PolylimitStore({ limiter: "memory:", prefx: "a" }), {
    code: "invalid_argument",
    message: /"prefx"/,
  });
  assert.throws(() => new PolylimitStore({ limiter: 5 }), { code: "invalid_argument", message: /^url is 5/ });
  assert.throws(() => new PolylimitStore({ limiter: "memory:", prefix: 5 }), { message: /^prefix is 5/ });
});

test("options of rate-limit-redis are answered with ours", () => {
  const limiter = "memory:";
  for (const [option, message] of [
    ["sendCommand", /^option "sendCommand" is not known: use limiter, with its URL$/],
    ["resetExpiryOnChange", /: use policy of a middleware, whose quotas .* such as 100\/15m sliding_log count_denied$/],
    ["keyPrefix", /: use prefix$/],
    ["prefx", /: did you mean prefix\?$/],
  ]) {
    assert.throws(() => new PolylimitStore({ limiter, [option]: "x" }), { code: "invalid_argument", message }, option);
  }
});
