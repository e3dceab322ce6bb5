"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const { Limiter } = require("polylimit");

const { withBlackHole } = require("./support/blackhole.cjs");
const { localStore } = require("./support/local.cjs");
const { run } = require("./support/program.cjs");
const { record } = require("./support/record.cjs");
const { withRedis } = require("./support/redis.cjs");

test("a process ends without close when no promise is pending", async () => {
  await withRedis(async ({ url }) => {
    for (const [way, out] of [
      ["open", "decided\n"],
      ["awaited", "decided 100\n"],
    ]) {
      assert.deepEqual(await run("ends.cjs", way, url), { code: 0, signal: null, out, err: "" }, way);
    }
  });
  record(__filename, "F65", "Node, no promise pending", { measured: "status 0 without close" });
});

test("a process can exit while decisions are pending", async () => {
  await withBlackHole(async (url) => {
    for (const way of ["exit", "exit-later", "exit-waiting"]) {
      for (let round = 0; round < 5; round++) {
        assert.deepEqual(await run("ends.cjs", way, url), { code: 0, signal: null, out: "", err: "" }, way);
      }
    }
  });
  await withRedis(async ({ url }) => {
    for (let round = 0; round < 5; round++) {
      const ended = await run("ends.cjs", "exit-in-answer", url);
      assert.deepEqual(ended, { code: 0, signal: null, out: "", err: "" });
    }
  });
  record(__filename, "F65", "Node, decisions pending", { measured: "20 exits, status 0" });
});

test("close settles pending operations", async () => {
  await withBlackHole(async (url) => {
    const ended = await run("ends.cjs", "close", url);
    assert.deepEqual(ended, { code: 0, signal: null, out: "Set(1) { 'closed' }\n", err: "" });
  });
});

test("workers can be terminated while operations are pending", async () => {
  await withBlackHole(async (url) => {
    const ended = await run("workers.cjs", url, "10");
    assert.deepEqual(ended, { code: 0, signal: null, out: "allowed true\n", err: "" });
  });
  await withRedis(async ({ url }) => {
    const ended = await run("workers.cjs", url, "10");
    assert.deepEqual(ended, { code: 0, signal: null, out: "allowed true\n", err: "" });
  });
  record(__filename, "F64", "Node, worker_threads", { measured: "20 workers terminated with operations pending" });
});

/** How many limiters a test makes: more where `make faults` runs it. */
const COUNT = process.env.POLYLIMIT_FAULTS === undefined ? 2_000 : 10_000;

for (const name of ["memory", "redis"]) {
  test(`limiters on ${name}, closed or dropped, leave no threads, descriptors or memory`, async () => {
    let printed;
    await withRedis(async ({ url }) => {
      const { code, out, err } = await run("many.cjs", name === "memory" ? "memory:" : url, String(COUNT));
      assert.equal(code, 0, err);
      const { before, after } = JSON.parse(out);
      assert.ok(after.threads <= before.threads, out);
      assert.ok(after.files <= before.files, out);
      // The allowance covers memory that the engine has not released yet, and does not depend on the number of limiters.
      assert.ok(after.resident <= before.resident + 32_768, out);
      printed = out.trim();
    });
    record(__filename, "F69", `Node, ${name}`, { decisions: COUNT, measured: `${COUNT} limiters: ${printed}` });
  });
}

/** Runs `body` with the URL of each store and a number of limiters. */
async function onEachStore(body) {
  await body("memory:", COUNT);
  const { url, remove } = localStore();
  try {
    await body(url, COUNT);
  } finally {
    remove();
  }
  await withRedis(({ url }) => body(url, COUNT / 2));
}

test("close releases all resources without the garbage collector", async () => {
  await onEachStore(async (url, count) => {
    const { code, out, err } = await run("closes.cjs", url, String(count), "keep");
    assert.equal(code, 0, err);
    const { before, after } = JSON.parse(out);
    assert.ok(after.threads <= before.threads, `${url}: ${out}`);
    assert.ok(after.files <= before.files, `${url}: ${out}`);
    // The allowance covers the JavaScript objects, which are still referenced, the counts and policies that can be read after a
    // limiter is closed, and garbage that is not collected yet.
    assert.ok(after.resident <= before.resident + 40_960 + 24 * count, `${url}: ${out}`);
  });
});

test("after close every operation fails with closed, on every store", async () => {
  const closed = { name: "PolylimitError", code: "closed" };
  await onEachStore(async (url) => {
    const limiter = new Limiter(url, { policies: { api: "9/minute" } });
    await limiter.ready(30_000);
    await limiter.check("k");
    await limiter.check("k", "5/minute");
    const before = limiter.stats();
    limiter.close();
    for (const operation of ["check", "peek", "take", "charge", "refund", "reset"]) {
      await assert.rejects(limiter[operation]("k"), closed, `${url} ${operation}`);
      await assert.rejects(limiter[operation]("k", "5/minute"), closed, `${url} ${operation}`);
      await assert.rejects(limiter[operation]("k", "7/minute"), closed, `${url} ${operation}`);
    }
    await assert.rejects(limiter.acquire("k", { timeoutMs: 1000 }), closed);
    await assert.rejects(limiter.checkTogether(["k"]), closed);
    await assert.rejects(limiter.peekTogether(["k"]), closed);
    await assert.rejects(limiter.reserveTogether(["k"]), closed);
    const results = await limiter.checkMany(["k", { key: "k", policy: "5/minute" }, { key: "k", policy: "unknown" }]);
    assert.deepEqual(
      results.map(({ code }) => code),
      ["closed", "closed", "closed"],
    );
    await assert.rejects(limiter.ready(1000), closed);
    await assert.rejects(limiter.admin().doctor(), closed);
    // Redis never answers at once.
    assert.throws(() => limiter.checkSync("k"), closed);
    assert.throws(() => limiter.policyFor("11/minute"), closed);
    assert.throws(() => limiter.setPolicy("api", "1/s"), closed);
    assert.throws(() => limiter.admin().setCredentials(undefined, "x"), closed);
    // What describes it in this process can still be read.
    assert.deepEqual(limiter.stats(), before);
    assert.deepEqual(limiter.policies.map(({ name }) => name)[0], "api");
    assert.equal(String(limiter.policyFor("api").quotas), "9/minute");
    assert.ok(limiter.metrics().length > 0 && limiter.metricsText().includes("polylimit_decisions_total"));
    assert.deepEqual(limiter.admin().topKeys(5).denied, []);
    assert.equal(limiter.admin().keys, undefined);
    limiter.close();
  });
  const configured = new Limiter("memory:", { document: "polylimit = 1" });
  const status = configured.admin().configuration();
  configured.close();
  assert.deepEqual(configured.admin().configuration(), status);
  assert.throws(() => configured.admin().setDocument("polylimit = 1"), closed);
  assert.throws(() => configured.admin().matching({ path: "/" }), closed);
  await assert.rejects(configured.decide({ path: "/" }), closed);
});

test("a worker that is terminated with pending operations leaves no thread and no descriptor", async () => {
  await withBlackHole(async (url) => {
    const { code, out, err } = await run("workers.cjs", url, "3", "held");
    assert.equal(code, 0, err);
    const { before, after } = JSON.parse(out.split("\n")[1]);
    assert.ok(after.threads <= before.threads && after.files <= before.files, out);
  });
});
