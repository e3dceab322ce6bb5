// Lists of keys, explanations, and the keys that are denied most often.
"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const { Limiter } = require("polylimit");

const { invalid } = require("./support/code.cjs");
const { redisCommand, withRedis } = require("./support/redis.cjs");
const { onEachStore } = require("./support/stores.cjs");

const POLICIES = { api: "100/day fixed_window", login: "5/day fixed_window; 2/day token_bucket" };
/** No pauses between the calls of a list. */
const FAST = { pacePercent: 100 };

/** Runs `body` with a limiter of the store. */
async function withLimiter(url, options, body) {
  const limiter = new Limiter(url, { policies: POLICIES, ...options });
  try {
    return await body(limiter);
  } finally {
    limiter.close();
  }
}

/** All keys of a list, and how many pages it had. */
async function listed(limiter, options) {
  const [keys, pages] = [[], []];
  let cursor;
  do {
    const page = await limiter.admin().list({ ...FAST, ...options, cursor });
    pages.push(page);
    keys.push(...page.keys);
    cursor = page.cursor;
  } while (cursor !== null);
  return { keys, pages };
}

const names = (keys) => [...new Set(keys.map(({ key }) => key))].sort();

onEachStore("every key is listed, a page at a time", (url, options) =>
  withLimiter(url, options, async (limiter) => {
    const users = Array.from({ length: 400 }, (_, number) => `user:${number}`);
    await limiter.checkMany(users.map((key) => ({ key, policy: "api" })));
    const { keys, pages } = await listed(limiter, { entries: 1 });
    assert.deepEqual(names(keys), users.sort());
    assert.ok(pages.length > 1, `${pages.length}`);
    assert.equal((await listed(limiter)).pages.length, 1);
  }),
);

onEachStore("a listed key has what is used of its quotas", (url, options) =>
  withLimiter(url, options, async (limiter) => {
    await limiter.check("ann", "login");
    const { keys, cursor, examined } = await limiter.admin().list(FAST);
    assert.deepEqual([keys.length, cursor], [1, null]);
    assert.ok(examined >= 1, `${examined}`);
    const [{ quotas, expiresAfterMs, ...key }] = keys;
    assert.deepEqual(key, {
      policy: "login",
      key: "ann",
      usedPercent: 50,
      reservations: 0,
      reservedUnits: 0,
      blockedForMs: 0,
    });
    assert.ok(Number.isInteger(expiresAfterMs * 1000) && expiresAfterMs > 0);
    assert.deepEqual(
      quotas.map(({ quota, limit, capacity, used, remaining }) => [quota, limit, capacity, used, remaining]),
      [
        ["5/day fixed_window", 5, 5, 1, 4],
        ["2/day token_bucket", 2, 2, 1, 1],
      ],
    );
  }),
);

onEachStore("a filter takes a policy, a prefix, the least use, and several of them", (url, options) =>
  withLimiter(url, options, async (limiter) => {
    await limiter.charge("user:ann", { policy: "api", cost: 90 });
    await limiter.charge("user:bob", { policy: "api", cost: 10 });
    await limiter.charge("guest:1", { policy: "api", cost: 95 });
    await limiter.check("user:ann", "login");
    const namesOf = async (filter) => names((await listed(limiter, filter)).keys);
    assert.deepEqual(await namesOf({ policy: "login" }), ["user:ann"]);
    assert.deepEqual(await namesOf({ policy: "5/minute" }), []);
    assert.deepEqual(await namesOf({ keyPrefix: "guest:" }), ["guest:1"]);
    assert.deepEqual(await namesOf({ keyPrefix: Buffer.from("user:b") }), ["user:bob"]);
    assert.deepEqual(await namesOf({ atLeastUsed: 90 }), ["guest:1", "user:ann"]);
    assert.deepEqual(await namesOf({ policy: "api", keyPrefix: "user:", atLeastUsed: 90 }), ["user:ann"]);
    const top = await limiter.admin().scanTop(2, { policy: "api", ...FAST });
    assert.deepEqual(
      top.keys.map(({ key, usedPercent }) => [key, usedPercent]),
      [
        ["guest:1", 95],
        ["user:ann", 90],
      ],
    );
  }),
);

onEachStore("a key that is no UTF-8 is listed in base64, and a long one as its digest", (url, options) =>
  withLimiter(url, options, async (limiter) => {
    await limiter.check(new Uint8Array([0xff, 0]), "api");
    await limiter.check("x".repeat(300), "login");
    const { keys } = await listed(limiter);
    const of = (policy) => {
      const { key, keyBase64, keyDigest } = keys.find((found) => found.policy === policy);
      return { key, keyBase64, keyDigest };
    };
    assert.deepEqual(of("api"), { key: undefined, keyBase64: "/wA=", keyDigest: undefined });
    const { key, keyBase64, keyDigest } = of("login");
    assert.deepEqual([key, keyBase64], [undefined, undefined]);
    assert.match(keyDigest, url.startsWith("redis") ? /^[0-9a-f]{40}$/ : /^[0-9a-f]{64}$/);
  }),
);

