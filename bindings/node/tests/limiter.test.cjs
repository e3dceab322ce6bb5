"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const { ClientAddressRules, Limiter, ManualClock, PolylimitError, Quota } = require("polylimit");

const { invalid } = require("./support/code.cjs");
const { localStore } = require("./support/local.cjs");
const { withRedis } = require("./support/redis.cjs");

function limiterAt(nowUs, quotas, url = "memory:") {
  const clock = new ManualClock(nowUs);
  return { clock, limiter: new Limiter(url, { policies: { api: quotas }, clock }) };
}

test("a decision says everything", async () => {
  const { clock, limiter } = limiterAt(0, "2/minute token_bucket");
  assert.deepEqual(await limiter.check("user:42"), {
    allowed: true,
    limit: 2,
    remaining: 1,
    retryAfterMs: 0,
    resetAfterMs: 30_000,
    delayMs: 0,
    source: "store",
    degraded: null,
    quotas: [{ limit: 2, remaining: 1, resetAfterMs: 30_000 }],
  });
  clock.advanceMs(0.5);
  await limiter.check("user:42");
  const denied = await limiter.check("user:42");
  assert.equal(denied.allowed, false);
  assert.equal(denied.retryAfterMs, 29_999.5);
  assert.equal((await limiter.check("user:42", { cost: 3 })).retryAfterMs, null);
  clock.setUs(clock.nowUs + 29_999_499);
  assert.equal((await limiter.peek("user:42")).allowed, false);
  clock.setUs(clock.nowUs + 1);
  assert.equal((await limiter.peek("user:42")).allowed, true);
});

test("each quota of a policy has its own view", async () => {
  const { limiter } = limiterAt(0, ["10/second token_bucket", Quota.perMinute(15, { algorithm: "fixed_window" })]);
  const { limit, remaining, quotas } = await limiter.check("user:42", { cost: 6 });
  assert.deepEqual({ limit, remaining }, { limit: 10, remaining: 4 });
  assert.deepEqual(quotas, [
    { limit: 10, remaining: 4, resetAfterMs: 600 },
    { limit: 15, remaining: 9, resetAfterMs: 60_000 },
  ]);
});

test("a leaky bucket says how long to wait", async () => {
  const { limiter } = limiterAt(0, "10/second leaky_bucket");
  await limiter.check("user:42");
  assert.equal((await limiter.check("user:42")).delayMs, 100);
});

test("every operation does what it says", async () => {
  const { limiter } = limiterAt(0, "10/minute token_bucket");
  assert.equal((await limiter.peek("k")).remaining, 10);
  const taken = await limiter.take("k", { cost: 12 });
  assert.deepEqual(taken, {
    taken: 10,
    limit: 10,
    remaining: 0,
    resetAfterMs: 60_000,
    source: "store",
    degraded: null,
    quotas: [{ limit: 10, remaining: 0, resetAfterMs: 60_000 }],
  });
  assert.equal((await limiter.charge("k", { cost: 5 })).resetAfterMs, 90_000);
  assert.equal((await limiter.refund("k", { cost: 8 })).remaining, 3);
  assert.equal((await limiter.reset("k")).remaining, 10);
  assert.equal((await limiter.acquire("k", { timeoutMs: 0 })).remaining, 9);
});

