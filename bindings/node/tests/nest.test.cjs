// The guard and the decorator for NestJS, in real applications on Express and Fastify. guard.test.cjs has the common rules.
"use strict";

const assert = require("node:assert/strict");
const { spawnSync } = require("node:child_process");
const { test } = require("node:test");

const { Limiter, ManualClock } = require("polylimit");
const { RateLimit, RateLimitGuard } = require("polylimit/nest");

const { invalid } = require("./support/code.cjs");
const nest = require("./support/nest.cjs");
const { rawRequest } = require("./support/raw.cjs");
const { request } = require("./support/request.cjs");
const { versionsOf } = require("./support/versions.cjs");

const START_MICROS = 1_700_000_000_000_000;

function limiterOf(policies = { api: "9/minute", strict: "2/minute", daily: "3/day" }) {
  return new Limiter("memory:", { policies, clock: new ManualClock(START_MICROS) });
}

/** Serves an application while `body` runs; `get` sends a request. */
async function serving(app, body) {
  await app.listen(0, "127.0.0.1");
  const { port } = app.getHttpServer().address();
  try {
    return await body((path, options) => request(port, path, options));
  } finally {
    await app.close();
  }
}

/** The policy and the remaining units of the request's decision. */
const left = ({ rateLimit }) => (rateLimit === undefined ? "none" : `${rateLimit.policy} ${rateLimit.remaining}`);

async function texts(get, ...paths) {
  const found = [];
  for (const path of paths) found.push((await get(path)).text);
  return found;
}

/** The quotas without a name that were used, and their scopes. */
function scopes(limiter) {
  return limiter.policies
    .map(({ name }) => name.split("^"))
    .filter(([, scope]) => scope !== undefined)
    .map(([quotas, scope]) => `${quotas} in ${decodeURIComponent(scope).replace(":id", "{id}")}`)
    .sort();
}

const SERVED = versionsOf("nest").flatMap((version) => ["express", "fastify"].map((platform) => [version, platform]));

