"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const fastify = require("fastify");
const { Limiter } = require("polylimit");
const { rateLimit, rateLimitHook } = require("polylimit/fastify");

const { localStore } = require("./support/local.cjs");
const { withRedis } = require("./support/redis.cjs");
const { request, requests, statuses } = require("./support/request.cjs");
const { until } = require("./support/until.cjs");

/** Serves an application while `body` runs. */
async function serving(app, body) {
  await app.listen({ port: 0, host: "127.0.0.1" });
  try {
    return await body(app.server.address().port);
  } finally {
    app.server.closeAllConnections();
    await app.close();
  }
}

async function admitsExactly(url) {
  const options = url.startsWith("redis") ? { deadline: "10s" } : {};
  // Each limiter has connections of its own, as in two processes.
  const limiters = [1, 2].map(() => new Limiter(url, { policies: { api: "100/day" }, ...options }));
  const apps = limiters.map((limiter) => {
    const app = fastify();
    app.register(rateLimit, { limiter });
    app.get("/", async ({ rateLimit: { remaining } }) => ({ remaining }));
    return app;
  });
  await serving(apps[0], (one) =>
    serving(apps[1], async (other) => {
      const answers = (await Promise.all([requests(one, 150), requests(other, 150)])).flat();
      assert.deepEqual(statuses(answers), { 200: 100, 429: 200 });
      const remaining = answers.filter(({ status }) => status === 200).map(({ text }) => JSON.parse(text).remaining);
      assert.equal(new Set(remaining).size, 100, "each remaining is sent once");
    }),
  );
  for (const limiter of limiters) limiter.close();
}

test("fastify: exactly the limit is admitted on a local store", async () => {
  const { url, remove } = localStore();
  try {
    await admitsExactly(url);
  } finally {
    remove();
  }
});

test("fastify: exactly the limit is admitted on Redis", async () => {
  await withRedis(({ url }) => admitsExactly(url));
});

test("fastify: a reply has the header fields, and a denial is a problem document or text", async () => {
  const limiter = new Limiter("memory:", { policies: { api: "1/minute fixed_window" } });
  const app = fastify();
  app.register(rateLimit, { limiter, headers: "both" });
  app.get("/", async (req) => req.rateLimit.policy);
  await serving(app, async (port) => {
    const first = await request(port);
    assert.equal(first.text, "api");
    assert.equal(first.headers["ratelimit-policy"], '"api";q=1;w=60');
    assert.equal(first.headers["x-ratelimit-remaining"], "0");
    const denied = await request(port);
    assert.equal(denied.status, 429);
    assert.equal(denied.headers["content-type"], "application/problem+json");
    assert.equal(denied.headers["retry-after"], "60");
    assert.equal(JSON.parse(denied.text).status, 429);
    const text = await request(port, "/", { headers: { accept: "text/plain" } });
    assert.match(text.text, /retry in 60 s/);
  });
});

test("fastify: a hook limits one route, and refunds responses that do not count", async () => {
  const limiter = new Limiter("memory:", { policies: { login: "2/minute" } });
  const app = fastify();
  const onRequest = rateLimitHook({
    limiter,
    key: (req) => req.headers["x-user"],
    count: (_, reply) => reply.statusCode === 401,
    skip: (req) => req.headers["x-user"] === "root",
    onDenied: ({ status }, _, reply) => reply.send({ denied: status }),
  });
  app.get("/login", { onRequest }, async (req, reply) => {
    reply.code(req.headers["x-password"] === "right" ? 200 : 401);
    return {};
  });
  app.get("/free", async () => ({}));
  await serving(app, async (port) => {
    const login = (user, password) =>
      request(port, "/login", { headers: { "x-user": user, "x-password": password } }).then(({ status }) => status);
    for (let attempt = 0; attempt < 5; attempt++) {
      assert.equal(await login("ann", "right"), 200);
      await until(async () => (await limiter.peek("ann")).remaining === 2, "it is given back");
    }
    assert.deepEqual([await login("ann", "wrong"), await login("ann", "wrong")], [401, 401]);
    const denied = await request(port, "/login", { headers: { "x-user": "ann" } });
    assert.deepEqual([denied.status, JSON.parse(denied.text)], [429, { denied: 429 }]);
    for (let attempt = 0; attempt < 5; attempt++) assert.equal(await login("root", "wrong"), 401);
    const free = await request(port, "/free");
    assert.deepEqual([free.status, free.headers.ratelimit], [200, undefined]);
  });
});

