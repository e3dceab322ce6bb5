// What is particular to Koa; the rules that it shares with the other frameworks are in guard.test.cjs.
"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const http = require("node:http");
const { test } = require("node:test");

const Koa = require("koa");
const { Limiter } = require("polylimit");
const { rateLimit } = require("polylimit/koa");

const { request } = require("./support/request.cjs");

/** Serves requests with two limits and a handler. */
async function served(t, handle, options = {}) {
  const limiter = new Limiter("memory:", { policies: { outer: "9/hour fixed_window", inner: "9/hour fixed_window" } });
  const app = new Koa();
  app.silent = true;
  for (const policy of ["outer", "inner"]) app.use(rateLimit({ limiter, policy, key: () => "all", ...options }));
  app.use(handle);
  const server = http.createServer(app.callback()).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.close();
    limiter.close();
  });
  return server.address().port;
}

const THROWN = {
  "an error": [new Error("broken"), 500],
  "an error with a status": [Object.assign(new Error("gone"), { status: 404, expose: true }), 404],
  "a text": ["broken", 500],
};

for (const [name, [thrown, status]] of Object.entries(THROWN)) {
  test(`a handler that throws ${name} is answered with the fields of all limits`, async (t) => {
    const port = await served(t, () => {
      throw thrown;
    });
    for (const remaining of [8, 7]) {
      const answer = await request(port, "/");
      assert.equal(answer.status, status);
      assert.equal(answer.headers.ratelimit, `"outer";r=${remaining};t=3600, "inner";r=${remaining};t=3600`);
    }
  });
}

test("fields of an error show what is left after a refund", async (t) => {
  const count = ({ status }) => status !== 500;
  const handle = () => {
    throw new Error("broken");
  };
  const port = await served(t, handle, { count });
  const { headers } = await request(port, "/");
  assert.equal(headers.ratelimit, '"outer";r=9;t=3600, "inner";r=9;t=3600');
});

test("a header of the error itself is sent with the fields", async (t) => {
  const port = await served(t, (ctx) => ctx.throw(401, "who are you", { headers: { "www-authenticate": "Basic" } }));
  const { status, headers } = await request(port, "/");
  assert.deepEqual([status, headers["www-authenticate"]], [401, "Basic"]);
  assert.match(headers.ratelimit, /^"outer";r=8/);
});
