// Loses handles of reservations, and waits until the garbage collector has ended them.
"use strict";

const { Limiter } = require("polylimit");

const { until } = require("../support/until.cjs");

const limiter = new Limiter("memory:", { policies: { model: "2 concurrent; 100/day fixed_window" } });

async function lose(options) {
  const { allowed } = await limiter.reserve("k", options);
  if (!allowed) throw new Error("the reservation was denied");
}

async function main() {
  await lose({ cost: 5, ttlMs: 3_600_000 });
  await lose({ cost: 10, ttlMs: 3_600_000, commitAtEnd: true });
  await until(async () => {
    global.gc();
    return (await limiter.peek("k")).quotas[0].remaining === 2;
  }, "the reservations of lost handles end");
  const { quotas } = await limiter.peek("k");
  console.log(`lost: ${quotas[1].remaining} units, ${quotas[0].remaining} slots`);
}

main();
