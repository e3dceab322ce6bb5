// How a limit in Koa finds its route, its mount and the path of a request: all spellings that reach a handler count as one.
"use strict";

const assert = require("node:assert/strict");
const { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } = require("node:fs");
const { dirname, join } = require("node:path");
const { test } = require("node:test");

const mount = require("koa-mount");
const { Limiter, ManualClock } = require("polylimit");
const { rateLimit } = require("polylimit/koa");

const { rawRequest } = require("./support/raw.cjs");
const { request } = require("./support/request.cjs");
const { serving } = require("./support/serving.cjs");
const { versionsOf } = require("./support/versions.cjs");

const DAY = "3/day fixed_window";

function limiterOf(options = {}) {
  return new Limiter("memory:", { clock: new ManualClock(1_700_000_000_000_000), ...options });
}

function scopes(limiter) {
  return limiter.policies
    .map(({ name }) => name.split("^")[1])
    .filter((scope) => scope !== undefined)
    .map(decodeURIComponent)
    .sort();
}

const left = (context) => {
  context.body = `${context.state.rateLimit?.remaining}`;
};

for (const { name, load } of versionsOf("koa")) {
  const Koa = load("koa");
  const loaded = load("@koa/router");
  const Router = loaded.Router ?? loaded.default ?? loaded;

  /** Old routers change the paths of a router that they mount, so that it can be mounted once. */
  const canMountTwice = (() => {
    const [inner, outer] = [new Router().get("/x", left), new Router()];
    for (const at of ["/a", "/b"]) outer.use(at, inner.routes());
    return Boolean(outer.match("/b/x", "GET").route);
  })();

  /** Old routers have no wildcards in braces, and need no path in `router.use`. */
  const hasBraces = (() => {
    try {
      const router = new Router();
      router.use("{/*rest}", left);
      return router.match("/x", "GET").path.length === 1;
    } catch {
      return false;
    }
  })();
  const useForAll = (router, middleware) => (hasBraces ? router.use("{/*rest}", middleware) : router.use(middleware));

  const served = (app, body) => {
    app.silent = true;
    return serving(app.callback(), body);
  };

  const login = (match) => `polylimit = 1
[policies.login]
quotas = "${DAY}"
[[rules]]
match = { method = "POST", ${match} }
apply = [{ policy = "login", key = "all" }]
`;

  test(`${name}: a rule about a path counts every target that reaches the handler`, async () => {
    for (const isMounted of [false, true]) {
      let runs = 0;
      const router = new Router(isMounted ? {} : { prefix: "/v1" });
      router.post("/login", (context) => {
        context.body = `${++runs}`;
      });
      const limit = rateLimit({ limiter: limiterOf({ document: login('path = "/v1/login"') }) });
      const app = new Koa();
      if (isMounted) {
        const inner = new Koa();
        inner.use(limit).use(router.routes());
        app.use(mount("/v1", inner));
      } else {
        app.use(limit).use(router.routes());
      }
      const targets = [
        "/v1/login",
        "http://h/v1/login?x",
        "HTTP://other/v1/login",
        "/v1/LOGIN",
        "/v1/login/",
        "/v1\\login#",
      ];
      await served(app, async (port) => {
        const statuses = [];
        for (const target of targets) statuses.push((await rawRequest(port, target, { method: "POST" })).status);
        assert.equal(runs, 3, statuses.join());
      });
    }
  });

  test(`${name}: quotas without a name belong to their route or mount, with all prefixes`, async () => {
    const limiter = limiterOf();
    const limit = () => rateLimit({ limiter, policy: DAY });
    const api = new Router({ prefix: "/api" });
    let users = new Router();
    users.get("/:id", limit(), left);
    for (const at of ["/users", "/people"]) {
      if (!canMountTwice) users = new Router().get("/:id", limit(), left);
      api.use(at, users.routes());
    }
    const guarded = new Router({ prefix: "/guarded" });
    useForAll(guarded, limit());
    guarded.get("/a", left);
    guarded.get("/b", left);
    guarded.all("/all", limit(), left);
    const app = new Koa();
    app.use(mount("/auth", limit())).use(mount("/reset", limit()));
    app.use(mount("/in", api.routes())).use(api.routes()).use(guarded.routes()).use(left);
    await served(app, async (port) => {
      const text = async (path, options) => (await request(port, path, options)).text;
      assert.deepEqual(
        [await text("/api/users/1"), await text("/api/users/2"), await text("/API/people/2")],
        ["2", "1", "2"],
      );
      await request(port, "/api/people/3", { method: "HEAD" });
      assert.equal(await text("/api/people/3"), "0");
      assert.equal(await text("/in/api/people/3"), "2");
      assert.deepEqual([await text("/auth"), await text("/auth/x"), await text("/reset")], ["2", "1", "2"]);
      assert.deepEqual([await text("/guarded/a"), await text("/guarded/b")], ["2", "1"]);
      // The decision of the second limit; the router's own one has nothing left afterwards.
      assert.equal(await text("/guarded/all", { method: "POST" }), "2");
      assert.equal((await request(port, "/guarded/all")).status, 429);
    });
    assert.deepEqual(scopes(limiter), [
      "/auth",
      "/guarded",
      "/reset",
      "ALL /guarded/all",
      "GET /api/people/{id}",
      "GET /api/users/{id}",
      "GET /in/api/people/{id}",
    ]);
  });

  test(`${name}: the attribute route is the pattern with all prefixes`, async () => {
    const document = `polylimit = 1
[policies.login]
quotas = "${DAY}"
[[rules]]
match = { route = "/v1/users/{id}" }
apply = [{ policy = "login", key = "{route}" }]
`;
    for (const isOnRoute of [true, false]) {
      const limit = rateLimit({ limiter: limiterOf({ document }) });
      const router = new Router({ prefix: "/v1" });
      if (!isOnRoute) useForAll(router, limit);
      for (const at of ["/users/:id", "/other/:id"]) router.get(at, ...(isOnRoute ? [limit, left] : [left]));
      const app = new Koa();
      app.use(router.routes());
      await served(app, async (port) => {
        const statuses = [];
        for (const target of ["/v1/users/1", "/v1/users/2", "/V1/users/3", "/v1/users/4", "/v1/other/4"]) {
          statuses.push((await request(port, target)).status);
        }
        assert.deepEqual(statuses, [200, 200, 200, 429, 200]);
      });
    }
  });

  test(`${name}: a router that is sensitive to case has rules that are`, async () => {
    const limit = rateLimit({ limiter: limiterOf({ document: login('path = "/login"') }) });
    const router = new Router({ sensitive: true });
    for (const path of ["/login", "/LOGIN"]) router.post(path, limit, left);
    const app = new Koa();
    app.use(router.routes());
    await served(app, async (port) => {
      const statuses = [];
      for (const path of ["/login", "/LOGIN", "/login", "/LOGIN", "/login", "/LOGIN", "/login", "/LOGIN"]) {
        statuses.push((await request(port, path, { method: "POST" })).status);
      }
      assert.deepEqual(statuses, [200, 200, 200, 200, 200, 200, 429, 200]);
    });
  });
}

