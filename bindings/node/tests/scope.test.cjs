"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const fastify = require("fastify");
const { Hono } = require("hono");
const { Limiter, ManualClock } = require("polylimit");
const { rateLimit } = require("polylimit/express");
const { rateLimit: plugin, rateLimitHook } = require("polylimit/fastify");
const { rateLimit: limitFetch } = require("polylimit/fetch");
const { rateLimit: limitHono } = require("polylimit/hono");

const { request } = require("./support/request.cjs");
const { serving } = require("./support/serving.cjs");
const { until } = require("./support/until.cjs");
const { versionsOf } = require("./support/versions.cjs");

function limiterOf(policies = {}) {
  return new Limiter("memory:", { policies, clock: new ManualClock(1_700_000_000_000_000) });
}

/** The names of the policies that were made from quotas in a scope. */
function scopes(limiter) {
  return limiter.policies
    .map(({ name }) => name.split("^"))
    .filter(([, scope]) => scope !== undefined)
    .map(([quotas, scope]) => `${quotas} in ${decodeURIComponent(scope)}`)
    .sort();
}

for (const { name: version, load } of versionsOf("express")) {
  const express = load("express");
  const left = (req, res) => res.send(`${req.rateLimit.remaining}`);

  test(`${version}: quotas without a name belong to their route, in mounted routers too`, async () => {
    const limiter = limiterOf();
    const limit = (options) => rateLimit({ limiter, policy: "9/minute", ...options });
    const app = express();
    const routers = [0, 1].map(() => {
      const router = express.Router({ mergeParams: true });
      router.get("/:id", limit(), left);
      router.route("/").all(limit()).get(left);
      return router;
    });
    app.use("/users", routers[0]);
    app.use("/tenants/:tenant/users", express.Router().use("/all", routers[1]));
    const mounted = express();
    mounted.post("/x", limit(), left);
    app.use("/mounted", mounted);
    app.get("/login", limit(), left);
    app.get("/search", limit(), left);
    for (const path of ["/first", "/second"]) app.get(path, limit({ scope: "shared" }), left);
    // An earlier route that matched and called next is not the route of this middleware.
    app.get("/late", (_req, _res, next) => next());
    app.use("/late", limit(), left);
    await serving(app, async (port) => {
      const text = async (path, options) => (await request(port, path, options)).text;
      assert.deepEqual([await text("/login"), await text("/login"), await text("/search")], ["8", "7", "8"]);
      await request(port, "/login", { method: "HEAD" });
      assert.equal(await text("/login"), "5");
      assert.deepEqual([await text("/users/1"), await text("/users/2"), await text("/users")], ["8", "7", "8"]);
      // One budget for all tenants: a client cannot create policies by its choice of path.
      assert.deepEqual([await text("/tenants/a/users/all/1"), await text("/tenants/b/users/all/2")], ["8", "7"]);
      assert.equal(await text("/tenants/c/users/all"), "8");
      assert.equal(await text("/mounted/x", { method: "POST" }), "8");
      assert.deepEqual([await text("/first"), await text("/second")], ["8", "7"]);
      assert.equal(await text("/late"), "8");
    });
    // A route that is too long for a scope is hashed.
    const hashed = /^[0-9a-f]{16,}$/;
    assert.deepEqual(
      scopes(limiter)
        .map((scope) => scope.replace("9|minute in ", ""))
        .filter((scope) => !hashed.test(scope)),
      [
        "/late",
        "ALL /tenants/{tenant}/users/all/",
        "ALL /users/",
        "GET /login",
        "GET /search",
        "GET /users/{id}",
        "POST /mounted/x",
        "shared",
      ],
    );
  });

  test(`${version}: several middlewares charge one policy for one key once`, async () => {
    const limiter = limiterOf({ api: "100/minute", user: "100/minute" });
    const app = express();
    app.use(rateLimit({ limiter, policy: "api", key: () => 5 }));
    app.get("/same", rateLimit({ limiter, policy: "api", key: () => Buffer.from("5") }), left);
    app.get("/other", rateLimit({ limiter, policy: "api", key: () => "other" }), left);
    app.get("/more", rateLimit({ limiter, policy: "api", key: () => "5", cost: 4 }), left);
    app.get("/both", rateLimit({ limiter, policy: ["user", "api"], key: () => "5" }), (req, res) =>
      res.json(req.rateLimit.all.map(({ policy, decision }) => [policy, decision.remaining])),
    );
    app.get("/wrong", rateLimit({ limiter, policy: "api", key: () => "5", cost: () => -1 }), left);
    app.use((error, _req, res, _next) => res.status(500).send(error.message));
    await serving(app, async (port) => {
      const same = await request(port, "/same");
      assert.deepEqual([same.text, same.headers.ratelimit.slice(0, 11)], ["99", '"api";r=99;']);
      await request(port, "/other");
      assert.deepEqual(
        [(await limiter.peek(5, "api")).remaining, (await limiter.peek("other", "api")).remaining],
        [98, 99],
      );
      const more = await request(port, "/more");
      assert.deepEqual([more.text, more.headers.ratelimit.slice(0, 11)], ["94", '"api";r=94;']);
      const both = await request(port, "/both");
      assert.deepEqual(JSON.parse(both.text), [
        ["user", 99],
        ["api", 93],
      ]);
      assert.deepEqual([(await limiter.peek(5, "api")).remaining, (await limiter.peek(5, "user")).remaining], [93, 99]);
      assert.match((await request(port, "/wrong")).text, /^cost is -1: /);
    });
  });

  test(`${version}: a shared charge is refunded once, when no middleware counts the request`, async () => {
    const limiter = limiterOf({ api: "100/minute" });
    let over = 0;
    const counting = (status) => (_, res) => {
      over += 1;
      return res.statusCode === status;
    };
    const limit = (options) => rateLimit({ limiter, policy: "api", key: () => "k", ...options });
    const app = express();
    app.use(limit({ count: counting(401) }));
    app.get("/every", limit(), left);
    app.get("/some", limit({ count: counting(200), cost: 3 }), (req, res) =>
      res.status(Number(req.query.status)).end(),
    );
    await serving(app, async (port) => {
      const spent = async (path, guards) => {
        over = 0;
        await limiter.reset("k", "api");
        await request(port, path);
        await until(() => over === guards, "it is over");
        await limiter.checkMany([{ key: "k", cost: 0 }]);
        return 100 - (await limiter.peek("k", "api")).remaining;
      };
      assert.equal(await spent("/every", 1), 1);
      assert.equal(await spent("/some?status=200", 2), 3);
      assert.equal(await spent("/some?status=401", 2), 1);
      assert.equal(await spent("/some?status=404", 2), 0);
    });
  });
}

