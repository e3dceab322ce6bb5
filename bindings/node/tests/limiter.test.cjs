"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const { Limiter, ManualClock, PolylimitError, Quota } = require("polylimit");

const { invalid } = require("./support/code.cjs");
const { localStore } = require("./support/local.cjs");
const { withRedis } = require("./support/redis.cjs");

function limiterAt(nowUs, quotas, url = "memory:") {
  const clock = new ManualClock(nowUs);
  return { clock, limiter: new Limiter(url, { policies: { api: quotas }, clock }) };
}

test("a decision has all properties", async () => {
  const { clock, limiter } = limiterAt(0, "2/minute token_bucket");
  assert.deepEqual(await limiter.check("user:42"), {
    allowed: true,
    limit: 2,
    remaining: 1,
    retryAfterMs: 0,
    retryAfterUs: 0,
    resetAfterMs: 30_000,
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
      { allowed: true, limit: 2, remaining: 1, retryAfterMs: 0, retryAfterUs: 0, resetAfterMs: 30_000, over: 0 },
    ],
  });
  clock.advanceMs(0.5);
  await limiter.check("user:42");
  const denied = await limiter.check("user:42");
  assert.equal(denied.allowed, false);
  assert.deepEqual([denied.retryAfterMs, denied.retryAfterUs], [30_000, 29_999_500]);
  assert.equal((await limiter.check("user:42", { cost: 3 })).retryAfterMs, null);
  clock.setUs(clock.nowUs + 29_999_499);
  assert.equal((await limiter.peek("user:42")).allowed, false);
  clock.setUs(clock.nowUs + 1);
  assert.equal((await limiter.peek("user:42")).allowed, true);
});

test("a decision has the usage of each quota", async () => {
  const { limiter } = limiterAt(0, ["10/second token_bucket", Quota.perMinute(15, { algorithm: "fixed_window" })]);
  const { limit, remaining, quotas } = await limiter.check("user:42", { cost: 6 });
  assert.deepEqual({ limit, remaining }, { limit: 10, remaining: 4 });
  assert.deepEqual(quotas, [
    { allowed: true, limit: 10, remaining: 4, retryAfterMs: 0, retryAfterUs: 0, resetAfterMs: 600, over: 0 },
    { allowed: true, limit: 15, remaining: 9, retryAfterMs: 0, retryAfterUs: 0, resetAfterMs: 60_000, over: 0 },
  ]);
});

test("each quota of a decision has a verdict of its own", async () => {
  const { clock, limiter } = limiterAt(0, ["2/second fixed_window", "3/minute fixed_window", "50/day fixed_window"]);
  const verdicts = async (cost) =>
    (await limiter.check("k", { cost })).quotas.map(({ allowed, retryAfterMs }) => [allowed, retryAfterMs]);
  const admits = [true, 0];
  assert.deepEqual(await verdicts(2), [admits, admits, admits]);
  assert.deepEqual(await verdicts(1), [[false, 1000], admits, admits]);
  assert.deepEqual(await verdicts(2), [[false, 1000], [false, 60_000], admits]);
  assert.deepEqual(await verdicts(4), [[false, null], [false, null], admits]);
  clock.advanceMs(999.5);
  assert.deepEqual(await verdicts(1), [[false, 1], admits, admits]);
  const { quotas } = await limiter.take("k");
  assert.deepEqual(Object.keys(quotas[0]), ["limit", "remaining", "resetAfterMs", "over"]);
});

test("the verdict of the only quota is not that of its decision for a request that shadow admits", async (t) => {
  const document = { polylimit: 1, policies: { api: { quotas: "1/minute fixed_window", mode: "shadow" } } };
  const limiter = new Limiter("memory:", { document, clock: new ManualClock(0) });
  t.after(() => limiter.close());
  await limiter.check("k");
  const shadowed = await limiter.check("k");
  assert.equal(shadowed.allowed, true);
  assert.deepEqual([shadowed.quotas[0].allowed, shadowed.quotas[0].retryAfterMs], [false, 60_000]);
});