for (const [version, platform] of SERVED) {
  const controllerOf = (path, handlers, decorators) => nest.controllerOf(path, handlers, decorators, version);
  const nestApplication = (on, controllers, providers) => nest.nestApplication(on, controllers, providers, version);

  test(`${version.name} on ${platform}: options of a handler replace those of its controller, and these the guard's`, async () => {
    const limiter = limiterOf();
    const plain = await controllerOf("plain", {
      usual: { handle: left },
      own: { handle: left, decorators: [RateLimit({ policy: "strict", cost: 2 })] },
    });
    const marked = { usual: { handle: left }, own: { handle: left, decorators: [RateLimit({ policy: "daily" })] } };
    const controller = await controllerOf("marked", marked, [RateLimit({ policy: "strict", key: "header:x-key" })]);
    const heir = class extends controller {};
    const { Controller } = await version.import("@nestjs/common");
    Controller("heir")(heir);
    const app = await nestApplication(platform, [plain, controller, heir]);
    app.useGlobalGuards(new RateLimitGuard({ limiter, policy: "api" }));
    await serving(app, async (get) => {
      assert.deepEqual(await texts(get, "/plain/usual", "/plain/own", "/plain/usual"), ["api 8", "strict 0", "api 7"]);
      assert.equal((await get("/plain/own")).status, 429);
      // The key of the controller is not that of its handler, which has the guard's.
      const headers = { "x-key": "other" };
      assert.equal((await get("/marked/usual", { headers })).text, "strict 1");
      assert.equal((await get("/marked/own", { headers })).text, "daily 2");
      assert.equal((await limiter.peek("127.0.0.1", "daily")).remaining, 2);
      assert.equal((await get("/heir/usual", { headers })).text, "strict 0");
    });
  });

  test(`${version.name} on ${platform}: false exempts a controller or a handler`, async () => {
    const limiter = limiterOf({ api: "1/minute" });
    const plain = { usual: { handle: left }, free: { handle: left, decorators: [RateLimit(false)] } };
    const exempt = { usual: { handle: left }, limited: { handle: left, decorators: [RateLimit({ policy: "api" })] } };
    const controllers = [await controllerOf("plain", plain), await controllerOf("exempt", exempt, [RateLimit(false)])];
    const { APP_GUARD } = await version.import("@nestjs/core");
    const provider = { provide: APP_GUARD, useFactory: () => new RateLimitGuard({ limiter }) };
    await serving(await nestApplication(platform, controllers, [provider]), async (get) => {
      assert.deepEqual(await texts(get, "/plain/usual", "/plain/free", "/exempt/usual"), ["api 0", "none", "none"]);
      const statuses = await Promise.all(["/plain/usual", "/plain/free", "/exempt/usual", "/exempt/limited"].map(get));
      assert.deepEqual(
        statuses.map(({ status }) => status),
        [429, 200, 200, 429],
      );
      assert.equal(statuses[1].headers.ratelimit, undefined);
    });
  });

  test(`${version.name} on ${platform}: several limits of a handler all decide, and share the header fields`, async () => {
    const limiter = limiterOf();
    const { UseGuards } = await version.import("@nestjs/common");
    const all = ({ rateLimit }) =>
      rateLimit.all.map(({ policy, decision }) => `${policy} ${decision.remaining}`).join();
    const guards = ["strict", "daily"].map((policy) => new RateLimitGuard({ limiter, policy }));
    const controller = await controllerOf("", {
      list: { handle: all, decorators: [RateLimit({ policy: ["strict", "daily"], key: () => "list" })] },
      guards: { handle: () => "in", decorators: [RateLimit({ key: () => "guards" }), UseGuards(...guards)] },
    });
    const app = await nestApplication(platform, [controller]);
    app.useGlobalGuards(new RateLimitGuard({ limiter, policy: "api" }));
    await serving(app, async (get) => {
      assert.equal((await get("/list")).text, "strict 1,daily 2");
      const { ratelimit } = (await get("/guards")).headers;
      for (const policy of ["api", "strict", "daily"]) assert.match(ratelimit, new RegExp(`"${policy}";r=`));
      assert.equal((await get("/guards")).status, 200);
      assert.equal((await get("/guards")).status, 429);
      // The denial gives the earlier guard its unit back.
      assert.equal((await limiter.peek("guards", "api")).remaining, 7);
    });
  });

  test(`${version.name} on ${platform}: count sees the status of a handler that throws`, async () => {
    const limiter = limiterOf();
    const { UnauthorizedException } = await version.import("@nestjs/common");
    const fail = ({ query }) => {
      if (query.error === "http") throw new UnauthorizedException();
      if (query.error === "other") throw new Error("the handler fails");
      return "in";
    };
    const count = (_, { statusCode }) => statusCode === 401;
    const decorators = [RateLimit({ policy: "strict", count })];
    const controller = await controllerOf("", { login: { method: "Post", handle: fail, decorators } });
    const app = await nestApplication(platform, [controller]);
    app.useGlobalGuards(new RateLimitGuard({ limiter, policy: "api" }));
    await serving(app, async (get) => {
      const answers = [];
      for (const error of ["", "other", "http", "", "http", "http"]) {
        const { status, headers } = await get(`/login?error=${error}`, { method: "POST" });
        answers.push([status, /r=(\d+)/.exec(headers.ratelimit)[1]]);
      }
      const expected = [201, "2", 500, "2", 401, "1", 201, "1", 401, "0", 429, "0"];
      assert.deepEqual(answers.flat(), expected);
    });
  });

  test(`${version.name} on ${platform}: exception filters see errors of options, and no denial`, async () => {
    const limiter = limiterOf({ api: "1/minute" });
    const failing = [RateLimit({ skip: () => Promise.reject(new Error("skip fails")) })];
    const wrong = [RateLimit({ policy: "missing" })];
    const { Catch } = await version.import("@nestjs/common");
    const controller = await controllerOf("", {
      usual: { handle: left },
      failing: { handle: left, decorators: failing },
      wrong: { handle: left, decorators: wrong },
    });
    const seen = [];
    const filter = class {
      catch(error, host) {
        seen.push(error.message);
        host.switchToHttp().getResponse().status(500).send("filtered");
      }
    };
    Catch()(filter);
    const app = await nestApplication(platform, [controller]);
    app.useGlobalGuards(new RateLimitGuard({ limiter }));
    app.useGlobalFilters(new filter());
    await serving(app, async (get) => {
      assert.equal((await get("/usual")).text, "api 0");
      const denied = await get("/usual");
      assert.equal(denied.status, 429);
      assert.equal(denied.headers["content-type"], "application/problem+json");
      assert.deepEqual(seen, []);
      assert.deepEqual(await texts(get, "/failing", "/wrong"), ["filtered", "filtered"]);
      assert.equal(seen[0], "skip fails");
      assert.match(seen[1], /missing/);
    });
  });

  test(`${version.name} on ${platform}: quotas without a name belong to the route, those of a global guard to the limiter`, async () => {
    const limiter = limiterOf({});
    const { UseGuards, VersioningType, Version } = await version.import("@nestjs/common");
    const own = class extends RateLimitGuard {
      constructor() {
        super({ limiter, policy: "7/minute" });
      }
    };
    const controller = await controllerOf("users", {
      one: { path: ":id", handle: left, decorators: [RateLimit({ policy: "5/minute" }), Version("2")] },
      all: { path: "", handle: left, decorators: [RateLimit({ policy: "5/minute" })] },
      shared: { path: "x/y", handle: left, decorators: [RateLimit({ policy: "5/minute", scope: "shared" })] },
    });
    const usual = { search: { handle: left }, find: { handle: left } };
    const guarded = await controllerOf("guarded", usual, [UseGuards(own), RateLimit({ policy: "6/minute" })]);
    const byGuard = await controllerOf("by-guard", usual, [RateLimit(false)]);
    const app = await nestApplication(platform, [controller, guarded, byGuard, await controllerOf("plain", usual)]);
    app.setGlobalPrefix("api");
    app.enableVersioning({ type: VersioningType.URI });
    app.useGlobalGuards(new RateLimitGuard({ limiter, policy: "9/minute" }));
    await serving(app, async (get) => {
      const first = ["/api/v2/users/1", "/api/v2/users/2", "/api/users", "/api/users/x/y"];
      const remaining = async (...paths) => (await texts(get, ...paths)).map((text) => text.split(" ")[1]);
      assert.deepEqual(await remaining(...first), ["4", "3", "4", "4"]);
      assert.deepEqual(await remaining("/api/plain/search", "/api/plain/find"), ["8", "7"]);
      assert.deepEqual(await remaining("/api/guarded/search", "/api/guarded/find"), ["5", "5"]);
      assert.deepEqual(scopes(limiter), [
        "5|minute in GET /api/users",
        "5|minute in GET /api/v2/users/{id} version=2",
        "5|minute in shared",
        "6|minute in GET /api/guarded/find",
        "6|minute in GET /api/guarded/search",
      ]);
    });
  });

  test(`${version.name} on ${platform}: quotas of a guard of @UseGuards belong to the route`, async () => {
    const limiter = limiterOf({});
    const { UseGuards } = await version.import("@nestjs/common");
    const own = class extends RateLimitGuard {
      constructor() {
        super({ limiter, policy: "7/minute" });
      }
    };
    const guard = new RateLimitGuard({ limiter, policy: "5/minute" });
    const controller = await controllerOf("a", {
      first: { handle: left, decorators: [UseGuards(guard)] },
      second: { handle: left, decorators: [UseGuards(guard)] },
    });
    const other = await controllerOf("b", { third: { handle: left } }, [UseGuards(own)]);
    await serving(await nestApplication(platform, [controller, other]), async (get) => {
      await texts(get, "/a/first", "/a/second", "/b/third");
      assert.deepEqual(scopes(limiter), [
        "5|minute in GET /a/first",
        "5|minute in GET /a/second",
        "7|minute in GET /b/third",
      ]);
    });
  });

  test(`${version.name} on ${platform}: handlers of several paths have one budget, and versions their own`, async () => {
    const limiter = limiterOf({});
    const { UseGuards, VersioningType, Version } = await version.import("@nestjs/common");
    const controller = await controllerOf(
      "cats",
      {
        both: { path: ["a", "b"], handle: left },
        first: { path: "c", handle: left, decorators: [Version("1")] },
        second: { path: "c", handle: left, decorators: [Version(["2", "3"])] },
      },
      [UseGuards(new RateLimitGuard({ limiter, policy: "5/minute" }))],
    );
    const app = await nestApplication(platform, [controller]);
    app.enableVersioning({ type: VersioningType.HEADER, header: "x-version" });
    await serving(app, async (get) => {
      assert.deepEqual(await texts(get, "/cats/a", "/cats/b"), ["5|minute^type.both 4", "5|minute^type.both 3"]);
      const remaining = [];
      for (const version of ["1", "2", "3", "1"]) {
        remaining.push((await get("/cats/c", { headers: { "x-version": version } })).text.split(" ")[1]);
      }
      assert.deepEqual(remaining, ["4", "4", "3", "3"]);
    });
  });

  test(`${version.name} on ${platform}: rules name paths and routes, in a global guard too`, async () => {
    const document = `polylimit = 1
[policies.login]
quotas = "3/day fixed_window"
[policies.user]
quotas = "3/day fixed_window"
[[rules]]
match = { method = "POST", path = "/api/login" }
apply = [{ policy = "login", key = "all" }]
[[rules]]
match = { method = "GET", route = "/api/v1/users/{id}" }
apply = [{ policy = "user", key = "{route}" }]
`;
    const limiter = new Limiter("memory:", { document, clock: new ManualClock(START_MICROS) });
    const { VersioningType, Version } = await version.import("@nestjs/common");
    const runs = { login: 0, user: 0 };
    const controller = await controllerOf("", {
      login: { method: "Post", handle: () => `${++runs.login}` },
      user: { path: "users/:id", handle: () => `${++runs.user}`, decorators: [Version("1")] },
    });
    const app = await nestApplication(platform, [controller]);
    app.setGlobalPrefix("api");
    app.enableVersioning({ type: VersioningType.URI, defaultVersion: undefined });
    app.useGlobalGuards(new RateLimitGuard({ limiter }));
    await serving(app, async (get) => {
      const { port } = app.getHttpServer().address();
      for (const target of [
        "/api/login",
        "/API/LOGIN",
        "http://h/api/login",
        "/api/login/",
        "/api/login?x",
        "/api/Login",
        "/api/login",
      ]) {
        await rawRequest(port, target, { method: "POST" });
      }
      for (const method of ["GET", "HEAD", "GET", "HEAD", "GET"]) await get(`/api/v1/users/${method}`, { method });
      assert.deepEqual(runs, { login: 3, user: 3 });
    });
  });
}

