// Policies of a rate limit with costs of their own: tokens under one policy, requests under another.
"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const { test } = require("node:test");

const express = require("express");
const fastify = require("fastify");
const { Limiter, Quota } = require("polylimit");
const { rateLimit } = require("polylimit/express");
const { rateLimit: plugin } = require("polylimit/fastify");
const { rateLimit: limitFetch } = require("polylimit/fetch");

const { request } = require("./support/request.cjs");
const { until } = require("./support/until.cjs");

function limiterOf() {
  return new Limiter("memory:", { policies: { tpm: "10000/day fixed_window", rpm: "60/day fixed_window" } });
}

/** What is left under each policy. */
async function left(limiter, key = "k") {
  const [tokens, requests] = [await limiter.peek(key, "tpm"), await limiter.peek(key, "rpm")];
  return [tokens.remaining, requests.remaining];
}

/** How the header says the costs of a request. */
const tokensOf = (req) => Number(req.headers["x-tokens"] ?? 0);

test("each policy of a list is charged its own cost, a number or a function", async () => {
  for (const cost of [100, tokensOf, async (req) => tokensOf(req)]) {
    const limiter = limiterOf();
    const app = express();
    app.use(rateLimit({ limiter, key: () => "k", policy: [{ policy: "tpm", cost }, "rpm"] }));
    app.get("/", (req, res) => res.json(req.rateLimit.all.map(({ policy, decision }) => [policy, decision.remaining])));
    const server = app.listen(0, "127.0.0.1");
    try {
      await once(server, "listening");
      const { status, text } = await request(server.address().port, "/", { headers: { "x-tokens": "100" } });
      assert.deepEqual(
        [status, JSON.parse(text)],
        [
          200,
          [
            ["tpm", 9900],
            ["rpm", 59],
          ],
        ],
      );
    } finally {
      server.close();
    }
    assert.deepEqual(await left(limiter), [9900, 59]);
  }
});

test("a request that one of the policies denies spends nothing under any, and the denial has its key", async () => {
  const limiter = limiterOf();
  let denied;
  const handler = limitFetch(() => new Response("ok"), {
    limiter,
    key: () => "k",
    cost: 2,
    policy: [{ policy: "tpm", cost: (request) => Number(request.headers.get("x-tokens")) }, "rpm"],
    onDenied: ({ key, status }) => {
      denied = key;
      return new Response("no", { status });
    },
    peer: () => "192.0.2.1",
  });
  const ask = async (tokens) => {
    const { status } = await handler(new Request("http://h/", { headers: { "x-tokens": `${tokens}` } }));
    return status;
  };
  assert.deepEqual([await ask(9000), await ask(5000), denied], [200, 429, "k"]);
  assert.deepEqual(await left(limiter), [1000, 58]);
});

test("what a response has spent is known for each policy", async () => {
  const limiter = limiterOf();
  const app = fastify();
  app.register(plugin, {
    limiter,
    key: () => "k",
    policy: [
      { policy: "tpm", cost: 4000, spent: async (_, reply) => Number(reply.getHeader("x-used")) },
      { policy: Quota.perHour(10), spent: () => 3 },
      "rpm",
    ],
  });
  app.get("/", (_, reply) => {
    reply.header("x-used", "1234");
    return "ok";
  });
  await app.listen({ host: "127.0.0.1", port: 0 });
  try {
    assert.equal((await request(app.server.address().port)).status, 200);
    await until(async () => (await left(limiter)).join() === "8766,59", "8766 tokens and 59 requests are left");
    const used = async () => (await limiter.admin().list()).keys.map(({ quotas: [{ used }] }) => used).sort();
    await until(async () => (await used()).join() === "1,1234,3", "the quota without a name has 3 of 10 used");
  } finally {
    await app.close();
  }
});

test("a cost of one policy that a function returns is checked, and fails the request", async () => {
  const limiter = limiterOf();
  for (const [cost, message] of [
    ["5", /^cost is a string: allowed is a number of units/],
    [-1, /^cost is -1: allowed is a whole number/],
    [1e13, /^cost is 10000000000000: allowed/],
  ]) {
    const handler = limitFetch(() => new Response("ok"), {
      limiter,
      key: () => "k",
      policy: [{ policy: "tpm", cost: () => cost }, "rpm"],
      peer: () => "192.0.2.1",
    });
    await assert.rejects(async () => await handler(new Request("http://h/")), { code: "invalid_argument", message });
  }
  assert.deepEqual(await left(limiter), [10_000, 60]);
});

test("a cost of one policy that it can never admit is refused when the limit is created", () => {
  const limiter = limiterOf();
  assert.throws(() => rateLimit({ limiter, policy: ["tpm", "rpm"], cost: 100 }), {
    code: "invalid_argument",
    message: /^cost is 100 for policy "rpm", which never admits more than 60 at once/,
  });
  assert.throws(() => rateLimit({ limiter, policy: [{ policy: "tpm", cost: 10_001 }, "rpm"] }), /never admits/);
  rateLimit({ limiter, policy: [{ policy: "tpm", cost: 100 }, "rpm"] });
});
