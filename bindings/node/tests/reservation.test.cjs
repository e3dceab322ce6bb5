// Reservations: the handle, the operations by id, and the scope of a handle.
"use strict";

const assert = require("node:assert/strict");
const { execFile } = require("node:child_process");
const { copyFile, mkdtemp, rm } = require("node:fs/promises");
const { join } = require("node:path");
const { test } = require("node:test");
const { promisify } = require("node:util");

const { Limiter, ManualClock } = require("polylimit");

const { invalid } = require("./support/code.cjs");
const { run } = require("./support/program.cjs");
const { onEachStore } = require("./support/stores.cjs");
const { until } = require("./support/until.cjs");

const execute = promisify(execFile);
const root = join(__dirname, "..");
const NOW_US = 1_789_948_800_000_000;
const QUOTAS = "2 concurrent; 100/minute token_bucket";

function limiterAt(url = "memory:", options = {}, quotas = QUOTAS) {
  const clock = new ManualClock(NOW_US);
  return { clock, limiter: new Limiter(url, { policies: { model: quotas }, clock, ...options }) };
}

/** The units that are left, and the free slots. */
async function left(limiter, key = "k") {
  const { quotas } = await limiter.peek(key);
  return [quotas[1].remaining, quotas[0].remaining];
}

onEachStore("a reservation sets units aside, and a commit charges what was spent", async (url, options) => {
  const { clock, limiter } = limiterAt(url, options);
  const first = await limiter.reserve("k", { cost: 80, ttlMs: 10_000 });
  assert.deepEqual([first.allowed, first.decision.allowed, first.decision.remaining], [true, true, 20]);
  assert.match(first.id, /^[0-9a-f]{32}$/);
  assert.equal(first.isLost, false);
  const second = await limiter.reserve("k", { cost: 5 });
  assert.notEqual(second.id, first.id);
  const third = await limiter.reserve("k");
  assert.deepEqual([third.allowed, third.decision.retryAfterMs], [false, 10_000]);
  assert.deepEqual(await third.cancel(), { ...(await third.cancel()), found: false });

  const committed = await first.commit(30);
  assert.deepEqual([committed.found, committed.taken], [true, 0]);
  assert.deepEqual(await left(limiter), [65, 1]);
  for (const again of [await first.commit(30), await first.cancel()]) assert.equal(again.found, false);
  assert.equal((await second.cancel()).found, true);
  assert.deepEqual(await left(limiter), [70, 2]);
  clock.advanceMs(60_000);
  assert.deepEqual(await left(limiter), [100, 2]);
  limiter.close();
});

onEachStore("a job that runs again is charged once", async (url, options) => {
  const { limiter } = limiterAt(url, options);
  const job = { id: "job", cost: 40, rememberMs: 3_600_000 };
  for (const repeated of [false, true]) {
    const usage = await (await limiter.reserve("k", job)).commit(30);
    assert.deepEqual([usage.found, usage.repeated, await left(limiter)], [true, repeated, [70, 2]]);
  }
  const again = await limiter.commit("k", "job", { spent: 30 });
  assert.deepEqual([again.found, again.repeated], [false, true]);
  assert.equal((await limiter.commit("k", "other")).repeated, false);
  await assert.rejects(limiter.reserve("k", { rememberMs: 49 * 3_600_000 }), invalid(/^rememberMs is 176400000/));
  limiter.close();
});

