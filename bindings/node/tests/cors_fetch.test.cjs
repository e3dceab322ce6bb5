// Requests of pages of other origins: preflights are free, and denials can be read, in whichever order limit and CORS are.
"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const fastifyCors = require("@fastify/cors");
const { cors: honoCors } = require("hono/cors");
const { Limiter } = require("polylimit");
const { rateLimit, rateLimitHook } = require("polylimit/fastify");
const { rateLimit: fetchRateLimit } = require("polylimit/fetch");
const { rateLimit: honoRateLimit } = require("polylimit/hono");

const { versionsOf } = require("./support/versions.cjs");

const ORIGIN = "https://app.example";
const PREFLIGHT = { origin: ORIGIN, "access-control-request-method": "POST" };

const options = (more) => ({
  limiter: new Limiter("memory:", { policies: { api: "2/hour sliding_log" } }),
  key: () => "k",
  ...more,
});

/** How an application is asked: a function of method and header fields that returns status and header fields. */
const askFastify = (app) => async (method, headers) => {
  const { statusCode, headers: fields } = await app.inject({ method, url: "/", headers });
  return { status: statusCode, fields };
};
const askFetch = (handler) => async (method, headers) => {
  const response = await handler(new Request("http://localhost/", { method, headers }));
  return { status: response.status, fields: Object.fromEntries(response.headers) };
};

/** A POST behind a preflight, as browsers send it, three times; then what the denial has. */
async function browse(ask, origin = ORIGIN) {
  const statuses = [];
  let denial;
  for (let at = 0; at < 3; at++) {
    statuses.push((await ask("OPTIONS", { ...PREFLIGHT, origin })).status);
    denial = await ask("POST", { origin });
    statuses.push(denial.status);
  }
  const { fields } = denial;
  return { statuses, allowed: fields["access-control-allow-origin"], fields };
}

/** The applications: a limit in front of CORS, behind it, and without it. */
function applicationsOnFastify(fastify, more) {
  const made = (...plugins) => {
    const app = fastify();
    for (const plugin of plugins) app.register(...plugin);
    app.post("/", async () => "");
    return askFastify(app);
  };
  const cors = [fastifyCors, { origin: ORIGIN, hook: "onRequest" }];
  return { inFront: made([rateLimit, options(more)], cors), behind: made(cors, [rateLimit, options(more)]) };
}

function applicationsOnHono(Hono, more) {
  const made = (...middlewares) => {
    const app = new Hono();
    app.use(...middlewares);
    app.post("/", (context) => context.text(""));
    return askFetch(app.fetch);
  };
  return {
    inFront: made(honoRateLimit(options(more)), honoCors({ origin: ORIGIN })),
    behind: made(honoCors({ origin: ORIGIN }), honoRateLimit(options(more))),
  };
}

const FRAMEWORKS = [
  // @fastify/cors exists for one version at a time.
  ...versionsOf("fastify")
    .filter(({ major }) => major === 5)
    .map(({ name, load }) => [name, (more) => applicationsOnFastify(load("fastify"), more)]),
  ...versionsOf("hono").map(({ name, load }) => [name, (more) => applicationsOnHono(load("hono").Hono, more)]),
];

for (const [name, applications] of FRAMEWORKS) {
  test(`${name}: preflights are free, in front of CORS and behind it`, async () => {
    const { inFront, behind } = applications();
    for (const ask of [inFront, behind]) {
      assert.deepEqual((await browse(ask)).statuses, [204, 200, 204, 200, 204, 429]);
    }
    // This is no preflight.
    assert.equal((await inFront("OPTIONS", { origin: ORIGIN })).status, 429);
  });

  test(`${name}: preflights count where an option asks for it`, async () => {
    for (const more of [{ countPreflights: true }, { methods: ["POST", "OPTIONS"] }]) {
      const { inFront } = applications(more);
      assert.deepEqual((await browse(inFront)).statuses, [204, 200, 429, 429, 429, 429]);
    }
  });

  test(`${name}: a page of a listed origin can read a denial, and CORS is left alone`, async () => {
    const { inFront, behind } = applications();
    assert.equal((await browse(inFront)).allowed, undefined);
    assert.equal((await browse(behind)).allowed, ORIGIN);
    for (const corsOrigins of [ORIGIN, [ORIGIN, "https://other.example"], "*"]) {
      const both = applications({ corsOrigins });
      const { allowed, fields } = await browse(both.inFront);
      assert.equal(allowed, corsOrigins === "*" ? "*" : ORIGIN);
      assert.match(fields["access-control-expose-headers"], /retry-after/i);
      assert.match(fields.vary, /accept/);
      assert.equal((await browse(both.behind)).allowed, ORIGIN);
    }
    const { allowed } = await browse(applications({ corsOrigins: ORIGIN }).inFront, "https://evil.example");
    assert.equal(allowed, undefined);
  });
}

