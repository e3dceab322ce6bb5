// Abort signals: a caller that does not wait any more leaves the line, and nothing stays spent or reserved for it.
"use strict";

const assert = require("node:assert/strict");
const { getEventListeners } = require("node:events");
const http = require("node:http");
const { test } = require("node:test");

const { getRequestListener } = require("@hono/node-server");
const express = require("express");
const fastify = require("fastify");
const { Hono } = require("hono");
const Koa = require("koa");
const { Limiter, ManualClock, PolylimitError } = require("polylimit");

const { localStore } = require("./support/local.cjs");
const { run } = require("./support/program.cjs");
const { serving } = require("./support/serving.cjs");
const { onEachStore } = require("./support/stores.cjs");
const { until } = require("./support/until.cjs");

const NOW_US = 1_789_948_800_000_000;
const HOUR_MS = 3_600_000;

function limiterAt(url, options, quotas) {
  const clock = new ManualClock(NOW_US);
  return { clock, limiter: new Limiter(url, { policies: { api: quotas }, clock, ...options }) };
}

/** A controller, and how many listeners its signal has. */
function controlled() {
  const controller = new AbortController();
  const { signal } = controller;
  return {
    signal,
    abort: (reason) => controller.abort(reason),
    listeners: () => getEventListeners(signal, "abort").length,
  };
}

const units = async (limiter, key = "k") => (await limiter.peek(key)).remaining;

onEachStore("an acquire leaves the line when its signal is aborted", async (url, options) => {
  const { clock, limiter } = limiterAt(url, options, "1/minute fixed_window");
  await limiter.check("k");
  const { signal, abort, listeners } = controlled();
  const first = limiter.acquire("k", { timeoutMs: HOUR_MS, signal });
  const second = limiter.acquire("k", { timeoutMs: HOUR_MS });
  assert.equal(listeners(), 1);
  const reason = new RangeError("gone");
  abort(reason);
  await assert.rejects(first, (thrown) => thrown === reason);
  assert.equal(listeners(), 0);
  // Without the first, the second is next in line.
  clock.advanceMs(60_000);
  assert.equal((await second).allowed, true);
  assert.equal(await units(limiter), 0);
  limiter.close();
});

onEachStore("an acquire in the delay of a leaky bucket gives its units back", async (url, options) => {
  const { limiter } = limiterAt(url, options, "1/minute leaky_bucket burst=4");
  assert.equal((await limiter.check("k")).delayMs, 0);
  const { signal, abort } = controlled();
  const delayed = limiter.acquire("k", { timeoutMs: HOUR_MS, signal });
  await until(async () => (await units(limiter)) === 2, "the acquire is admitted");
  abort("left");
  await assert.rejects(delayed, (thrown) => thrown === "left");
  await until(async () => (await units(limiter)) === 3, "its unit is given back");
  limiter.close();
});

/** An acquire that has been admitted in a store of this process or host, and whose answer JavaScript has not read. */
for (const store of ["memory", "local"]) {
  for (const isPolled of [false, true]) {
    const how = isPolled ? "polled" : "not polled";
    test(`an answer that JavaScript has not read is given back: ${store}, ${how}`, async () => {
      const { url, remove } = store === "local" ? localStore() : { url: "memory:", remove: () => {} };
      const { clock, limiter } = limiterAt(url, {}, "1/minute fixed_window");
      for (const key of ["k", "other"]) await limiter.check(key);
      const { signal, abort, listeners } = controlled();
      const acquired = limiter.acquire("k", { timeoutMs: HOUR_MS, signal });
      clock.advanceMs(60_000);
      // The event loop does not turn meanwhile, so that the answer is not read.
      const end = Date.now() + 30_000;
      while ((await units(limiter)) > 0) assert.ok(Date.now() < end, "the acquire is not admitted");
      await limiter.check("other");
      // An operation that has to wait polls the others.
      const other = controlled();
      const waits = isPolled ? limiter.acquire("other", { timeoutMs: HOUR_MS, signal: other.signal }) : undefined;
      abort(new Error("late"));
      assert.equal(listeners(), 0);
      await assert.rejects(acquired, /late/);
      // The thread that admitted it may still be about to hand the answer over.
      await until(async () => (await units(limiter)) === 1, "its unit is given back");
      other.abort(new Error("other"));
      if (waits !== undefined) await assert.rejects(waits, /other/);
      limiter.close();
      remove();
    });
  }
}

