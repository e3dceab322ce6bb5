"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const { ClientAddressRules, ManualClock, PolylimitError, Quota } = require("polylimit");

const { invalid } = require("./support/code.cjs");

test("error codes are those of the core's table", () => {
  const { toPublicError } = require("../dist/errors.js");
  const { tables } = require("../dist/native.js");
  assert.deepEqual(
    tables.errors.map(({ code, number }) => `${number} ${code}`),
    ["1 invalid_argument", "2 store_unavailable", "3 store_failed", "4 closed", "5 internal"],
  );
  for (const { code } of tables.errors) {
    const converted = toPublicError(Object.assign(new Error("why"), { code }));
    assert.ok(converted instanceof PolylimitError && converted instanceof Error);
    assert.deepEqual([converted.code, converted.message, converted.name], [code, "why", "PolylimitError"]);
    assert.equal(toPublicError(converted), converted);
  }
  const other = Object.assign(new Error("why"), { code: "ENOENT" });
  assert.equal(toPublicError(other), other);
});

test("a quota has its numbers and its canonical text", () => {
  const quota = Quota.parse("10/s token_bucket burst=20");
  assert.deepEqual(
    { ...quota },
    {
      text: "10/second token_bucket burst=20",
      algorithm: "token_bucket",
      limit: 10,
      periodMs: 1000,
      capacity: 20,
      aligned: false,
      countDenied: false,
      excess: 0,
    },
  );
  assert.equal(String(new Quota(10, 1000, { algorithm: "token_bucket", burst: 20 })), quota.text);
  assert.equal(
    String(Quota.perHour(5, { algorithm: "fixed_window", aligned: true, countDenied: true })),
    "5/hour fixed_window aligned count_denied",
  );
  assert.equal(Quota.perMinute(100, { buckets: 6 }).buckets, 6);
  assert.equal(Quota.perSecond(4, { algorithm: "token_bucket", step: 2 }).step, 2);
  assert.equal(new Quota(1, 1.001).periodMs, 1.001);
  assert.ok(quota instanceof Quota);
  assert.throws(() => {
    quota.limit = 5;
  }, TypeError);
  assert.equal(JSON.parse(JSON.stringify({ quota })).quota.text, quota.text);
});

test("a quota of concurrency has a limit and no period", () => {
  const quota = Quota.concurrent(20);
  assert.deepEqual(
    { ...quota },
    {
      text: "20 concurrent",
      algorithm: "concurrency",
      limit: 20,
      periodMs: 0,
      capacity: 20,
      aligned: false,
      countDenied: false,
      excess: 0,
    },
  );
  assert.deepEqual(Quota.parse("20 concurrent"), quota);
  for (const limit of [-1, 1.5, 1e12 + 1, "20", undefined]) {
    assert.throws(() => Quota.concurrent(limit), { code: "invalid_argument", message: /^limit is / });
  }
  const misplaced = { code: "invalid_argument", message: /does not belong to concurrency/ };
  assert.throws(() => new Quota(20, 1000, { algorithm: "concurrency" }), misplaced);
  assert.throws(() => new Quota(20, 0, { algorithm: "concurrency", burst: 30 }), misplaced);
});

test("an invalid quota is refused", () => {
  assert.throws(() => Quota.parse("10/fortnight"), { code: "invalid_argument" });
  assert.throws(() => Quota.parse(10), invalid('quota is 10: allowed is text such as "100/minute"'));
  for (const limit of [-1, 1.5, Number.NaN, Infinity, 1e308, 1n, "1", null, undefined]) {
    assert.throws(() => new Quota(limit, 1000), { code: "invalid_argument", message: /^limit is / });
  }
  for (const period of [-1, Number.NaN, Infinity, 0, 1e308, "1s", 1n]) {
    assert.throws(() => new Quota(1, period), { code: "invalid_argument", message: /^period(Ms)? is / });
  }
  const bucket = { algorithm: "token_bucket" };
  for (const burst of [0, -1, 0.5, "5", 1n, 2 ** 64]) {
    assert.throws(() => new Quota(1, 1000, { ...bucket, burst }), { code: "invalid_argument", message: /^burst is / });
  }
  for (const buckets of [0, 61, -1, 2 ** 40]) {
    assert.throws(() => new Quota(1, 1000, { buckets }), { code: "invalid_argument", message: /^buckets is / });
  }
  assert.throws(() => new Quota(1, 1000, { aligned: 1 }), invalid("aligned is 1: allowed is true or false"));
  assert.throws(() => new Quota(1, 1000, { algorithm: "magic" }), { code: "invalid_argument", message: /magic/ });
  assert.throws(() => new Quota(1, 1000, { algorithm: 5 }), { code: "invalid_argument", message: /^algorithm is 5/ });
});

test("a manual clock shows the time that was set", () => {
  const clock = new ManualClock(5);
  clock.advanceMs(0.001);
  assert.equal(clock.nowUs, 6);
  clock.setUs(Number.MAX_SAFE_INTEGER);
  assert.equal(clock.nowUs, Number.MAX_SAFE_INTEGER);
  assert.throws(() => clock.advanceMs(1), { code: "invalid_argument", message: /2255/ });
  for (const nowUs of [-1, 0.5, Number.NaN, 2 ** 53, 1n, "0", undefined]) {
    assert.throws(() => clock.setUs(nowUs), { code: "invalid_argument", message: /^nowUs is / });
    assert.throws(() => new ManualClock(nowUs), { code: "invalid_argument", message: /^nowUs is / });
  }
  assert.throws(() => clock.advanceMs(-1), { code: "invalid_argument", message: /^byMs is -1/ });
});

test("the client is found behind trusted proxies only", () => {
  const rules = new ClientAddressRules({ trust: ["10.0.0.0/8", "loopback"], header: "x-forwarded-for" });
  assert.equal(rules.header, "x-forwarded-for");
  assert.deepEqual(rules.resolve("10.0.0.1", ["198.51.100.1, 203.0.113.7, 10.0.0.2"]), {
    address: "203.0.113.7",
    key: "203.0.113.7",
  });
  assert.equal(rules.resolve("192.0.2.1", ["203.0.113.7"]).key, "192.0.2.1");
  assert.equal(rules.resolve(undefined, ["203.0.113.7"]).key, "203.0.113.7");
  assert.equal(rules.resolve("::ffff:10.0.0.1", ["2001:db8:1:2:3::4"]).key, "2001:db8:1:2::/64");
  assert.equal(rules.resolve("fe80::1%eth0").address, "fe80::1");
  assert.equal(new ClientAddressRules().header, undefined);
  assert.equal(new ClientAddressRules({ ipv6Prefix: 48 }).resolve("2001:db8:1:2::1").key, "2001:db8:1::/48");
  const refusals = [
    [{ trust: "0.0.0.0/0", header: "forwarded" }, /every address/],
    [{ trust: "loopback" }, /without a header/],
    [{ trust: 5 }, /^trust is 5/],
    [{ trust: [5] }, /^trust is 5/],
    [{ header: "x-real" }, /x-real".*x-real-ip/],
    [{ ipv4Prefix: 33 }, /ipv4_?prefix is 33/i],
    [{ ipv6Prefix: "64" }, /^ipv6Prefix is a string/],
    [{ trusted: [] }, /^option "trusted" is not known/],
  ];
  for (const [options, message] of refusals) {
    assert.throws(() => new ClientAddressRules(options), { code: "invalid_argument", message });
  }
  assert.throws(() => rules.resolve("nobody"), { code: "invalid_argument", message: /^peer is not an address/ });
});
