// How a limit in Express finds its route, its mount and the path of a request: all spellings that reach a handler count as one.
"use strict";

const assert = require("node:assert/strict");
const { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } = require("node:fs");
const { dirname, join } = require("node:path");
const { test } = require("node:test");

const { Limiter, ManualClock } = require("polylimit");
const { rateLimit } = require("polylimit/express");

const { rawRequest } = require("./support/raw.cjs");
const { request } = require("./support/request.cjs");
const { serving } = require("./support/serving.cjs");
const { versionsOf } = require("./support/versions.cjs");

const DAY = "3/day fixed_window";

function limiterOf(options = {}) {
  return new Limiter("memory:", { clock: new ManualClock(1_700_000_000_000_000), ...options });
}

/** The scopes of quotas without a name. */
function scopes(limiter) {
  return limiter.policies
    .map(({ name }) => name.split("^")[1])
    .filter((scope) => scope !== undefined)
    .map(decodeURIComponent)
    .sort();
}

/** A document with one rule for log-ins, by their path or by their route. */
function loginRule(match) {
  return `polylimit = 1
[policies.login]
quotas = "${DAY}"
[[rules]]
match = { method = "POST", ${match} }
apply = [{ policy = "login", key = "{client}" }]
`;
}

/** The statuses of requests for these targets, one after the other. */
async function statusesOf(port, method, targets) {
  const statuses = [];
  for (const target of targets) statuses.push((await rawRequest(port, target, { method })).status);
  return statuses;
}

const left = (req, res) => res.send(`${req.rateLimit.remaining}`);