onEachStore("a request is reserved together or not at all", async (url, options) => {
  const policies = { model: QUOTAS, rate: "2/day fixed_window" };
  const limiter = new Limiter(url, { policies, clock: new ManualClock(NOW_US), ...options });
  const left = async () => (await limiter.peek("k", "model")).quotas.map(({ remaining }) => remaining);
  const both = [
    { key: "k", policy: "model", cost: 40 },
    { key: "k", policy: "rate" },
  ];
  const first = await limiter.reserveTogether(both);
  assert.equal(first.allowed, true);
  assert.deepEqual(
    first.decisions.map(({ remaining }) => remaining),
    [60, 1],
  );
  const bytes = new Uint8Array([1, 0, 255]);
  const second = await limiter.reserveTogether(both, { id: bytes, ttlMs: 40_000 });
  bytes[0] = 9;
  assert.deepEqual(second.id, new Uint8Array([1, 0, 255]));
  const denied = await limiter.reserveTogether(both);
  assert.deepEqual([denied.allowed, denied.decisions.map(({ allowed }) => allowed)], [false, [false, false]]);
  assert.deepEqual([(await limiter.peek("k", "rate")).remaining, await left()], [0, [0, 20]]);
  assert.equal((await limiter.cancel("k", first.id, "model")).found, true);
  assert.equal((await limiter.cancel("k", first.id, "rate")).found, false);
  assert.equal((await limiter.commit("k", second.id, { spent: 10, policy: "model" })).remaining, 90);
  // No slot is taken where another policy denies.
  assert.equal((await limiter.reserveTogether(both)).allowed, false);
  assert.deepEqual(await left(), [2, 90]);
  const wrong = { ttlMs: /^ttlMs is 0/, rememberMs: /^rememberMs is 0/, id: /^the id of a reservation has 0 bytes/ };
  for (const [name, message] of Object.entries(wrong)) {
    await assert.rejects(limiter.reserveTogether(both, { [name]: name === "id" ? "" : 0.5 }), invalid(message));
  }
  await assert.rejects(limiter.reserveTogether([...both, { key: "k", policy: "unknown" }]), invalid(/unknown/));
  await assert.rejects(limiter.reserveTogether("k"), invalid(/^checks is a string/));
  assert.deepEqual((await limiter.reserveTogether([])).decisions, []);
  limiter.close();
});

onEachStore("commits of a request are remembered", async (url, options) => {
  const { limiter } = limiterAt(url, options);
  for (const repeated of [false, true]) {
    const reserved = [{ key: "k", policy: "model", cost: 40 }];
    const { id } = await limiter.reserveTogether(reserved, { id: "job", rememberMs: 3_600_000 });
    const usage = await limiter.commit("k", id, { spent: 30, policy: "model" });
    assert.deepEqual([usage.found, usage.repeated, usage.remaining], [true, repeated, 70]);
  }
  limiter.close();
});

onEachStore("a commit charges what was reserved, nothing, or more than that", async (url, options) => {
  const { limiter } = limiterAt(url, options);
  const reserve = () => limiter.reserve("k", { cost: 10 });
  await (await reserve()).commit();
  assert.deepEqual(await left(limiter), [90, 2]);
  await (await reserve()).commit(0);
  assert.deepEqual(await left(limiter), [90, 2]);
  await (await reserve()).commit(25);
  assert.deepEqual(await left(limiter), [65, 2]);
  limiter.close();
});

onEachStore("another limiter ends and renews a reservation by its id", async (url, options) => {
  const { clock, limiter } = limiterAt(url, options);
  // A store in memory belongs to one limiter.
  const other = url === "memory:" ? limiter : new Limiter(url, { policies: { model: QUOTAS }, clock, ...options });
  const kept = { ttlMs: 10_000, maxAgeMs: 0 };
  const [text, bytes] = ["job:é", new Uint8Array([0, 255, 128])];
  const made = await limiter.reserve("k", { ...kept, id: text, cost: 10 });
  assert.equal(made.id, text);
  const ofBytes = await limiter.reserve("k", { ...kept, id: bytes, cost: 20 });
  assert.deepEqual(ofBytes.id, new Uint8Array([0, 255, 128]));
  bytes.fill(7);
  assert.deepEqual(ofBytes.id, new Uint8Array([0, 255, 128]));
  // The same id is the same reservation.
  assert.equal((await other.reserve("k", { ...kept, id: text, cost: 99 })).allowed, true);
  assert.deepEqual(await left(limiter), [70, 0]);

  clock.advanceMs(9000);
  assert.equal((await other.renew("k", Buffer.from(text), 5000)).found, true);
  assert.equal((await other.commit("k", ofBytes.id, { spent: 3, policy: "model" })).found, true);
  clock.advanceMs(4999.999);
  assert.equal((await other.peek("k")).quotas[0].remaining, 1);
  clock.advanceMs(0.001);
  assert.deepEqual(await left(limiter), [100, 2]);
  for (const gone of [
    await other.renew("k", text, 5000, "model"),
    await other.cancel("k", text, { policy: "model" }),
    await other.commit("k", text, "model"),
  ]) {
    assert.deepEqual([gone.found, gone.remaining], [false, 100]);
  }
  limiter.close();
  other.close();
});

