// A limiter with units and slots of one key, and what is left of them.
"use strict";

const { Limiter } = require("polylimit");

const { until } = require("./until.cjs");

const QUOTAS = "2 concurrent; 100/day fixed_window";

function limiterOf(url = "memory:", options = {}) {
  return new Limiter(url, { policies: { model: QUOTAS }, ...options });
}

/** The units and the slots that are left. */
async function left(limiter) {
  const { quotas } = await limiter.peek("k", "model");
  return `${quotas[1].remaining} units, ${quotas[0].remaining} slots`;
}

const becomes = (limiter, expected) =>
  until(async () => (await left(limiter)) === expected, `what is left is ${expected}`);

module.exports = { becomes, left, limiterOf };