test("the quotas of a key on a deny list admit", async (t) => {
  const policies = { api: { quotas: "1/minute" } };
  const document = { polylimit: 1, policies, lists: { deny: ["key api k"] } };
  const limiter = new Limiter("memory:", { document });
  t.after(() => limiter.close());
  const denied = await limiter.check("k");
  assert.deepEqual([denied.allowed, denied.cause, denied.retryAfterMs], [false, "deny_list", null]);
  assert.deepEqual([denied.quotas[0].allowed, denied.quotas[0].retryAfterMs], [true, 0]);
});

test("a leaky bucket returns the delay of an admitted request", async () => {
  const { limiter } = limiterAt(0, "10/second leaky_bucket");
  await limiter.check("user:42");
  const { delayMs, delayUs } = await limiter.check("user:42");
  assert.deepEqual([delayMs, delayUs], [100, 100_000]);
});

test("each operation spends, refunds or resets as documented", async () => {
  const { limiter } = limiterAt(0, "10/minute token_bucket");
  assert.equal((await limiter.peek("k")).remaining, 10);
  const taken = await limiter.take("k", { cost: 12 });
  assert.deepEqual(taken, {
    taken: 10,
    found: true,
    repeated: false,
    limit: 10,
    remaining: 0,
    resetAfterMs: 60_000,
    over: 0,
    source: "store",
    degraded: null,
    quotas: [{ limit: 10, remaining: 0, resetAfterMs: 60_000, over: 0 }],
  });
  assert.equal((await limiter.charge("k", { cost: 5 })).resetAfterMs, 90_000);
  assert.equal((await limiter.refund("k", { cost: 8 })).remaining, 3);
  assert.equal((await limiter.reset("k")).remaining, 10);
  assert.equal((await limiter.acquire("k", { timeoutMs: 0 })).remaining, 9);
});

test("a request names a policy or quotas", async () => {
  const limiter = new Limiter("memory:", { policies: { api: "5/minute", login: "1/minute" } });
  assert.equal((await limiter.check("k", "login")).limit, 1);
  assert.equal((await limiter.check("k", { policy: "api" })).limit, 5);
  assert.equal((await limiter.check("k", "7/hour")).remaining, 6);
  assert.equal((await limiter.check("k", "7/hour")).remaining, 5);
  await assert.rejects(limiter.check("k"), { code: "invalid_argument", message: /policy/ });
  await assert.rejects(limiter.check("k", "nobody"), { code: "invalid_argument", message: /"nobody" is not known/ });
  await assert.rejects(limiter.check("k", ""), { code: "invalid_argument" });
  const none = new Limiter("memory:");
  assert.equal((await none.check("k", "1/s; 5/m")).quotas.length, 2);
});

test("checkMany decides each check on its own", async () => {
  const { limiter } = limiterAt(0, "2/minute");
  const answers = await limiter.checkMany([
    "a",
    { key: "a", cost: 2 },
    { key: "b", policy: "nobody" },
    { key: Buffer.from("a") },
  ]);
  assert.deepEqual(
    answers.map((answer) => (answer instanceof PolylimitError ? answer.code : answer.remaining)),
    [1, 1, "invalid_argument", 0],
  );
  assert.deepEqual(await limiter.checkMany([]), []);
});

test("checkMany puts the error of an invalid check in its place", async () => {
  const body = async (url) => {
    const limiter = new Limiter(url, { policies: { api: "9/day" }, ...(url === "memory:" ? {} : { deadline: "10s" }) });
    const detached = new Uint8Array([1]);
    structuredClone(detached.buffer, { transfer: [detached.buffer] });
    const answers = await limiter.checkMany([
      { key: "k", cost: Number.NaN },
      "k",
      { key: "k", cost: "1" },
      { cost: 1 },
      { key: detached },
      { key: "k", cost: 2 },
      { key: "k", policy: 5 },
      { key: "\ud800" },
      { key: "k", cost: 1e12 + 1 },
      "k",
    ]);
    assert.deepEqual(
      answers.map((answer) => (answer instanceof PolylimitError ? answer.message.split(":")[0] : answer.remaining)),
      [
        "cost is NaN",
        8,
        "cost is a string",
        "checks[3] has no key",
        "key is a Uint8Array whose buffer is detached",
        6,
        "policy is 5",
        "key is text with an unpaired surrogate, which has no UTF-8",
        "cost is 1000000000001",
        5,
      ],
    );
    for (const answer of answers) assert.ok(!(answer instanceof Error) || answer.code === "invalid_argument");
    await assert.rejects(limiter.checkMany("k"), invalid("checks is a string: allowed is an array"));
    const thrower = {
      key: "k",
      get cost() {
        throw new RangeError("own");
      },
    };
    await assert.rejects(limiter.checkMany([thrower]), { name: "RangeError", message: "own" });
    limiter.close();
  };
  await body("memory:");
  await withRedis(({ url }) => body(url));
});