onEachStore("a function has the reservation until it ends", async (url, options) => {
  const { limiter } = limiterAt(url, options);
  const alive = async () => 2 - (await limiter.peek("k")).quotas[0].remaining;
  const result = await limiter.reserve("k", { cost: 10 }, async (reservation) => {
    assert.equal(reservation.allowed, true);
    assert.equal(await alive(), 1);
    await reservation.commit(4);
    return "done";
  });
  assert.deepEqual([result, await left(limiter)], ["done", [96, 2]]);
  // Without a commit it cancels, or commits what was reserved.
  assert.equal(await limiter.reserve("k", undefined, () => 5), 5);
  assert.deepEqual(await left(limiter), [96, 2]);
  await limiter.reserve("k", { cost: 6, commitAtEnd: true }, async () => assert.equal(await alive(), 1));
  assert.deepEqual(await left(limiter), [90, 2]);
  // An error cancels in any case.
  const own = new RangeError("own");
  for (const commitAtEnd of [false, true]) {
    const fails = () => {
      throw own;
    };
    await assert.rejects(limiter.reserve("k", { cost: 6, commitAtEnd }, fails), own);
    await assert.rejects(
      limiter.reserve("k", { cost: 6, commitAtEnd }, async () => fails()),
      own,
    );
  }
  assert.deepEqual(await left(limiter), [90, 2]);
  // What was committed before the error stays committed.
  const commits = async (reservation) => {
    await reservation.commit(20);
    throw own;
  };
  await assert.rejects(limiter.reserve("k", { cost: 6, commitAtEnd: true }, commits), own);
  assert.deepEqual(await left(limiter), [70, 2]);
  // A denied request is the function's business.
  assert.equal(await limiter.reserve("k", { cost: 1000 }, ({ allowed }) => allowed), false);
  limiter.close();
});

onEachStore("Symbol.asyncDispose ends a reservation that is neither committed nor cancelled", async (url, options) => {
  const { limiter } = limiterAt(url, options);
  const cancelled = await limiter.reserve("k", { cost: 10 });
  await cancelled[Symbol.asyncDispose]();
  await cancelled[Symbol.asyncDispose]();
  assert.deepEqual(await left(limiter), [100, 2]);
  const committed = await limiter.reserve("k", { cost: 10, commitAtEnd: true });
  await committed[Symbol.asyncDispose]();
  await committed[Symbol.asyncDispose]();
  assert.deepEqual(await left(limiter), [90, 2]);
  const ended = await limiter.reserve("k", { cost: 10, commitAtEnd: true });
  await ended.cancel();
  await ended[Symbol.asyncDispose]();
  assert.deepEqual(await left(limiter), [90, 2]);
  const denied = await limiter.reserve("k", { cost: 1000, commitAtEnd: true });
  await denied[Symbol.asyncDispose]();
  assert.deepEqual(await left(limiter), [90, 2]);
  limiter.close();
});

onEachStore("a handle is renewed while it lives, and learns that its reservation is gone", async (url, options) => {
  const { clock, limiter } = limiterAt(url, options, "1 concurrent");
  const reservation = await limiter.reserve("k", { ttlMs: 3000 });
  for (let third = 0; third < 6; third++) {
    clock.advanceMs(1000);
    await until(async () => (await limiter.peek("k")).resetAfterMs === 3000, "the reservation is renewed");
  }
  assert.deepEqual([reservation.isLost, (await limiter.peek("k")).allowed], [false, false]);
  await limiter.cancel("k", reservation.id);
  clock.advanceMs(1000);
  await until(() => reservation.isLost, "the handle learns that its reservation is gone");
  assert.equal((await reservation.commit(5)).found, false);
  limiter.close();
});