onEachStore("a reserve leaves the line when its signal is aborted", async (url, options) => {
  const { limiter } = limiterAt(url, options, "1 concurrent");
  const held = await limiter.reserve("k");
  const { signal, abort, listeners } = controlled();
  const used = [];
  const first = limiter.reserve("k", { timeoutMs: HOUR_MS, signal, commitAtEnd: true }, () => used.push("first"));
  const second = limiter.reserve("k", { timeoutMs: HOUR_MS });
  assert.equal(listeners(), 1);
  abort();
  await assert.rejects(first, { name: "AbortError" });
  assert.deepEqual([listeners(), used], [0, []]);
  await held.cancel();
  const next = await second;
  assert.equal(next.allowed, true);
  await next.cancel();
  await until(async () => (await units(limiter)) === 1, "the slot is free");
  limiter.close();
});

onEachStore("a reservation that is made meanwhile is cancelled, also with commitAtEnd", async (url, options) => {
  const { limiter } = limiterAt(url, options, "2 concurrent; 10/minute token_bucket");
  const { signal, abort, listeners } = controlled();
  const reserving = limiter.reserve("k", { signal, cost: 4, commitAtEnd: true });
  const isAnswered = listeners() === 0;
  abort(new Error("gone"));
  if (isAnswered) {
    // A store in this process answers before the signal is aborted, which has no effect on the reservation then.
    assert.equal((await (await reserving).cancel()).found, true);
  } else await assert.rejects(reserving, /gone/);
  assert.equal(isAnswered, !url.startsWith("redis"));
  const left = async () => (await limiter.peek("k")).quotas.map(({ remaining }) => remaining);
  await until(async () => String(await left()) === "2,10", "nothing is reserved or spent");
  // The store does not make it later either.
  assert.deepEqual((await limiter.reserve("k", { id: "next" })).decision.quotas[0].remaining, 1);
  limiter.close();
});

onEachStore("a signal that is aborted before: the store is not asked", async (url, options) => {
  const { limiter } = limiterAt(url, options, "5/minute fixed_window");
  const reason = Object.assign(new Error("own"), { code: "closed" });
  const signal = AbortSignal.abort(reason);
  const isReason = (thrown) => thrown === reason && !(thrown instanceof PolylimitError);
  const asked = () => Object.values(limiter.stats()).reduce((sum, count) => sum + count, 0);
  const before = asked();
  await assert.rejects(limiter.acquire("k", { timeoutMs: HOUR_MS, signal }), isReason);
  await assert.rejects(limiter.reserve("k", { signal }), isReason);
  await assert.rejects(
    limiter.reserve("k", { signal }, () => assert.fail("used")),
    isReason,
  );
  assert.equal(asked(), before);
  assert.equal(getEventListeners(signal, "abort").length, 0);
  assert.equal(await units(limiter), 5);
  // Options are checked first.
  await assert.rejects(limiter.acquire("k", { timeoutMs: "1", signal }), { code: "invalid_argument" });
  limiter.close();
});

onEachStore("an operation that ends by itself leaves no listener", async (url, options) => {
  const { clock, limiter } = limiterAt(url, options, "1/minute fixed_window");
  const { signal, abort, listeners } = controlled();
  const ask = (timeoutMs) => limiter.acquire("k", { timeoutMs, signal });
  assert.equal((await ask(0)).allowed, true);
  assert.equal((await ask(1)).allowed, false);
  assert.equal(listeners(), 0);
  const waits = ask(HOUR_MS);
  assert.equal(listeners(), 1);
  clock.advanceMs(60_000);
  assert.equal((await waits).allowed, true);
  assert.equal(listeners(), 0);
  const closed = ask(HOUR_MS);
  limiter.close();
  await assert.rejects(closed, { code: "closed" });
  assert.equal(listeners(), 0);
  abort();
});

