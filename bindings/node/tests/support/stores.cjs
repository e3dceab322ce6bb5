// The stores on which a test runs: memory, a local file, and a real Redis.
"use strict";

const { test } = require("node:test");

const { localStore } = require("./local.cjs");
const { withRedis } = require("./redis.cjs");

/** A test for each store; `body` gets the store's URL and the options that a limiter needs with it. */
function onEachStore(name, body) {
  test(`${name}: memory`, () => body("memory:", {}));
  test(`${name}: local`, async () => {
    const { url, remove } = localStore();
    try {
      await body(url, {});
    } finally {
      remove();
    }
  });
  test(`${name}: redis`, () => withRedis(({ url }) => body(url, { deadline: "10s", outage: "deny" })));
}

module.exports = { onEachStore };
