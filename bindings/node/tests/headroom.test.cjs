// What requests may ask for apart from a policy and a cost, blocks, and what decisions contain apart from allowed or denied.
"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const { Limiter, ManualClock } = require("polylimit");

const { invalid } = require("./support/code.cjs");
const { localStore } = require("./support/local.cjs");

const DAY_MS = 86_400_000;

/** Runs a test on the stores that answer at once, each with a limiter of one policy. */
function withLimiters(name, quotas, body) {
  test(`${name}: memory`, () => body(limiterAt("memory:", quotas)));
  test(`${name}: local`, async () => {
    const { url, remove } = localStore();
    try {
      await body(limiterAt(url, quotas));
    } finally {
      remove();
    }
  });
}

function limiterAt(url, quotas) {
  const clock = new ManualClock(0);
  return { clock, limiter: new Limiter(url, { policies: { api: quotas }, clock }) };
}

/** What a decision contains apart from its numbers. */
const told = ({ allowed, cause, crossed, elastic, shadowed }) => ({ allowed, cause, crossed, elastic, shadowed });
const ADMITTED = { allowed: true, cause: null, crossed: false, elastic: false, shadowed: false };
const DENIED = { ...ADMITTED, allowed: false, cause: "quota" };

withLimiters("requests with a headroom leave units for others", "10/day fixed_window", async ({ limiter }) => {
  const patient = { headroom: 25 };
  for (let left = 6; left >= 0; left--) assert.equal((await limiter.check("k", patient)).remaining, left);
  const denied = await limiter.check("k", patient);
  assert.deepEqual(told(denied), DENIED);
  assert.deepEqual([denied.remaining, denied.retryAfterMs], [0, DAY_MS]);
  for (const answer of [
    limiter.peek("k", patient),
    limiter.acquire("k", { ...patient, timeoutMs: 10 }),
    limiter.checkSync("k", patient),
    (await limiter.checkMany([{ key: "k", ...patient }]))[0],
    (await limiter.checkTogether([{ key: "k", ...patient }]))[0],
    (await limiter.reserve("k", patient)).decision,
  ]) {
    assert.deepEqual(told(await answer), DENIED);
  }
  assert.deepEqual(told(await limiter.peek("k", { headroom: 0 })), ADMITTED);
  assert.equal((await limiter.check("k", { headroom: 0, cost: 2, policy: "api" })).remaining, 1);
  assert.equal((await limiter.check("k")).remaining, 0);
});

test("a headroom and a plan that are not allowed are refused by every operation", async () => {
  const { limiter } = limiterAt("memory:", "10/day");
  const refusals = [
    [{ headroom: 100 }, invalid("headroom is 100 %: allowed is 0 to 99 %")],
    [{ headroom: 1e15 }, invalid("headroom is 255 %: allowed is 0 to 99 %")],
    [{ headroom: 1.5 }, invalid("headroom is 1.5: allowed is a whole number from 0 to 99 percent")],
    [{ headroom: -1 }, invalid("headroom is -1: allowed is a whole number from 0 to 99 percent")],
    [{ headroom: "5" }, invalid("headroom is a string: allowed is a whole number from 0 to 99 percent")],
    [{ plan: 5 }, invalid("plan is 5: allowed is the name of a plan")],
  ];
  for (const [options, refusal] of refusals) {
    for (const operation of ["check", "peek", "take", "charge", "refund", "reset", "reserve"]) {
      await assert.rejects(limiter[operation]("k", options), refusal, operation);
    }
    await assert.rejects(limiter.acquire("k", { ...options, timeoutMs: 0 }), refusal);
    assert.throws(() => limiter.checkSync("k", options), refusal);
    const [first, second] = await limiter.checkMany([{ key: "k", ...options }, "k"]);
    assert.deepEqual([first.code, second.source], ["invalid_argument", "store"]);
  }
  assert.throws(() => limiter.checkSync("k", { plan: "\ud800" }), { code: "invalid_argument", message: /^plan is no/ });
});