test("koa: the place of a limit that the case of a prefix would go round is refused", async () => {
  const { Router } = require("@koa/router");
  const outcomeOf = async (settings, ...path) => {
    const router = new Router({ prefix: "/v1", ...settings });
    router.use(...path, rateLimit({ limiter: limiterOf(), policy: DAY }));
    router.get("/x", left);
    const errors = [];
    const app = new (require("koa"))();
    app.on("error", (error) => errors.push(error.message));
    app.use(router.routes());
    const { status } = await serving(app.callback(), (port) => request(port, settings.prefix === "" ? "/x" : "/v1/x"));
    return [status, ...errors];
  };
  const [status, message] = await outcomeOf({});
  assert.equal(status, 500);
  assert.match(
    message,
    /^router\.use\(rateLimit\(\.\.\.\)\) is without a path, where @koa\/router compares the prefix/,
  );
  assert.deepEqual(await outcomeOf({ sensitive: true }), [200]);
  assert.deepEqual(await outcomeOf({}, "{/*rest}"), [200]);
  assert.deepEqual(await outcomeOf({ prefix: "" }), [200]);
});

test("koa: an unsupported version of the router fails the first request of a route", async () => {
  const Router = require("koa-router-unsupported");
  const router = new Router();
  router.get("/", rateLimit({ limiter: limiterOf(), policy: DAY }), left);
  const errors = [];
  const app = new (require("koa"))();
  app.on("error", (error) => errors.push(error.message));
  app.use(router.routes());
  await serving(app.callback(), (port) => request(port));
  const versions =
    "use @koa/router 8.0 or newer, and below 16.0, but not 13.0 or 14.0, or another version of polylimit";
  assert.deepEqual(errors, [`@koa/router 14.0.0 is not supported: ${versions}`]);
});

test("koa: an unsupported version fails the first request", async () => {
  const own = dirname(require.resolve("koa/package.json"));
  mkdirSync(join(own, "..", ".cache"), { recursive: true });
  const copy = mkdtempSync(join(own, "..", ".cache", "koa-"));
  try {
    for (const version of ["2.12.1", "4.0.0"]) {
      const folder = join(copy, version);
      cpSync(own, folder, { recursive: true });
      const manifest = JSON.parse(readFileSync(join(own, "package.json")));
      writeFileSync(join(folder, "package.json"), JSON.stringify({ ...manifest, version }));
      const errors = [];
      const app = new (require(folder))();
      app.on("error", (error) => errors.push(error));
      app.use(rateLimit({ limiter: limiterOf(), policy: DAY })).use(left);
      const { status } = await serving(app.callback(), (port) => request(port));
      assert.equal(status, 500);
      const expected = `Koa ${version} is not supported: use Koa 2.13 or newer, and below 4.0, or another version of polylimit`;
      assert.deepEqual([errors[0].code, errors[0].message], ["invalid_argument", expected]);
    }
  } finally {
    rmSync(copy, { recursive: true });
  }
});