test("fastify: quotas without a name belong to their route, and a policy is charged once", async () => {
  const limiter = limiterOf({ api: "100/minute" });
  const app = fastify();
  const hook = (options) => ({ onRequest: rateLimitHook({ limiter, policy: "9/minute", ...options }) });
  const left = async (req) => `${req.rateLimit.remaining}`;
  app.register(plugin, { limiter, policy: ["api", "9/minute"] });
  app.get("/login", hook(), left);
  app.register(async (inner) => inner.get("/:id", hook(), left), { prefix: "/users" });
  app.get("/named", { onRequest: rateLimitHook({ limiter, policy: "api" }) }, left);
  app.get("/shared", hook({ scope: "x" }), left);
  const text = async (url) => (await app.inject(url)).body;
  assert.deepEqual([await text("/login"), await text("/login")], ["8", "7"]);
  assert.deepEqual([await text("/users/1"), await text("/users/2")], ["8", "7"]);
  assert.equal(await text("/named"), "95");
  assert.equal(await text("/shared"), "8");
  await text("/nowhere");
  assert.deepEqual(scopes(limiter), ["9|minute in GET /login", "9|minute in GET /users/:id", "9|minute in x"]);
  assert.equal((await limiter.peek("127.0.0.1", "9/minute")).remaining, 2);
});