test("nest: an unsupported version fails the first request", () => {
  // Each test file has a process of its own, and Nest is checked once.
  const script = `
    const { Limiter } = require("polylimit");
    const { RateLimitGuard } = require("polylimit/nest");
    const { createRequire } = require("node:module");
    const guard = new RateLimitGuard({ limiter: new Limiter("memory:"), policy: "5/minute" });
    require("node:fs").readFileSync = ((read) => (file, ...rest) =>
      String(file).includes("@nestjs/core/package.json") ? '{ "version": "9.4.3" }' : read(file, ...rest))(require("node:fs").readFileSync);
    try {
      guard.canActivate({ getType: () => "http" });
    } catch (error) {
      console.log(error.code, error.message);
    }`;
  const { stdout } = spawnSync(process.execPath, ["-e", script], { cwd: __dirname, encoding: "utf8" });
  const expected =
    "NestJS 9.4.3 is not supported: use NestJS 10.0 or newer, and below 13.0, or another version of polylimit";
  assert.equal(stdout.trim(), `invalid_argument ${expected}`);
});

test("nest: a guard and a decorator check their options, and a message of another kind is not limited", () => {
  assert.throws(() => new RateLimitGuard({ limiter: limiterOf(), policy: "missing" }), invalid(/missing/));
  assert.throws(() => RateLimit({ polcy: "5/minute" }), invalid(/polcy/));
  assert.throws(() => RateLimit(undefined), invalid(/^options is undefined/));
  const guard = new RateLimitGuard({ limiter: limiterOf(), policy: "api" });
  assert.equal(guard.canActivate({ getType: () => "rpc" }), true);
});
