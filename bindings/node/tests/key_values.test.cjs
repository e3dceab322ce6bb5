// What a key may be, and what counts as none.
"use strict";

const assert = require("node:assert/strict");
const { test } = require("node:test");

const express = require("express");
const { Limiter } = require("polylimit");
const { rateLimit } = require("polylimit/express");

const { request } = require("./support/request.cjs");
const { serving } = require("./support/serving.cjs");

/** The status and the text of one request under a limit with these options; the text is the error, if there is one. */
async function answered(options, { user, headers, limiter = new Limiter("memory:") } = {}) {
  const app = express();
  app.use((req, _, next) => {
    req.user = user;
    next();
  });
  app.use(rateLimit({ limiter, policy: "5/day", ...options }));
  app.use((_, res) => res.send("in"));
  app.use((error, _req, res, _next) => res.status(500).send(error.message));
  const { status, text } = await serving(app, (port) => request(port, "/", { headers }));
  return { status, text, limiter };
}

/** Whether a request of this user is counted under a key. */
async function countsAs(user, key) {
  const { status, limiter } = await answered({ key: "user" }, { user });
  assert.equal(status, 200);
  return (await limiter.peek(key, "5/day")).remaining === 4;
}

test("a user is text, bytes, a whole number, or an object with a toString of its own", async () => {
  const objectId = { toString: () => "507f1f77bcf86cd799439011" };
  for (const [id, key] of [
    ["ann", "user:ann"],
    [Buffer.from("ann"), "user:ann"],
    [new Uint8Array([0xff, 0]), "user:ff00"],
    [42, "user:42"],
    [42n, "user:42"],
    [objectId, `user:${objectId}`],
  ]) {
    assert.ok(await countsAs({ id }, key), key);
    assert.ok(await countsAs({ sub: id }, key), key);
  }
  for (const user of ["ann", Buffer.from("ann")]) assert.ok(await countsAs(user, "user:ann"));
  assert.ok(await countsAs(42, "user:42"));
});

test("a user that would share one budget with others is refused", async () => {
  const refused = {
    "an object": [{ a: 1 }, Object.create(null)],
    "a Map": [new Map()],
    "a Promise": [Promise.resolve("ann")],
    "an array": [["ann"]],
    true: [true],
    NaN: [Number.NaN],
    1.5: [1.5],
    "a symbol": [Symbol("q")],
    "a function": [() => 1],
  };
  for (const [read, ids] of Object.entries(refused)) {
    for (const id of ids) {
      const { status, text } = await answered({ key: "user" }, { user: { id } });
      const allowed = "text, bytes, whole numbers, and objects with a toString of their own";
      assert.deepEqual([status, text], [500, `the id of the user is ${read}: allowed are ${allowed}`]);
    }
  }
});

test("an empty key is a missing one", async () => {
  const empty = [
    [{ key: () => "" }, {}],
    [{ key: async () => Buffer.alloc(0) }, {}],
    [{ key: "header:x-api-key" }, { headers: { "x-api-key": "" } }],
    [{ key: "cookie:session" }, { headers: { cookie: "session=" } }],
    [{ key: "user" }, { user: "" }],
    [{ key: "user" }, { user: { id: "" } }],
    [{ key: ["address", "header:x-api-key"] }, { headers: { "x-api-key": "" } }],
  ];
  for (const [options, sent] of empty) {
    assert.equal((await answered({ ...options, missingKey: "refuse" }, sent)).status, 400);
    const { status, limiter } = await answered(options, sent);
    assert.equal(status, 200);
    assert.equal((await limiter.peek("127.0.0.1", "5/day")).remaining, 4);
  }
});