for (const { name, major, load } of versionsOf("express")) {
  const express = load("express");

  test(`${name}: a rule about a path counts every target that reaches the handler`, async () => {
    let runs = 0;
    const app = express();
    app.use(rateLimit({ limiter: limiterOf({ document: loginRule('path = "/v1/login"') }) }));
    const router = express.Router();
    router.post("/login", (_, res) => res.send(`${++runs}`));
    app.use("/v1", router);
    const targets = [
      "/v1/login",
      "http://h/v1/login",
      "HTTP://other/v1/login?a",
      "/V1/LOGIN",
      "/v1/Login/",
      "/v1/login?x=1",
      "/v1\\login#",
      "http://h\\v1/login",
    ];
    await serving(app, async (port) => {
      const statuses = await statusesOf(port, "POST", targets);
      assert.ok(statuses.includes(429), statuses.join());
      assert.equal(runs, 3, statuses.join());
    });
  });

  test(`${name}: the case of a path counts only where all routers are sensitive to it`, async () => {
    const runsOf = async (isAppSensitive, isRouterSensitive) => {
      let runs = 0;
      const app = express();
      app.set("case sensitive routing", isAppSensitive);
      app.use(rateLimit({ limiter: limiterOf({ document: loginRule('path = "/v1/login"') }) }));
      const router = express.Router({ caseSensitive: isRouterSensitive });
      for (const path of ["/login", "/LOGIN"]) router.post(path, (_, res) => res.send(`${++runs}`));
      app.use("/v1", router);
      return serving(app, async (port) => {
        await statusesOf(port, "POST", Array(4).fill(["/v1/login", "/v1/LOGIN"]).flat());
        return runs;
      });
    };
    assert.equal(await runsOf(false, true), 3);
    assert.equal(await runsOf(true, false), 3);
    assert.equal(await runsOf(true, true), 3 + 4);
  });

  test(`${name}: the attribute route is the pattern with all mounts`, async () => {
    const document = `polylimit = 1
[policies.login]
quotas = "${DAY}"
[[rules]]
match = { route = "/v1/{tenant}/users/{id}" }
apply = [{ policy = "login", key = "{route}" }]
`;
    const app = express();
    const limit = rateLimit({ limiter: limiterOf({ document }) });
    const router = express.Router();
    router.get("/users/:id", limit, (_, res) => res.send("in"));
    router.get("/other/:id", limit, (_, res) => res.send("in"));
    app.use("/v1", express.Router().use("/:tenant", router));
    await serving(app, async (port) => {
      const targets = ["/v1/a/users/1", "/v1/b/users/2", "/v1/c/USERS/3", "/v1/d/users/4", "/v1/d/other/4"];
      assert.deepEqual(await statusesOf(port, "GET", targets), [200, 200, 200, 429, 200]);
    });
  });

  test(`${name}: a program's own attribute route wins`, async () => {
    const limiter = limiterOf({ document: loginRule('route = "own"') });
    const app = express();
    app.post("/login", rateLimit({ limiter, attributes: () => ({ route: "own" }) }), (_, res) => res.send("in"));
    await serving(app, async (port) => {
      assert.deepEqual(await statusesOf(port, "POST", Array(4).fill("/login")), [200, 200, 200, 429]);
    });
  });

  test(`${name}: a router that is mounted twice has budgets at both mounts, whatever came first`, async () => {
    for (const order of [
      ["/v1/x", "/v2/x"],
      ["/v2/x", "/v1/x"],
    ]) {
      const limiter = limiterOf();
      const router = express.Router();
      router.get("/x", rateLimit({ limiter, policy: DAY }), left);
      const app = express();
      app.use("/v1", router);
      app.use("/v2", router);
      await serving(app, async (port) => {
        for (const path of order) assert.equal((await request(port, path)).text, "2", path);
        assert.equal((await request(port, "/V1/x/")).text, "1");
      });
      assert.deepEqual(scopes(limiter), ["GET /v1/x", "GET /v2/x"]);
    }
  });

  test(`${name}: an application that is mounted twice has budgets at both mounts`, async () => {
    const limiter = limiterOf();
    const inner = express();
    inner.get("/x", rateLimit({ limiter, policy: DAY }), left);
    const sub = express();
    sub.use("/inner", inner);
    const app = express();
    app.use("/m1", sub);
    app.use("/m2", sub);
    app.use("/:tenant", express());
    await serving(app, async (port) => {
      for (const path of ["/m1/inner/x", "/m2/inner/x"]) assert.equal((await request(port, path)).text, "2", path);
      assert.equal((await request(port, "/M1/inner/x")).text, "1");
    });
    assert.equal(scopes(limiter).length, 2);
  });

  test(`${name}: middlewares with the same quotas at different mounts have budgets of their own`, async () => {
    const limiter = limiterOf();
    const limit = () => rateLimit({ limiter, policy: DAY });
    const app = express();
    app.use("/auth", limit(), left);
    app.use("/reset", limit(), left);
    app.use("/t/:tenant", limit());
    const router = express.Router({ mergeParams: true });
    router.use(limit());
    router.use("/deep", rateLimit({ limiter, policy: "9/day", key: () => "k" }));
    router.get(["/y", "/deep/y"], left);
    app.use("/t/:tenant", router);
    const twice = limit();
    app.use("/one", twice, left);
    app.use("/two", twice, left);
    app.get("/everywhere", limit(), left);
    app.use(limit());
    app.get("/all", left);
    await serving(app, async (port) => {
      const text = async (path) => (await request(port, path)).text;
      assert.deepEqual([await text("/auth/a"), await text("/AUTH"), await text("/reset")], ["2", "1", "2"]);
      assert.match((await rawRequest(port, "x://h/auth")).text, /0$/);
      // Two limits at one mount share a budget, and charge it once.
      assert.deepEqual([await text("/t/a/y"), await text("/t/b/y"), await text("/T/b/y")], ["2", "1", "0"]);
      assert.equal((await request(port, "/t/c/y")).status, 429);
      assert.deepEqual([await text("/one"), await text("/two"), await text("/all")], ["2", "2", "2"]);
      assert.equal((await request(port, "/t/%41/deep/y")).status, 429);
    });
    assert.deepEqual(
      scopes(limiter).filter((scope) => !scope.startsWith("GET")),
      ["/auth", "/one", "/reset", "/t/{tenant}", "/two"],
    );
    assert.equal(limiter.policyFor(DAY).name, "3|day+fixed_window");
  });

  test(`${name}: patterns with constraints and several segments`, async () => {
    const patterns =
      major === 4
        ? {
            "/n/:id(\\d+)": ["/n/5", "GET /n/{id}"],
            "/o/:id?": ["/o", "GET /o/{id}"],
            "/s/*": ["/s/a/b", "GET /s/{*}"],
            "/d/:a-:b": ["/d/1-2", "GET /d/{a}-{b}"],
          }
        : {
            "/n{/:id}": ["/n/5", "GET /n/{id}"],
            "/s/*splat": ["/s/a/b", "GET /s/{*splat}"],
            "/o{/*splat}": ["/o", "GET /o/{*splat}"],
            "/d/:a-:b": ["/d/1-2", "GET /d/{a}-{b}"],
          };
    const limiter = limiterOf();
    const app = express();
    for (const pattern of Object.keys(patterns)) app.get(pattern, rateLimit({ limiter, policy: DAY }), left);
    const regular = /^\/r\/(\d+)$/;
    app.get(regular, rateLimit({ limiter, policy: DAY }), left);
    app.get(["/l1", "/l2"], rateLimit({ limiter, policy: DAY }), left);
    await serving(app, async (port) => {
      for (const [path] of Object.values(patterns)) assert.equal((await request(port, path)).text, "2", path);
      assert.equal((await request(port, "/r/5")).text, "2");
      // The paths of a list have one handler, and one budget.
      assert.equal((await request(port, "/l1")).text, "2");
      assert.equal((await request(port, "/l2")).text, "1");
    });
    const expected = [...Object.values(patterns).map(([, scope]) => scope), `GET ${regular}`, "GET /l1,/l2"];
    assert.deepEqual(scopes(limiter), expected.sort());
  });

  test(`${name}: no path that a client chooses is the name of a mount`, async () => {
    const limiter = limiterOf();
    const app = express();
    const mounts = major === 4 ? ["/p/:a/:b", "/v:version", "/x/*"] : ["/p/:a/:b", "/v:version", "/x/*rest"];
    for (const mount of mounts) {
      const router = express.Router();
      router.use(rateLimit({ limiter, policy: "99/day" }), left);
      app.use(mount, router);
    }
    app.use(/^\/r-[a-z]+/, express.Router().use(rateLimit({ limiter, policy: "99/day" }), left));
    await serving(app, async (port) => {
      for (const path of ["/p/p/p", "/P/a/p", "/p/b/b/", "/v1", "/v2/x", "/V3", "/x/a", "/x/a/b/c", "/r-a", "/r-b/c"]) {
        assert.equal((await request(port, path)).status, 200, path);
      }
    });
    assert.equal(scopes(limiter).length, 4, scopes(limiter).join());
  });

  test(`${name}: with method-override before it, a limit sees the method of the handler`, async () => {
    let runs = 0;
    const app = express();
    app.use(require("method-override")());
    app.use(rateLimit({ limiter: limiterOf(), policy: DAY, methods: "delete" }));
    app.delete("/item", (_, res) => res.send(`${++runs}`));
    await serving(app, async (port) => {
      const headers = { "x-http-method-override": "DELETE" };
      for (let at = 0; at < 5; at++) await request(port, "/item", { method: "POST", headers });
    });
    assert.equal(runs, 3);
  });

  test(`${name}: a part of the key that no router sets is refused, or warned about once`, async () => {
    const limit = () => rateLimit({ limiter: limiterOf(), policy: DAY, key: "path:id" });
    const message = /^the key has the part path:id, and no router sets it at \//;
    assert.throws(() => express().use(limit()), { code: "invalid_argument", message });
    assert.throws(() => express().use("/x", limit()), { code: "invalid_argument", message });
    const app = express();
    app.use("/t/:id", limit());
    app.get("/late", limit(), left);
    const warnings = [];
    const onWarning = (warning) => warnings.push(warning.message);
    process.on("warning", onWarning);
    await serving(app, async (port) => {
      for (let at = 0; at < 3; at++) await request(port, "/late");
      await request(port, "/t/5");
    });
    process.off("warning", onWarning);
    assert.equal(warnings.filter((message) => message.includes("path:id")).length, 1);
  });
}