for (const store of ["memory", "redis"]) {
  test(`checkTogether spends all or nothing: ${store}`, async () => {
    const body = async (url) => {
      const policies = { wide: "9/day", narrow: "1/day" };
      const limiter = new Limiter(url, { policies, ...(store === "redis" ? { deadline: "10s" } : {}) });
      const both = [
        { key: "k", policy: "wide" },
        { key: "k", policy: "narrow" },
      ];
      const shown = async () =>
        (await limiter.checkTogether(both)).map(({ allowed, remaining }) => [allowed, remaining]);
      assert.deepEqual(await shown(), [
        [true, 8],
        [true, 0],
      ]);
      for (let denied = 0; denied < 3; denied++) {
        assert.deepEqual(await shown(), [
          [true, 8],
          [false, 0],
        ]);
      }
      const unknown = [...both.slice(0, 1), { key: "k", policy: "unknown" }];
      await assert.rejects(limiter.checkTogether(unknown), { code: "invalid_argument", message: /unknown/ });
      assert.equal((await limiter.peek("k", "wide")).remaining, 8);
      await assert.rejects(limiter.checkTogether("k"), invalid("checks is a string: allowed is an array"));
      assert.deepEqual(await limiter.checkTogether([]), []);
      const peeked = await limiter.peekTogether([...both, { key: "k", policy: "5/day" }]);
      assert.deepEqual(
        peeked.map(({ allowed, remaining }) => [allowed, remaining]),
        [
          [true, 8],
          [false, 0],
          [true, 5],
        ],
      );
      await assert.rejects(limiter.peekTogether(unknown), { code: "invalid_argument", message: /unknown/ });
      await assert.rejects(limiter.peekTogether("k"), invalid("checks is a string: allowed is an array"));
      assert.deepEqual(await limiter.peekTogether([]), []);
      limiter.close();
    };
    await (store === "redis" ? withRedis(({ url }) => body(url)) : body("memory:"));
  });
}

test("checkSync decides without a promise in memory and local stores", async () => {
  const { limiter } = limiterAt(0, "1/minute");
  assert.deepEqual([limiter.checkSync("k").allowed, limiter.checkSync("k").allowed], [true, false]);
  const { url, remove } = localStore();
  try {
    const local = new Limiter(url, { policies: { api: "1/hour" } });
    assert.deepEqual([local.checkSync("k").allowed, local.checkSync("k").allowed], [true, false]);
    local.close();
  } finally {
    remove();
  }
  const far = new Limiter("redis://127.0.0.1:1", { policies: { api: "1/hour" } });
  const refusal = { code: "invalid_argument", message: /^checkSync needs a store that answers at once/ };
  assert.throws(() => far.checkSync("k"), refusal);
  far.close();
});

test("acquire waits until the request is admitted", async () => {
  const { clock, limiter } = limiterAt(0, "1/second token_bucket");
  await limiter.acquire("k", { timeoutMs: 0 });
  assert.equal((await limiter.acquire("k", { timeoutMs: 500 })).allowed, false);
  let settled = false;
  const second = limiter.acquire("k", { timeoutMs: 1000 }).finally(() => {
    settled = true;
  });
  await new Promise(setImmediate);
  assert.equal(settled, false);
  clock.advanceMs(1000);
  assert.equal((await second).allowed, true);
});

