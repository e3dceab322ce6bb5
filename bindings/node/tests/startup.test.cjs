"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const fastify = require("fastify");
const { Hono } = require("hono");
const { Limiter } = require("polylimit");
const { rateLimit: limitExpress } = require("polylimit/express");
const { PolylimitStore } = require("polylimit/express-rate-limit");
const { rateLimit: plugin, rateLimitHook } = require("polylimit/fastify");
const { rateLimit: limitFetch } = require("polylimit/fetch");
const { rateLimit: limitHono } = require("polylimit/hono");
const { rateLimit: theirs } = require("express-rate-limit");

const { versionsOf } = require("./support/versions.cjs");

/** For each framework a function that creates a middleware, which throws for invalid options. */
const MAKERS = {
  express: (options) => limitExpress(options),
  "fastify's hook": (options) => rateLimitHook(options),
  "fastify's plugin": (options) => fastify().register(plugin, options),
  hono: (options) => limitHono(options),
  fetch: (options) => limitFetch(() => new Response(), { peer: () => "192.0.2.1", ...options }),
};

const limiter = new Limiter("memory:", { policies: { api: "5/minute", login: "2/minute" } });
const one = new Limiter("memory:", { policies: { api: "5/minute" } });

const MISTAKES = {
  "an unknown policy": [{ limiter, policy: "ap" }, /^policy "ap" is not known: this limiter has api, login/],
  "no policy where there are several": [{ limiter }, /^no policy is named and there are several/],
  "quotas that do not parse": [{ limiter, policy: "100/minut" }, /minut/],
  "an unknown policy in a list": [{ limiter, policy: ["api", "nobody"] }, /^policy "nobody" is not known/],
  "one policy in two spellings": [
    { limiter, policy: ["5/minute", "5 per min"] },
    /is a duplicate: leave out one of the two$/,
  ],
  "a policy that is none": [{ limiter, policy: 5 }, /^policy is 5: /],
  "a cost that no request can ever spend": [
    { limiter: one, cost: 6 },
    /^cost is 6 for policy "api", which never admits more than 5 at once: lower the cost, raise the quota, or give/,
  ],
  "a cost of one policy that is not allowed": [
    { limiter, policy: [{ policy: "api", cost: -1 }] },
    /^cost is -1: allowed/,
  ],
  "an unknown option of one policy": [{ limiter, policy: [{ policy: "api", costs: 1 }] }, /did you mean cost\?$/],
  "a policy without a name": [{ limiter, policy: [{ cost: 1 }] }, /^policy is undefined: allowed is a policy's name/],
  "a negative cost": [{ limiter: one, cost: -1 }, /^cost is -1: allowed is a whole number from 0 to 1000000000000/],
  "a cost that is no number": [{ limiter: one, cost: Number.NaN }, /^cost is NaN: allowed is a whole number/],
  "a fractional cost": [{ limiter: one, cost: 0.5 }, /^cost is 0.5: allowed is a whole number/],
  "a cost that is too high": [{ limiter: one, cost: 1e12 + 1 }, /^cost is 1000000000001: allowed/],
  "a cost as text": [{ limiter: one, cost: "1" }, /^cost is a string: allowed/],
  "a text in place of the limiter": [{ limiter: "redis://localhost" }, /^limiter is a string: allowed is a Limiter/],
  "no limiter": [{}, /^limiter is undefined: allowed is a Limiter/],
  "a promise of a limiter": [{ limiter: Promise.resolve(one) }, /^limiter is a Promise: allowed is a Limiter/],
  "an empty scope": [{ limiter: one, policy: "1/s", scope: "" }, /scope/],
  "a scope that is too long": [{ limiter: one, policy: "1/s", scope: "x".repeat(257) }, /scope/],
  "an empty list of key parts": [{ limiter: one, key: [] }, /^key is an empty list: leave it out, or give a function/],
  "an empty list of methods": [
    { limiter: one, methods: [] },
    /^methods is an empty list: leave it out, or give a method/,
  ],
  "a method that no client can send": [{ limiter: one, methods: ["G T"] }, /^methods has "G T"/],
  "a method that is none": [{ limiter: one, methods: [""] }, /^methods has ""/],
  "an origin that is none": [{ limiter: one, corsOrigins: "app.example" }, /"app\.example"/],
  "an origin and all others": [{ limiter: one, corsOrigins: ["*", "https://app.example"] }, /"\*"/],
  "a switch as text": [{ limiter: one, separateHead: "yes" }, /^separateHead is a string: allowed is true or false/],
  "another switch as text": [{ limiter: one, countPreflights: 1 }, /^countPreflights is 1: allowed is true or false/],
  "options in a Map": [
    new Map([["limiter", one]]),
    /^(options is a Map: allowed is an object of options|limiter is undefined)/,
  ],
  "keyGenerator of another library": [
    { limiter: one, keyGenerator: () => "k" },
    /"keyGenerator" is not known: use key$/,
  ],
  "max of another library": [{ limiter: one, max: 5 }, /"max" is not known: use policy, with quotas such as/],
  "redis of another library": [{ limiter: one, redis: {} }, /"redis" is not known: use limiter/],
  "handler of another library": [{ limiter: one, handler: () => {} }, /"handler" is not known: use onDenied/],
};

for (const [framework, make] of Object.entries(MAKERS)) {
  test(`${framework}: invalid options are refused when the middleware is created`, async () => {
    for (const [what, [options, message]] of Object.entries(MISTAKES)) {
      await assert.rejects(
        async () => await make(options),
        { name: "PolylimitError", code: "invalid_argument", message },
        what,
      );
    }
    await make({ limiter: one, cost: 5, scope: "x" });
  });
}

for (const { name: version, load } of versionsOf("express")) {
  const express = load("express");

  test(`${version}: trust in every proxy is refused by app.use`, async () => {
    const trusting = {
      name: "PolylimitError",
      code: "invalid_argument",
      message: /^trust proxy is true, so that a client/,
    };
    const app = express();
    app.set("trust proxy", true);
    assert.throws(() => app.use(limitExpress({ limiter: one })), trusting);
    assert.throws(() => app.use("/api", [limitExpress({ limiter: one })]), trusting);
    // The setting has no effect where the key is not the application's address.
    app.use(limitExpress({ limiter: one, key: () => "k" }));
    app.use(limitExpress({ limiter: one, clientAddress: { trust: "loopback", header: "x-forwarded-for" } }));
    for (const trust of [false, 1, "loopback", () => true]) {
      app.set("trust proxy", trust);
      app.use(limitExpress({ limiter: one }));
    }
  });

  test(`${version}: trust in every proxy that is set later fails the first request`, async () => {
    const { request } = require("./support/request.cjs");
    const app = express();
    const router = express.Router();
    router.use(limitExpress({ limiter: one }));
    app.use(router);
    app.set("trust proxy", true);
    app.use((error, _req, res, _next) => res.status(500).send(error.message));
    const server = app.listen(0, "127.0.0.1");
    try {
      await new Promise((resolve) => server.once("listening", resolve));
      assert.match((await request(server.address().port)).text, /^trust proxy is true/);
    } finally {
      server.close();
    }
  });
}

test("fastify: trust in every proxy fails the start of the server", async () => {
  const trusting = {
    name: "PolylimitError",
    code: "invalid_argument",
    message: /^trustProxy is true, so that a client/,
  };
  for (const trustProxy of [true, () => true]) {
    const app = fastify({ trustProxy });
    app.register(async (inner) => inner.register(plugin, { limiter: one }));
    await assert.rejects(async () => await app.ready(), trusting);
  }
  const app = fastify({ trustProxy: true });
  app.register(plugin, { limiter: one, key: () => "k" });
  app.register(plugin, { limiter: one, clientAddress: {} });
  await app.ready();
});

test("hono and fetch: a key or a peer is required", () => {
  assert.throws(() => limitFetch(() => new Response(), { limiter: one }), {
    message: /^neither key nor peer is given/,
  });
  assert.throws(() => new Hono().use(limitHono({ limiter: one, peer: "192.0.2.1" })), { message: /^peer is a string/ });
});

test("express-rate-limit: a window that no quota can have is refused by init, and by each use", async () => {
  for (const windowMs of [0.5, 0, -1, Number.NaN, 1e308]) {
    const refused = { name: "PolylimitError", code: "invalid_argument", message: /^period(Ms)? is / };
    const store = new PolylimitStore({ limiter: "memory:" });
    assert.throws(() => store.init({ windowMs }), refused, String(windowMs));
    // express-rate-limit 8 only logs the error of a store's init.
    const logger = { error: () => {}, warn: () => {} };
    assert.throws(() => theirs({ windowMs, limit: 5, validate: false, logger, store }), refused);
    for (const method of ["get", "increment", "decrement"]) await assert.rejects(store[method]("k"), refused);
    assert.throws(() => store.resetKey("k"), refused);
    store.init({ windowMs: 1000 });
    assert.equal((await store.increment("k")).totalHits, 1);
    await store.resetKey("k");
    assert.equal(await store.get("k"), undefined);
  }
});

test("a request without a key is limited by its address", async () => {
  const limiter = new Limiter("memory:", { policies: { api: "9/minute" } });
  const nothing = [undefined, null];
  const key = () => nothing.pop();
  const app = fastify();
  app.register(plugin, { limiter, key });
  app.get("/", async (req) => `${req.rateLimit.remaining}`);
  assert.equal((await app.inject("/")).body, "8");
  assert.equal((await app.inject({ url: "/", remoteAddress: "192.0.2.1" })).body, "8");
  const seen = [];
  const handler = limitFetch(() => new Response("hello"), {
    limiter,
    key: async (request) => request.headers.get("user"),
    peer: (request) => request.headers.get("peer") ?? undefined,
  });
  for (const headers of [{ user: "ann" }, { peer: "192.0.2.1" }, {}, {}]) {
    seen.push((await handler(new Request("http://localhost/", { headers }))).headers.get("ratelimit").split(";")[1]);
  }
  assert.deepEqual(seen, ["r=8", "r=7", "r=7", "r=6"]);
  const hono = new Hono();
  hono.use(limitHono({ limiter: new Limiter("memory:", { policies: { api: "9/minute" } }), key: () => null }));
  hono.get("/", (c) => c.text(`${c.get("rateLimit").remaining}`));
  assert.equal(await (await hono.request("/")).text(), "8");
});
