// Limits in the oldest and the newest versions of Fastify 4 and 5: each handler has one budget, however its requests are spelled.
"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const { Limiter } = require("polylimit");
const { rateLimit, rateLimitHook } = require("polylimit/fastify");

const { rawRequest } = require("./support/raw.cjs");
const { versionsOf } = require("./support/versions.cjs");

/** A test for each version; `body` gets a function that makes an application, and the version. */
function onEachVersion(name, body) {
  for (const { name: title, version, major, load } of versionsOf("fastify")) {
    // Fastify 5 needs Node 20.
    if (major === 5 && process.versions.node.startsWith("18.")) continue;
    const fastify = load("fastify");
    test(`${title}: ${name}`, () => body((options) => fastify({ ...options }), version));
  }
}

const limiterOf = (policies = { api: "100/minute" }) => new Limiter("memory:", { policies });

/** Sends requests in turn, and returns their statuses. */
async function statusesOf(app, requests) {
  const statuses = [];
  for (const request of requests) statuses.push((await app.inject(request)).statusCode);
  return statuses;
}

/** Serves an application while `body` runs. */
async function serving(app, body) {
  await app.listen({ port: 0, host: "127.0.0.1" });
  try {
    return await body(app.server.address().port);
  } finally {
    await app.close();
  }
}

onEachVersion("HEAD and GET of a route share its budget", async (fastify) => {
  const hook = rateLimitHook({ limiter: limiterOf(), policy: "3/minute", key: () => "k" });
  const routes = {
    "route options": { config: { rateLimit: { policy: "3/minute" } } },
    hook: { onRequest: hook },
    "late hook": { preHandler: hook },
  };
  for (const [name, options] of Object.entries(routes)) {
    const app = fastify();
    let runs = 0;
    await app.register(rateLimit, { limiter: limiterOf(), key: () => "k" });
    app.get(`/${name[0]}`, options, async () => `${++runs}`);
    const send = ["GET", "HEAD", "GET", "HEAD", "GET"].map((method) => ({ method, url: `/${name[0]}` }));
    assert.deepEqual(await statusesOf(app, send), [200, 200, 200, 429, 429], name);
    assert.equal(runs, 3, name);
    await app.close();
  }
});

onEachVersion("a route of several methods has one budget, with the HEAD that Fastify adds", async (fastify) => {
  const app = fastify();
  await app.register(rateLimit, { limiter: limiterOf(), key: () => "k" });
  const handler = async () => "";
  const config = { rateLimit: { policy: "2/minute" } };
  app.route({ method: ["GET", "POST"], url: "/some", config, handler });
  app.route({ method: ["GET", "HEAD"], url: "/both", config, handler });
  app.all("/all", { config }, handler);
  const send = (url, methods) =>
    statusesOf(
      app,
      methods.map((method) => ({ method, url })),
    );
  assert.deepEqual(await send("/both", ["HEAD", "GET", "HEAD"]), [200, 200, 429]);
  assert.deepEqual(await send("/all", ["HEAD", "PUT", "GET"]), [200, 200, 429]);
  assert.deepEqual(await send("/some", ["GET", "POST", "GET"]), [200, 200, 429]);
  // Fastify 4 adds no HEAD to such a route.
  const [head] = await send("/some", ["HEAD"]);
  assert.ok(head === 429 || head === 404, `${head}`);
  await app.close();
});

onEachVersion("options of routes that were added before the plugin was loaded", async (fastify) => {
  const withRoute = (config) => {
    const app = fastify();
    app.register(rateLimit, { limiter: limiterOf(), key: () => "k" });
    app.get("/a", { config }, async () => "");
    return app;
  };
  for (const name of ["rateLimit", "polylimit"]) {
    const valid = withRoute({ [name]: { policy: "1/minute" } });
    assert.deepEqual(await statusesOf(valid, ["/a", "/a"]), [200, 429]);
    const free = withRoute({ [name]: false });
    assert.equal((await free.inject("/a")).headers.ratelimit, undefined);
    const invalid = { code: "invalid_argument", message: /^option "polcy" is not known/ };
    await assert.rejects(async () => withRoute({ [name]: { polcy: "1/minute" } }).ready(), invalid);
    const refused = { code: "invalid_argument", message: new RegExp(`^config.${name} is true: allowed is an object`) };
    await assert.rejects(async () => withRoute({ [name]: true }).ready(), refused);
  }
});