test("a policy is named, or made of quotas in the request", async () => {
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

test("text and bytes are the same key, and any text is one of its own", async () => {
  const { limiter } = limiterAt(0, "100/minute");
  await limiter.check("schlüssel");
  await limiter.check(Buffer.from("schlüssel"));
  assert.equal((await limiter.peek(new TextEncoder().encode("schlüssel"))).remaining, 98);
  const long = "x".repeat(190);
  const keys = ["", "\0", "a\0b", "\ufffd", "é", "\u{1f600}", long, `${long}y`, "y".repeat(191), "z".repeat(1 << 20)];
  for (const key of keys) assert.equal((await limiter.check(key)).remaining, 99, `${key.length} units`);
  for (const key of keys) assert.equal((await limiter.check(key)).remaining, 98, `${key.length} units`);
  assert.equal((await limiter.peek(new Uint8Array())).remaining, 98);
  const part = Buffer.from("abcdef").subarray(2, 4);
  await limiter.check(part);
  assert.equal((await limiter.peek("cd")).remaining, 99);
});

test("a key whose bytes were handed on is none, and an empty one is", async () => {
  const { limiter } = limiterAt(0, "100/minute");
  const key = new Uint8Array([1, 2]);
  structuredClone(key.buffer, { transfer: [key.buffer] });
  const refusal = { code: "invalid_argument", message: /^key is a Uint8Array whose buffer is detached/ };
  for (const operation of ["check", "peek", "take", "charge", "refund", "reset"]) {
    await assert.rejects(limiter[operation](key), refusal);
  }
  await assert.rejects(limiter.check(key, "1/s"), refusal);
  assert.throws(() => limiter.checkSync(key), refusal);
  await assert.rejects(limiter.checkTogether([{ key }]), refusal);
  assert.equal((await limiter.peek("")).remaining, 100);
  for (const empty of [new Uint8Array(), Buffer.alloc(0), new Uint8Array([1]).subarray(1)]) await limiter.check(empty);
  assert.equal((await limiter.peek("")).remaining, 97);
});

test("options that are inherited are read, and nothing else of what is", async () => {
  const { limiter } = limiterAt(0, "100/minute");
  const defaults = Object.create({ policy: "5/minute", cost: 2, tenant: "somebody" });
  assert.equal((await limiter.check("k", defaults)).remaining, 3);
  assert.equal((await limiter.check("k", Object.assign(Object.create(defaults), { cost: 1 }))).remaining, 2);
  const own = Object.assign(Object.create(defaults), { tenant: "somebody" });
  await assert.rejects(limiter.check("k", own), invalid('option "tenant" is not known: use one of policy, cost'));
  assert.throws(() => new Limiter("memory:", Object.create({ maxKeys: 0 })), { message: /^max_keys is 0/ });
  // As some packages do.
  Object.prototype.tenant = "somebody";
  try {
    const other = new Limiter("memory:", { policies: { api: { quotas: "5/minute" } }, maxKeys: 10 });
    assert.equal((await other.check("k", { cost: 1 })).remaining, 4);
    assert.equal(other.checkSync("k", { policy: "api" }).remaining, 3);
    assert.equal((await other.checkMany([{ key: "k" }]))[0].remaining, 2);
    assert.equal((await other.acquire("k", { timeoutMs: 0 })).remaining, 1);
  } finally {
    delete Object.prototype.tenant;
  }
});

test("a whole number is the key of its decimal text", async () => {
  const { limiter } = limiterAt(0, "100/minute");
  const keys = [42, 42n, "42", -0, 0, "0", Number.MAX_SAFE_INTEGER, "9007199254740991", 2n ** 64n - 1n, -(2n ** 63n)];
  const left = [];
  for (const key of keys) left.push((await limiter.check(key)).remaining);
  assert.deepEqual(left, [99, 98, 97, 99, 98, 97, 99, 98, 99, 99]);
  assert.equal((await limiter.peek("18446744073709551615")).remaining, 99);
  assert.equal((await limiter.peek("-9223372036854775808")).remaining, 99);
  assert.equal(limiter.checkSync(42, "5/minute").remaining, 4);
  const decisions = await limiter.checkMany([42, { key: 42n }, { key: 43, cost: 2 }]);
  assert.deepEqual(
    decisions.map(({ remaining }) => remaining),
    [96, 95, 98],
  );
  assert.equal((await limiter.checkTogether([42]))[0].remaining, 94);
});

test("policies are a Map as well as an object, and nothing else", async () => {
  const policies = new Map([
    ["api", "2/minute"],
    ["login", { quotas: new Quota(5, 1000) }],
  ]);
  const limiter = new Limiter("memory:", { policies });
  assert.deepEqual(
    limiter.policies.map(({ name, quotas }) => `${name} ${quotas}`),
    ["api 2/minute", "login 5/second"],
  );
  assert.equal(limiter.checkSync("k", "api").remaining, 1);
  const refused = { name: "PolylimitError", code: "invalid_argument" };
  for (const other of [new Set(["1/s"]), ["1/s"], new Map([[5, "1/s"]]), new Map([["api", new Map()]]), "1/s", null]) {
    assert.throws(() => new Limiter("memory:", { policies: other }), refused);
  }
  assert.throws(() => new Limiter("memory:", policies), { ...refused, message: /^options is an object/ });
});

test("a method without its object says what is missing", async () => {
  const { limiter, clock } = limiterAt(0, "100/minute");
  const missing = (name) => ({
    name: "PolylimitError",
    code: "invalid_argument",
    message: `a method of ${name} was called without its object: call it on the object, or bind it to that first`,
  });
  for (const name of [
    ...["check", "peek", "take", "charge", "refund", "reset", "acquire"],
    ...["checkMany", "checkTogether", "ready", "doctor"],
  ]) {
    const { [name]: detached } = limiter;
    const argument = name === "ready" ? 0 : /check[MT]/.test(name) ? ["k"] : "k";
    await assert.rejects(detached(argument, { timeoutMs: 0 }), missing("Limiter"), name);
  }
  for (const name of ["checkSync", "setPolicy", "policyFor", "stats", "setCredentials", "close"]) {
    const { [name]: detached } = limiter;
    assert.throws(() => detached("k", "1/s"), missing("Limiter"), name);
  }
  const { setUs, advanceMs } = clock;
  for (const detached of [setUs, advanceMs]) assert.throws(() => detached(5), missing("ManualClock"));
  const { resolve } = new ClientAddressRules();
  assert.throws(() => resolve("10.0.0.1"), missing("ClientAddressRules"));
  assert.equal((await limiter.check.call(limiter, "k")).remaining, 99);
});

test("an option of another rate limiter is answered with ours", async () => {
  const answered = (message) => ({ name: "PolylimitError", code: "invalid_argument", message });
  assert.throws(
    () => new Limiter("memory:", { points: 5, duration: 1 }),
    answered(/^option "points" is not known: use policies, with quotas such as/),
  );
  assert.throws(
    () => new Limiter("memory:", { keyPrefix: "a" }),
    answered('option "keyPrefix" is not known: use prefix'),
  );
  assert.throws(
    () => new Limiter("memory:", { inMemoryBlockOnConsumed: 5 }),
    answered('option "inMemoryBlockOnConsumed" is not known: use denialCacheMax'),
  );
  const { limiter } = limiterAt(0, "100/minute");
  await assert.rejects(limiter.check("k", { pointsToConsume: 2 }), answered(/is not known: use cost$/));
});

test("what is no key is refused", async () => {
  const { limiter } = limiterAt(0, "100/minute");
  for (const key of [
    undefined,
    null,
    1.5,
    Number.NaN,
    2 ** 53,
    2n ** 64n,
    -(2n ** 63n) - 1n,
    true,
    {},
    [],
    Symbol("k"),
    "\ud800",
    "a\udc00b",
    new Uint16Array(2),
  ]) {
    for (const operation of ["check", "peek", "take", "charge", "refund", "reset"]) {
      await assert.rejects(limiter[operation](key), { code: "invalid_argument", message: /^key is / });
    }
    const [refused, other] = await limiter.checkMany([
      { key, policy: "api" },
      { key: "b", cost: 0 },
    ]);
    assert.deepEqual([refused.code, other.remaining], ["invalid_argument", 100]);
    assert.throws(() => limiter.checkSync(key), { code: "invalid_argument", message: /^key is / });
  }
  await assert.rejects(
    limiter.check("x".repeat((1 << 20) + 1)),
    invalid("key has 1048577 bytes: allowed are up to 1048576"),
  );
});

test("what is no cost is refused, by name", async () => {
  const { limiter } = limiterAt(0, "100/minute");
  const costs = [
    1n,
    2n ** 64n,
    Number.NaN,
    -1,
    -0.5,
    1.5,
    1e308,
    2 ** 53,
    2 ** 64,
    1e12 + 1,
    Infinity,
    -Infinity,
    "1",
    null,
    true,
    {},
    [],
  ];
  for (const cost of costs) {
    const refusal = { name: "PolylimitError", code: "invalid_argument", message: /^cost is / };
    for (const operation of ["check", "peek", "take", "charge", "refund", "reset"]) {
      await assert.rejects(limiter[operation]("k", { cost }), refusal, `${operation} ${String(cost)}`);
    }
    await assert.rejects(limiter.acquire("k", { cost, timeoutMs: 1 }), refusal);
    assert.throws(() => limiter.checkSync("k", { cost }), refusal);
    const [before, refused, after] = await limiter.checkMany(["many", { key: "k", cost }, "many"]);
    assert.deepEqual([refused.name, refused.code, before.remaining - after.remaining], [refusal.name, refusal.code, 1]);
    assert.match(refused.message, refusal.message);
    await assert.rejects(limiter.checkTogether(["together", { key: "k", cost }]), refusal);
  }
  assert.equal((await limiter.peek("together")).remaining, 100);
  assert.equal((await limiter.peek("k")).remaining, 100);
  for (const cost of [0, -0, undefined]) assert.equal((await limiter.check("other", { cost })).allowed, true);
  assert.equal((await limiter.peek("other")).remaining, 99);
});

test("an option that there is not is refused, by name", async () => {
  const { limiter } = limiterAt(0, "100/minute");
  const named = (name) => ({
    code: "invalid_argument",
    message: new RegExp(`^option "${name}" is not known: use one of `),
  });
  await assert.rejects(limiter.check("k", { costs: 1 }), named("costs"));
  await assert.rejects(limiter.acquire("k", { timeout: 1 }), named("timeout"));
  await assert.rejects(limiter.checkMany([{ key: "k", polcy: "api" }]), named("polcy"));
  assert.throws(() => new Limiter("memory:", { policy: {} }), named("policy"));
  assert.throws(() => new Limiter("redis://h", { max_keys: 5 }), named("max_keys"));
  assert.throws(() => new Limiter("memory:", { policies: { api: { quota: "1/s" } } }), named("quota"));
  assert.throws(() => new Quota(1, 1000, { bursts: 1 }), named("bursts"));
});

test("what an option may not be is refused, by name", async () => {
  const { limiter } = limiterAt(0, "100/minute");
  const about = (message) => ({ name: "PolylimitError", code: "invalid_argument", message });
  for (const options of [5, true, null, Symbol("s")])
    await assert.rejects(limiter.check("k", options), about(/options|policy/));
  await assert.rejects(limiter.check("k", { policy: 5 }), about(/^policy is 5: /));
  for (const timeoutMs of [undefined, "1", -1, Number.NaN, Infinity, 1n]) {
    await assert.rejects(limiter.acquire("k", { timeoutMs }), about(/^timeoutMs is /));
    await assert.rejects(limiter.ready(timeoutMs), about(/^timeoutMs is /));
  }
  await assert.rejects(limiter.checkMany("k"), about(/^checks is /));
  await assert.rejects(limiter.checkMany([true]), about(/^checks\[0\] is /));
  assert.throws(() => new Limiter(5), about(/^url is 5: /));
  assert.throws(() => new Limiter("mongo://x"), about(/mongo/));
  assert.throws(() => new Limiter("memory:", { policies: ["1/s"] }), about(/^policies is an array: /));
  assert.throws(() => new Limiter("memory:", { policies: { api: 5 } }), about(/^policy api is 5: /));
  assert.throws(() => new Limiter("memory:", { policies: { "a b": "1/s" } }), about(/a b/));
  assert.throws(() => new Limiter("memory:", { clock: Date }), about(/^clock is a function: /));
  assert.throws(() => new Limiter("memory:", { maxKeys: 0 }), about(/max_?keys/i));
  for (const maxKeys of [-1, 1.5, Number.NaN, 1n, {}]) {
    assert.throws(() => new Limiter("memory:", { maxKeys }), about(/max_?keys/i));
  }
  for (const deadline of [-1, Number.NaN, 0.0001, 1e9, {}, "soon"]) {
    assert.throws(() => new Limiter("redis://h", { deadline }), about(/deadline/));
  }
  assert.throws(() => new Limiter("redis://h", { prefix: 5 }), about(/^prefix is 5: /));
});

test("options of a store are given by their names here", async () => {
  await withRedis(async ({ url }) => {
    const limiter = new Limiter(url, {
      policies: { api: { quotas: "2/minute", outage: "deny" } },
      deadline: 5000,
      fallbackShare: 0.5,
      maxInFlight: "100",
      reconnectMin: 2.5,
      clientName: "node-test",
    });
    assert.equal((await limiter.check("k")).source, "store");
    limiter.close();
  });
});

test("several checks are decided in one call, each on its own", async () => {
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

test("what one of several checks has wrong is an error in its place", async () => {
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
        "key is neither text nor bytes",
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
  test(`what belongs together is spent all or none: ${store}`, async () => {
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
      limiter.close();
    };
    await (store === "redis" ? withRedis(({ url }) => body(url)) : body("memory:"));
  });
}

test("keys and policies are the same, however they come to the core", async () => {
  const limiter = new Limiter("memory:", { policies: { api: "1000/day" } });
  // What is short and ASCII takes another way than what is not.
  for (const key of ["", "a", "k".repeat(40), "k".repeat(41), "\u007f", "\u0080", "日本", "a\0b"]) {
    assert.equal((await limiter.check(key, "api")).remaining, 999);
    assert.equal((await limiter.check(Buffer.from(key), { policy: "api" })).remaining, 998);
    assert.equal(limiter.checkSync(key, "api").remaining, 997);
  }
  // So does a policy that was named before.
  for (const left of [9, 8, 7]) {
    assert.equal((await limiter.check("k", "10/day")).remaining, left);
    await assert.rejects(limiter.check("k", "unknown"), { code: "invalid_argument", message: /"unknown"/ });
  }
  for (let at = 1; at <= 300; at++) assert.equal((await limiter.check("k", `${at}/h`)).remaining, at - 1);
  for (let at = 2; at <= 300; at++) assert.equal((await limiter.check("k", `${at}/h`)).remaining, at - 2);
});

test("checkSync decides without a promise where the store is near", async () => {
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

test("acquire waits for its turn", async () => {
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

test("acquire is not confused by an option that asks for another", async () => {
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

test("acquire waits by the system's clock too", async () => {
  const limiter = new Limiter("memory:", { policies: { api: "1/100ms token_bucket" } });
  const turns = await Promise.all([1, 2, 3].map(() => limiter.acquire("k", { timeoutMs: 10_000 })));
  assert.ok(turns.every(({ allowed }) => allowed));
});

test("a policy's numbers can be changed", async () => {
  const { limiter } = limiterAt(0, "2/minute");
  await limiter.check("k");
  limiter.setPolicy("api", [Quota.perMinute(5)]);
  assert.equal((await limiter.check("k")).remaining, 3);
  limiter.setPolicy("more", "1/s");
  assert.deepEqual(
    limiter.policies.map(({ name, quotas }) => `${name}: ${quotas.join("; ")}`),
    ["api: 5/minute", "more: 1/second"],
  );
  assert.throws(() => limiter.setPolicy("api", "5/month"), { code: "invalid_argument" });
  assert.equal(limiter.keys, 1);
});

test("a closed limiter says so, and closing twice does nothing", async () => {
  const { limiter } = limiterAt(0, "2/minute");
  limiter.close();
  limiter.close();
  for (const operation of ["check", "peek", "take", "charge", "refund", "reset"]) {
    await assert.rejects(limiter[operation]("k"), { name: "PolylimitError", code: "closed" });
  }
  assert.throws(() => limiter.checkSync("k"), { code: "closed" });
  assert.throws(() => limiter.setPolicy("api", "1/s"), { code: "closed" });
});

test("a limiter is disposed of like other resources", async () => {
  const { limiter } = limiterAt(0, "2/minute");
  limiter[Symbol.dispose]();
  await assert.rejects(limiter.check("k"), { code: "closed" });
});

test("stats and doctor tell about a store elsewhere", async () => {
  await withRedis(async ({ url }) => {
    const limiter = new Limiter(url, { policies: { api: "2/minute" }, deadline: "10s" });
    await limiter.ready(10_000);
    await limiter.check("k");
    const { applied, notApplied } = limiter.stats();
    assert.deepEqual({ applied, notApplied }, { applied: 1, notApplied: 0 });
    const findings = await limiter.doctor();
    assert.ok(findings.some(({ subject, severity }) => subject === "version" && severity !== "problem"));
    limiter.close();
  });
  const nowhere = new Limiter("redis://127.0.0.1:1", { policies: { api: "2/minute" } });
  await assert.rejects(nowhere.ready(20), { name: "PolylimitError", code: "store_unavailable" });
  nowhere.close();
});

test("an outage is answered as its policy says", async () => {
  const expected = { fallback: [true, "fallback"], allow: [true, "allow"], deny: [false, "deny"] };
  for (const [outage, [allowed, source]] of Object.entries(expected)) {
    const limiter = new Limiter("redis://127.0.0.1:1", { policies: { api: { quotas: "2/minute", outage } } });
    const decision = await limiter.check("k");
    assert.deepEqual([decision.allowed, decision.source, decision.degraded], [allowed, source, "unreachable"]);
    limiter.close();
  }
});

test("no secret is shown", async () => {
  const limiter = new Limiter("redis://user:hunter2@127.0.0.1:1", { policies: { api: "1/s" } });
  limiter.setCredentials("user", "hunter3");
  const findings = JSON.stringify(await limiter.doctor());
  const error = await limiter.ready(5).catch((thrown) => thrown);
  assert.doesNotMatch(`${findings} ${error.stack} ${require("node:util").inspect(limiter)}`, /hunter/);
  assert.throws(
    () => new Limiter("redis://user:hunter2@127.0.0.1:1?nonsense=1"),
    (thrown) => thrown.code === "invalid_argument" && !/hunter/.test(thrown.stack),
  );
  limiter.close();
});
