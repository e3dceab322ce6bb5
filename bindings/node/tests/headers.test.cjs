// Responses of programs that decide themselves.
"use strict";

const assert = require("node:assert/strict");
const http = require("node:http");
const { once } = require("node:events");
const { test } = require("node:test");

const { denialOf, headerFields, Limiter, ManualClock } = require("polylimit");
const { rateLimit } = require("polylimit/express");

const { request } = require("./support/request.cjs");

const POLICIES = { api: "2/minute fixed_window", day: "9/day fixed_window" };

function limiterOf(t, policies = POLICIES) {
  const limiter = new Limiter("memory:", { policies, clock: new ManualClock(1_000_000_000) });
  t.after(() => limiter.close());
  return limiter;
}

/** The decisions about one request, each with its policy. */
async function decided(limiter, cost = 1) {
  const names = Object.keys(POLICIES);
  const decisions = await limiter.checkTogether(names.map((policy) => ({ key: "k", policy, cost })));
  return decisions.map((decision, at) => ({ policy: names[at], decision }));
}

test("fields have all policies, in each style and form and by each name", async (t) => {
  const limiter = limiterOf(t);
  const outcomes = await decided(limiter);
  assert.deepEqual(headerFields(limiter, outcomes), [
    ["ratelimit-policy", '"api";q=2;w=60, "day";q=9;w=86400'],
    ["ratelimit", '"api";r=1;t=60, "day";r=8;t=86400'],
  ]);
  const headers = "legacy epoch x-ratelimit-limit= x-ratelimit-remaining=X-Left";
  const [left, reset] = headerFields(limiter, outcomes, { headers });
  assert.deepEqual(left, ["x-left", "1"]);
  const now = Date.now() / 1000;
  assert.equal(reset[0], "x-ratelimit-reset");
  assert.ok(Number(reset[1]) > now && Number(reset[1]) < now + 120, reset[1]);
  assert.deepEqual(headerFields(limiter, outcomes, { headers: "none" }), []);
  assert.deepEqual(headerFields(limiter, []), []);
});

test("the only policy needs no name, and quotas are one", async (t) => {
  const limiter = limiterOf(t, { only: "3/minute" });
  const decision = await limiter.check("k");
  assert.match(headerFields(limiter, { decision })[1][1], /^"only";r=2/);
  const quotas = { policy: "5/minute", decision: await limiter.check("k", "5/minute") };
  assert.match(headerFields(limiter, quotas)[0][1], /;q=5;w=60$/);
});

test("the response to a denied request is a document, or text for a client that prefers it", async (t) => {
  const limiter = limiterOf(t);
  assert.equal(denialOf(limiter, await decided(limiter)), undefined);
  const outcomes = await decided(limiter, 2);
  const denial = denialOf(limiter, outcomes, { cost: 2, accept: "application/json" });
  assert.deepEqual([denial.status, denial.contentType, denial.vary], [429, "application/problem+json", "accept"]);
  assert.deepEqual(JSON.parse(denial.body)["violated-policies"], ["api"]);
  const text = denialOf(limiter, outcomes, { cost: 2, accept: "text/plain" });
  assert.equal(text.body, "Not enough of the quota is left: retry in 60 s.\n");
  assert.deepEqual(headerFields(limiter, outcomes).at(-1), ["retry-after", "60"]);
});

test("a decision of several quotas keeps the numbers of each", async (t) => {
  const limiter = limiterOf(t, { api: "2/minute fixed_window; 50/day fixed_window; 1/hour fixed_window" });
  const decision = { ...(await limiter.check("k", { cost: 2 })) };
  assert.deepEqual(
    decision.quotas.map(({ allowed }) => allowed),
    [true, true, false],
  );
  const denial = denialOf(limiter, { decision }, { cost: 2, accept: "application/json" });
  assert.deepEqual(JSON.parse(denial.body)["violated-policies"], ["api:3"]);
});

test("a program that decides itself responds as the middleware does", async (t) => {
  const [byHand, limited] = [limiterOf(t, { api: "1/minute" }), limiterOf(t, { api: "1/minute" })];
  const express = require("express");
  const app = express();
  app.get("/middleware", rateLimit({ limiter: limited, key: () => "k" }), (_, res) => res.end("hello"));
  app.get("/hand", async (req, res) => {
    const decision = await byHand.check("k");
    for (const [name, value] of headerFields(byHand, { decision })) res.setHeader(name, value);
    const denial = denialOf(byHand, { decision }, { accept: req.headers.accept });
    if (denial === undefined) return res.end("hello");
    return res.status(denial.status).set({ "content-type": denial.contentType, vary: denial.vary }).end(denial.body);
  });
  const server = http.createServer(app).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  const { port } = server.address();
  for (const status of [200, 429]) {
    const [expected, found] = [await request(port, "/middleware"), await request(port, "/hand")];
    for (const { headers } of [expected, found]) delete headers.date;
    assert.equal(found.status, status);
    assert.deepEqual(found, expected);
  }
});

test("what is not allowed is refused", async (t) => {
  const limiter = limiterOf(t);
  const [{ decision }] = await decided(limiter);
  const refused = (make, said) =>
    assert.throws(make, ({ code, message }) => {
      assert.equal(code, "invalid_argument");
      assert.match(message, said);
      return true;
    });
  refused(() => headerFields(limiter, { decision }), /policy/);
  refused(() => headerFields(limiter, { policy: "other", decision }), /other/);
  refused(() => headerFields(limiter, { policy: "api", decision: {} }), /decision is an object/);
  refused(() => headerFields(limiter, { policy: "api", decision: { ...decision, remaining: -1 } }), /remaining/);
  const [{ retryAfterUs: _, ...usage }] = decision.quotas;
  const withoutWait = { ...decision, quotas: [usage] };
  refused(() => headerFields(limiter, { policy: "api", decision: withoutWait }), /retryAfterUs is NaN/);
  refused(() => headerFields(limiter, { policy: "api", decision }, { headers: "some" }), /some/);
  refused(() => headerFields(limiter, { policy: "api", decision }, { style: "ietf" }), /style/);
  refused(() => headerFields({}, { policy: "api", decision }), /limiter is an object/);
  refused(() => denialOf(limiter, { policy: "api", decision }, { cost: -1 }), /cost/);
  refused(() => denialOf(limiter, { policy: "api", decision }, { accept: 5 }), /accept is 5/);
  limiter.close();
  assert.throws(() => headerFields(limiter, { policy: "api", decision }), { code: "closed" });
});