test("express: an unsupported version is refused where the limit is mounted, and at the first request of a route", async () => {
  const refused = async (express, message) => {
    const limit = rateLimit({ limiter: limiterOf(), policy: DAY });
    assert.throws(() => express().use(limit), { code: "invalid_argument", message });
    const app = express();
    app.get("/", limit, left);
    app.use((error, _req, res, _next) => res.status(500).send(error.message));
    const { status, text } = await serving(app, (port) => request(port));
    assert.equal(status, 500);
    assert.match(text, message);
  };
  const versions = "use Express 4\\.18 or newer, and below 6\\.0";
  await refused(require("express-unsupported"), new RegExp(`^Express 4\\.17\\.3 is not supported: ${versions}`));
  // A version that does not exist yet.
  const own = dirname(require.resolve("express/package.json"));
  mkdirSync(join(own, "..", ".cache"), { recursive: true });
  const copy = mkdtempSync(join(own, "..", ".cache", "express-"));
  try {
    cpSync(own, copy, { recursive: true });
    const manifest = JSON.parse(readFileSync(join(own, "package.json")));
    writeFileSync(join(copy, "package.json"), JSON.stringify({ ...manifest, version: "6.0.0" }));
    await refused(require(copy), new RegExp(`^Express 6\\.0\\.0 is not supported: ${versions}`));
  } finally {
    rmSync(copy, { recursive: true });
  }
});