test("hono: quotas without a name belong to their route, and a policy is charged once", async () => {
  const limiter = limiterOf({ api: "100/minute" });
  const limit = (options) => limitHono({ limiter, policy: "9/minute", key: () => "k", ...options });
  const left = (c) => c.text(`${c.get("rateLimit").remaining}`);
  const app = new Hono();
  app.use(limit({ policy: "api" }));
  app.use("/admin/*", limit());
  app.get("/login", limit(), left);
  app.get("/admin/users", limit(), left);
  app.route("/users", new Hono().get("/:id", limit(), left));
  app.get("/named", limit({ policy: "api" }), left);
  app.get("/shared", limit({ scope: "x" }), left);
  const text = async (path) => (await app.request(path)).text();
  assert.deepEqual([await text("/login"), await text("/login")], ["8", "7"]);
  assert.deepEqual([await text("/users/1"), await text("/users/2")], ["8", "7"]);
  assert.equal(await text("/admin/users"), "8");
  assert.equal(await text("/named"), "94");
  assert.equal(await text("/shared"), "8");
  const routes = ["ALL /admin/*", "GET /admin/users", "GET /login", "GET /users/:id", "x"];
  assert.deepEqual(
    scopes(limiter),
    routes.map((route) => `9|minute in ${route}`),
  );
  assert.equal((await limiter.peek("k", "9/minute")).remaining, 9);
});

test("fetch: quotas count in the scope option, and a policy is charged once", async () => {
  const limiter = limiterOf({ api: "100/minute" });
  const limit = (handler, options) => limitFetch(handler, { limiter, policy: "9/minute", key: () => "k", ...options });
  const answer = () => new Response("hello");
  const [one, other, shared] = [limit(answer), limit(answer), limit(answer, { scope: "x" })];
  for (const handler of [one, other, shared]) await handler(new Request("http://localhost/"));
  assert.equal((await limiter.peek("k", "9/minute")).remaining, 7);
  assert.deepEqual(scopes(limiter), ["9|minute in x"]);
  const twice = limit(limit(answer, { policy: "api" }), { policy: "api" });
  await twice(new Request("http://localhost/"));
  assert.equal((await limiter.peek("k", "api")).remaining, 99);
});

test("a route may be longer than a scope", async () => {
  const limiter = limiterOf();
  const app = fastify();
  const options = { onRequest: rateLimitHook({ limiter, policy: "9/minute" }) };
  for (const end of ["a", "b"]) {
    app.get(`/${"long/".repeat(60)}${end}`, options, async (req) => `${req.rateLimit.remaining}`);
  }
  const text = async (end) => (await app.inject(`/${"long/".repeat(60)}${end}`)).body;
  assert.deepEqual([await text("a"), await text("a"), await text("b")], ["8", "7", "8"]);
});

test("policyFor finds a policy by name, by quotas in a scope, or as the only one", () => {
  const limiter = limiterOf({ api: "100/minute" });
  assert.equal(limiter.policyFor().name, "api");
  assert.equal(limiter.policyFor("api", "/login").name, "api");
  const { name, quotas } = limiter.policyFor("5 per minute; 9/hour", "/login");
  assert.deepEqual(quotas.map(String), ["5/minute", "9/hour"]);
  assert.equal(limiter.checkSync("k", name).remaining, 4);
  assert.equal(limiter.checkSync("k", "5/minute; 9/hour").remaining, 4);
  assert.equal(limiter.policyFor("5 / min; 9/h", "/login").name, name);
  for (const [policy, scope] of [
    ["nobody", undefined],
    ["5/minut", undefined],
    [5, undefined],
    ["5/minute", ""],
    ["5/minute", "x".repeat(257)],
    ["5/minute", 5],
  ]) {
    assert.throws(() => limiter.policyFor(policy, scope), { name: "PolylimitError", code: "invalid_argument" });
  }
});