test("one signal ends many waits, each once", async () => {
  const limiter = new Limiter("memory:", { policies: { api: "1/hour fixed_window" } });
  await limiter.check("k");
  const { signal, abort, listeners } = controlled();
  const waits = Array.from({ length: 5 }, () => limiter.acquire("k", { timeoutMs: Number.POSITIVE_INFINITY, signal }));
  const settled = Promise.allSettled(waits);
  abort("all");
  assert.deepEqual(await settled, Array(5).fill({ status: "rejected", reason: "all" }));
  assert.equal(listeners(), 0);
  limiter.close();
});

test("a value that is no abort signal is refused", async () => {
  const limiter = new Limiter("memory:", { policies: { api: "1/hour" } });
  for (const [signal, shown] of [
    [null, "null"],
    ["gone", "a string"],
    [{}, "an object"],
    [new AbortController(), "an AbortController"],
    [{ aborted: false }, "an object"],
  ]) {
    const refusal = { code: "invalid_argument", message: `signal is ${shown}: allowed is an AbortSignal` };
    await assert.rejects(limiter.acquire("k", { timeoutMs: 1, signal }), refusal);
    await assert.rejects(limiter.reserve("k", { signal }), refusal);
  }
  // What does not wait has no signal.
  await assert.rejects(limiter.check("k", { signal: AbortSignal.abort() }), /option "signal" is not known/);
  limiter.close();
});

test("an aborted wait does not keep the process alive, and no rejection is unhandled", async () => {
  const { code, out, err } = await run("aborts.cjs");
  assert.deepEqual({ code, out, err }, { code: 0, out: "done\n", err: "" });
});

/** For each framework a listener whose handler waits in line until its client has gone, as README.md has it. */
const WAITING = {
  "Express and NestJS": (wait) => express().get("/", (_, res) => void wait(untilClosed(res))),
  Fastify: async (wait) => {
    const app = fastify();
    app.get("/", (_, reply) => wait(untilClosed(reply.raw)));
    await app.ready();
    return (req, res) => app.routing(req, res);
  },
  Koa: (wait) => {
    const app = new Koa();
    app.use((ctx) => wait(untilClosed(ctx.res)));
    return app.callback();
  },
  Hono: (wait) => {
    const app = new Hono();
    app.get("/", async (c) => {
      await wait(c.req.raw.signal);
      return c.text("");
    });
    return getRequestListener(app.fetch);
  },
};

function untilClosed(res) {
  const gone = new AbortController();
  res.once("close", () => gone.abort());
  return gone.signal;
}

for (const [framework, build] of Object.entries(WAITING)) {
  test(`a client that goes away leaves the line: ${framework}`, async () => {
    const limiter = new Limiter("memory:", { policies: { api: "1 concurrent" } });
    const held = await limiter.reserve("k");
    const outcomes = [];
    const wait = async (signal) => {
      const reserved = limiter.reserve("k", { timeoutMs: Number.POSITIVE_INFINITY, signal });
      outcomes.push("waits");
      await reserved.catch(() => outcomes.push("left"));
    };
    await serving(await build(wait), async (port) => {
      const sent = http.get({ host: "127.0.0.1", port });
      sent.on("error", () => {});
      await until(() => outcomes.length === 1, "the handler waits");
      sent.destroy();
      await until(() => outcomes.length === 2, "the handler has left the line");
    });
    assert.deepEqual(outcomes, ["waits", "left"]);
    await held.cancel();
    assert.equal((await limiter.reserve("k")).allowed, true);
    limiter.close();
  });
}
