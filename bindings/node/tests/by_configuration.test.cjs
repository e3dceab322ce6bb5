// The middlewares of a limiter whose configuration decides, each in its framework.
"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const { test } = require("node:test");

const { serve: serveHono } = require("@hono/node-server");
const express = require("express");
const fastify = require("fastify");
const { Hono } = require("hono");
const Koa = require("koa");
const { Limiter, ManualClock } = require("polylimit");
const onExpress = require("polylimit/express");
const onFastify = require("polylimit/fastify");
const onFetch = require("polylimit/fetch");
const onHono = require("polylimit/hono");
const onKoa = require("polylimit/koa");
const { RateLimitGuard } = require("polylimit/nest");

const { invalid } = require("./support/code.cjs");
const { controllerOf, nestApplication } = require("./support/nest.cjs");
const { withRedis } = require("./support/redis.cjs");
const { until } = require("./support/until.cjs");

const DOCUMENT = `
polylimit = 1
[policies.login]
quotas = "1/day fixed_window"
[policies.api]
quotas = "5/day fixed_window; 5 concurrent"
[[rules]]
match = { method = "POST", path = "/a/login" }
apply = [{ policy = "login", key = "{client}" }]
[[rules]]
match = { path = "/a/{name}", header.x-user = "*" }
apply = [{ policy = "api", key = "{header.x-user}|{tenant}", headroom = 40 }]
[[rules]]
match = { path = "/a/needs" }
apply = [{ policy = "login", key = "{missing}", missing = "deny" }]
[lists]
deny = ["header.x-bot 1", "user mallory"]
`;

/** Serves `/a/login`, `/a/b` and `/a/needs` in each framework; returns the URL and what closes the server. */
const frameworks = {
  express: async (options) => {
    const app = express();
    app.set("trust proxy", true);
    app.use("/a", onExpress.rateLimit(options));
    app.all("/a/{*rest}", (_, res) => res.send("fine"));
    return listening(app.listen(0, "127.0.0.1"));
  },
  fastify: async (options) => {
    const app = fastify();
    app.register(onFastify.rateLimit, options);
    app.all("/a/*", async () => "fine");
    const url = await app.listen({ host: "127.0.0.1", port: 0 });
    return { url, close: () => app.close() };
  },
  koa: async (options) => {
    const app = new Koa();
    app.use(onKoa.rateLimit(options));
    app.use((context) => {
      context.body = "fine";
    });
    return listening(app.listen(0, "127.0.0.1"));
  },
  hono: async (options) => {
    const app = new Hono();
    app.use(onHono.rateLimit(options));
    app.all("/a/*", (context) => context.text("fine"));
    return listening(serveHono({ fetch: app.fetch, hostname: "127.0.0.1", port: 0 }));
  },
  fetch: async (options) => {
    const handle = onFetch.rateLimit(() => new Response("fine"), { ...options, peer: () => "127.0.0.1" });
    return { url: "http://localhost", close: () => undefined, ask: (url, init) => handle(new Request(url, init)) };
  },
  nest: async (options) => {
    const fine = { path: "*rest", method: "All", handle: () => "fine" };
    const app = await nestApplication("express", [await controllerOf("a", { fine })]);
    app.useGlobalGuards(new RateLimitGuard(options));
    await app.listen(0, "127.0.0.1");
    return { url: await app.getUrl(), close: () => app.close() };
  },
};

async function listening(server) {
  if (!server.listening) await once(server, "listening");
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}

async function differs(framework, store, options) {
  const limiter = new Limiter(store, { document: DOCUMENT, clock: new ManualClock(0), ...options });
  const attributes = () => Promise.resolve({ tenant: "t" });
  const { url, close, ask = fetch } = await frameworks[framework]({ limiter, attributes });
  const answer = async (path, headers = {}, method = "GET") => {
    const response = await ask(`${url}/a/${path}`, { method, headers });
    const body = await response.text();
    return [response.status, response.headers.get("ratelimit"), body.includes("fine")];
  };
  assert.deepEqual(await answer("other"), [200, null, true]);
  const [status, fields] = await answer("login?a=b", {}, "POST");
  assert.deepEqual([status, fields], [200, '"login";r=0;t=86400']);
  assert.deepEqual(
    (await answer("login", {}, "POST")).filter((_, at) => at !== 1),
    [429, false],
  );
  assert.equal((await limiter.peek("127.0.0.1", "login")).remaining, 0);
  assert.deepEqual(await answer("b", { "x-bot": "1" }), [403, null, false]);
  assert.deepEqual(await answer("needs"), [400, null, false]);
  for (const expected of [200, 200, 200, 429]) {
    assert.equal((await answer("b", { "x-user": "alice" }))[0], expected);
  }
  const request = { path: "/a/b", headers: { "x-user": "alice" }, attributes: { tenant: "t" } };
  const [{ key }] = limiter.admin().matching(request);
  await until(async () => (await limiter.peek(key, "api")).remaining === 2, "three requests have spent");
  await close();
  limiter.close();
}

for (const framework of Object.keys(frameworks)) {
  test(`${framework}: the configuration decides: memory`, () => differs(framework, "memory:", {}));
  test(`${framework}: the configuration decides: redis`, () =>
    withRedis(({ url }) => differs(framework, url, { deadline: "10s" })));
}

test("the user of a request is an attribute, and decisions are on the request", async () => {
  const limiter = new Limiter("memory:", { document: DOCUMENT, clock: new ManualClock(0) });
  const app = express();
  app.use((req, _, next) => {
    req.user = { id: req.headers["x-id"] };
    next();
  });
  app.use(onExpress.rateLimit({ limiter }));
  app.all("/a/{*rest}", (req, res) => res.json(req.rateLimit ?? null));
  const { url, close } = await listening(app.listen(0, "127.0.0.1"));
  assert.equal((await fetch(`${url}/a/b`, { headers: { "x-id": "mallory" } })).status, 403);
  const made = await (await fetch(`${url}/a/login`, { method: "POST", headers: { "x-id": "bob" } })).json();
  assert.deepEqual([made.policy, made.remaining, made.all.length], ["login", 0, 1]);
  close();
});

test("options that the rules of a configuration say are refused", () => {
  const limiter = new Limiter("memory:", { document: DOCUMENT });
  for (const [name, value] of [
    ["key", "user"],
    ["cost", 5],
    ["scope", "a"],
    ["spent", () => 5],
  ]) {
    const message = `${name} is given, and the limiter's configuration decides: leave it to the rules of the document, or give policy too`;
    assert.throws(() => onExpress.rateLimit({ limiter, [name]: value }), invalid(message));
  }
  onExpress.rateLimit({ limiter, policy: "api", key: "user" });
  const attributes = () => ({});
  const without = /^attributes is given, and no configuration decides/;
  assert.throws(() => onExpress.rateLimit({ limiter, policy: "api", attributes }), { message: without });
  assert.throws(() => onExpress.rateLimit({ limiter, attributes: {} }), { message: /^attributes is an object/ });
});