onEachStore("a reserve waits in line until it is admitted", async (url, options) => {
  const { clock, limiter } = limiterAt(url, options, "1 concurrent");
  const first = await limiter.reserve("k", { ttlMs: 60_000 });
  const tooShort = limiter.reserve("k", { timeoutMs: 10 });
  await until(() => {
    clock.advanceMs(1);
    return Promise.race([tooShort, new Promise((resolve) => setTimeout(resolve, 1))]);
  }, "the timeout passes");
  assert.equal((await tooShort).allowed, false);
  let isSettled = false;
  const waits = limiter.reserve("k", { timeoutMs: 3_600_000 }).finally(() => {
    isSettled = true;
  });
  await new Promise(setImmediate);
  assert.equal(isSettled, false);
  await first.cancel();
  const second = await waits;
  assert.deepEqual([second.allowed, second.isLost], [true, false]);
  assert.equal((await second.cancel()).found, true);
  limiter.close();
});

onEachStore("ids, durations and policies that cannot be reserved are refused", async (url, options) => {
  const { limiter } = limiterAt(url, options);
  limiter.setPolicy("bucket", "10/s leaky_bucket");
  const about = (message) => ({ name: "PolylimitError", code: "invalid_argument", message });
  const detached = new Uint8Array([1]);
  structuredClone(detached.buffer, { transfer: [detached.buffer] });
  const ids = [
    ["", /id of a reservation has 0 bytes: allowed are 1 to 64/],
    ["x".repeat(65), /has 65 bytes/],
    ["é".repeat(33), /has 66 bytes/],
    [new Uint8Array(65), /has 65 bytes/],
    [5, "id is 5: allowed is text or a Uint8Array, of 1 to 64 bytes"],
    [null, /^id is null/],
    ["\ud800", /^id is text with an unpaired surrogate/],
    [detached, /^id is a Uint8Array whose buffer is detached/],
  ];
  const choice = { policy: "model" };
  for (const [id, message] of ids) {
    await assert.rejects(limiter.reserve("k", { ...choice, id }), about(message));
    await assert.rejects(limiter.commit("k", id, choice), about(message));
    await assert.rejects(limiter.cancel("k", id, choice), about(message));
    await assert.rejects(limiter.renew("k", id, 1000, choice), about(message));
  }
  for (const ttlMs of [0, 0.999, 48 * 3_600_000 + 1]) {
    await assert.rejects(limiter.reserve("k", { ...choice, ttlMs }), about(/ttl.* 1 ms to 48 h/));
    await assert.rejects(limiter.renew("k", "id", ttlMs, choice), about(/ttl.* 1 ms to 48 h/));
  }
  for (const wrong of [-1, Number.NaN, Infinity, "1", 1n, null]) {
    // Infinity waits, and renews, without an end.
    for (const name of wrong === Infinity ? ["ttlMs"] : ["ttlMs", "timeoutMs", "maxAgeMs"]) {
      await assert.rejects(limiter.reserve("k", { ...choice, [name]: wrong }), about(new RegExp(`^${name} is `)));
    }
    await assert.rejects(limiter.renew("k", "id", wrong, choice), about(/^ttlMs is /));
    await assert.rejects(limiter.commit("k", "id", { ...choice, spent: wrong }), about(/^spent is /));
    await assert.rejects(limiter.reserve("k", { ...choice, cost: wrong }), about(/^cost is /));
  }
  await assert.rejects(limiter.commit("k", "id", { ...choice, spent: 1e12 + 1 }), about(/1000000000001/));
  await assert.rejects(
    limiter.reserve("k", { ...choice, commitAtEnd: 1 }),
    about("commitAtEnd is 1: allowed is true or false"),
  );
  await assert.rejects(limiter.reserve("k", choice, 5), about("use is 5: allowed is a function"));
  await assert.rejects(limiter.reserve("k", { ttl: 5 }), about(/^option "ttl" is not known: use ttlMs$/));
  await assert.rejects(limiter.cancel("k", "id", { spent: 5 }), about(/^option "spent" is not known/));
  await assert.rejects(limiter.reserve("k", { policy: 5 }), about(/^policy is 5/));
  await assert.rejects(limiter.reserve("k", "bucket"), about(/leaky_bucket/));
  for (const operation of ["check", "take"]) await assert.rejects(limiter[operation]("k", choice), about(/concurren/));
  await assert.rejects(limiter.acquire("k", { ...choice, timeoutMs: 5 }), about(/concurren/));
  assert.deepEqual((await limiter.peek("k", "model")).remaining, 100);
  limiter.close();
});

