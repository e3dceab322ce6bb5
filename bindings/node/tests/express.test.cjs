"use strict";

const assert = require("node:assert/strict");
const { AsyncLocalStorage } = require("node:async_hooks");
const { fork } = require("node:child_process");
const { once } = require("node:events");
const { join } = require("node:path");
const { test } = require("node:test");

const { ClientAddressRules, Limiter, ManualClock } = require("polylimit");
const { rateLimit } = require("polylimit/express");

const { localStore } = require("./support/local.cjs");
const { withRedis } = require("./support/redis.cjs");
const { request, requests, statuses } = require("./support/request.cjs");
const { serving } = require("./support/serving.cjs");
const { until } = require("./support/until.cjs");
const { versionsOf } = require("./support/versions.cjs");

function limiterOf(quotas, options = {}) {
  const clock = new ManualClock(1_700_000_000_000_000);
  return { clock, limiter: new Limiter("memory:", { policies: { api: quotas }, clock, ...options }) };
}

for (const { name: version, load, path } of versionsOf("express")) {
  const express = load("express");

  const workers = async (url) => {
    const program = join(__dirname, "programs", "express_workers.cjs");
    const primary = fork(program, [path, url, "4", "100"]);
    try {
      const [{ port }] = await once(primary, "message");
      const answers = await requests(port, 400);
      assert.deepEqual(statuses(answers), { 200: 100, 429: 300 });
      const pids = new Set(answers.filter(({ status }) => status === 200).map(({ text }) => text));
      assert.ok(pids.size > 1, "several workers have answered");
    } finally {
      primary.disconnect();
      await once(primary, "exit");
    }
  };

  test(`${version}: four workers admit exactly the limit on a local store`, async () => {
    const { url, remove } = localStore();
    try {
      await workers(url);
    } finally {
      remove();
    }
  });

  test(`${version}: four workers admit exactly the limit on Redis`, async () => {
    await withRedis(({ url }) => workers(url));
  });

  test(`${version}: the response has the header fields, and the request the decision`, async () => {
    const { limiter } = limiterOf("2/minute fixed_window");
    const app = express();
    app.use(rateLimit({ limiter, headers: "both" }));
    app.get("/", ({ rateLimit: { policy, remaining, all } }, response) =>
      response.json({ policy, remaining, all: all.length }),
    );
    await serving(app, async (port) => {
      const first = await request(port);
      assert.deepEqual(JSON.parse(first.text), { policy: "api", remaining: 1, all: 1 });
      assert.equal(first.headers["ratelimit-policy"], '"api";q=2;w=60');
      assert.equal(first.headers.ratelimit, '"api";r=1;t=60');
      assert.equal(first.headers["x-ratelimit-limit"], "2");
      assert.equal(first.headers["x-ratelimit-remaining"], "1");
      assert.equal(first.headers["x-ratelimit-reset"], "60");
      assert.equal(first.headers["retry-after"], undefined);
      await request(port);
      const denied = await request(port);
      assert.equal(denied.status, 429);
      assert.equal(denied.headers["retry-after"], "60");
      assert.equal(denied.headers["content-type"], "application/problem+json");
      assert.equal(denied.headers.vary, "accept");
      const problem = JSON.parse(denied.text);
      assert.equal(problem.type, "https://iana.org/assignments/http-problem-types#quota-exceeded");
      assert.deepEqual(problem["violated-policies"], ["api"]);
      const accepted = {
        "text/plain": "text",
        "text/html,*/*;q=0.8": "text",
        "application/json": "json",
        "*/*": "json",
        "text/*;q=0.5, application/*": "json",
      };
      for (const [accept, form] of Object.entries(accepted)) {
        const { headers, text } = await request(port, "/", { headers: { accept } });
        assert.match(headers["content-type"], form === "text" ? /^text\/plain/ : /^application\/problem\+json/, accept);
        assert.match(text, form === "text" ? /retry in 60 s/ : /^\{/);
      }
      const head = await request(port, "/", { method: "HEAD" });
      assert.deepEqual([head.status, head.text], [429, ""]);
    });
  });

  test(`${version}: each header style has its fields`, async () => {
    const names = async (headers) => {
      const { limiter } = limiterOf("1/minute");
      const app = express();
      app.use(rateLimit({ limiter, headers }));
      app.get("/", (_, response) => response.end());
      return serving(app, async (port) => {
        await request(port);
        const { headers: fields } = await request(port);
        return Object.keys(fields).filter((name) => /ratelimit|retry/.test(name));
      });
    };
    assert.deepEqual(await names("legacy"), [
      "x-ratelimit-limit",
      "x-ratelimit-remaining",
      "x-ratelimit-reset",
      "retry-after",
    ]);
    assert.deepEqual(await names("ietf"), ["ratelimit-policy", "ratelimit", "retry-after"]);
    assert.deepEqual(await names("none"), ["retry-after"]);
  });

  test(`${version}: key, cost, skip and onDenied are functions of the request`, async () => {
    const { limiter } = limiterOf("10/minute");
    const app = express();
    app.use(
      rateLimit({
        limiter,
        key: async (req) => req.get("x-api-key"),
        cost: (req) => Number(req.query.cost ?? 1),
        skip: (req) => req.path === "/health",
        onDenied: (denial, req, res) =>
          res.json({ status: denial.status, remaining: denial.rateLimit.remaining, path: req.path }),
      }),
    );
    app.use((req, res) => res.send(String(req.rateLimit?.remaining)));
    // Express does not log errors in this mode.
    app.set("env", "test");
    await serving(app, async (port) => {
      const by = (key) => ({ headers: { "x-api-key": key } });
      assert.equal((await request(port, "/?cost=4", by("a"))).text, "6");
      assert.equal((await request(port, "/?cost=4", by("b"))).text, "6");
      const denied = await request(port, "/x?cost=7", by("a"));
      assert.equal(denied.status, 429);
      assert.equal(denied.headers["retry-after"], (await request(port, "/?cost=7", by("a"))).headers["retry-after"]);
      assert.deepEqual(JSON.parse(denied.text), { status: 429, remaining: 6, path: "/x" });
      assert.deepEqual(await request(port, "/health", by("a")).then(({ status, text }) => [status, text]), [
        200,
        "undefined",
      ]);
      assert.equal((await request(port, "/?cost=-1", by("a"))).status, 500);
      // Without a key the address is limited.
      assert.equal((await request(port, "/")).text, "9");
      assert.equal((await limiter.peek("127.0.0.1")).remaining, 9);
    });
  });

  test(`${version}: a denied request does not proceed, whatever a handler returns`, async () => {
    const { limiter } = limiterOf("0/minute");
    const app = express();
    const onDenied = (_denial, _req, res) => {
      setImmediate(() => res.end("denied"));
      return true;
    };
    app.use(rateLimit({ limiter, onDenied }));
    app.use((_, res) => res.end("through"));
    await serving(app, async (port) => {
      const { status, text } = await request(port);
      assert.deepEqual([status, text], [429, "denied"]);
    });
  });

  test(`${version}: a request does not proceed when a function fails without an error`, async () => {
    const { limiter } = limiterOf("9/minute");
    const fail = () => {
      throw undefined;
    };
    for (const options of [
      { key: fail },
      { key: () => Promise.reject() },
      { skip: async () => fail() },
      { cost: fail },
    ]) {
      const app = express();
      app.use(rateLimit({ limiter, ...options }));
      app.get("/", (_, response) => response.end());
      // Express recognizes an error handler by its four parameters.
      app.use((error, _req, response, _next) => response.status(500).end(error.message));
      await serving(app, async (port) => {
        const { status, text } = await request(port);
        assert.deepEqual([status, text], [500, "a function of the rate limit's options failed without an error"]);
      });
    }
  });

  test(`${version}: requests whose response does not count are refunded`, async () => {
    const { limiter } = limiterOf("2/minute");
    const app = express();
    app.use(rateLimit({ limiter, key: () => "login", count: (_, res) => res.statusCode === 401 }));
    app.get("/good", (_, response) => response.end());
    app.get("/bad", (_, response) => response.status(401).end());
    await serving(app, async (port) => {
      for (let attempt = 0; attempt < 5; attempt++) {
        assert.equal((await request(port, "/good")).status, 200);
        await until(async () => (await limiter.peek("login")).remaining === 2, "it is given back");
      }
      assert.equal((await request(port, "/bad")).status, 401);
      assert.equal((await request(port, "/bad")).status, 401);
      assert.equal((await request(port, "/good")).status, 429);
    });
  });

  test(`${version}: a denial by one of several policies spends nothing`, async () => {
    const limiter = new Limiter("memory:", {
      policies: { api: "5/minute fixed_window", login: "2/minute fixed_window" },
    });
    const app = express();
    app.use(rateLimit({ limiter, key: () => "k", policy: ["api", "login", "9/hour"] }));
    app.get("/", (req, response) => response.send(req.rateLimit.policy));
    await serving(app, async (port) => {
      assert.equal((await request(port)).text, "login");
      const { headers } = await request(port);
      assert.match(headers["ratelimit-policy"], /^"api";q=5;w=60, "login";q=2;w=60, "[^"]+";q=9;w=3600$/);
      for (let denied = 0; denied < 5; denied++) {
        const { status, text, headers: fields } = await request(port);
        assert.equal(status, 429);
        assert.deepEqual(JSON.parse(text)["violated-policies"], ["login"]);
        assert.match(fields.ratelimit, /^"api";r=3;/);
      }
      assert.equal((await limiter.peek("k", "api")).remaining, 3);
    });
  });

  test(`${version}: header fields cover all middlewares of a request`, async () => {
    const limiter = new Limiter("memory:", { policies: { api: "5/minute", login: "2/minute" } });
    const app = express();
    app.use(rateLimit({ limiter, policy: "api" }));
    app.get("/login", rateLimit({ limiter, policy: "login" }), (req, response) => response.send(req.rateLimit.policy));
    await serving(app, async (port) => {
      const { text, headers } = await request(port, "/login");
      assert.equal(text, "login");
      assert.equal(headers["ratelimit-policy"], '"api";q=5;w=60, "login";q=2;w=60');
    });
  });

  test(`${version}: the client address comes from trusted proxies, by trust proxy or by clientAddress`, async () => {
    const counted = async (options, trustProxy, forwarded) => {
      const { limiter } = limiterOf("100/minute");
      const keys = [];
      const app = express();
      if (trustProxy !== undefined) app.set("trust proxy", trustProxy);
      app.use(rateLimit({ limiter, ...options }));
      app.get("/", (_, response) => response.end());
      app.use((error, _req, response, _next) => response.status(500).send(error.message));
      const answer = await serving(app, (port) => request(port, "/", { headers: { "x-forwarded-for": forwarded } }));
      for (const key of ["127.0.0.1", "203.0.113.7", "198.51.100.1", "2001:db8:1:2::/64"]) {
        if ((await limiter.peek(key)).remaining === 99) keys.push(key);
      }
      return keys[0] ?? answer.text;
    };
    const chain = "198.51.100.1, 203.0.113.7";
    const rules = { trust: "loopback", header: "x-forwarded-for" };
    assert.equal(await counted({}, undefined, chain), "127.0.0.1");
    assert.equal(await counted({}, false, chain), "127.0.0.1");
    assert.equal(await counted({}, 1, chain), "203.0.113.7");
    assert.equal(await counted({}, "loopback", chain), "203.0.113.7");
    assert.equal(await counted({}, "loopback", "2001:db8:1:2:3::4"), "2001:db8:1:2::/64");
    const trusting = {
      code: "invalid_argument",
      message: /^trust proxy is true, so that a client can choose its own address/,
    };
    await assert.rejects(counted({}, true, chain), trusting);
    assert.equal(await counted({ clientAddress: rules }, true, chain), "203.0.113.7");
    assert.equal(await counted({ clientAddress: new ClientAddressRules(rules) }, undefined, chain), "203.0.113.7");
    assert.equal(await counted({ clientAddress: {} }, "loopback", chain), "127.0.0.1");
  });

  test(`${version}: a decision resumes in the AsyncLocalStorage context of its request`, async () => {
    await withRedis(async ({ url }) => {
      const limiter = new Limiter(url, { policies: { api: "1000/day" }, deadline: "10s" });
      const context = new AsyncLocalStorage();
      const app = express();
      app.use((req, _, next) => context.run(req.url, next));
      app.use(rateLimit({ limiter }));
      app.use((_, response) => response.send(context.getStore()));
      await serving(app, async (port) => {
        const paths = Array.from({ length: 20 }, (_, at) => `/${at}`);
        const answers = await Promise.all(paths.map((path) => request(port, path)));
        assert.deepEqual(
          answers.map(({ text }) => text),
          paths,
        );
      });
      limiter.close();
    });
  });

  test(`${version}: an error of count is emitted as a warning`, async () => {
    const { limiter } = limiterOf("2/minute");
    const app = express();
    const count = () => {
      throw new Error("this does not count");
    };
    app.use(rateLimit({ limiter, count }));
    app.get("/", (_, response) => response.end());
    await serving(app, async (port) => {
      const warned = once(process, "warning");
      assert.equal((await request(port)).status, 200);
      assert.equal((await warned)[0].message, "this does not count");
    });
  });
}

test("a refund that fails on one limiter does not prevent those of others", async () => {
  const [first, second] = [1, 2].map(() => limiterOf("9/minute").limiter);
  const app = require("express")();
  for (const limiter of [second, first]) app.use(rateLimit({ limiter, key: () => "k", count: () => false }));
  app.get("/", (_, response) => {
    first.close();
    response.end();
  });
  await serving(app, async (port) => {
    const warned = once(process, "warning");
    assert.equal((await request(port)).status, 200);
    assert.match((await warned)[0].message, /closed/);
    assert.equal((await second.peek("k")).remaining, 9);
  });
});

test("an unknown option is refused by name", () => {
  const { limiter } = limiterOf("1/s");
  const refusals = [
    [{ limiter, keys: 1 }, /^option "keys" is not known: did you mean key\?$/],
    [{}, /^limiter is undefined: allowed is a Limiter/],
    [{ limiter: {} }, /^limiter is an object: allowed is a Limiter/],
    [{ limiter, policy: 5 }, /^policy is 5/],
    [
      { limiter, policy: [] },
      /^policy is an empty list: allowed is a policy's name or quotas, or a list of at least one/,
    ],
    [{ limiter, policy: ["api", 5] }, /^policy is 5/],
    [{ limiter, policy: ["api", "5/minute", "api"] }, /^policy "api" is a duplicate: leave out one of the two$/],
    [{ limiter, policy: ["5/minute", "5/minute"] }, /^policy "5\/minute" is a duplicate/],
    [{ limiter, key: "ip" }, /^key part "ip" cannot be read: allowed are address, user, header:NAME/],
    [{ limiter, key: 5 }, /^key is 5: allowed is a function, a part of the key, or a list of them/],
    [{ limiter, missingKey: "ignore" }, /missing key "ignore" is not known/],
    [{ limiter, status: 200 }, /^status is 200: allowed is 400 to 599/],
    [{ limiter, message: 5 }, /^message is 5/],
    [{ limiter, methods: 5 }, /^methods is 5/],
    [{ limiter, dryRun: "yes" }, /^dryRun is a string/],
    [{ limiter, headers: "ratelimit=(" }, /header name "\(" for ratelimit: allowed are letters/],
    [{ limiter, cost: "1" }, /^cost is a string/],
    [{ limiter, count: "failed" }, /^count is a string/],
    [{ limiter, skip: true }, /^skip is true/],
    [Object.create({ limiter, skip: true }), /^skip is true/],
    [{ limiter, onDenied: {} }, /^onDenied is an object/],
    [{ limiter, onOutage: "allow" }, /^onOutage is a string/],
    [{ limiter, headers: "all" }, /header setting "all" is not known/],
    [{ limiter, headers: false }, /^headers is false/],
    [{ limiter, clientAddress: { trust: "everybody", header: "forwarded" } }, /everybody/],
    [{ limiter: new Limiter("memory:") }, /^no policy is named: this limiter has none/],
    [undefined, /^options is undefined/],
  ];
  for (const [options, message] of refusals) {
    assert.throws(() => rateLimit(options), { name: "PolylimitError", code: "invalid_argument", message });
  }
});