onEachVersion("options of a route in another context are not checked", async (fastify) => {
  const app = fastify();
  app.register(async (other) => {
    // As @fastify/rate-limit has them, which may limit this context.
    other.get("/other", { config: { rateLimit: { max: 5 } } }, async () => "");
  });
  app.register(async (own) => {
    own.register(rateLimit, { limiter: limiterOf() });
    own.get("/own", { config: { rateLimit: { max: 5 }, polylimit: { policy: "0/minute" } } }, async () => "");
  });
  assert.deepEqual(await statusesOf(app, ["/other", "/own"]), [200, 429]);
});

onEachVersion(
  "contexts with prefixes have budgets of their own, each with one for both forms of its root",
  async (fastify) => {
    const app = fastify();
    const hook = rateLimitHook({ limiter: limiterOf(), policy: "1/minute", key: () => "k" });
    const users = async (context) => {
      context.get("/", { onRequest: hook }, async () => "");
      context.get("/:id", { onRequest: hook }, async () => "");
    };
    app.register(users, { prefix: "/v1" });
    app.register(users, { prefix: "/v2" });
    assert.deepEqual(await statusesOf(app, ["/v1/5", "/v1/6", "/v2/5", "/v2/6"]), [200, 429, 200, 429]);
    assert.deepEqual(await statusesOf(app, ["/v1", "/v1/", "/v2/", "/v2"]), [200, 429, 200, 429]);
  },
);

onEachVersion("a plugin in each of two contexts limits its own routes only", async (fastify) => {
  const app = fastify();
  const context = (scope) => async (own) => {
    own.register(rateLimit, { limiter: limiterOf(), policy: "1/minute", scope, key: () => "k" });
    own.get("/a", async () => "");
    own.register(async (inner) => void inner.get("/a", async () => ""), { prefix: "/inner" });
  };
  app.register(context("one"), { prefix: "/one" });
  app.register(context("two"), { prefix: "/two" });
  app.get("/a", async () => "");
  assert.deepEqual(await statusesOf(app, ["/one/a", "/one/inner/a", "/two/inner/a", "/two/a"]), [200, 429, 200, 429]);
  assert.deepEqual(await statusesOf(app, ["/a", "/a"]), [200, 200]);
});

onEachVersion("routes of one path with different constraints have budgets of their own", async (fastify) => {
  const app = fastify();
  const onRequest = rateLimitHook({ limiter: limiterOf(), policy: "1/minute", key: () => "k" });
  for (const version of ["1.0.0", "2.0.0"]) {
    app.get("/a", { constraints: { version }, onRequest }, async () => version);
  }
  const get = (version) => ({ url: "/a", headers: { "accept-version": version } });
  // However a client names a version, it is one.
  assert.deepEqual(await statusesOf(app, ["1.x", "2.0.0", "1.0.0", "2.x"].map(get)), [200, 200, 429, 429]);
});

/** A server whose handlers count their executions; a client has three of `POST /login`, and three of `GET /users/:id`. */
function ruled(fastify, options) {
  const rule = (method, path, policy) => ({ match: { method, path }, apply: [{ policy, key: "{client}" }] });
  const document = {
    polylimit: 1,
    policies: { login: { quotas: "3/hour fixed_window" }, user: { quotas: "3/hour fixed_window" } },
    rules: [rule("POST", "/login", "login"), rule("GET", "/users/{id}", "user")],
  };
  const app = fastify(options);
  const runs = { login: 0, user: 0 };
  app.register(rateLimit, { limiter: new Limiter("memory:", { document }) });
  app.post("/login", async () => `${++runs.login}`);
  app.get("/users/:id", async () => `${++runs.user}`);
  return { app, runs };
}

const LOGINS = [
  "/login",
  "/login?a=b",
  "/login#a",
  "/l%6Fgin",
  "http://h/login",
  "http://h:80/login?a",
  "HTTP://H/login",
];
const ODD_LOGINS = [
  // The first slash ends the authority in most versions.
  "http://h?x/login",
  "http://h;/login",
  "http://u@h?/login",
  "/login;a=b",
  "/login;",
  "http://h/login;a/b",
];

onEachVersion("a rule for a path counts what the router hands to its handler", async (fastify) => {
  const { app, runs } = ruled(fastify);
  await serving(app, async (port) => {
    for (const target of [...LOGINS, ...ODD_LOGINS]) await rawRequest(port, target, { method: "POST" });
    assert.equal(runs.login, 3);
    for (const method of ["GET", "HEAD", "GET", "HEAD", "GET"]) await rawRequest(port, "/users/5", { method });
    assert.equal(runs.user, 3);
  });
});

onEachVersion("each spelling of a path that reaches the handler is counted by a rule", async (fastify) => {
  for (const target of [...LOGINS, ...ODD_LOGINS]) {
    const { app, runs } = ruled(fastify);
    await serving(app, async (port) => {
      for (let attempt = 0; attempt < 5; attempt++) await rawRequest(port, target, { method: "POST" });
      assert.ok(runs.login <= 3, `${target}: ${runs.login}`);
    });
  }
});

