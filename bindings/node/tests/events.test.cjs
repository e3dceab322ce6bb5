"use strict";

const assert = require("node:assert/strict");
const { afterEach, beforeEach, test } = require("node:test");
const { setTimeout: sleep } = require("node:timers/promises");

const { Limiter } = require("..");
const { invalid } = require("./support/code.cjs");
const { redisCommand, withRedis } = require("./support/redis.cjs");

const PASSWORD = "p4ssw0rd-nobody-sees";
const KEY = "a key that nobody sees";
const POLICIES = { api: "1000000/hour" };

/** The warnings of the process. */
let warnings = [];
const note = (warning) => warnings.push(warning);
beforeEach(() => {
  warnings = [];
  process.on("warning", note);
});
afterEach(() => process.off("warning", note));

const warned = () => warnings.map(({ name, code, message }) => [name, code, message]);

/** Makes decisions until the event arrives. */
async function checkUntil(limiter, told) {
  const end = Date.now() + 20_000;
  while (!told()) {
    assert.ok(Date.now() < end, "no event came");
    await limiter.check(KEY);
    await sleep(10);
  }
}

async function asksForPassword({ url, port }) {
  await redisCommand(port, "CONFIG SET maxmemory 100mb");
  await redisCommand(port, "CONFIG SET maxmemory-policy allkeys-lru");
  await redisCommand(port, `CONFIG SET requirepass ${PASSWORD}`);
  return url.replace("//", `//:${PASSWORD}@`);
}

test("an outage raises an event when it begins and when it ends", async () => {
  await withRedis(async (server) => {
    const url = await asksForPassword(server);
    const events = [];
    const onDegraded = (event) => events.push(event);
    const limiter = new Limiter(url, { policies: POLICIES, deadline: 500, doctorAfter: 0, onDegraded });
    assert.equal((await limiter.check(KEY)).source, "store");
    server.process.kill("SIGSTOP");
    for (let at = 0; at < 10; at++) assert.equal((await limiter.check(KEY)).source, "fallback");
    server.process.kill("SIGCONT");
    await checkUntil(limiter, () => events.length > 1);
    limiter.close();
    await sleep(0);
    const [started, ended] = events;
    assert.equal(events.length, 2);
    const { reason, message } = started;
    assert.ok(["timeout", "unreachable", "connection_lost"].includes(reason), reason);
    assert.deepEqual(started, { kind: "started", reason, lastedMs: 0, decisions: 0, severity: "problem", message });
    assert.deepEqual([ended.kind, ended.reason, ended.severity], ["ended", reason, "fine"]);
    assert.ok(ended.decisions >= 10 && ended.lastedMs > 0);
    assert.match(message, /^the limiter decides without its store \(/);
    assert.deepEqual(warned(), [
      ["PolylimitWarning", "POLYLIMIT_STARTED", message],
      ["PolylimitWarning", "POLYLIMIT_ENDED", ended.message],
    ]);
    assert.doesNotMatch(JSON.stringify(events), /nobody/);
  });
});

test("a finding of the doctor raises an event", async () => {
  await withRedis(async (server) => {
    const url = await asksForPassword(server);
    const events = [];
    const onDegraded = (event) => events.push(event);
    const limiter = new Limiter(url, { policies: POLICIES, deadline: "10s", doctorAfter: 1, onDegraded });
    await checkUntil(limiter, () => events.length > 0);
    limiter.close();
    const [{ finding, message }] = events;
    assert.deepEqual(events, [{ kind: "finding", lastedMs: 0, decisions: 0, severity: "problem", finding, message }]);
    assert.equal(finding.subject, "memory");
    assert.match(finding.message, /allkeys-lru/);
    assert.deepEqual(warned(), [["PolylimitWarning", "POLYLIMIT_FINDING", message]]);
  });
});

test("an error of onDegraded is a warning and does not affect decisions", async () => {
  const onDegraded = (event) => {
    throw new Error(`received: ${event.kind}`);
  };
  const limiter = new Limiter("redis://127.0.0.1:1", { policies: POLICIES, onDegraded });
  assert.equal((await limiter.check(KEY)).source, "fallback");
  await checkUntil(limiter, () => warnings.length > 1);
  limiter.close();
  assert.deepEqual(
    warnings.map(({ name, message }) => [name, message.slice(0, 17)]),
    [
      ["PolylimitWarning", "the limiter decid"],
      ["Error", "received: started"],
    ],
  );
});

test("an onDegraded that is not a function is refused", () => {
  const message = "onDegraded is a string: allowed is a function";
  assert.throws(() => new Limiter("memory:", { onDegraded: "log" }), invalid(message));
});
