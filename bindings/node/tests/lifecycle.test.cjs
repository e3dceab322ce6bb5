"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const { withBlackHole } = require("./support/blackhole.cjs");
const { run } = require("./support/program.cjs");
const { withRedis } = require("./support/redis.cjs");

test("a process ends by itself once nobody waits, without a close", async () => {
  await withRedis(async ({ url }) => {
    for (const [way, out] of [
      ["open", "decided\n"],
      ["awaited", "decided 100\n"],
    ]) {
      assert.deepEqual(await run("ends.cjs", way, url), { code: 0, signal: null, out, err: "" }, way);
    }
  });
});

test("a process exits at any time while decisions are pending", async () => {
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
});

test("closing a limiter settles what is pending", async () => {
  await withBlackHole(async (url) => {
    const ended = await run("ends.cjs", "close", url);
    assert.deepEqual(ended, { code: 0, signal: null, out: "Set(1) { 'closed' }\n", err: "" });
  });
});

test("workers are terminated with work pending", async () => {
  await withBlackHole(async (url) => {
    const ended = await run("workers.cjs", url, "10");
    assert.deepEqual(ended, { code: 0, signal: null, out: "allowed true\n", err: "" });
  });
  await withRedis(async ({ url }) => {
    const ended = await run("workers.cjs", url, "10");
    assert.deepEqual(ended, { code: 0, signal: null, out: "allowed true\n", err: "" });
  });
});

for (const [name, count] of [
  ["memory", 10_000],
  ["redis", 10_000],
]) {
  test(`${count} limiters on ${name}, made and closed or dropped, leave nothing`, async () => {
    await withRedis(async ({ url }) => {
      const { code, out, err } = await run("many.cjs", name === "memory" ? "memory:" : url, String(count));
      assert.equal(code, 0, err);
      const { before, after } = JSON.parse(out);
      assert.ok(after.threads <= before.threads, out);
      assert.ok(after.files <= before.files, out);
      // Memory of the engine that it has not yet given back, and nothing that grows with the number.
      assert.ok(after.resident <= before.resident + 32_768, out);
    });
  });
}