onEachStore("resetListed resets the keys of the filter, and no others", (url, options) =>
  withLimiter(url, options, async (limiter) => {
    const keys = ["user:1", "user:2", "guest:1"];
    await limiter.checkMany(keys.map((key) => ({ key, policy: "api" })));
    const users = { policy: "api", keyPrefix: "user:", ...FAST };
    const { reset, unknown, cursor } = await limiter.admin().resetListed(users);
    assert.deepEqual([reset, unknown, cursor], [2, 0, null]);
    const left = await Promise.all(keys.map((key) => limiter.peek(key, "api")));
    assert.deepEqual(
      left.map(({ remaining }) => remaining),
      [100, 100, 99],
    );
  }),
);

onEachStore("an explanation says which quota denies, in words", (url, options) =>
  withLimiter(url, options, async (limiter) => {
    const exhausted = await limiter.take("ann", { policy: "login", cost: 5 });
    assert.equal(exhausted.taken, 2);
    const explained = await limiter.admin().explain("ann", "login");
    assert.deepEqual([explained.policy, explained.key, explained.cost], ["login", "ann", 1]);
    assert.deepEqual([explained.allowed, explained.cause], [false, "quota"]);
    assert.ok(explained.retryAfterMs > 0 && explained.retryAfterMs <= 43_200_000);
    const [window, bucket] = explained.quotas;
    assert.deepEqual([window.admits, window.used, window.retryAfterMs], [true, 2, 0]);
    assert.deepEqual([bucket.admits, bucket.remaining, bucket.periodMs], [false, 0, 86_400_000]);
    assert.match(window.words, /^2 of 5 /);
    assert.match(bucket.words, /2/);
    assert.deepEqual([explained.mode, explained.quotasSource, explained.configuration], ["on", "quotas", null]);
    const expensive = await limiter.admin().explain("bob", { policy: "login", cost: 3 });
    assert.deepEqual([expensive.cost, expensive.retryAfterMs, expensive.quotas[1].admits], [3, null, false]);
    // It has charged nothing.
    assert.equal((await limiter.peek("bob", "login")).remaining, 2);
  }),
);

const DOCUMENT = `
polylimit = 1

[policies.login]
quotas = "1/day fixed_window"

[[rules]]
match = { path = "/login" }
apply = [{ policy = "login", key = "{user}" }]

[lists]
deny = ["client 203.0.113.0/24"]
`;

onEachStore("the explanation of a request has the list, or the rules that match", (url, options) =>
  withLimiter(url, { ...options, policies: undefined, document: DOCUMENT }, async (limiter) => {
    const request = { path: "/login", peer: "192.0.2.1", attributes: { user: "ann" } };
    assert.equal((await limiter.decide(request)).allowed, true);
    const denied = await limiter.admin().explainRequest(request);
    assert.deepEqual([denied.allowed, denied.cause, denied.listEntry], [false, "quota", null]);
    assert.equal(denied.policies.length, 1);
    const [{ policy, key, rule, quotas }] = denied.policies;
    assert.deepEqual([policy, key, rule, quotas[0].admits], ["login", "ann", 1, false]);
    assert.deepEqual([denied.configuration.source, denied.configuration.digest.length], ["document", 64]);
    const listed = await limiter.admin().explainRequest({ ...request, peer: "203.0.113.7" });
    assert.deepEqual([listed.allowed, listed.cause, listed.policies], [false, "deny_list", []]);
    assert.deepEqual(listed.listEntry, {
      entry: "deny client 203.0.113.0/24",
      inDocument: true,
      until: null,
      by: null,
      why: null,
    });
    assert.equal((await limiter.admin().explain("ann")).allowed, false);
  }),
);

onEachStore("topKeys counts what this process denies and admits, with observeKeys", (url, options) =>
  withLimiter(url, { ...options, observeKeys: 64 }, async (limiter) => {
    const checks = Array.from({ length: 2000 }, () => ({ key: "ann", policy: "login" }));
    await limiter.checkMany(checks);
    const { denied, counters, halfLifeMs } = limiter.admin().topKeys(5);
    assert.deepEqual([counters, halfLifeMs, denied.length], [64, 60_000, 1]);
    const [{ policy, key, count, error }] = denied;
    assert.deepEqual([policy, key, error], ["login", "ann", 0]);
    assert.ok(count > 500 && count < 6000, `${count}`);
    assert.deepEqual(limiter.admin().topKeys(0).denied, []);
  }),
);

