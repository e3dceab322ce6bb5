// The arguments of a limiter and of its operations: keys, costs, policies and options.
"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const { Backoff, ClientAddressRules, headerFields, Limiter, ManualClock, Quota } = require("polylimit");
const { rateLimit } = require("polylimit/express");
const { createFetch } = require("polylimit/fetch-client");

const { invalid } = require("./support/code.cjs");
const { withRedis } = require("./support/redis.cjs");
const { record } = require("./support/record.cjs");

function limiterAt(nowUs, quotas, url = "memory:") {
  const clock = new ManualClock(nowUs);
  return { clock, limiter: new Limiter(url, { policies: { api: quotas }, clock }) };
}

test("the UTF-8 bytes of a text are the same key, and different texts are different keys", async () => {
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

test("a detached Uint8Array is refused as a key, and an empty one is a key", async () => {
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

test("inherited options are read, and other inherited properties are ignored", async () => {
  const { limiter } = limiterAt(0, "100/minute");
  const defaults = Object.create({ policy: "5/minute", cost: 2, tenant: "somebody" });
  assert.equal((await limiter.check("k", defaults)).remaining, 3);
  assert.equal((await limiter.check("k", Object.assign(Object.create(defaults), { cost: 1 }))).remaining, 2);
  const own = Object.assign(Object.create(defaults), { tenant: "somebody" });
  await assert.rejects(
    limiter.check("k", own),
    invalid('option "tenant" is not known: allowed are policy, cost, headroom, plan'),
  );
  assert.throws(() => new Limiter("memory:", Object.create({ maxKeys: 0 })), { message: /^maxKeys is 0/ });
  // Some packages add properties to the prototype of all objects.
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

test("a whole number is the same key as its decimal text", async () => {
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

test("policies are an object or a Map", async () => {
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
  assert.throws(() => new Limiter("memory:", policies), { ...refused, message: /^options is a Map: / });
});

test("a method without its object fails with invalid_argument", async () => {
  const { limiter, clock } = limiterAt(0, "100/minute");
  const missing = (name) => ({
    name: "PolylimitError",
    code: "invalid_argument",
    message: `a method of ${name} was called without its object: call it on the object, or bind it to that first`,
  });
  for (const name of [
    ...["check", "peek", "take", "charge", "refund", "reset", "acquire"],
    ...["checkMany", "checkTogether", "peekTogether", "reserveTogether", "ready"],
  ]) {
    const { [name]: detached } = limiter;
    const argument = name === "ready" ? 0 : /Many|Together/.test(name) ? ["k"] : "k";
    const options = name === "reserveTogether" ? {} : { timeoutMs: 0 };
    await assert.rejects(detached(argument, options), missing("Limiter"), name);
  }
  for (const name of ["checkSync", "setPolicy", "policyFor", "stats", "admin", "close"]) {
    const { [name]: detached } = limiter;
    assert.throws(() => detached("k", "1/s"), missing("Limiter"), name);
  }
  for (const name of ["block", "doctor", "list", "explain", "setEntry"]) {
    const { [name]: detached } = limiter.admin();
    await assert.rejects(detached("k", 0), missing("Admin"), name);
  }
  for (const name of ["setCredentials", "topKeys", "configuration"]) {
    const { [name]: detached } = limiter.admin();
    assert.throws(() => detached("k", "1/s"), missing("Admin"), name);
  }
  const { setUs, advanceMs } = clock;
  for (const detached of [setUs, advanceMs]) assert.throws(() => detached(5), missing("ManualClock"));
  const { resolve } = new ClientAddressRules();
  assert.throws(() => resolve("10.0.0.1"), missing("ClientAddressRules"));
  assert.equal((await limiter.check.call(limiter, "k")).remaining, 99);
});

test("the error for an option of another rate limiter names the counterpart", async () => {
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
  await assert.rejects(limiter.check("k", { points: 2 }), answered(/is not known: use cost$/));
  await assert.rejects(limiter.acquire("k", { timeout: 2 }), answered(/is not known: use timeoutMs$/));
  await assert.rejects(limiter.admin().list({ limit: 5 }), answered(/is not known: use entries$/));
  await assert.rejects(limiter.admin().list({ cursr: "" }), answered(/is not known: did you mean cursor\?$/));
  for (const [name, ours] of [
    ["redis", "the URL of the limiter"],
    ["statusCode", "status of a middleware"],
    ["tokensPerInterval", "policies, with quotas such as 10/second token_bucket burst=50"],
  ]) {
    assert.throws(() => new Limiter("memory:", { [name]: 1 }), answered(`option "${name}" is not known: use ${ours}`));
  }
});

/** What looks like options and has none: its entries or its promise are no properties. */
const NO_OPTIONS = {
  "a Map": new Map([["cost", 50]]),
  "a Set": new Set(),
  "a Date": new Date(),
  "a Promise": Promise.resolve({ cost: 50 }),
  "an array": [],
  "a Uint8Array": new Uint8Array(1),
  "an Error": new Error("x"),
  // biome-ignore lint/suspicious/noThenProperty: a promise of another library
  "an object": Object.assign(Object.create({}), { then() {} }),
};

test("a value that cannot have options is refused wherever options are read", async () => {
  const { limiter } = limiterAt(0, "100/minute");
  const calls = {
    ...Object.fromEntries(
      ["check", "peek", "take", "charge", "refund", "reset", "acquire", "checkSync", "reserve"].map((name) => [
        name,
        (options) => limiter[name]("k", options),
      ]),
    ),
    ...Object.fromEntries(["commit", "cancel"].map((name) => [name, (options) => limiter[name]("k", "id", options)])),
    renew: (options) => limiter.renew("k", "id", 1000, options),
    explain: (options) => limiter.admin().explain("k", options),
    block: (options) => limiter.admin().block("k", 1000, options),
    unblock: (options) => limiter.admin().unblock("k", options),
    checkMany: (options) => limiter.checkMany([options]),
    reserveTogether: (options) => limiter.reserveTogether(["k"], options),
    decide: (options) => limiter.decide({}, options),
    publish: (options) => limiter.admin().publish("", options),
    list: (options) => limiter.admin().list(options),
    scanTop: (options) => limiter.admin().scanTop(1, options),
    limiter: (options) => new Limiter("memory:", options),
    policy: (options) => new Limiter("memory:", { policies: { api: [options] } }),
    quota: (options) => new Quota(1, 1000, options),
    backoff: (options) => new Backoff(options),
    "address rules": (options) => new ClientAddressRules(options),
    "fields of a response": (options) => headerFields(limiter, { decision: limiter.checkSync("k") }, options),
    fetch: (options) => createFetch(options),
    express: (options) => rateLimit(options),
  };
  for (const [name, call] of Object.entries(calls)) {
    for (const [kind, value] of Object.entries(NO_OPTIONS)) {
      const refused = {
        name: "PolylimitError",
        code: "invalid_argument",
        message: new RegExp(` is ${kind}: allowed `),
      };
      await assert.rejects(async () => await call(value), refused, `${name}: ${kind}`);
    }
  }
  assert.equal((await limiter.peek("k")).remaining, 100 - NO_OPTIONS_DECIDED);
});

/** The checks that the test of the fields makes for itself. */
const NO_OPTIONS_DECIDED = Object.keys(NO_OPTIONS).length;

test("a quota is a policy wherever its text is", async () => {
  const { limiter } = limiterAt(0, "100/minute");
  const quota = Quota.perMinute(5);
  assert.equal((await limiter.check("k", quota)).remaining, 4);
  assert.equal((await limiter.check("k", { policy: quota, cost: 2 })).remaining, 2);
  assert.equal(limiter.checkSync("k", "5/minute").remaining, 1);
  assert.equal((await limiter.checkMany([{ key: "k", policy: quota }]))[0].remaining, 0);
  assert.equal((await limiter.acquire("k", { policy: quota, timeoutMs: 0 })).allowed, false);
  assert.equal(String(limiter.policyFor(quota).quotas), "5/minute");
  assert.equal((await limiter.admin().explain("k", quota)).quotas[0].quota, "5/minute");
  assert.deepEqual(
    (await limiter.admin().list({ policy: quota })).keys.map(({ key }) => key),
    ["k"],
  );
  assert.equal((await limiter.refund("k", quota)).remaining, 1);
});

test("the waits of a decision are whole milliseconds, rounded up, and exact microseconds", async () => {
  const { limiter, clock } = limiterAt(0, "1/37ms token_bucket");
  await limiter.check("k");
  clock.advanceMs(0.3);
  const denied = await limiter.check("k");
  assert.deepEqual([denied.retryAfterMs, denied.retryAfterUs], [37, 36_700]);
  assert.deepEqual([denied.quotas[0].retryAfterMs, denied.quotas[0].retryAfterUs], [37, 36_700]);
  clock.advanceMs(denied.retryAfterMs);
  assert.equal((await limiter.check("k")).allowed, true);
  const never = await limiter.check("k", { cost: 5 });
  assert.deepEqual([never.retryAfterMs, never.retryAfterUs], [null, null]);
  const shaped = new Limiter("memory:", { policies: { api: "3/second leaky_bucket burst=3" }, clock });
  await shaped.check("k");
  const { delayMs, delayUs } = await shaped.check("k");
  assert.deepEqual([delayMs, delayUs], [334, 333_334]);
});

test("errors name the culprit", async () => {
  const { limiter } = limiterAt(0, "100/minute");
  const cycle = {};
  cycle.self = cycle;
  for (const [call, message] of [
    [() => new Limiter("memory:", { policies: { good: "1/s", bad: "5 per" } }), /^policy "bad": quota at column/],
    [() => new Limiter("memory:", { policies: { a: [] } }), /^policy a is an empty array: allowed are text/],
    [() => new Limiter("memory:", { policies: { a: {} } }), /^policy a has no quotas: allowed are text/],
    [() => limiter.setPolicy("bad", "5 per"), /^policy "bad": quota at column/],
    [() => limiter.check(undefined), /^key is undefined: allowed are text, bytes, whole numbers/],
    [() => limiter.check(1.5), /^key is 1.5: allowed are /],
    [() => limiter.check("k", { cost: Number.MIN_VALUE }), /^cost is 5e-324: allowed is a whole number/],
    [() => limiter.admin().block("k", -1), /^forMs is -1 ms: allowed is 1 ms to 366 days, or 0/],
    [() => limiter.renew("k", "id", 0), /^ttlMs is 0 ms: allowed is 1 ms to 48 h$/],
    [() => new Quota(5, -1), /^periodMs is -1 ms: allowed is 1 ms to 366 days$/],
    [() => new Quota(5, 1e15), /^periodMs is 1000000000000000 ms: allowed is 1 ms to 366 days$/],
    [() => limiter.decide({ attributes: { tokens: 1.5 } }), /^attribute "tokens" is 1.5: allowed are /],
    [() => limiter.admin().setDocument(cycle), /^document has no JSON text: /],
    [() => limiter.admin().setDocument({ polylimit: 1n }), /^document has no JSON text: .*BigInt/],
  ]) {
    await assert.rejects(async () => await call(), { name: "PolylimitError", code: "invalid_argument", message });
  }
});

test("an invalid key is refused", async () => {
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

test("an invalid cost is refused by name", async () => {
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
  record(__filename, "S4", "Node", { measured: `${costs.length} costs: invalid_argument` });
  assert.equal((await limiter.peek("together")).remaining, 100);
  assert.equal((await limiter.peek("k")).remaining, 100);
  for (const cost of [0, -0, undefined]) assert.equal((await limiter.check("other", { cost })).allowed, true);
  assert.equal((await limiter.peek("other")).remaining, 99);
});

test("an unknown option is refused by name", async () => {
  const { limiter } = limiterAt(0, "100/minute");
  const named = (name) => ({
    code: "invalid_argument",
    message: new RegExp(`^option "${name}" is not known: `),
  });
  await assert.rejects(limiter.check("k", { costs: 1 }), named("costs"));
  await assert.rejects(limiter.acquire("k", { timeout: 1 }), named("timeout"));
  await assert.rejects(limiter.checkMany([{ key: "k", polcy: "api" }]), named("polcy"));
  assert.throws(() => new Limiter("memory:", { policy: {} }), named("policy"));
  assert.throws(() => new Limiter("redis://h", { max_keys: 5 }), named("max_keys"));
  assert.throws(() => new Limiter("memory:", { policies: { api: { quota: "1/s" } } }), named("quota"));
  assert.throws(() => new Quota(1, 1000, { bursts: 1 }), named("bursts"));
});

test("an invalid value of an option is refused by name", async () => {
  const { limiter } = limiterAt(0, "100/minute");
  const about = (message) => ({ name: "PolylimitError", code: "invalid_argument", message });
  for (const options of [5, true, null, Symbol("s")])
    await assert.rejects(limiter.check("k", options), about(/options|policy/));
  await assert.rejects(limiter.check("k", { policy: 5 }), about(/^policy is 5: /));
  for (const timeoutMs of [undefined, "1", -1, Number.NaN, -Infinity, 1n]) {
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

test("store options have names in camel case", async () => {
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

test("a key and a policy mean the same on every path to the core", async () => {
  const limiter = new Limiter("memory:", { policies: { api: "1000/day" } });
  // A short ASCII key passes through the shared buffer, and any other as an argument.
  for (const key of ["", "a", "k".repeat(40), "k".repeat(41), "\u007f", "\u0080", "日本", "a\0b"]) {
    assert.equal((await limiter.check(key, "api")).remaining, 999);
    assert.equal((await limiter.check(Buffer.from(key), { policy: "api" })).remaining, 998);
    assert.equal(limiter.checkSync(key, "api").remaining, 997);
  }
  // A policy that was named before passes as a number, and any other as an argument.
  for (const left of [9, 8, 7]) {
    assert.equal((await limiter.check("k", "10/day")).remaining, left);
    await assert.rejects(limiter.check("k", "unknown"), { code: "invalid_argument", message: /"unknown"/ });
  }
  for (let at = 1; at <= 300; at++) assert.equal((await limiter.check("k", `${at}/h`)).remaining, at - 1);
  for (let at = 2; at <= 300; at++) assert.equal((await limiter.check("k", `${at}/h`)).remaining, at - 2);
});

/** Values of every type, of which each method takes some at most. */
const VALUES = [
  undefined,
  null,
  true,
  -1,
  1.5,
  Number.NaN,
  1n,
  "x",
  "",
  Symbol("s"),
  () => 1,
  [],
  {},
  new Map(),
  new Date(0),
];

/** Names of the text forms of quotas and of options in a URL, which are the same in every language. */
const SHARED_NAMES =
  /\b(token_bucket|leaky_bucket|fixed_window|sliding_window|sliding_log|count_denied|invalid_argument)\b/g;

/** What a message must not have: names of Rust, of its types and of the layer to it. */
const FOREIGN = /napi|rust|Rust|Option<|Result<|&str|u64|f64|panicked|\b[a-z]+_[a-z_]+\b/;

test("no method answers arguments of wrong types with an error of another kind, or with names of Rust", async () => {
  const { limiter, clock } = limiterAt(0, "100/minute");
  const reservation = await limiter.reserve("r");
  const subjects = [
    limiter,
    limiter.admin(),
    clock,
    reservation,
    new Backoff(),
    new ClientAddressRules(),
    // Its methods that are static.
    Quota,
  ];
  let refused = 0;
  const check = (thrown, name) => {
    refused += 1;
    assert.equal(thrown?.name, "PolylimitError", `${name}: ${thrown?.stack}`);
    assert.doesNotMatch(thrown.message.replace(SHARED_NAMES, ""), FOREIGN, name);
  };
  for (const subject of subjects) {
    const names = new Set();
    for (
      let of = typeof subject === "function" ? subject : Object.getPrototypeOf(subject);
      of?.constructor !== Object && of;
    ) {
      for (const name of Object.getOwnPropertyNames(of)) {
        if (typeof Object.getOwnPropertyDescriptor(of, name).value === "function") names.add(name);
      }
      of = typeof subject === "function" ? null : Object.getPrototypeOf(of);
    }
    for (const name of ["constructor", "close", "toString"]) names.delete(name);
    for (const name of names) {
      for (const first of VALUES) {
        for (const second of VALUES) {
          try {
            await subject[name](first, second);
          } catch (thrown) {
            check(thrown, `${name}(${String(first)}, ${String(second)})`);
          }
        }
      }
    }
  }
  assert.ok(refused > 1000, `${refused}`);
  limiter.close();
});
