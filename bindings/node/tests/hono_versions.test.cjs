// Limits in the oldest and the newest version of Hono 4: each handler has one budget, however its requests are spelled.
"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const { test } = require("node:test");

const { serve } = require("@hono/node-server");
const { Limiter } = require("polylimit");
const { rateLimit } = require("polylimit/hono");

const { rawRequest } = require("./support/raw.cjs");
const { versionsOf } = require("./support/versions.cjs");

/** A test for each version; `body` gets the class of applications. */
function onEachVersion(name, body) {
  for (const { name: version, load } of versionsOf("hono")) {
    const { Hono } = load("hono");
    test(`${version}: ${name}`, () => body(Hono, load));
  }
}

const limiterOf = () => new Limiter("memory:", { policies: { api: "100/minute" } });
const limited = (more = {}) => rateLimit({ limiter: limiterOf(), policy: "1/minute", key: () => "k", ...more });

/** Sends requests such as `GET /a` in turn, and returns their statuses. */
async function statusesOf(app, requests, headers = {}) {
  const statuses = [];
  for (const request of requests) {
    const [method, path] = request.split(" ");
    statuses.push((await app.request(path, { method, headers })).status);
  }
  return statuses;
}

/** Serves an application while `body` runs. */
async function serving(app, body) {
  const server = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" });
  if (!server.listening) await once(server, "listening");
  try {
    return await body(server.address().port);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

onEachVersion("a limit at a route counts HEAD, and a handler of several methods has one", async (Hono) => {
  const limit = limited();
  const app = new Hono();
  app.get("/a", limit, (context) => context.text("a"));
  app.all("/b", limit, (context) => context.text("b"));
  assert.deepEqual(await statusesOf(app, ["HEAD /a", "GET /a", "HEAD /a"]), [200, 429, 429]);
  assert.deepEqual(await statusesOf(app, ["PUT /b", "GET /b", "HEAD /b"]), [200, 429, 429]);
});

onEachVersion("the same limit at several paths, and an application that is added twice", async (Hono) => {
  const users = new Hono();
  users.use(limited());
  users.get("/:id", (context) => context.text(context.req.param("id")));
  const app = new Hono();
  app.route("/v1", users);
  app.route("/v2", users);
  assert.deepEqual(await statusesOf(app, ["GET /v1/5", "GET /v1/6", "GET /v2/5", "GET /v2/6"]), [200, 429, 200, 429]);
  const limit = limited();
  const other = new Hono();
  for (const path of ["/log-in/*", "/reset/*"]) other.use(path, limit);
  other.get("*", (context) => context.text(""));
  const requests = ["GET /log-in/a", "GET /log-in", "GET /reset/a", "GET /reset/b"];
  assert.deepEqual(await statusesOf(other, requests), [200, 429, 200, 429]);
  // For all paths, the budget is that of the limiter.
  const whole = new Hono();
  whole.use(limit);
  whole.get("*", (context) => context.text(""));
  assert.deepEqual(await statusesOf(whole, ["GET /a", "GET /b"]), [200, 429]);
});

onEachVersion(
  "base paths, and errors that an application handles itself, leave the names of routes alone",
  async (Hono) => {
    const app = new Hono().basePath("/api");
    const inner = new Hono();
    inner.onError((_, context) => context.text("own", 500));
    const limit = limited();
    inner.get("/a", limit, (context) => context.text(""));
    app.route("/in", inner);
    app.get("/a", limit, (context) => context.text(""));
    const requests = ["GET /api/in/a", "GET /api/in/a", "GET /api/a", "HEAD /api/a"];
    assert.deepEqual(await statusesOf(app, requests), [200, 429, 200, 429]);
  },
);

onEachVersion("a mounted application has its own limits, and knows the client", async (Hono) => {
  const mounted = new Hono();
  mounted.use(rateLimit({ limiter: limiterOf(), policy: "1/minute" }));
  mounted.get("/a", (context) => context.text("a"));
  const app = new Hono();
  app.mount("/old", mounted.fetch);
  app.get("/a", (context) => context.text("a"));
  await serving(app, async (port) => {
    const statuses = [];
    for (const path of ["/old/a", "/old/a", "/a", "/a"]) statuses.push((await rawRequest(port, path)).status);
    assert.deepEqual(statuses, [200, 429, 200, 200]);
  });
});

/** An application whose handlers count their executions; a client has two of each. */
function ruled(Hono, match, options) {
  const document = {
    polylimit: 1,
    policies: { login: { quotas: "2/hour sliding_log" }, user: { quotas: "2/hour fixed_window" } },
    rules: [
      { match: match("POST", "/v1/login"), apply: [{ policy: "login", key: "{client}" }] },
      { match: match("GET", "/v1/users/{id}"), apply: [{ policy: "user", key: "{client}" }] },
    ],
  };
  const app = new Hono(options);
  const runs = { login: 0, user: 0 };
  app.use(rateLimit({ limiter: new Limiter("memory:", { document }), peer: () => "192.0.2.1" }));
  const inner = new Hono();
  inner.post("/login", (context) => context.text(`${++runs.login}`));
  inner.use("/users/*", async (_, next) => next());
  inner.get("/users/:id{[0-9]+}", (context) => context.text(`${++runs.user}`));
  app.route("/v1", inner);
  return { app, runs };
}

const LOGINS = [
  "/v1/login",
  "/v1/login?a=b",
  "/v1/l%6Fgin",
  "/v1/./login",
  "/x/../v1/login",
  "http://h/v1/login",
  "HTTP://h/v1/login",
  "/v1/login/",
];

onEachVersion("rules for paths and for routes count what the router hands to its handler", async (Hono) => {
  const byPath = (method, path) => ({ method, path });
  const byRoute = (method, route) => ({ method, route });
  for (const match of [byPath, byRoute]) {
    for (const strict of [true, false]) {
      const { app, runs } = ruled(Hono, match, { strict });
      await serving(app, async (port) => {
        for (const target of LOGINS) await rawRequest(port, target, { method: "POST" });
        for (const path of ["/v1/users/1", "/v1/users/2", "/v1/users/%33", "/v1/users/4"]) {
          for (const method of ["GET", "HEAD"]) await rawRequest(port, path, { method });
        }
      });
      assert.deepEqual(runs, { login: 2, user: 2 }, match.name);
    }
  }
});

onEachVersion("rules know the route as documents write it, also in front of other functions", async (Hono) => {
  const routes = {
    "/users/:id": ["/v1/users/{id}", "/v1/users/5"],
    "/posts/:id{[0-9]{2}}": ["/v1/posts/{id}", "/v1/posts/12"],
    "/plans/:plan?": ["/v1/plans/{plan}", "/v1/plans/a"],
    // A condition has no star but one at its end, for all that begins so: the route is `/v1/files/{*}`.
    "/files/*": ["/v1/files/*", "/v1/files/a/b"],
  };
  const rules = Object.values(routes).map(([route]) => ({ match: { route }, apply: [{ policy: "none", key: "all" }] }));
  const document = { polylimit: 1, policies: { none: { quotas: "0/hour" } }, rules };
  const limit = () => rateLimit({ limiter: new Limiter("memory:", { document }), peer: () => "192.0.2.1" });
  const pass = (_, next) => next();
  const text = (context) => context.text("");
  const inFront = new Hono().basePath("/v1");
  inFront.use(limit());
  inFront.use("/users/*", pass);
  inFront.get("/posts/*", pass);
  const onRoutes = new Hono().basePath("/v1");
  for (const path of Object.keys(routes)) {
    inFront.get(path, text);
    onRoutes.get(path, limit(), text);
  }
  for (const app of [inFront, onRoutes]) {
    app.get("/other", text);
    for (const [path, [, url]] of Object.entries(routes)) {
      assert.deepEqual(await statusesOf(app, [`GET ${url}`, `HEAD ${url}`]), [429, 429], path);
    }
    assert.deepEqual(await statusesOf(app, ["GET /v1/other"]), [200]);
  }
});

onEachVersion("separateHead gives HEAD a budget of its own", async (Hono) => {
  const app = new Hono();
  app.get("/a", limited({ separateHead: true }), (context) => context.text(""));
  assert.deepEqual(await statusesOf(app, ["GET /a", "HEAD /a", "GET /a", "HEAD /a"]), [200, 200, 429, 429]);
});

onEachVersion("a request of app.request has no peer: the option peer or a key stands for it", async (Hono) => {
  const app = (options) => {
    const made = new Hono();
    made.onError(({ message }, context) => context.text(message, 500));
    made.use(rateLimit({ limiter: limiterOf(), policy: "1/minute", ...options }));
    made.get("/", (context) => context.text(""));
    return made;
  };
  const refused = await app({}).request("/");
  assert.equal(refused.status, 500);
  assert.match(await refused.text(), /neither key nor peer is given/);
  assert.deepEqual(await statusesOf(app({ peer: () => "127.0.0.1" }), ["GET /", "GET /"]), [200, 429]);
  // As @hono/node-server has the socket.
  const env = { incoming: { socket: { remoteAddress: "127.0.0.1" }, headers: {} } };
  const onNode = app({});
  const statuses = [];
  for (let at = 0; at < 2; at++) statuses.push((await onNode.request("/", {}, env)).status);
  assert.deepEqual(statuses, [200, 429]);
});