test("without observeKeys no keys are counted", () =>
  withLimiter("memory:", {}, async (limiter) => {
    assert.deepEqual(limiter.admin().topKeys(5), { denied: [], admitted: [], halfLifeMs: 0, counters: 0 });
    assert.throws(() => new Limiter("memory:", { observeKeys: 65_537 }), invalid(/observeKeys.*0 \(none\) to 65536/));
  }));

test("a budget, a filter or a cursor that is not allowed is refused", () =>
  withLimiter("memory:", {}, async (limiter) => {
    const admin = limiter.admin();
    const users = Array.from({ length: 400 }, (_, number) => ({ key: `user:${number}`, policy: "api" }));
    await limiter.checkMany(users);
    const { cursor } = await admin.list({ entries: 1 });
    assert.equal(typeof cursor, "string");
    for (const [options, message] of [
      [{ entries: 0 }, /^entries of a list is 0: allowed is 1 or more$/],
      [{ entries: 1.5 }, /^entries is 1.5: allowed is a whole number of keys/],
      [{ entries: "5" }, /^entries is a string: allowed is a whole number$/],
      [{ examined: 0 }, /^examined of a list is 0/],
      [{ examined: -1 }, /^examined is -1: allowed/],
      [{ pacePercent: 0 }, /1 to 100/],
      [{ pacePercent: 101 }, /1 to 100/],
      [{ pacePercent: 1000 }, /^pacePercent is 1000: allowed is a whole number of percent, 1 to 100$/],
      [{ atLeastUsed: 256 }, /^atLeastUsed is 256: allowed is a whole number of percent, 0 to 255$/],
      [{ keyPrefix: 5 }, /^keyPrefix is neither text nor bytes/],
      [{ policy: 5 }, /^policy is 5/],
      [{ policy: "100/minut" }, /minut/],
      [{ cursor: "nonsense" }, /^the cursor cannot be read/],
      [{ cursor: 5 }, /^cursor is 5: allowed is the cursor of a page$/],
      [{ cursor, keyPrefix: "user:" }, /^the cursor belongs to a list with another filter/],
      [{ prefix: "user:" }, /^option "prefix" is not known/],
      [5, /^options is 5/],
    ]) {
      await assert.rejects(admin.list(options), invalid(message));
      await assert.rejects(admin.resetListed(options), invalid(message));
    }
    for (const [call, message] of [
      [() => admin.scanTop(), /^most is undefined/],
      [() => admin.scanTop(-1), /^most is -1/],
      [() => admin.scanTop(5, { cursor }), /^option "cursor" is not known/],
      [() => admin.explain("k"), /several/],
      [() => admin.explain("k", "nobody"), /"nobody" is not known/],
      [() => admin.explain("k", { policy: "api", cost: -1 }), /^cost is -1/],
      [() => admin.explain("k", { timeoutMs: 5 }), /^option "timeoutMs" is not known/],
      [() => admin.explain(undefined, "api"), /^key is undefined: allowed are text, bytes/],
      [() => admin.explainRequest({ path: "/" }), /configuration/],
      [() => admin.explainRequest(5), /^request is 5/],
      [async () => admin.topKeys("5"), /^most is a string/],
      [async () => admin.topKeys(0.5), /^most is 0.5/],
    ]) {
      await assert.rejects(call, invalid(message));
    }
    assert.equal((await admin.resetListed()).reset, 400);
  }));

test("a closed limiter lists and explains nothing", async () => {
  const limiter = new Limiter("memory:", { policies: { api: "5/minute" } });
  const admin = limiter.admin();
  limiter.close();
  for (const call of [
    () => admin.list(),
    () => admin.scanTop(5),
    () => admin.resetListed(),
    () => admin.explain("k"),
    () => admin.explainRequest({}),
  ]) {
    await assert.rejects(call, { name: "PolylimitError", code: "closed" });
  }
  assert.deepEqual(admin.topKeys(5).denied, []);
});

test("a store that does not answer is an error, whatever the outage policy", async () => {
  const options = { outage: "allow", deadline: "200ms", policies: { api: "5/minute" } };
  await withLimiter("redis://127.0.0.1:1", options, async (limiter) => {
    await assert.rejects(limiter.admin().explain("k"), { code: "store_unavailable" });
    await assert.rejects(limiter.admin().list(), { code: "store_unavailable" });
  });
});

test("a user of Redis without the right to SCAN cannot list", () =>
  withRedis(async ({ port }) => {
    assert.match(await redisCommand(port, "ACL SETUSER clerk on >secret ~* &* +@all -scan"), /^\+OK/);
    await withLimiter(`redis://clerk:secret@127.0.0.1:${port}`, { deadline: "10s" }, async (limiter) => {
      await limiter.check("k", "api");
      await assert.rejects(limiter.admin().list(FAST), { code: "store_failed", message: /scan/i });
    });
  }));