test("acquire keeps its timeout when a getter of its options runs another acquire", async () => {
  const { limiter } = limiterAt(0, "1/hour token_bucket");
  await limiter.check("k");
  const { limiter: other } = limiterAt(0, "1/hour");
  const options = {
    timeoutMs: 0,
    get policy() {
      other.acquire("k", { timeoutMs: 86_400_000 });
      return "api";
    },
  };
  const waited = limiter.acquire("k", options);
  limiter.close();
  assert.equal((await waited).allowed, false);
});

test("acquire waits by the system clock", async () => {
  const limiter = new Limiter("memory:", { policies: { api: "1/100ms token_bucket" } });
  const turns = await Promise.all([1, 2, 3].map(() => limiter.acquire("k", { timeoutMs: 10_000 })));
  assert.ok(turns.every(({ allowed }) => allowed));
});

test("setPolicy changes the quotas of a policy and keeps usage", async () => {
  const { limiter } = limiterAt(0, "2/minute");
  await limiter.check("k");
  limiter.setPolicy("api", [Quota.perMinute(5)]);
  assert.equal((await limiter.check("k")).remaining, 3);
  limiter.setPolicy("more", "1/s");
  assert.deepEqual(
    limiter.policies.map(({ name, quotas }) => `${name}: ${quotas.join("; ")}`),
    ["api: 5/minute", "more: 1/second"],
  );
  assert.throws(() => limiter.setPolicy("api", "5/fortnight"), { code: "invalid_argument" });
  assert.equal(limiter.admin().keys, 1);
});

test("operations after close fail with closed, and a second close has no effect", async () => {
  const { limiter } = limiterAt(0, "2/minute");
  limiter.close();
  limiter.close();
  for (const operation of ["check", "peek", "take", "charge", "refund", "reset"]) {
    await assert.rejects(limiter[operation]("k"), { name: "PolylimitError", code: "closed" });
  }
  assert.throws(() => limiter.checkSync("k"), { code: "closed" });
  assert.throws(() => limiter.setPolicy("api", "1/s"), { code: "closed" });
});

test("Symbol.dispose closes the limiter", async () => {
  const { limiter } = limiterAt(0, "2/minute");
  limiter[Symbol.dispose]();
  await assert.rejects(limiter.check("k"), { code: "closed" });
});

test("stats and doctor report about a Redis store", async () => {
  await withRedis(async ({ url }) => {
    const limiter = new Limiter(url, { policies: { api: "2/minute" }, deadline: "10s" });
    await limiter.ready(10_000);
    await limiter.check("k");
    const { applied, notApplied } = limiter.stats();
    assert.deepEqual({ applied, notApplied }, { applied: 1, notApplied: 0 });
    const findings = await limiter.admin().doctor();
    assert.ok(findings.some(({ subject, severity }) => subject === "version" && severity !== "problem"));
    limiter.close();
  });
  const nowhere = new Limiter("redis://127.0.0.1:1", { policies: { api: "2/minute" } });
  await assert.rejects(nowhere.ready(20), { name: "PolylimitError", code: "store_unavailable" });
  nowhere.close();
});

test("the outage policy of a policy decides during an outage", async () => {
  const expected = { fallback: [true, "fallback"], allow: [true, "allow"], deny: [false, "deny"] };
  for (const [outage, [allowed, source]] of Object.entries(expected)) {
    const limiter = new Limiter("redis://127.0.0.1:1", { policies: { api: { quotas: "2/minute", outage } } });
    const decision = await limiter.check("k");
    assert.deepEqual([decision.allowed, decision.source, decision.degraded], [allowed, source, "unreachable"]);
    limiter.close();
  }
});

test("errors and inspection show no password", async () => {
  const limiter = new Limiter("redis://user:hunter2@127.0.0.1:1", { policies: { api: "1/s" } });
  limiter.admin().setCredentials("user", "hunter3");
  const findings = JSON.stringify(await limiter.admin().doctor());
  const error = await limiter.ready(5).catch((thrown) => thrown);
  assert.doesNotMatch(`${findings} ${error.stack} ${require("node:util").inspect(limiter)}`, /hunter/);
  assert.throws(
    () => new Limiter("redis://user:hunter2@127.0.0.1:1?nonsense=1"),
    (thrown) => thrown.code === "invalid_argument" && !/hunter/.test(thrown.stack),
  );
  limiter.close();
});