test("a leased policy cannot be reserved", async () => {
  const policies = { api: { quotas: "100/minute", lease: "auto" } };
  const limiter = new Limiter("redis://127.0.0.1:1", { policies });
  await assert.rejects(limiter.reserve("k"), { code: "invalid_argument", message: /lease/ });
  limiter.close();
});

onEachStore(
  "after close a handle cannot end its reservation, and its scope ends without an error",
  async (url, options) => {
    const { limiter } = limiterAt(url, options);
    const [cancels, commits] = [await limiter.reserve("k"), await limiter.reserve("k", { commitAtEnd: true })];
    limiter.close();
    const closed = { name: "PolylimitError", code: "closed" };
    await assert.rejects(limiter.reserve("k"), closed);
    await assert.rejects(limiter.commit("k", cancels.id), closed);
    await assert.rejects(limiter.cancel("k", cancels.id), closed);
    await assert.rejects(limiter.renew("k", cancels.id, 1000), closed);
    assert.equal(cancels.isLost, false);
    await cancels[Symbol.asyncDispose]();
    // Units that were to be charged are not lost without an error.
    await assert.rejects(commits[Symbol.asyncDispose](), closed);
    await assert.rejects(cancels.commit(1), closed);
    await assert.rejects(cancels.cancel(), closed);
  },
);

test("methods of reservations without their object fail with invalid_argument", async () => {
  const { limiter } = limiterAt();
  const { reserve, renew, cancel, commit } = limiter;
  const reservation = await limiter.reserve("k");
  const missing = (name) => invalid(new RegExp(`^a method of ${name} was called without its object`));
  await assert.rejects(reserve("k"), missing("Limiter"));
  for (const detached of [renew, cancel, commit]) await assert.rejects(detached("k", "id", 5), missing("Limiter"));
  const methods = [reservation.commit, reservation.cancel, reservation[Symbol.asyncDispose]];
  for (const detached of methods) await assert.rejects(detached(), missing("Reservation"));
  assert.throws(() => Object.create(Object.getPrototypeOf(reservation)).isLost, missing("Reservation"));
  assert.throws(() => {
    reservation.allowed = false;
  }, TypeError);
});

test("a reservation that the outage policy made ends in this process", async () => {
  const policies = { model: { quotas: QUOTAS, outage: "fallback" }, strict: { quotas: QUOTAS, outage: "deny" } };
  const limiter = new Limiter("redis://127.0.0.1:1", { policies });
  const reservation = await limiter.reserve("k", { policy: "model", cost: 10 });
  assert.deepEqual([reservation.allowed, reservation.decision.source], [true, "fallback"]);
  assert.equal((await limiter.peek("k", "model")).quotas[0].remaining, 1);
  assert.equal((await reservation.commit(4)).found, true);
  assert.equal((await limiter.peek("k", "model")).quotas[0].remaining, 2);
  const denied = await limiter.reserve("k", "strict");
  assert.deepEqual([denied.allowed, denied.decision.source], [false, "deny"]);
  await denied[Symbol.asyncDispose]();
  limiter.close();
});

test("await using of TypeScript ends a reservation with its scope", async () => {
  const folder = await mkdtemp(join(root, "build", "using-"));
  try {
    await copyFile(join(__dirname, "programs", "await_using.ts"), join(folder, "await_using.cts"));
    const compiler = join(root, "node_modules", "typescript", "bin", "tsc");
    const options = ["--strict", "--target", "es2022", "--module", "node16", "--types", "node", "--skipLibCheck"];
    const lib = ["--ignoreConfig", "--lib", "es2022,esnext.disposable", "--rootDir", folder, "--outDir", folder];
    await execute(process.execPath, [compiler, ...options, ...lib, join(folder, "await_using.cts")]);
    const { stdout } = await execute(process.execPath, [join(folder, "await_using.cjs")]);
    assert.deepEqual(stdout.trim().split("\n"), ["held 1", "committed 96", "cancelled 96", "failed 96", "charged 86"]);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test("a handle that is garbage collected ends its reservation", async () => {
  const { code, out, err } = await run("lost_reservations.cjs");
  assert.deepEqual([code, out, err], [0, "lost: 90 units, 2 slots\n", ""]);
});