test("a limiter without a configuration ignores plans", async () => {
  const { limiter } = limiterAt("memory:", "99/day fixed_window");
  const plan = "gold";
  let left = 99;
  for (const options of [{ plan }, { plan, policy: "api" }, { plan: "g\u00f6ld", cost: 1 }, { plan, headroom: 0 }]) {
    left -= 1;
    assert.equal((await limiter.check("k", options)).remaining, left);
  }
  assert.equal((await limiter.check("k".repeat(60), { plan })).remaining, 98);
  assert.equal((await limiter.check("k", { plan, policy: "5/day" })).remaining, 4);
  const { id } = await limiter.reserve("k", { plan, cost: 3 });
  assert.equal((await limiter.renew("k", id, 1000, { plan })).found, true);
  assert.equal((await limiter.commit("k", id, { plan, spent: 2 })).remaining, left - 2);
  assert.equal((await limiter.cancel("k", id, { plan, policy: "api" })).found, false);
});

withLimiters("a blocked key is denied until its block ends", "10/day fixed_window", async ({ clock, limiter }) => {
  const admin = limiter.admin();
  const blocked = await admin.block("k", 1500.5);
  assert.deepEqual([blocked.remaining, blocked.resetAfterMs, blocked.taken], [0, 1500.5, 0]);
  const denied = await limiter.check("k");
  assert.deepEqual(told(denied), { ...DENIED, cause: "blocked" });
  assert.deepEqual([denied.remaining, denied.retryAfterMs, denied.retryAfterUs], [0, 1501, 1_500_500]);
  assert.equal((await limiter.take("k", { cost: 3 })).taken, 0);
  clock.advanceMs(1500);
  assert.equal((await admin.block("k", 100, "api")).resetAfterMs, 100);
  clock.advanceMs(100);
  assert.deepEqual(told(await limiter.check("k")), ADMITTED);
  await admin.block(42, 366 * DAY_MS, { policy: "api" });
  assert.equal(limiter.checkSync("42").cause, "blocked");
  assert.equal((await admin.unblock(42n)).remaining, 10);
  assert.equal(limiter.checkSync(42).allowed, true);
  await admin.block("k", 1, { plan: "gold" });
  assert.equal((await admin.block("k", 0, { plan: "gold" })).remaining, 9);
  for (const forMs of [0.999, 366 * DAY_MS + 0.001]) {
    const message = /^forMs is [0-9.]+ ms: allowed is 1 ms to 366 days, or 0 to forget the block$/;
    await assert.rejects(admin.block("k", forMs), { code: "invalid_argument", message });
  }
  await assert.rejects(admin.block("k", "1s"), invalid("forMs is a string: allowed is a number of milliseconds"));
  await assert.rejects(admin.block("k"), invalid("forMs is undefined: allowed is a number of milliseconds"));
  await assert.rejects(
    admin.unblock("k", { cost: 1 }),
    invalid('option "cost" is not known: allowed are policy, plan'),
  );
});

withLimiters("a decision shows which request crossed a limit", "3/day excess=2 fixed_window", async ({ limiter }) => {
  const crossed = [];
  for (let check = 0; check < 6; check++) {
    const decision = await limiter.check("k");
    crossed.push([decision.over, decision.crossed, decision.cause]);
  }
  assert.deepEqual(crossed, [
    [0, false, null],
    [0, false, null],
    [0, false, null],
    [1, true, null],
    [2, false, null],
    [2, false, "quota"],
  ]);
  const { decision } = await limiter.reserve("k2", { cost: 5 });
  assert.deepEqual([decision.over, decision.crossed], [2, true]);
});

test("a quota of concurrency denies with a cause of its own", async () => {
  const { limiter } = limiterAt("memory:", "1 concurrent; 5/day");
  const first = await limiter.reserve("k");
  const second = await limiter.reserve("k");
  assert.deepEqual([first.decision.cause, second.decision.cause], [null, "concurrency"]);
  await first.cancel();
});
