"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const { test } = require("node:test");

const { serve } = require("@hono/node-server");
const { Hono } = require("hono");
const { Limiter } = require("polylimit");
const { rateLimit, rateLimitOf } = require("polylimit/fetch");
const { rateLimit: honoRateLimit } = require("polylimit/hono");

const { withRedis } = require("./support/redis.cjs");
const { request, requests, statuses } = require("./support/request.cjs");

const URL = "http://localhost/";

function limiterOf(quotas) {
  return new Limiter("memory:", { policies: { api: quotas } });
}

test("fetch: the handler runs for admitted requests only", async () => {
  const limiter = limiterOf("1/minute fixed_window");
  const handler = async (req, info) => new Response(`${info.name} ${rateLimitOf(req).remaining}`, { status: 201 });
  const limited = rateLimit(handler, { limiter, peer: (_, info) => info.address });
  const ann = { name: "ann", address: "192.0.2.1" };
  const first = await limited(new Request(URL), ann);
  assert.deepEqual([first.status, await first.text()], [201, "ann 0"]);
  assert.equal(first.headers.get("ratelimit-policy"), '"api";q=1;w=60');
  const denied = await limited(new Request(URL), ann);
  assert.deepEqual([denied.status, denied.headers.get("content-type")], [429, "application/problem+json"]);
  assert.deepEqual([denied.headers.get("retry-after"), denied.headers.get("vary")], ["60", "accept"]);
  const text = await limited(new Request(URL, { headers: { accept: "text/plain" } }), ann);
  assert.match(await text.text(), /retry in 60 s/);
  assert.equal((await limited(new Request(URL), { name: "bob", address: "192.0.2.2" })).status, 201);
  // All peers that are not addresses are one client.
  assert.equal((await limited(new Request(URL), { name: "eve", address: "nobody" })).status, 201);
  assert.equal((await limited(new Request(URL), { name: "eve", address: "somebody" })).status, 429);
  for (const address of [7, "\ud800"]) {
    const refusal = { code: "invalid_argument", message: /^peer is not an address/ };
    await assert.rejects(limited(new Request(URL), { name: "eve", address }), refusal);
  }
});

test("fetch: a response with immutable headers gets the header fields", async () => {
  const limited = rateLimit(() => Response.redirect("http://localhost/other"), {
    limiter: limiterOf("1/minute"),
    key: () => "k",
  });
  const response = await limited(new Request(URL));
  assert.deepEqual([response.status, response.headers.get("location")], [302, "http://localhost/other"]);
  assert.match(response.headers.get("ratelimit"), /^"api";r=0/);
});

test("fetch and hono: header fields cover all rate limits of a request", async () => {
  const limiter = new Limiter("memory:", {
    policies: { api: "9/minute fixed_window", login: "1/minute fixed_window" },
  });
  const [api, login] = ["api", "login"].map((policy) => {
    return { limiter, policy, headers: "both", key: ({ url }) => url ?? "hono" };
  });
  const fetched = rateLimit(
    rateLimit(() => new Response(), login),
    api,
  );
  const app = new Hono();
  app.use(honoRateLimit(api), honoRateLimit(login));
  app.get("/", (context) => context.text(""));
  for (const send of [() => fetched(new Request(URL)), () => app.request("/")]) {
    for (const [status, left] of [
      [200, [8, 0]],
      // The denial of one gives the other its units back.
      [429, [8, 0]],
    ]) {
      const response = await send();
      const pattern = new RegExp(`^"api";r=${left[0]};t=\\d+, "login";r=${left[1]};t=\\d+$`);
      assert.equal(response.status, status);
      assert.match(response.headers.get("ratelimit"), pattern);
      assert.equal(response.headers.get("x-ratelimit-remaining"), "0");
    }
  }
});

test("hono: a response with immutable headers gets the header fields", async () => {
  const app = new Hono();
  app.use(honoRateLimit({ limiter: limiterOf("1/minute"), key: () => "k" }));
  app.get("/", () => Response.redirect("http://localhost/other"));
  const response = await app.request("/");
  assert.deepEqual([response.status, response.headers.get("location")], [302, "http://localhost/other"]);
  assert.match(response.headers.get("ratelimit"), /^"api";r=0/);
});