for (const { name, load } of versionsOf("fastify")) {
  test(`${name}: a preflight that reaches a limited handler counts`, async () => {
    const app = load("fastify")();
    let runs = 0;
    const handler = async () => `${++runs}`;
    app.register(rateLimit, options({ policy: () => undefined }));
    app.options("/hook", { onRequest: rateLimitHook(options()) }, handler);
    app.options("/own", { config: { rateLimit: { policy: "2/minute" } } }, handler);
    for (const url of ["/hook", "/own"]) {
      runs = 0;
      for (let at = 0; at < 4; at++) await app.inject({ method: "OPTIONS", url, headers: PREFLIGHT });
      assert.equal(runs, 2, url);
    }
  });

  test(`${name}: a denial of onDenied can be read too`, async () => {
    const app = load("fastify")();
    app.register(rateLimit, options({ policy: "0/minute", corsOrigins: ORIGIN, onDenied: () => ({ own: true }) }));
    app.post("/", async () => "");
    const { status, fields } = await askFastify(app)("POST", { origin: ORIGIN });
    assert.deepEqual([status, fields["access-control-allow-origin"]], [429, ORIGIN]);
  });
}

for (const { name, load } of versionsOf("hono")) {
  test(`${name}: a preflight that reaches a limited handler counts`, async () => {
    const { Hono } = load("hono");
    const app = new Hono();
    let runs = 0;
    const handler = (context) => context.text(`${++runs}`);
    app.all("/all", honoRateLimit(options()), handler);
    app.options("/options", honoRateLimit(options()), handler);
    // What is not at a route leaves preflights alone.
    app.use("/use/*", honoRateLimit(options({ policy: "0/minute" })), honoCors());
    for (const path of ["/all", "/options"]) {
      runs = 0;
      for (let at = 0; at < 4; at++) await app.request(path, { method: "OPTIONS", headers: PREFLIGHT });
      assert.equal(runs, 2, path);
    }
    assert.equal((await app.request("/use/a", { method: "OPTIONS", headers: PREFLIGHT })).status, 204);
  });

  test(`${name}: a denial of onDenied can be read too`, async () => {
    const { Hono } = load("hono");
    for (const onDenied of [
      () => new Response("own", { status: 429 }),
      (_, context) => {
        context.res = new Response("own", { status: 429 });
      },
    ]) {
      const app = new Hono();
      app.use(honoRateLimit(options({ policy: "0/minute", corsOrigins: ORIGIN, onDenied })));
      const { status, fields } = await askFetch(app.fetch)("POST", { origin: ORIGIN });
      assert.deepEqual([status, fields["access-control-allow-origin"]], [429, ORIGIN]);
    }
  });
}

test("fetch: all requests of a handler count, and a denial can be read", async () => {
  let runs = 0;
  const handler = () => new Response(`${++runs}`);
  const ask = askFetch(fetchRateLimit(handler, options({ corsOrigins: [ORIGIN] })));
  assert.deepEqual((await browse(ask)).statuses, [200, 200, 429, 429, 429, 429]);
  assert.equal(runs, 2);
  const { allowed, fields } = await browse(ask);
  assert.equal(allowed, ORIGIN);
  assert.deepEqual(fields.vary.toLowerCase(), "accept, origin");
  // Immutable headers, and headers of the program's own.
  const redirect = fetchRateLimit(handler, options({ corsOrigins: "*", onDenied: () => Response.redirect(ORIGIN) }));
  assert.equal((await browse(askFetch(redirect))).allowed, "*");
  const own = { "access-control-allow-origin": "https://own.example" };
  const onDenied = () => new Response(null, { headers: own });
  assert.equal(
    (await browse(askFetch(fetchRateLimit(handler, options({ corsOrigins: "*", onDenied }))))).allowed,
    own["access-control-allow-origin"],
  );
});