onEachVersion("settings of the router hold for rules", async (fastify, number) => {
  const old = { caseSensitive: false, ignoreTrailingSlash: true, ignoreDuplicateSlashes: true };
  const spelled = ["/LOGIN", "/Login/", "//login", "/LOG%49N", "HTTP://h/Login", "/login"];
  // The newer releases of Fastify 5 have routerOptions, and still take the settings next to it.
  const hasRouterOptions = fastify({ routerOptions: {} }).initialConfig.routerOptions !== undefined;
  for (const options of hasRouterOptions ? [old, { routerOptions: old }] : [old]) {
    const { app, runs } = ruled(fastify, options);
    await serving(app, async (port) => {
      for (const target of spelled) await rawRequest(port, target, { method: "POST" });
      assert.equal(runs.login, 3);
    });
  }
  const { app, runs } = ruled(fastify, number === "4.0.0" ? {} : { useSemicolonDelimiter: true });
  await serving(app, async (port) => {
    const answers = [];
    for (let at = 0; at < 5; at++) answers.push(await rawRequest(port, `/login;a=${at}/b`, { method: "POST" }));
    assert.deepEqual(
      answers.map(({ status }) => status),
      [200, 200, 200, 429, 429],
    );
    assert.equal(runs.login, 3);
  });
});

onEachVersion("after rewriteUrl a rule sees the path that the router sees", async (fastify) => {
  const rewriteUrl = ({ url }) => (url === "/sign-in" ? "/login" : url);
  const { app, runs } = ruled(fastify, { rewriteUrl });
  await serving(app, async (port) => {
    for (const target of ["/sign-in", "/login", "/sign-in", "/login", "/sign-in"]) {
      await rawRequest(port, target, { method: "POST" });
    }
    assert.equal(runs.login, 3);
  });
});

onEachVersion("rules know the route as documents write it", async (fastify) => {
  const routes = {
    "/users/:id": ["/v1/users/{id}", "/v1/users/5"],
    "/near/:lat-:lng/r": ["/v1/near/{lat}-{lng}/r", "/v1/near/1-2/r"],
    "/at/:hour(^\\d{2})h:minute(^(?:\\d{2}))m": ["/v1/at/{hour}h{minute}m", "/v1/at/08h15m"],
    // A condition has no star but one at its end, for all that begins so: the route is `/v1/files/{*}`.
    "/files/*": ["/v1/files/*", "/v1/files/a/b"],
    "/verb::run": ["/v1/verb:run", "/v1/verb:run"],
    "/plans/:plan?": ["/v1/plans/{plan}", "/v1/plans"],
  };
  const rules = Object.values(routes).map(([route]) => ({ match: { route }, apply: [{ policy: "none", key: "all" }] }));
  const document = { polylimit: 1, policies: { none: { quotas: "0/hour" } }, rules };
  const app = fastify();
  app.register(rateLimit, { limiter: new Limiter("memory:", { document }) });
  const add = async (context) => {
    for (const path of Object.keys(routes)) context.get(path, async () => "");
    context.get("/other", async () => "");
  };
  app.register(add, { prefix: "/v1" });
  for (const [path, [, url]] of Object.entries(routes)) {
    assert.deepEqual(await statusesOf(app, [url, { method: "HEAD", url }]), [429, 429], path);
  }
  assert.deepEqual(await statusesOf(app, ["/v1/other"]), [200]);
});

onEachVersion("separateHead gives HEAD a budget of its own", async (fastify) => {
  const app = fastify();
  const options = { limiter: limiterOf(), policy: "1/minute", key: () => "k", separateHead: true };
  app.get("/a", { onRequest: rateLimitHook(options) }, async () => "");
  const send = ["GET", "HEAD", "GET", "HEAD"].map((method) => ({ method, url: "/a" }));
  assert.deepEqual(await statusesOf(app, send), [200, 200, 429, 429]);
});

test("fastify: an unsupported version is refused when the plugin is registered, and by a hook", async () => {
  const app = require("fastify-unsupported")();
  app.register(rateLimit, { limiter: limiterOf() });
  await assert.rejects(async () => app.ready(), { message: /polylimit.*'>=4\.0\.0 <6'.*'3\.29\.5'/ });
  const other = require("fastify-unsupported")();
  other.get("/", { onRequest: rateLimitHook({ limiter: limiterOf() }) }, async () => "");
  const { statusCode, body } = await other.inject("/");
  assert.equal(statusCode, 500);
  assert.match(body, /Fastify 3\.29\.5 is not supported: allowed are the versions >=4\.0\.0 <6/);
});