test("fetch: responses that do not count are refunded, and onDenied responds", async () => {
  const limiter = limiterOf("1/minute");
  const limited = rateLimit((req) => new Response(null, { status: req.method === "POST" ? 401 : 200 }), {
    limiter,
    key: () => "k",
    count: (response) => response.status === 401,
    skip: (req) => req.method === "PUT",
    onDenied: ({ status, rateLimit: { allowed } }) => Response.json({ allowed }, { status }),
  });
  for (let attempt = 0; attempt < 3; attempt++) assert.equal((await limited(new Request(URL))).status, 200);
  assert.equal((await limited(new Request(URL, { method: "POST" }))).status, 401);
  const denied = await limited(new Request(URL));
  assert.deepEqual([denied.status, await denied.json()], [429, { allowed: false }]);
  assert.match(denied.headers.get("retry-after"), /^\d+$/);
  assert.equal((await limited(new Request(URL, { method: "PUT" }))).status, 200);
});

test("fetch and hono: the default response is sent when onDenied returns none", async () => {
  const seen = [];
  const options = { limiter: limiterOf("0/minute"), key: () => "k" };
  const onDenied = ({ status }) => {
    seen.push(status);
  };
  const limited = rateLimit(() => new Response("through"), { ...options, onDenied });
  const app = new Hono();
  app.use("/asked", honoRateLimit({ ...options, onDenied }));
  const own = (_, context) => {
    context.res = new Response("own", { status: 418 });
  };
  app.use("/own", honoRateLimit({ ...options, onDenied: own }));
  app.get("*", (context) => context.text("through"));
  for (const response of [await limited(new Request(URL)), await app.request("/asked")]) {
    assert.deepEqual([response.status, response.headers.get("content-type")], [429, "application/problem+json"]);
    assert.ok(response.headers.has("ratelimit"));
    assert.equal((await response.json()).status, 429);
  }
  const response = await app.request("/own");
  assert.deepEqual([response.status, await response.text()], [418, "own"]);
  assert.deepEqual(seen, [429, 429]);
});

test("fetch: for count, a handler that throws has answered with 500", async () => {
  for (const [counted, left] of [
    [500, 4],
    [401, 5],
  ]) {
    const limiter = limiterOf("5/minute");
    const failing = () => Promise.reject(new Error("broken"));
    const limited = rateLimit(failing, { limiter, key: () => "k", count: ({ status }) => status === counted });
    await assert.rejects(limited(new Request(URL)), { message: "broken" });
    assert.equal((await limiter.peek("k")).remaining, left);
  }
});

test("fetch: a key or a peer is required", () => {
  const refusal = { code: "invalid_argument", message: /^neither key nor peer is given/ };
  assert.throws(() => rateLimit(() => new Response(), { limiter: limiterOf("1/s") }), refusal);
  assert.throws(() => rateLimit(5, { limiter: limiterOf("1/s"), key: () => "k" }), { message: /^handler is 5/ });
});

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

test("hono: exactly the limit is admitted on Redis, with the header fields", async () => {
  await withRedis(async ({ url }) => {
    const limiter = new Limiter(url, { policies: { api: "50/day" }, deadline: "10s" });
    const app = new Hono();
    app.use(honoRateLimit({ limiter, headers: "both" }));
    app.get("/", (context) => context.text(String(context.get("rateLimit").remaining)));
    await serving(app, async (port) => {
      const answers = await requests(port, 120);
      assert.deepEqual(statuses(answers), { 200: 50, 429: 70 });
      const passed = answers.filter(({ status }) => status === 200);
      assert.equal(new Set(passed.map(({ text }) => text)).size, 50);
      for (const { headers, text } of passed) assert.equal(headers["x-ratelimit-remaining"], text);
      const denied = await request(port);
      assert.equal(denied.headers["content-type"], "application/problem+json");
      assert.equal(denied.headers["ratelimit-policy"], '"api";q=50;w=86400');
    });
    limiter.close();
  });
});

test("hono: clientAddress, count and onDenied", async () => {
  const limiter = limiterOf("1/minute");
  const app = new Hono();
  app.use(
    honoRateLimit({
      limiter,
      clientAddress: { trust: "loopback", header: "forwarded" },
      count: (context) => context.res.status === 401,
      onDenied: ({ status }, context) => context.json({ denied: status }, status),
    }),
  );
  app.get("/good", (context) => context.text("good"));
  app.get("/bad", (context) => context.text("bad", 401));
  await serving(app, async (port) => {
    const from = (address, path) => request(port, path, { headers: { forwarded: `for=${address}` } });
    for (let attempt = 0; attempt < 3; attempt++) assert.equal((await from("203.0.113.7", "/good")).status, 200);
    assert.equal((await from("203.0.113.7", "/bad")).status, 401);
    const denied = await from("203.0.113.7", "/good");
    assert.deepEqual([denied.status, denied.text], [429, '{"denied":429}']);
    assert.match(denied.headers["retry-after"], /^\d+$/);
    assert.equal((await from("203.0.113.8", "/bad")).status, 401);
    assert.equal((await limiter.peek("203.0.113.8")).remaining, 0);
  });
});