test("fastify: the payload of onDenied is sent, and without one the default response", async () => {
  const answered = async (onDenied, more = () => {}) => {
    const app = fastify();
    app.register(rateLimit, {
      limiter: new Limiter("memory:", { policies: { api: "0/minute" } }),
      key: () => "k",
      onDenied,
    });
    app.get("/", async () => "through");
    more(app);
    return serving(app, async (port) => {
      const { status, headers, text } = await request(port);
      return [status, headers["content-type"], text.replace(/^\{"type".*/, "usual")];
    });
  };
  const json = "application/json; charset=utf-8";
  const plain = "text/plain; charset=utf-8";
  const usual = [429, "application/problem+json", "usual"];
  assert.deepEqual(await answered(({ status }) => ({ denied: status })), [429, json, '{"denied":429}']);
  assert.deepEqual(await answered(async () => "no"), [429, plain, "no"]);
  assert.deepEqual(await answered(async (_, _request, reply) => reply.code(503) && null), [503, json, "null"]);
  assert.deepEqual(await answered(() => {}), usual);
  assert.deepEqual(await answered(async () => {}), usual);
  assert.deepEqual(await answered((_, _request, reply) => reply.send("sent")), [429, plain, "sent"]);
  const later = (_, _request, reply) => {
    setImmediate(() => reply.send("later"));
    return reply;
  };
  assert.deepEqual(await answered(later), [429, plain, "later"]);
  const taken = (_, _request, reply) => {
    reply.hijack();
    setImmediate(() => reply.raw.writeHead(418).end("own"));
  };
  assert.deepEqual(await answered(taken), [418, undefined, "own"]);
  // An asynchronous hook delays the payload that was sent.
  const slowly = (app) =>
    app.addHook("onSend", async (_, _reply, payload) => {
      await new Promise(setImmediate);
      return payload;
    });
  const sent = (_, _request, reply) => {
    reply.send("sent");
  };
  assert.deepEqual(await answered(sent, slowly), [429, plain, "sent"]);
  const failing = () => Promise.reject(new Error("broken"));
  const [status, , text] = await answered(failing);
  assert.deepEqual([status, JSON.parse(text).message], [429, "broken"]);
});

test("fastify: a request does not proceed when a function fails without an error", async () => {
  const app = fastify();
  app.register(rateLimit, {
    limiter: new Limiter("memory:", { policies: { api: "9/minute" } }),
    key: () => Promise.reject(),
  });
  app.get("/", async () => "");
  assert.equal((await app.inject("/")).statusCode, 500);
});

test("fastify: the client address comes from trusted proxies", async () => {
  const counted = async (options, trustProxy) => {
    const limiter = new Limiter("memory:", { policies: { api: "9/minute" } });
    const app = fastify({ trustProxy });
    app.register(rateLimit, { limiter, ...options });
    app.get("/", async () => "");
    return serving(app, async (port) => {
      const { status, text } = await request(port, "/", {
        headers: { "x-forwarded-for": "198.51.100.1, 203.0.113.7" },
      });
      if (status !== 200) return text;
      for (const key of ["127.0.0.1", "203.0.113.7", "198.51.100.1"]) {
        if ((await limiter.peek(key)).remaining === 8) return key;
      }
      return "nobody";
    });
  };
  assert.equal(await counted({}, undefined), "127.0.0.1");
  assert.equal(await counted({}, "127.0.0.1"), "203.0.113.7");
  assert.equal(await counted({}, ["127.0.0.0/8", "10.0.0.0/8"]), "203.0.113.7");
  await assert.rejects(counted({}, true), { code: "invalid_argument", message: /^trustProxy is true/ });
  const clientAddress = { trust: ["loopback"], header: "x-forwarded-for" };
  assert.equal(await counted({ clientAddress }, true), "203.0.113.7");
});

test("fastify: an outage with deny is a 503, and Redis decides again after its restart", async () => {
  await withRedis(async (server) => {
    const policies = { api: { quotas: "1000/day", outage: "deny" } };
    const limiter = new Limiter(server.url, { policies, deadline: "5s", reconnectMax: "20ms" });
    const app = fastify();
    app.register(rateLimit, { limiter });
    app.get("/", async (req) => req.rateLimit.source);
    await serving(app, async (port) => {
      await limiter.ready(10_000);
      assert.equal((await request(port)).text, "store");
      await server.kill();
      await until(async () => (await request(port)).status === 503, "it is denied");
      await server.begin();
      await until(async () => (await request(port)).text === "store", "Redis decides again");
    });
    limiter.close();
  });
});

test("fastify: a route changes the plugin's options for itself, or is exempt", async () => {
  const limiter = new Limiter("memory:", { policies: { api: "5/minute fixed_window" } });
  const app = fastify();
  await app.register(rateLimit, { limiter, key: () => "k" });
  app.get("/", async () => "");
  app.get("/free", { config: { rateLimit: false } }, async () => "");
  for (const path of ["/strict", "/other"]) {
    app.get(path, { config: { rateLimit: { policy: "1/minute fixed_window", status: 420 } } }, async () => "");
  }
  await serving(app, async (port) => {
    const statusOf = async (path) => (await request(port, path)).status;
    assert.deepEqual([await statusOf("/strict"), await statusOf("/strict")], [200, 420]);
    // Each route has a budget of its own.
    assert.equal(await statusOf("/other"), 200);
    assert.equal((await request(port, "/free")).headers.ratelimit, undefined);
    assert.equal((await request(port)).headers.ratelimit, '"api";r=4;t=60');
  });
  const refused = async () => {
    const other = fastify();
    await other.register(rateLimit, { limiter });
    other.get("/", { config: { rateLimit: { policy: "often" } } }, async () => "");
  };
  await assert.rejects(refused, { code: "invalid_argument", message: /often/ });
});

test("fastify: a hook after the body limits by the body", async () => {
  for (const hook of ["preHandler", "preValidation"]) {
    const limiter = new Limiter("memory:", { policies: { api: "1/minute" } });
    const app = fastify();
    await app.register(rateLimit, { limiter, hook, key: ({ body }) => body.user });
    app.post("/", async () => "");
    const statusOf = async (user) => (await app.inject({ method: "POST", url: "/", body: { user } })).statusCode;
    assert.deepEqual([await statusOf("ann"), await statusOf("ann"), await statusOf("bob")], [200, 429, 200]);
  }
  const app = fastify();
  const limiter = new Limiter("memory:", { policies: { api: "1/minute" } });
  const options = { limiter, hook: "onSend" };
  await assert.rejects(async () => app.register(rateLimit, options), {
    message: /^hook is a string: allowed is one of/,
  });
});

test("fastify: an unknown option fails the start", async () => {
  const app = fastify();
  app.register(rateLimit, { limiter: new Limiter("memory:", { policies: { api: "1/s" } }), max: 5 });
  await assert.rejects(async () => app.ready(), { code: "invalid_argument", message: /^option "max" is not known/ });
});
