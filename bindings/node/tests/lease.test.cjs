// Leases and the denial cache, on a real Redis.
"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const { Limiter } = require("polylimit");

const { withRedis } = require("./support/redis.cjs");
const { until } = require("./support/until.cjs");

const REQUEST = { policy: "api" };

/** Checks one key until a decision has come from a source, and counts those that were admitted. */
async function bySource(limiter, source) {
  let admitted = 0;
  await until(async () => {
    const decision = await limiter.check("hot", REQUEST);
    if (decision.allowed) admitted++;
    return decision.source === source;
  }, `a decision comes from ${source}`);
  return admitted;
}

test("a lease decides in this process, and admits no more than the quota", async () => {
  await withRedis(async ({ url }) => {
    const quotas = "5000/day fixed_window";
    let admitted = 0;
    for (let times = 0; times < 2; times++) {
      const limiter = new Limiter(url, { policies: { api: { quotas, lease: "100" } }, deadline: "10s" });
      admitted += await bySource(limiter, "lease");
      assert.ok(limiter.stats().leased > 0);
      // It gives back what it has not spent.
      limiter.close();
    }
    const limiter = new Limiter(url, { policies: { api: quotas }, deadline: "10s" });
    await until(async () => {
      const { remaining } = await limiter.peek("hot", REQUEST);
      assert.ok(remaining + admitted <= 5000, `${remaining} are left after ${admitted}`);
      return remaining + admitted === 5000;
    }, "the unspent units are back");
    limiter.close();
  });
});

test("a quota that cannot be leased is refused", () => {
  const policies = { log: { quotas: "5/day sliding_log", lease: "auto" } };
  assert.throws(() => new Limiter("redis://127.0.0.1:1", { policies }), { code: "invalid_argument" });
});

test("checkSync refuses a store that has to be asked, also for keys whose denial or lease is in this process", async () => {
  await withRedis(async ({ url }) => {
    const policies = { api: "1/day", leased: { quotas: "5000/day fixed_window", lease: "100" } };
    const limiter = new Limiter(url, { policies, deadline: "10s", denialCacheMax: "1h" });
    const refusal = { code: "invalid_argument", message: /checkSync/ };
    assert.throws(() => limiter.checkSync("hot", REQUEST), refusal);
    await bySource(limiter, "denial_cache");
    assert.throws(() => limiter.checkSync("hot", REQUEST), refusal);
    await until(async () => (await limiter.check("hot", "leased")).source === "lease", "a lease decides");
    assert.throws(() => limiter.checkSync("hot", "leased"), refusal);
    limiter.close();
  });
});

test("a cached denial ends with a refund", async () => {
  await withRedis(async ({ url }) => {
    const limiter = new Limiter(url, { policies: { api: "1/day" }, deadline: "10s", denialCacheMax: "1h" });
    assert.equal(await bySource(limiter, "denial_cache"), 1);
    const denied = await limiter.check("hot", REQUEST);
    assert.ok(!denied.allowed && denied.retryAfterMs > 0, JSON.stringify(denied));
    await limiter.refund("hot", REQUEST);
    const { allowed, source } = await limiter.check("hot", REQUEST);
    assert.deepEqual([allowed, source], [true, "store"]);
    limiter.close();
  });
});

test("denials are not cached when the setting is 0", async () => {
  await withRedis(async ({ url }) => {
    const limiter = new Limiter(url, { policies: { api: "1/day" }, deadline: "10s", denialCacheMax: 0 });
    for (let at = 0; at < 50; at++) {
      const { allowed, source } = await limiter.check("hot", REQUEST);
      assert.deepEqual([allowed, source], [at === 0, "store"]);
    }
    limiter.close();
  });
});
