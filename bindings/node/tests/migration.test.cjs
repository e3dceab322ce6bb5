// The document of docs/migrate/from-express-rate-limit.md decides as express-rate-limit does with the options that stand next to it:
// https://express-rate-limit.mintlify.app/reference/configuration
"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const { after, mock, test } = require("node:test");

const express = require("express");
const theirs = require("express-rate-limit");
const { Limiter, ManualClock } = require("polylimit");
const ours = require("polylimit/express");

const PAGE = readFileSync(join(__dirname, "..", "..", "..", "docs", "migrate", "from-express-rate-limit.md"), "utf8");
// Requests of these tests come over the loopback interface, as from a proxy.
const [DOCUMENT] = [...PAGE.matchAll(/^```toml\n(.*?)^```/gms)].map(([, text]) =>
  text.replaceAll("10.0.0.0/8", "127.0.0.0/8"),
);

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

/** An application with the routes of the page, behind these middlewares. */
function appWith(limit, ...beforeAccount) {
  const app = express();
  app.set("trust proxy", "127.0.0.0/8");
  app.use(limit);
  app.post("/account", ...beforeAccount, (_, res) => res.send("made"));
  app.get(["/", "/health"], (_, res) => res.send("well"));
  return app;
}

function withPolylimit(clock) {
  const limiter = new Limiter("memory:", { document: DOCUMENT, ...(clock && { clock }) });
  after(() => limiter.close());
  return appWith(ours.rateLimit({ limiter, attributes: (req) => ({ plan: req.get("x-plan") }) }));
}

/** The options that the comments of the document name. */
function withExpressRateLimit() {
  const isMonitoring = (req) => req.ip.startsWith("192.0.2.");
  const api = theirs.rateLimit({
    windowMs: 15 * MINUTE_MS,
    limit: (req) => (req.get("x-plan") === "gold" ? 1000 : 100),
    keyGenerator: (req) => req.get("x-api-key") ?? theirs.ipKeyGenerator(req.ip),
    skip: (req) => req.path === "/health" || isMonitoring(req),
  });
  const account = theirs.rateLimit({ windowMs: HOUR_MS, limit: 5, skip: isMonitoring });
  return appWith(api, account);
}

/** Serves an application; returns a function that sends requests and counts their statuses. */
async function serve(app) {
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  after(() => server.close());
  return async (count, target, from, headers = {}) => {
    const [path, method = "GET"] = target.split(" ").reverse();
    const counts = {};
    for (let sent = 0; sent < count; sent += 1) {
      const options = { method, headers: { ...headers, "x-forwarded-for": from } };
      const { status } = await fetch(`http://127.0.0.1:${server.address().port}${path}`, options);
      counts[status] = (counts[status] ?? 0) + 1;
    }
    return counts;
  };
}

const [ANN, BOB, MONITORING] = ["198.51.100.1", "198.51.100.2", "192.0.2.9"];

/** How many requests of which kind follow each other, and how many have which status. */
const BURSTS = {
  "windowMs and limit": [
    [102, "/", ANN, {}, { 200: 100, 429: 2 }],
    [1, "/", BOB, {}, { 200: 1 }],
  ],
  skip: [
    [110, "/health", ANN, {}, { 200: 110 }],
    [110, "/", MONITORING, {}, { 200: 110 }],
    [9, "POST /account", MONITORING, {}, { 200: 9 }],
  ],
  "another limit in front of one route": [
    [5, "POST /account", ANN, {}, { 200: 5 }],
    [97, "/", ANN, {}, { 200: 95, 429: 2 }],
    [7, "POST /account", BOB, {}, { 200: 5, 429: 2 }],
  ],
  keyGenerator: [
    [60, "/", ANN, { "x-api-key": "k" }, { 200: 60 }],
    [42, "/", BOB, { "x-api-key": "k" }, { 200: 40, 429: 2 }],
    [1, "/", ANN, {}, { 200: 1 }],
    [1, "/", ANN, { "x-api-key": "other" }, { 200: 1 }],
  ],
  "limit as a function of the request": [
    [150, "/", ANN, { "x-plan": "gold" }, { 200: 150 }],
    [1, "/", ANN, { "x-plan": "free" }, { 429: 1 }],
  ],
  "trust proxy": [
    [100, "/", `203.0.113.99, ${ANN}`, {}, { 200: 100 }],
    [1, "/", ANN, {}, { 429: 1 }],
  ],
};

for (const [name, bursts] of Object.entries(BURSTS)) {
  for (const [made, make] of Object.entries({ polylimit: withPolylimit, "express-rate-limit": withExpressRateLimit })) {
    test(`${name}: ${made}`, async () => {
      const send = await serve(make());
      for (const [count, target, from, headers, expected] of bursts) {
        assert.deepEqual(await send(count, target, from, headers), expected, `${count} ${target}`);
      }
    });
  }
}

// "windowMs: the time frame for which requests are checked"; the memory store begins it with a client's first request.
const TIMES_MS = [0, 5, 14.999, 15, 29.999, 30, 61].map((minutes) => Math.round(minutes * MINUTE_MS));
const PASSED = [60, 40, 0, 60, 40, 60, 60];

test("windows begin with the first request and end together: polylimit", async () => {
  const clock = new ManualClock(0);
  const send = await serve(withPolylimit(clock));
  const passed = [];
  for (const [at, time] of TIMES_MS.entries()) {
    clock.advanceMs(time - (TIMES_MS[at - 1] ?? 0));
    passed.push((await send(60, "/", ANN))[200] ?? 0);
  }
  assert.deepEqual(passed, PASSED);
});

test("windows begin with the first request and end together: express-rate-limit", async () => {
  mock.timers.enable({ apis: ["Date"], now: 0 });
  const store = new theirs.MemoryStore();
  try {
    store.init({ windowMs: 15 * MINUTE_MS });
    const passed = [];
    for (const time of TIMES_MS) {
      mock.timers.setTime(time);
      let count = 0;
      for (let sent = 0; sent < 60; sent += 1) {
        // What is beyond the limit is denied, and counts in their store.
        if ((await store.increment("k")).totalHits <= 100) count += 1;
      }
      passed.push(count);
    }
    assert.deepEqual(passed, PASSED);
  } finally {
    store.shutdown();
    mock.timers.reset();
  }
});

test("five accounts in an hour, and what the document adds to express-rate-limit", async () => {
  const clock = new ManualClock(0);
  const send = await serve(withPolylimit(clock));
  assert.deepEqual(await send(6, "POST /account", ANN), { 200: 5, 429: 1 });
  clock.advanceMs(HOUR_MS - 1);
  assert.deepEqual(await send(1, "POST /account", ANN), { 429: 1 });
  clock.advanceMs(1);
  assert.deepEqual(await send(6, "POST /account", ANN), { 200: 5, 429: 1 });
  assert.deepEqual(await send(2, "/health", "203.0.113.7"), { 403: 2 });
});
