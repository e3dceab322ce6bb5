// jest.test.cjs runs this file with Jest, whose tests have a realm of their own: values that the addon creates are not
// instances of its classes.
"use strict";

const { once } = require("node:events");

const express = require("express");
const { ClientAddressRules, Limiter, ManualClock, PolylimitError, Quota } = require("polylimit");
const { rateLimit } = require("polylimit/express");
const { PolylimitStore } = require("polylimit/express-rate-limit");

const { until } = require("../support/until.cjs");

const { blackHole } = process.env;

/** The error that a function throws, or with which its promise is rejected. */
async function thrownBy(body) {
  try {
    await body();
  } catch (thrown) {
    return thrown;
  }
  throw new Error("nothing was thrown");
}

const closed = () => {
  const limiter = new Limiter("memory:");
  limiter.close();
  return limiter;
};
const limiter = new Limiter("memory:", { policies: { api: "2/minute fixed_window" }, clock: new ManualClock(0) });
const far = new Limiter(blackHole, { policies: { api: "2/minute" }, deadline: "20ms" });

test.each([
  ["a URL", "invalid_argument", () => new Limiter("mongo://x")],
  ["a quota", "invalid_argument", () => Quota.parse("1/minut")],
  ["numbers of a quota", "invalid_argument", () => new Quota(-1, 5)],
  ["a policy", "invalid_argument", () => limiter.check("k", "nobody")],
  ["a cost", "invalid_argument", () => limiter.checkSync("k", { cost: -1 })],
  ["a key", "invalid_argument", () => limiter.peek({})],
  ["a cost of a middleware", "invalid_argument", () => rateLimit({ limiter, cost: -1 })],
  ["an option", "invalid_argument", () => rateLimit({ limiter, keyGenerator: () => "k" })],
  ["rules of addresses", "invalid_argument", () => new ClientAddressRules({ trust: "everybody" })],
  ["a clock", "invalid_argument", () => new ManualClock(-1)],
  ["a window", "invalid_argument", () => new PolylimitStore({ limiter: "memory:" }).init({ windowMs: 0.5 })],
  ["a check of a closed limiter", "closed", () => closed().check("k", "1/s")],
  ["a take of a closed limiter", "closed", () => closed().take("k", "1/s")],
  ["readiness", "store_unavailable", () => far.ready(20)],
])("%s: what is wrong is an Error of this realm", async (_, code, body) => {
  const thrown = await thrownBy(body);
  expect(thrown).toBeInstanceOf(PolylimitError);
  expect(thrown).toBeInstanceOf(Error);
  expect(thrown).toMatchObject({ code, name: "PolylimitError" });
});

test("checkMany puts the error of an invalid check in its place", async () => {
  const [first, second] = await limiter.checkMany(["many", { key: "many", cost: -1 }]);
  expect(first.remaining).toBe(1);
  expect(second).toBeInstanceOf(PolylimitError);
});

test("values are equal to values of this realm", async () => {
  expect(await limiter.check("equal")).toStrictEqual({
    allowed: true,
    limit: 2,
    remaining: 1,
    retryAfterMs: 0,
    retryAfterUs: 0,
    resetAfterMs: 60_000,
    over: 0,
    delayMs: 0,
    delayUs: 0,
    cause: null,
    crossed: false,
    elastic: false,
    shadowed: false,
    source: "store",
    degraded: null,
    quotas: [
      { allowed: true, limit: 2, remaining: 1, retryAfterMs: 0, retryAfterUs: 0, resetAfterMs: 60_000, over: 0 },
    ],
  });
  expect(limiter.policies.map(({ name }) => name)).toStrictEqual(["api"]);
  expect(new ClientAddressRules().resolve("192.0.2.1")).toStrictEqual({ address: "192.0.2.1", key: "192.0.2.1" });
  const findings = await far.admin().doctor();
  expect(findings).toBeInstanceOf(Array);
  expect(findings.every((finding) => finding instanceof Object)).toBe(true);
  expect(limiter.stats()).toBeInstanceOf(Object);
  expect(limiter.check("promise")).toBeInstanceOf(Promise);
  expect(new Limiter("memory:", { policies: new Map([["api", "1/s"]]) }).policies).toHaveLength(1);
  expect((await limiter.check(new Uint8Array([1, 2]))).allowed).toBe(true);
});

test("a middleware responds, and an error of a handler reaches the error handler", async () => {
  const warned = jest.spyOn(process, "emitWarning");
  const app = express();
  const count = () => {
    throw new Error("this does not count");
  };
  app.use(rateLimit({ limiter, policy: ["api", "9/hour"], count }));
  app.get("/", (req, res) => res.send(String(req.rateLimit.remaining)));
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    const answers = [1, 2, 3].map(() => fetch(`http://127.0.0.1:${server.address().port}/`));
    const seen = (await Promise.all(answers)).map(({ status }) => status).sort();
    expect(seen).toStrictEqual([200, 200, 429]);
    await until(() => warned.mock.calls.some(([told]) => told === "Error: this does not count"), "a warning");
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

afterAll(() => {
  limiter.close();
  far.close();
});
